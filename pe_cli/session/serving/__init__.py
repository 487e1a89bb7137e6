"""Serving: predictions of a trained model over HTTP."""
