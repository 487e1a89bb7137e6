"""Evaluation and prediction: metrics, classifier reports, cross-validation, and what outputs mean."""
