"""Column types, one file each."""
