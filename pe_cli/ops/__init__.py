"""The operators: one file per family holds everything that the project knows about each of its ops."""
