"""Sweeps: trials with other values of a config, in several processes."""
