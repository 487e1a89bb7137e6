"""Traits about work and sums that threads, devices and gradients share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pe_cli.ops.define.traits.trait import Named, Trait, need


class UpdatesMany(Trait):
    """Does for lists of parameters what an update op does for one; with an attribute `decay` it does their weight decay, too.

    Args:
        update: the op for one parameter; every slot of it but the learning rate's is a list here.
    """

    update: str

    def verify(self, op: Named) -> None:
        need(op, ["Param", "Grad", "LearningRate"])
        need(op, ["ParamOut"], outputs=True)

    def says(self) -> tuple[str, str]:
        return "updates many", f"takes the place of several `{self.update}` with the same learning rate and settings"


class Descends(Trait):
    """An update by the rate times the gradient and nothing else: what gradients of `AddsUp.descends` can do themselves, with its bits."""

    def verify(self, op: Named) -> None:
        need(op, ["Param", "Grad", "LearningRate"])
        need(op, ["ParamOut"], outputs=True)


class Decays(Trait):
    """The op adds a weight decay to a gradient: its attribute coeff times the parameter; see `UpdatesMany`."""

    def verify(self, op: Named) -> None:
        need(op, ["Grad", "Param"])
        need(op, ["Out"], outputs=True)
        assert "coeff" in op.attrs, op.name


class SumsOverDevices(Trait):
    """Over several devices, two ops do what the op does on one: one its sums on each, the other the rest from the sums of all.

    Args:
        sums: gives `Sums`, float64.
        rest: reads `Sums` of all devices, and what the op reads.
        unless: attribute with which there is nothing to sum.
    """

    sums: str
    rest: str
    unless: str

    def verify(self, op: Named) -> None:
        assert self.unless in op.attrs, f"{op.name} has no attribute {self.unless}"


class BatchStatistics(Trait):
    """The op takes statistics of a device's own samples.

    Args:
        unless: attributes that make it take others.
    """

    unless: tuple[str, ...]

    def verify(self, op: Named) -> None:
        assert all(name in op.attrs for name in self.unless), f"{op.name} lacks one of {', '.join(self.unless)}"

    def applies(self, attrs: Mapping[str, Any]) -> bool:
        """Whether it does so with these attributes."""
        return not any(attrs[name] for name in self.unless)


class Spreads(Trait):
    """An update that `Lowering.update_threads` do together natively, and that adds up the gradients of several devices itself."""

    def verify(self, op: Named) -> None:
        need(op, ["Grad"])


class Divisible(Trait):
    """The native lowering of the op, and that of its gradient, are cut into parts that `Lowering.threads` share.

    Args:
        most: how many parts at most, called like the inference; None where that is only a matter of how much there is to do.
    """

    most: Callable[..., int] | None = None


class AddsAll(Trait):
    """The output is the sum of all tensors in X, added in their order: what gradients of a variable with several readers go through."""

    def verify(self, op: Named) -> None:
        need(op, ["X"])
        need(op, ["Out"], outputs=True)


class AddsUp(Trait):
    """Gradients that a gradient op adds to what `X@ADDTO` holds, where that is given, with the bits of a sum of the two.

    Args:
        slots: output slots.
        descends: those of them of which it subtracts `X@RATE` times the gradient, where that is given, too, with the bits of sgd.
        overwrites: attributes -> why it had better not with these; empty where it may.
    """

    slots: tuple[str, ...]
    descends: tuple[str, ...] = ()
    overwrites: Callable[[Mapping[str, Any]], str] | None = None

    def verify(self, op: Named) -> None:
        need(op, self.slots, outputs=True)
        assert set(self.descends) <= set(self.slots), f"{op.name}: what descends is added to something, too"

    def says(self) -> tuple[str, str]:
        return "adds", f"{', '.join(self.slots)} to the inputs that end in @ADDTO, where they are given"


class PassesGradient(Trait):
    """The gradient of an input that has the shape of the output is the gradient of that."""


class ReadsAllDevices(Trait):
    """An input slot takes a variable from every device with samples."""

    slot: str

    def verify(self, op: Named) -> None:
        need(op, [self.slot])


class Counted(Trait):
    """How many floating-point operations a call takes.

    Args:
        flops: called like the inference; below 0 where it cannot tell.
    """

    flops: Callable[..., int]

    def says(self) -> tuple[str, str]:
        return "FLOPs", "counted"
