"""Planned memory: where each buffer of a step lies, and what shares bytes."""
