"""Ops that processes with parameter servers tell each other things by: a step is cut around them."""
