"""Ops that stand for several; passes put them there."""
