"""pe: train neural networks that are declared in YAML, on a parallel executor that can be inspected."""

__version__ = "1.0.0rc1"
