"""Observers in processes of their own: other programs' records of a run, which cannot end or slow it."""
