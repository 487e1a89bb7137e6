"""Families of models, a YAML file each; see `family.py`."""
