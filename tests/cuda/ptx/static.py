"""What is known of every kernel's machine code, and what may not come in without a word: `kernels.tsv`.

Usage: python -m tests.cuda.ptx.static, which writes the table anew from all samples of the catalogue and all shipped configs; look at
what it changes.

A row is a kernel for its element types, `bfloat16` behind them where some of its arrays are, compiled for sm_90: its instructions, and
what it is allowed to have. `double` is arithmetic in float64 in a kernel of float32, which an H100 does at half of the speed and other
cards at a sixty-fourth; `divides` a division of 64-bit numbers, some hundred instructions; `local` an array that does not lie in
registers; `long` a loop by fours that takes more than 60 instructions for an element, such as that of a power or a sine. All that the
loop's text has counts, also what is seldom done, but for functions that it calls: a quarter of it is an element's.
Spills are allowed to none.

What a kernel's text asks for must be in its code: accesses of several elements in a loop by fours, and tensor cores where it multiplies
fragments. A loop of a product takes at most 1.2 instructions for each multiply-add.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

from pe_cli.core.types import BFLOAT16
from pe_cli.kernels.cuda.compiler import Cubin, cubin, ptx
from pe_cli.kernels.cuda.language import Built, prepared
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.cuda.vectorized_loops import PUT, SIZES, TAKE, WIDTH
from pe_cli.ops.fused import fusion_kernel
from tests.cuda.ptx.loops import KIND, MULTIPLY_ADD, loops, whole_loops

CAPABILITY = (9, 0)
TABLE = Path(__file__).with_name("kernels.tsv")
#: How many times the instructions of the table a kernel may have: compilers differ.
SLACK = 1.25
#: Instructions of a loop by fours for an element, and of one that multiplies for a multiply-add; what share of a loop's instructions must
#: multiply and add to be such a one.
MOST_OF_ELEMENT, MOST_OF_MULTIPLY_ADD, MULTIPLIES = 60, 1.2, 0.5
#: Instructions that every kernel may have without being in the table.
SMALL = 128
#: What a kernel that is not in the table may have.
NOTHING: tuple[int, frozenset[str]] = (SMALL, frozenset())
_DOUBLE = re.compile(r"\b(?:add|sub|mul|fma|div|rcp|sqrt|rsqrt|neg|abs|min|max|setp\.\w+)\.[\w.]*f64\b|\bcvt\.[\w.]*f64\.[us]\d+\b")
_FOUR, _CORES = re.compile(r"\b(?:ld|st)\.global\.(?:nc\.)?v[24]\."), re.compile(r"\bmma\.sync\b")
_DIVISION = re.compile(r"\b(?:div|rem)\.[su]64\b")


def row_of(built: Built) -> str:
    """Return the name of a kernel's row."""
    return f"{built.kernel.name} {built.dtype} {built.second}{f' {BFLOAT16}' if built.halves else ''}"


def marks(built: Built, text: str, made: Cubin) -> set[str]:
    """Return what a kernel has of that which must be allowed."""
    found = set()
    if "float64" not in (built.dtype, built.second) and _DOUBLE.search(text):
        found.add("double")
    if _DIVISION.search(text):
        found.add("divides")
    if made.usage.local:
        found.add("local")
    if _is_by_fours(built) and any(len(loop) > WIDTH * MOST_OF_ELEMENT for loop in whole_loops(made.image)):
        found.add("long")
    return found


def _is_alone(built: Built) -> bool:
    """Return whether a kernel is none of several that have come together, which are looked at alone."""
    return not built.kernel.name.endswith("[]") and not re.search(r"[|+]", built.kernel.name)


def _is_by_fours(built: Built) -> bool:
    """Return whether a kernel that is alone does its loop by fours, and divides no index for an element, as where channels are no fours."""
    return _is_alone(built) and _asks_for(built, TAKE, PUT) and not any(fn.__name__ == quotient.fn.__name__ for fn in built.helpers)


def _asks_for(built: Built, *beginnings: str) -> bool:
    """Return whether the text of a kernel has names that begin so."""
    tree, _ = prepared(built)
    return any(isinstance(node, ast.Name) and node.id.startswith(beginnings) for node in ast.walk(tree))


@functools.cache
def allowed() -> dict[str, tuple[int, frozenset[str]]]:
    """Return the table: row -> instructions and marks."""
    rows = (line.split("\t") for line in TABLE.read_text(encoding="utf-8").splitlines()[1:])
    return {name: (int(count), frozenset(found.split())) for name, count, found in rows}


