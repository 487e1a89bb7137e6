"""Ops by which trainers and parameter servers communicate; a step is cut around them."""
