"""Traits are verified against the slots and attributes of their op."""

from __future__ import annotations

import pytest

from pe_cli.ops.define.registry import Attr, OpDef, discover, slots
from pe_cli.ops.define.traits import (
    AddsUp,
    ByRows,
    FedSizes,
    InPlace,
    Layout,
    ReadsAllDevices,
    Sequenced,
    Spreads,
    Table,
    Trait,
    View,
)


def some_op() -> OpDef:
    made = OpDef("some_op", None)
    made.inputs, made.outputs = slots("X Y?"), slots("Out")
    made.attrs = {"axis": Attr(0)}
    return made


WRONG = [
    InPlace({"Out": "Z"}),
    InPlace({"Z": "X"}),
    View({"Y": "X"}),
    Layout("data_format", ("X",)),
    Layout("axis", ("X", "Z")),
    FedSizes({"Z": "axis"}),
    FedSizes({"Y": "shape"}),
    Table("X", "Y", "Out"),
    ByRows(),
    Spreads(),
    AddsUp(("X@GRAD",)),
    AddsUp(("Out",), ("X",)),
    Sequenced(print, ("Offsets",)),
    ReadsAllDevices("Sums"),
]


@pytest.mark.parametrize("trait", WRONG, ids=str)
def test_a_trait_that_does_not_fit_is_found_out(trait):
    with pytest.raises(AssertionError, match="some_op"):
        trait.verify(some_op())


RIGHT = [
    InPlace({"Out": "X"}),
    View({"Out": "Y"}),
    Layout(),
    Layout("axis", ("X", "Out")),
    FedSizes({"Y": "axis"}),
    AddsUp(("Out",), ("Out",)),
]


@pytest.mark.parametrize("trait", RIGHT, ids=str)
def test_a_trait_that_fits(trait):
    trait.verify(some_op())


def test_an_op_has_one_trait_of_a_class():
    made = some_op()
    made.give(Layout())
    with pytest.raises(AssertionError, match="two traits Layout"):
        made.give(Layout("axis"))
    assert made.get(Layout) == Layout()
    assert made.has(Layout)
    assert not made.has(View)
    assert made.get(View) is None


def test_every_class_of_traits_is_that_of_some_op():
    used = {kind for definition in discover().values() for kind in definition.traits}
    assert used == set(Trait.__subclasses__())
