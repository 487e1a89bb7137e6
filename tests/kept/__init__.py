"""Runs of released versions, which every later version reads and goes on with."""
