"""Formats of tables: one file per format, and what they share."""
