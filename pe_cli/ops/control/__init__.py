"""Ops that run something else: Python functions."""
