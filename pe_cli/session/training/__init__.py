"""The training loop, what it records and writes, and how a run is resumed."""
