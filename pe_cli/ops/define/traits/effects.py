"""Traits about what an op does besides its outputs: random numbers and error reports."""

from __future__ import annotations

from pe_cli.ops.define.traits.trait import Named, Trait, need


class Random(Trait):
    """The op draws random numbers: its kernels see seed, step and sample offset."""

    def says(self) -> tuple[str, str]:
        return "random", "the same numbers for a seed, a step and a sample, on any number of devices"


class Replayed(Trait):
    """A random op whose result another op gives once more, without a random number.

    Args:
        by: that op; it takes the same inputs and attributes, and gives the outputs that are not in `kept`.
        kept: outputs of the random op that it takes, too, under the same names.
    """

    by: str
    kept: tuple[str, ...]

    def verify(self, op: Named) -> None:
        need(op, self.kept, outputs=True)


class ReportsData(Trait):
    """Its kernels report errors in data, such as a label out of range, so that it counts even where its result does not.

    Args:
        hint: what to do about a number that is out of range.
    """

    hint: str = "the data has more classes (or ids) than the model, or starts counting at 1"
