"""pe summary: the layers of a model with their sizes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import json_option, override_option, path_argument
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from pe_cli.cli.layers_table import Member, Row


@click.command()
@path_argument("config")
@override_option
@json_option
def command(config: Path, overrides: tuple[str, ...], as_json: bool) -> None:
    """Print layers with sizes and operations.

    Where the config has train.groups, each parameter is listed with its group (what it matches), the factor on the optimizer's
    rate, until when it is frozen, and its own weight decay; where it has train.phases, what each trains. CONFIG may be a model file
    too. Operations are those of one sample's forward pass, a multiplication and an addition counted as two; bytes are those of one
    sample's output.
    """
    from dataclasses import asdict

    from pe_cli.cli.common import open_source, print_json
    from pe_cli.cli.layers_table import members_of, parameters_text, rows_of, trained_of
    from pe_cli.cli.text_columns import columns
    from pe_cli.graph.dot import size_text

    source = open_source(config, overrides)
    rows = rows_of(source)
    uncounted = sorted({name for row in rows for name in row.uncounted})
    numbers, flops = sum(row.numbers for row in rows), sum(row.flops for row in rows)
    parameter_bytes, output_bytes = (
        sum(p.type.nbytes for row in rows for p in row.parameters),
        sum(r.nbytes for r in rows),
    )
    if as_json:
        totals = {
            "parameters": numbers,
            "parameter_bytes": parameter_bytes,
            "flops": flops,
            "output_bytes": output_bytes,
        }
        listed = [_json(row) for row in rows]
        grouped = [asdict(member) for member in members_of(source)]
        phases = [asdict(phase) for phase in trained_of(source)]
        beside = {"groups": grouped, "phases": phases}
        print_json({"model": source.model.name, "layers": listed, "totals": totals, "not_counted": uncounted, **beside})
        return
    table: list[tuple[object, ...]] = [("layer", "type", "output", "parameters", "FLOPs", "bytes")]
    for row in rows:
        counted = f"{row.flops:,}" if row.flops else "-"
        (name, made), *more = row.shown()
        table.append((name, row.type, made, f"{row.numbers:,}", counted, f"{row.nbytes:,}"))
        table += [(name, "", made, "", "", "") for name, made in more]
    table.append(("total", "", "", f"{numbers:,}", f"{flops:,}", f"{output_bytes:,}"))
    echo(f"{source.model.name}: one sample, forward")
    echo(columns(table, right=(3, 4, 5)))
    echo(f"parameters: {parameters_text(rows)}, {size_text(parameter_bytes)}")
    members = members_of(source)
    if members:
        shown = [(m.parameter, m.group or "-", _rate(m), _decay(m)) for m in members]
        echo(columns([("parameter", "group", "rate", "decay"), *shown], right=(2, 3)))
    if trained := trained_of(source):
        lines = [(p.phase, p.loss, p.optimizer, f"{p.repeat}", f"{p.numbers:,} in {len(p.parameters)} tensors") for p in trained]
        echo(columns([("phase", "loss", "optimizer", "updates", "trains"), *lines], right=(3,)))
    if uncounted:
        echo(f"FLOPs of these ops are not counted: {', '.join(uncounted)}")


def _rate(member: Member) -> str:
    rate = f"{member.rate:g} x"
    return f"frozen {member.frozen}, {rate}" if isinstance(member.frozen, str) else "frozen" if member.frozen else rate


def _decay(member: Member) -> str:
    return "-" if member.frozen is True else "the optimizer's" if member.decay is None else f"{member.decay:g}"


def _json(row: Row) -> dict[str, object]:
    return {
        "layer": row.key,
        "type": row.type,
        "shape": list(row.output.shape) if row.output else None,
        "dtype": row.output.dtype if row.output else None,
        "outputs": [{"name": name, "shape": list(t.shape), "dtype": t.dtype} for name, t in row.outputs.items()],
        "parameters": row.numbers,
        "flops": row.flops,
        "output_bytes": row.nbytes,
    }
