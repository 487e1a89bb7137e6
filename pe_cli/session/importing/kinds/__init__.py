"""Kinds of models of other programs: a module for each, with `KIND`."""
