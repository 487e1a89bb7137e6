"""Wrong kernels are noticed: a barrier that is missing, and a comparison of an index that takes one more or one less."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from pe_cli.core.types import Place
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.kernels.cuda.language import Built
from pe_cli.ops.define.registry import OPS, discover
from pe_cli.ops.math import matrix_product_cuda
from pe_cli.ops.nn import column_sums_cuda, conv_cuda
from tests.cuda.ptx.device import PtxDriver, Shape, needs_compiler
from tests.cuda.ptx.machine import Failed, Order, Program
from tests.ops import support
from tests.rotation import on_its_day

discover()
BARRIER = re.compile(r"^\s*bar\.sync\s+0;", re.MULTILINE)
FENCE = re.compile(r"^\s*(?:membar|fence)\.[\w.]+;", re.MULTILINE)
#: Accesses of a kernel that are changed.
MOST = 6
#: The comparison that leaves threads out which have nothing to do.
GUARD = re.compile(r"\bsetp\.ge\.u32\b(?=\s+%\w+, %\w+, %\w+;)")
#: An access of numbers in global memory with its offset; tables of shapes have the same value twice too often.
ACCESS = re.compile(r"^(\s*(?:@\S+\s+)?(?:ld|st)\.global\.(?:nc\.)?f(\d+)\b.*?\[%\w+)(?:\+(-?\d+))?\]", re.MULTILINE)


class Mutating(PtxDriver):
    """Runs mutants of each kernel before its first launch, and then what it should.

    Args:
        mutants: of a program that has run: texts.

    Attributes:
        noticed, missed: names of mutants.
    """

    def __init__(self, mutants: Callable[[Program], list[str]]) -> None:
        super().__init__(orders=[Order()])
        self._mutants = mutants
        self._seen: set[Built] = set()
        self.noticed: list[str] = []
        self.missed: list[str] = []

    def launcher(self, built: Built, grid: Shape, block: Shape, args: Sequence[Extent | int | float]) -> Callable[[], None]:
        normal = super().launcher(built, grid, block, args)
        extents = {a for a in args if isinstance(a, Extent)}

        def run() -> None:
            if built not in self._seen:
                self._seen.add(built)
                self._try(built, grid, block, args, extents)
            normal()

        return run

    def _try(self, built: Built, grid: Shape, block: Shape, args: Any, extents: set[Extent]) -> None:
        # One block that does what several would, and more threads than there is to do: a kernel has to be right with any number.
        grids = [grid, (grid[0] + 1, *grid[1:]) if built.loops else (1, 1, 1)]
        before, right = _contents(extents), []
        for other in grids:
            super().launcher(built, other, block, args)()
            right.append(_contents(extents))
            _restore(before)
        for i, text in enumerate(self._mutants(self.program(built))):
            changed = PtxDriver(orders=[Order("random", 3)], change=lambda _, __, text=text: text)
            said = False
            for other, expected in zip(grids, right, strict=True):
                try:
                    changed.launcher(built, other, block, args)()
                    said = said or _contents(extents) != expected
                except Failed:
                    said = True
                _restore(before)
            changes = zip(text.splitlines(), self.program(built).text.splitlines(), strict=False)
            change = next((new for new, old in changes if new != old), "")
            (self.noticed if said else self.missed).append(f"{built.kernel.name} {built.dtype} {i}: {change.strip()}")


def _contents(extents: set[Extent]) -> dict[Extent, bytes]:
    return {e: ctypes.string_at(e.address, e.nbytes) for e in extents}


def _restore(contents: dict[Extent, bytes]) -> None:
    for extent, content in contents.items():
        ctypes.memmove(extent.address, content, extent.nbytes)


def without_barriers(program: Program) -> list[str]:
    """Return texts without one of the barriers each."""
    text = program.text
    return [text[: m.start()] + text[m.end() :] for m in BARRIER.finditer(text)]


def without_fences(program: Program) -> list[str]:
    """Return texts without one of the fences each."""
    text = program.text
    return [text[: m.start()] + text[m.end() :] for m in FENCE.finditer(text)]


def off_by_one(program: Program) -> list[str]:
    """Return texts in which one thread more has something to do, or one of MOST accesses that were made is one element on."""
    text = program.text
    guards = [f"{text[: m.start()]}setp.gt.u32{text[m.end() :]}" for m in GUARD.finditer(text)]
    made = [m for m in ACCESS.finditer(text) if program.touched[text.count("\n", 0, m.end()) + 1]]
    shifted = [f"{text[: m.start()]}{m[1]}+{int(m[3] or 0) + int(m[2]) // 8}]{text[m.end() :]}" for m in made]
    chosen = np.random.default_rng(len(text)).permutation(len(shifted))[:MOST]
    return guards + [shifted[i] for i in sorted(chosen)]


#: Shapes of operands that have more than one tile in every direction, and two parts of two tiles of terms.
TILES = {"X": (66, 52), "Y": (52, 70)}


def run_sample(monkeypatch: pytest.MonkeyPatch, driver: PtxDriver, name: str, *, gradient: bool) -> None:
    """Run the first sample of an op, or its gradient, on the test device, with sums shared by several blocks."""
    for module, name_of_least, least in ((matrix_product_cuda, "TERMS", 26), (conv_cuda, "STEPS", 1), (column_sums_cuda, "LEAST", 1)):
        monkeypatch.setattr(module, name_of_least, least)
    monkeypatch.setattr(cuda_driver, "only_driver", lambda: driver)
    definition = OPS[name]
    sample = definition.samples[0]
    arrays = support.sample_arrays(definition, sample, "float32")
    if name == "matmul":
        rng = np.random.default_rng(0)
        arrays = support.as_lists({slot: rng.standard_normal(shape).astype("float32") for slot, shape in TILES.items()})
    if name == "lookup_table":  # a whole power of two: behind others lie keys that belong to no row
        arrays["Ids"] = [np.resize(ids, (8, 1)) for ids in arrays["Ids"]]
    value = support.run_op(name, arrays, sample.attrs, sample.outputs)
    monkeypatch.setattr(support, "PLACE", Place("cuda", 0))
    if not gradient:
        support.run_op(name, arrays, sample.attrs, sample.outputs)
        return
    first = next(s.name for s in definition.outputs)
    out = value[first] if isinstance(value, dict) else value
    upstream = np.random.default_rng(5).standard_normal(out.shape).astype(out.dtype)
    support.run_gradient(name, arrays, sample.attrs, first, [upstream], sample.outputs)


#: Ops whose kernels work by blocks.
BY_BLOCKS = [("matmul", False), ("conv2d", True), ("batch_norm", True), ("kldiv_loss", False), ("lars_momentum", False)]


@on_its_day(2, of=3)
@pytest.mark.parametrize(("name", "gradient"), BY_BLOCKS)
def test_a_missing_barrier_is_noticed(monkeypatch, name: str, gradient: bool):
    needs_compiler()
    driver = Mutating(without_barriers)
    run_sample(monkeypatch, driver, name, gradient=gradient)
    assert driver.noticed
    assert not driver.missed


def test_a_missing_fence_is_noticed(monkeypatch):
    needs_compiler()
    driver = Mutating(without_fences)
    run_sample(monkeypatch, driver, "matmul", gradient=False)
    assert len(driver.noticed) == 2
    assert not driver.missed


#: Ops of all kinds.
BY_INDEX = [
    ("relu", True), ("elementwise_add", False), ("matmul", False), ("softmax", True), ("layer_norm", True), ("lookup_table", True),
    ("sgd", False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "gradient"), BY_INDEX)
def test_an_index_that_is_off_by_one_is_noticed(monkeypatch, name: str, gradient: bool):
    needs_compiler()
    driver = Mutating(off_by_one)
    run_sample(monkeypatch, driver, name, gradient=gradient)
    assert driver.noticed
    assert len(driver.missed) <= len(driver.noticed) // 10, driver.missed  # neighbours may have the same value
