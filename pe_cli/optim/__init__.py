"""Optimizers, learning-rate schedules, regularizers and clipping: all append ops, none computes."""
