"""An HTTP/1.1 server for untrusted clients: strict parsing, bounded memory and time."""
