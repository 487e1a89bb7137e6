"""The operators, in a folder per family; a file holds everything that the project knows about its ops."""
