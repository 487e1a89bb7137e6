"""Ops that stand for several; passes put them in the place of those."""
