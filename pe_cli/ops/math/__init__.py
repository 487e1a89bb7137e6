"""Ops on numbers: activations, arithmetic, comparisons, products, reductions."""
