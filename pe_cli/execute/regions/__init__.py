"""Regions in a step: loops and branches as nested calls, or unrolled."""
