"""pe replay: computes any value of any recorded step again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pe_cli.cli.common import json_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np


@click.command()
@path_argument("run")
@click.option("--step", type=click.IntRange(min=1), required=True, help="Number of the step, from 1.")
@click.option(
    "--fetch", "names", multiple=True, metavar="NAME", help="A variable, w@GRAD or w@UPDATE; may be given again. Parameters when absent."
)
@path_option("--to", metavar="FILE", help="Also write the values: an .npz.")
@click.option("--quiet", is_flag=True, help="Print nothing but the values.")
@json_option
def command(run: Path, step: int, names: tuple[str, ...], to: Path | None, quiet: bool, as_json: bool) -> None:
    """Rebuild a step of RUN exactly and show its values: tensors, gradients and updates.

    Training begins at the last checkpoint before the step and writes nothing; what the run has recorded on the way has to come out again.
    """
    import numpy as np

    from pe_cli.cli.common import print_json
    from pe_cli.cli.progress import watch
    from pe_cli.cli.text_columns import columns
    from pe_cli.io import atomic
    from pe_cli.io.run_folder import RunFolder
    from pe_cli.session.verification.replay import replay

    if to is not None and to.suffix != ".npz":
        raise click.UsageError("--to writes an .npz")
    watcher = watch(quiet=quiet or as_json)
    try:
        found = replay(RunFolder.open(run), step, names or None, watcher)
    finally:
        watcher.close()
    if to is not None:
        with atomic.temporary(to) as draft, draft.open("wb") as file:
            arrays: dict[str, Any] = {n: v[0] if len(v) == 1 else np.stack(v) for n, v in found.values.items()}
            np.savez(file, **arrays)
    rows = {name: _facts(values) for name, values in found.values.items()}
    if as_json:
        print_json({"step": found.step, "values": rows})
        return
    head = ("", "", "mean", "deviation", "smallest", "largest", "not finite", "first elements")
    body = [
        (name, _form(f), *(f"{f[k]:.6g}" for k in ("mean", "deviation", "smallest", "largest")), str(f["not_finite"]),
         " ".join(f"{v:.6g}" for v in f["first"]))
        for name, f in rows.items()
    ]  # fmt: skip
    echo(columns([head, *body], right=range(2, 7)))


def _form(facts: dict[str, Any]) -> str:
    """Return type and shape of a value; where it is on several devices with one shape, how many times."""
    shape = facts["shape"]
    if shape and isinstance(shape[0], list) and all(other == shape[0] for other in shape):
        return f"{len(shape)} x {facts['type']}{shape[0]}"
    return f"{facts['type']}{shape}"


def _facts(values: Sequence[np.ndarray]) -> dict[str, Any]:
    """Return what tells about a value, over all devices."""
    import numpy as np

    flat = np.concatenate([np.ravel(v) for v in values]) if values else np.zeros(0)
    # In float64: squares of float16 values from 256 on would overflow in the deviation.
    exact = flat.astype(np.float64)
    good = exact[np.isfinite(exact)]
    shapes = [list(v.shape) for v in values]
    return {
        "type": str(flat.dtype),
        "shape": shapes[0] if len(shapes) == 1 else shapes,
        "mean": float(good.mean()) if good.size else 0.0,
        "deviation": float(good.std()) if good.size else 0.0,
        "smallest": float(good.min()) if good.size else 0.0,
        "largest": float(good.max()) if good.size else 0.0,
        "not_finite": int(exact.size - good.size),
        "first": exact[:4].tolist(),
    }
