"""Losses, metrics and tagging."""
