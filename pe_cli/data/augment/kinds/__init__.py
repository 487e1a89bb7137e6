"""Kinds of augmentation, one file each."""
