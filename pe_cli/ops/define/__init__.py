"""What ops are written with: the catalogue, lowering to kernel calls, sequences, parts for threads, shapes of several ops."""
