"""Proof of recorded runs: rerun them, replay one step, and compare two trainings."""
