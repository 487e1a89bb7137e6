"""Metrics over all rows of an evaluation: kinds, what a run file declares of them, and the gathering of their values."""
