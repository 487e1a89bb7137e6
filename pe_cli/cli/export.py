"""pe export: a trained model as an ONNX file."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import override_option, path_argument, path_option


@click.command()
@path_argument("target")
@path_option("--onnx", "out", required=True, metavar="FILE", help="The file that is written.")
@click.option(
    "--fetch",
    "fetches",
    multiple=True,
    metavar="NAME",
    help="An output of the model; may be given again. All fetches with a value for every sample when left out.",
)
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@override_option
def command(
    target: Path, out: Path, fetches: tuple[str, ...], checkpoint: Path | None, overrides: tuple[str, ...]
) -> None:
    """Write a trained model for other runtimes.

    TARGET is a run folder, a checkpoint in one, or a config with --checkpoint. The batch axis stays open; outputs and
    inputs keep the names of their variables.
    """
    from pe_cli.cli.common import open_trained
    from pe_cli.cli.progress import Quiet
    from pe_cli.io.atomic import write_bytes
    from pe_cli.io.onnx import OPSET, export

    job, values = open_trained(target, overrides, checkpoint, Quiet())
    targets = [job.variable(name) for name in fetches] or job.outputs()
    held = {v.name: job.scope.get(v.name) for v in job.built.eval.list_vars() if v.persistable}
    data = export(job.built.eval, held, list(dict.fromkeys(targets)), job.run.model.name)
    write_bytes(out, data)
    click.echo(f"{out}: {len(data):,} bytes, ONNX opset {OPSET}, outputs {', '.join(targets)} ({values})")
