"""Layers of shapes, constants, indices and data."""
