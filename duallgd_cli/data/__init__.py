"""The only border between domain objects and tensors."""
