"""Boxes and regions of images."""