def _of_one(built: Built) -> tuple[int, frozenset[str]]:
    """Return what a kernel without a row may have; one of several launches what they may, and room to find its arguments
    and to look for reports.

    Which launches come together depends on where a plan puts their values, so not all of them can be in the table.
    """
    names, *types = row_of(built).split(" ")
    if "|" in names:
        several = [_of_any(name.removesuffix("[]").removesuffix("?")) for part in names.split("|") for name in part.split("+")]
        return sum(count + 3 * SMALL for count, _ in several), frozenset().union(*(fine for _, fine in several))
    if row := types[2:] and allowed().get(" ".join([names, *types[:2]])):
        return 2 * row[0] + SMALL, row[1]  # as many again, to make float32 of what is read and to round what is written
    single = [name.removesuffix("[]").removesuffix("?") for name in names.split("+")]
    found = [_of_any(name) if len(single) > 1 or "(" in name else allowed().get(" ".join([name, *types]), NOTHING) for name in single]
    room = SMALL * (len(single) - 1 + names.endswith("[]") + names.count("?"))
    return sum(count for count, _ in found) + room, frozenset().union(*(fine for _, fine in found))


def _of_any(name: str) -> tuple[int, frozenset[str]]:
    """Return what a kernel may have for some element types: one of several launches has types of its own."""
    if name.startswith(f"{fusion_kernel.__name__}:"):  # of as many functions as passes join
        return SMALL * (1 + name.count("(")), frozenset()
    rows = [row for key, row in allowed().items() if key.startswith(f"{name} ")] or [NOTHING]
    return max(count for count, _ in rows), frozenset().union(*(fine for _, fine in rows))


def slow(built: Built, text: str, image: bytes) -> list[str]:
    """Return what a kernel's code lacks of that which its text asks for, and which loops of products take too long.

    Args:
        built: the kernel.
        text: its PTX.
        image: its machine code for `CAPABILITY`.
    """
    if not _is_alone(built):
        return []
    found = []
    if _asks_for(built, TAKE, PUT) and any(SIZES[element] > 1 for element in built.elements) and not _FOUR.search(text):
        found.append("a loop by fours without an access of several elements")
    if _asks_for(built, "mma_") and not _CORES.search(text):
        found.append("fragments that no tensor core multiplies")
    for loop in loops(image):
        products = sum(code & KIND == MULTIPLY_ADD for code in loop)
        if built.block and products > MULTIPLIES * len(loop) and len(loop) > MOST_OF_MULTIPLY_ADD * products:
            found.append(f"{len(loop)} instructions for {products} multiply-adds")
    return [f"{row_of(built)}: {said}" for said in found]


def complaints(built: Built, text: str, made: Cubin) -> list[str]:
    """Return what a kernel has that its row does not allow, and what `slow` says of it."""
    usage = made.usage
    count, fine = allowed().get(row_of(built)) or _of_one(built)
    out = [f"{row_of(built)}: {mark}, which kernels.tsv does not allow it" for mark in sorted(marks(built, text, made) - fine)]
    if usage.spills:
        out.append(f"{row_of(built)}: spills {usage.spills} bytes of registers")
    if usage.instructions > max(SMALL, SLACK * count):
        out.append(f"{row_of(built)}: {usage.instructions} instructions, {count} in kernels.tsv")
    return out + slow(built, text, made.image)


def main() -> None:
    """Write the table of all kernels that the samples of the catalogue and the shipped configs launch."""
    import contextlib
    import itertools
    import os
    import sys

    import pytest

    from pe_cli.core.errors import PeError
    from pe_cli.devices import cuda_driver
    from tests.cuda.ptx.device import PtxDriver
    from tests.cuda.ptx.models import shipped, train

    class Recorder(PtxDriver):
        runs = True  # a test that fails at its first launch would make no other

        def launcher(self, built: Built, grid: Any, block: Any, args: Any) -> Any:
            found.add(built)
            return super().launcher(built, grid, block, args) if self.runs else lambda: None

    os.environ["PE_WHOLE"] = "1"
    found: set[Built] = set()
    driver = Recorder(CAPABILITY)
    cuda_driver.only_driver, cuda_driver.device_count = lambda: driver, lambda: 1  # type: ignore[assignment]
    root = Path(__file__).parents[3]
    quiet = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--no-summary", "--tb=no", "--show-capture=no"]
    pytest.main([*quiet, str(root / "tests/cuda/device")])
    driver.runs = False
    for config, precision in itertools.product(shipped(), ("float32", "tf32", "bf16")):
        with contextlib.suppress(PeError, AssertionError):
            train(config, "cuda", (f"executor.precision={precision}",))
    most: dict[str, tuple[int, set[str]]] = {}  # a row is of all choices of arrays that are bfloat16
    for built in sorted(found, key=row_of):
        made = cubin(built, CAPABILITY)
        count, said = most.get(row_of(built), (0, set()))
        most[row_of(built)] = max(count, made.usage.instructions), said | marks(built, ptx(built, CAPABILITY), made)
    rows = [f"{name}\t{count}\t{' '.join(sorted(said))}" for name, (count, said) in most.items() if said or count > SMALL]
    TABLE.write_text("\n".join(["kernel and types\tinstructions\tallowed", *rows, ""]), encoding="utf-8")
    sys.stdout.write(f"{len(rows)} rows of {len(found)} kernels\n")


if __name__ == "__main__":
    main()
