"""Kinds of metrics, one file per family."""
