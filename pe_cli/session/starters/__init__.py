"""Starters: the config and the model that `pe init --from` writes for data that it has looked at, one file per kind of data."""
