"""One file per kind of data, named like the reader in it."""
