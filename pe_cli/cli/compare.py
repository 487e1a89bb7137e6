"""pe compare: where two trainings begin to differ."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import json_option, override_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import ExitCode

if TYPE_CHECKING:
    from pe_cli.session.verification.compare import Comparison, Differing, Training

#: Differences that are shown, and characters of the longest bar.
SHOWN, BAR = 40, 16
#: Tolerance between places: what rounding in other orders makes of a step's values, with room.
BETWEEN_PLACES = 1e-4


@click.command()
@path_argument("first")
@path_argument("second", required=False)
@override_option
@click.option("--step", type=click.IntRange(min=1), help="Step that is computed; when absent 1, or the first with other numbers.")
@click.option(
    "--tolerance", type=click.FloatRange(min=0),
    help="Largest difference, relative to the largest element, that is none; when absent 0, and 1e-4 between places.",
)
@click.option(
    "--places", help="Kinds of devices of the first and of the second, as `cpu,cuda`: the one FIRST, a config, on one device of each."
)
@path_option("--to", metavar="FILE", help="Compare nothing: write the step of FIRST, which -o changes, to a .safetensors.")
@json_option
def command(
    first: Path, second: Path | None, overrides: tuple[str, ...], step: int | None, tolerance: float | None, places: str | None,
    to: Path | None, as_json: bool,
) -> int:
    """Compute a step of two trainings and find the first op whose values differ.

    FIRST and SECOND are runs, configs or files that --to wrote, which carry a step to another machine, to another version of pe or
    another process. -o changes the second, which is FIRST where it is left out. With --places, -o changes both.
    Shown are the variables that differ, in the order in which they are computed, how far they are apart, and what differs in configs,
    models, packages and processors. The exit code is 8 where a variable differs.
    """  # fmt: skip
    from dataclasses import asdict

    from pe_cli.cli.common import print_json
    from pe_cli.session.verification.compare import Side, compare

    if to is not None:
        return _write(first, second, overrides, step, to)
    if places is not None:
        if second is not None:
            raise click.UsageError("--places compares one config with itself: leave the second out")
        # One device of each kind: sums over several would differ by their order alone.
        one, other = (Side(first, (*overrides, f"executor.place={place}", "executor.devices=1")) for place in _places(places))
        found = compare(one, other, step, BETWEEN_PLACES if tolerance is None else tolerance)
    elif second is None and not overrides:
        raise click.UsageError("name two trainings, or say with -o what the second one changes")
    else:
        found = compare(_training(first, ()), _training(second or first, overrides), step, tolerance or 0.0)
    if as_json:
        print_json(asdict(found))
    else:
        _show(found)
    return ExitCode.DIFFERENT if found.differing else ExitCode.DONE


def _training(path: Path, overrides: tuple[str, ...]) -> Training:
    from pe_cli.session.verification.compare import Side
    from pe_cli.session.verification.step_snapshot import ENDING, StepSnapshot

    if path.suffix != ENDING:
        return Side(path, overrides)
    if overrides:
        raise click.UsageError(f"-o changes a config, and {path} holds a step as it was")
    return StepSnapshot(path)


def _write(first: Path, second: Path | None, overrides: tuple[str, ...], step: int | None, to: Path) -> int:
    from pe_cli.session.verification.step_snapshot import ENDING, take_snapshot

    if second is not None or to.suffix != ENDING:
        raise click.UsageError(f"--to writes a step of one training, to a file that ends with {ENDING}")
    count = take_snapshot(_training(first, overrides), step or 1, to)
    echo(f"step {step or 1}: {count:,} variables -> {to}")
    return ExitCode.DONE


def _places(text: str) -> tuple[str, str]:
    """Return the two kinds of devices that an option names."""
    found = [word.strip() for word in text.split(",")]
    if len(found) != 2 or not {*found} <= {"cpu", "cuda"}:
        raise click.UsageError(f"--places takes two of cpu and cuda, as cpu,cuda; got {text!r}")
    return found[0], found[1]


def _show(found: Comparison) -> None:
    from pe_cli.cli.text_columns import columns

    for text in found.given:
        echo(f"differs: {text}")
    if found.recorded is not None:
        step, name, a, b = found.recorded
        echo(f"recorded: {name} differs first at step {step}: {a} and {b}")
    if not found.differing:
        echo(f"step {found.step}: the same in all {found.compared:,} variables")
        return
    d = found.differing[0]
    where = f"{d.name}{list(d.element) if d.element else ''}"
    count = f"{len(found.differing):,} of {found.compared:,} variables differ"
    echo(f"step {found.step}: {count}, first {where} ({d.op}): {d.first} and {d.second}")
    rows = [("op", "variable", "largest", "elements", ""), *map(_row, found.differing[:SHOWN])]
    echo(columns(rows, right=range(2, 4)))
    if len(found.differing) > SHOWN:
        echo(f"and {len(found.differing) - SHOWN:,} more; --json lists all")


def _row(d: Differing) -> tuple[str, ...]:
    return d.op, d.name, f"{d.largest:.1e}", f"{d.share:.1%}", bar(d.largest)


def bar(largest: float) -> str:
    """Return a bar as long as a relative difference is large: none for 1e-16, the longest for 1."""
    if not math.isfinite(largest):
        return "#" * BAR
    return "#" * max(1, min(BAR, round(BAR + math.log10(largest)))) if largest > 0 else ""
