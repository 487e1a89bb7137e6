"""Ops that run other code: regions, in loops and branches, and Python functions."""
