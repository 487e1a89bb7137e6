"""The seed for a program that declares none: unpredictable, from the operating system."""

from __future__ import annotations

import os

import numpy as np

from pe_cli.program.ir import Program

#: Returns a number of unpredictable bytes; tests replace it.
unforeseen = os.urandom


def seed_of(program: Program) -> int:
    """Return a program's seed, or where it names none a new one of 56 bits."""
    return program.random_seed or int.from_bytes(unforeseen(7), "little")


def generator() -> np.random.Generator:
    """Return random numbers for what has no seed of its own; `pe run --seed` lets them begin alike."""
    return np.random.default_rng(int.from_bytes(unforeseen(7), "little"))
