"""Chemistry without tensors."""
