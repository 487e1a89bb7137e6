"""An HTTP/1.1 server for strangers: strict in what it reads, bounded in what it holds."""
