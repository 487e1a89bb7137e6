"""Collectives: what crosses devices. Sums run in device order, so that no thread's arrival changes a bit."""
