"""Specs -> programs: every layer of a model through the catalogue, then the optimizer."""
