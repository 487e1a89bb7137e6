"""Devices: where buffers live, and what runs the compiled instructions of a plan on them."""
