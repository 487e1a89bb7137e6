"""Layers of object detection."""
