"""Passes over the graph of all devices, the last before it is lowered: each takes a graph and returns another.

`share_updates` and `absorb_sums` leave out work that devices which share memory would do twice; `copy_aliases` and `check_finite` add
what the program does not say. `execute/plan/work_stealing.py` is one, too, but needs to know a batch.
"""
