"""Trainers and parameter servers at work: steps of the ones, answers of the others."""
