"""Ops over sequences of different lengths."""
