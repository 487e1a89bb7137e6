"""Layers of arithmetic, comparison and functions of numbers."""
