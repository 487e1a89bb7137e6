"""Files elsewhere: of web servers and object stores, kept in a bounded cache on the disk."""
