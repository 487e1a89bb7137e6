"""Ops that make tensors and move their elements."""
