"""Models of other programs become model files with values."""
