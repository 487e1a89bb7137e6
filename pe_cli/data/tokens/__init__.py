"""Tokenizers: from texts to ids of tokens, and back. One file per kind; `base.py` says what they have in common."""
