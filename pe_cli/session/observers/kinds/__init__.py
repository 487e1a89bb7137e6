"""One file per program that a run may be told to."""
