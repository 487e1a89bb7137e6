"""Measurements of a job: time of its steps, of its reader, and its plan's memory."""
