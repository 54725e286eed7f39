"""What the user's own files know of the molecules: analogues, libraries, a table by feature."""
