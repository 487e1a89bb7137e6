"""pe export: a trained model as an ONNX file, with the data's side."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import override_option, path_argument, path_option
from pe_cli.cli.say import echo


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
@click.option("--raw", is_flag=True, help="The model alone: it takes the model's feeds, and knows neither columns nor classes.")
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@override_option
def command(
    target: Path, out: Path, fetches: tuple[str, ...], raw: bool, checkpoint: Path | None, overrides: tuple[str, ...]
) -> None:
    """Write a trained model for other runtimes.

    TARGET is a run folder, a checkpoint in one, or a config with --checkpoint. Inputs are the columns of the data as they are in the file,
    one each; what columns have learned in training and what the config does with feeds is part of the model. Outputs keep the names of
    their variables: numbers are in the units of the file, and OUTPUT_label names the most probable class. The batch axis stays open. Where
    an input cannot be the cell as it is, FILE.data.json says what it is made of.
    """
    from pe_cli.cli.common import open_trained
    from pe_cli.cli.progress import Quiet
    from pe_cli.io.atomic import write_bytes
    from pe_cli.io.onnx.export import OPSET, export
    from pe_cli.session.exporting import Exporting

    job, values = open_trained(target, overrides, checkpoint, Quiet())
    targets = list(dict.fromkeys([job.variable(name) for name in fetches] or job.outputs()))
    held = {v.name: job.scope.get(v.name) for v in job.built.eval.list_vars() if v.persistable}
    exporting = Exporting(job, targets)
    around = None if raw else exporting.around(values)
    data = export(job.built.eval, held, targets, job.run.model.name, around)
    write_bytes(out, data)
    outputs = targets if around is None else [one.name for one in around.outputs]
    echo(f"{out}: {len(data):,} bytes, ONNX opset {OPSET}, outputs {', '.join(outputs)} ({values})")
    if around is None:
        echo(f"left out: {'; '.join(exporting.left_out()) or 'nothing, the model takes its data as it is'}")
        return
    beside = exporting.beside(around)
    if beside is not None:
        file = out.with_name(f"{out.name}.data.json")
        write_bytes(file, beside)
        made = dict.fromkeys(lane.source.name for fed in around.feeds.values() for lane in fed.lanes if not lane.source.raw)
        echo(f"{file}: what is given for {', '.join(made)}")
