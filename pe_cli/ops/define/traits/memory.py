"""Traits about where values lie and where an op runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pe_cli.ops.define.traits.trait import Named, Trait, need


class InPlace(Trait):
    """An output may take over the memory of an input of the same type: its kernels allow out == x.

    Args:
        pairs: output slot -> input slot.
    """

    pairs: Mapping[str, str]

    def verify(self, op: Named) -> None:
        need(op, list(self.pairs), outputs=True)
        need(op, list(self.pairs.values()))

    def says(self) -> tuple[str, str]:
        return "in place", ", ".join(f"{out} may take over {source}" for out, source in self.pairs.items())


class View(Trait):
    """An output is an input's bytes under another shape, so that the op needs no kernel on any device.

    Args:
        pairs: output slot -> input slot.
    """

    pairs: Mapping[str, str]

    def verify(self, op: Named) -> None:
        need(op, list(self.pairs), outputs=True)
        need(op, list(self.pairs.values()))


class Layout(Trait):
    """How the op treats the order of axes; one without this trait knows only the written order.

    Args:
        attr: name of its data-format attribute; empty for an op that is elementwise over tensors of one shape.
        slots: that hold images.
    """

    attr: str = ""
    slots: tuple[str, ...] = ()

    def verify(self, op: Named) -> None:
        assert not self.attr or self.attr in op.attrs, f"{op.name} has no attribute {self.attr}"
        # A gradient op has the trait of its op, whose slots are not all its own.
        if op.is_grad_of is None:
            known = {*op.slot_names(outputs=False), *op.slot_names(outputs=True)}
            assert known.issuperset(self.slots), f"{op.name} has no {', '.join(set(self.slots) - known)}"


class AlongChannels(Trait):
    """The op, or its gradient, adds a vector to images along the axis that an attribute says.

    Args:
        attr: the attribute; 1 for channels that come first, -1 for the last axis.
    """

    attr: str

    def verify(self, op: Named) -> None:
        assert self.attr in op.attrs, f"{op.name} has no attribute {self.attr}"


class FedSizes(Trait):
    """A size that only a step knows: where the slot is there, its value becomes the attribute's.

    Args:
        attrs: input slot -> attribute.
    """

    attrs: Mapping[str, str]

    def verify(self, op: Named) -> None:
        need(op, list(self.attrs))
        assert all(name in op.attrs for name in self.attrs.values()), f"{op.name}: {self.attrs} names no attribute"


class OnHost(Trait):
    """The op runs on the host, as only values tell the sizes of its outputs; it has no lowering.

    Args:
        compute: `f(slot -> arrays, attrs) -> slot -> arrays`.
        whole: it is `f(HostRun) -> slot -> arrays` instead: it sees sequences, may draw, and may say the sequences of what it makes.
    """

    compute: Callable[..., Any]
    whole: bool = False


class Lists(Trait):
    """The op reads or writes a list of tensors of any sizes, which is the value of one variable and no array."""

    def says(self) -> tuple[str, str]:
        return "lists", "a list of tensors of any sizes is the value of one variable"


class Remote(Trait):
    """The op is a part of what trainers and parameter servers tell each other: it has no lowering, and runs between the parts of a step.

    Args:
        does: give, wait, take, taken, look_up, cut or stand_in, of trainers; serve or choose, of servers.
    """

    does: str
