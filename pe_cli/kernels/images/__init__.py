"""Kernels that crop, resize and recolour images of bytes."""
