"""pe export: a trained model as an ONNX file with the data's side, or its weights as a safetensors file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from pe_cli.cli.common import override_option, path_argument, path_option
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import PeError

if TYPE_CHECKING:
    from pe_cli.program.ir import Program
    from pe_cli.session.job import Job


@click.command()
@path_argument("target")
@path_option("--onnx", "out", metavar="FILE", help="Write the model as an ONNX file.")
@path_option("--safetensors", "weights", metavar="FILE", help="Write its weights as a safetensors file.")
@click.option(
    "--layout", type=click.Choice(["pe", "torch"]), help="Whose names and order of axes they have; torch: those of PyTorch.  [default: pe]"
)
@click.option(
    "--fetch",
    "fetches",
    multiple=True,
    metavar="NAME",
    help="An output of the model; may be given again. All fetches with a value for every sample when left out.",
)
@click.option("--opset", type=int, metavar="N", help="Version of ONNX's set of operators, from 11 on; 18 when left out.")
@click.option("--raw", is_flag=True, help="The model alone: it takes the model's feeds, and knows neither columns nor classes.")
@path_option("--names", metavar="FILE", help="tensors.json of an import: weights have the names and shapes of the imported folder.")
@click.option(
    "--adapters",
    type=click.Choice(["merged", "beside"]),
    default="merged",
    show_default=True,
    help="Of a run with train.adapt of type lora or dora: small matrices are put into their weights, or stay beside them.",
)
@path_option("--checkpoint", metavar="FILE", help="Values: a run, a checkpoint, .safetensors or .npz.")
@override_option
def command(  # noqa: PLR0913, PLR0917 - one argument per option
    target: Path,
    out: Path | None,
    weights: Path | None,
    layout: str | None,
    names: Path | None,
    fetches: tuple[str, ...],
    opset: int | None,
    raw: bool,
    adapters: str,
    checkpoint: Path | None,
    overrides: tuple[str, ...],
) -> None:
    """Write a trained model for other runtimes, or its weights for other frameworks.

    TARGET is a run folder, a checkpoint in one, or a config with --checkpoint. Inputs are the columns of the data as they are in the file,
    one each; what columns have learned in training and what the config does with feeds is part of the model. Outputs keep the names of
    their variables: numbers are in the units of the file, and OUTPUT_label names the class that is
    taken; OUTPUT_tags has 1 for every tag that is given. The batch axis stays open. Where
    an input cannot be the cell as it is, FILE.data.json says what it is made of.
    """
    if out is None and weights is None:
        raise PeError("nothing says what to write", hint="--onnx FILE or --safetensors FILE")
    if layout is not None and weights is None:
        raise PeError("--layout is for --safetensors", hint="add --safetensors FILE, or leave it out")
    if names is not None and layout != "torch":
        raise PeError("--names is for --safetensors with --layout torch", hint="add --layout torch, or leave it out")
    if out is None and (fetches or raw or opset is not None):
        raise PeError("--fetch, --opset and --raw are for --onnx", hint="add --onnx FILE, or leave them out")
    from pe_cli.cli.common import open_trained
    from pe_cli.cli.progress import Quiet

    job, values = open_trained(target, overrides, checkpoint, Quiet())
    held = {v.name: job.scope.get(v.name) for v in job.built.eval.persistables()}
    program = job.built.eval
    if adapters == "merged":
        from pe_cli.session.evaluation.merged_weights import merged

        built, held = merged(job.run.model, job.built, held)
        program = built.eval
    if weights is not None:
        _weights(program, held, weights, (layout or "pe", names), values)
    if out is not None:
        _onnx(job, program, held, (out, opset), fetches, raw, values)


def _weights(program: Program, held: Mapping[str, Any], file: Path, asked: tuple[str, Path | None], values: str) -> None:
    """Write weights as a safetensors file, in a layout and by the names that a file says."""
    from pe_cli.io import atomic
    from pe_cli.io.tensors import write_safetensors
    from pe_cli.session.weight_files import by_names, for_torch

    layout, names = asked
    named = held if layout != "torch" else for_torch(program, held) if names is None else by_names(program, held, names)
    with atomic.temporary(file) as beside:
        write_safetensors(beside, named, framework="pt" if layout == "torch" else "pe")
    echo(f"{file}: {len(named)} tensors, {file.stat().st_size:,} bytes ({values})")


def _onnx(
    job: Job, program: Program, held: Mapping[str, Any], file: tuple[Path, int | None], fetches: tuple[str, ...], raw: bool, values: str
) -> None:
    """Write the model as an ONNX file of an opset, and beside it what its inputs are made of."""
    from pe_cli.io.atomic import write_bytes
    from pe_cli.io.onnx.export import OPSET, export
    from pe_cli.session.evaluation.export import Exporting

    targets = list(dict.fromkeys([job.variable(name) for name in fetches] or job.outputs()))
    exporting, (out, opset) = Exporting(job, targets), (file[0], OPSET if file[1] is None else file[1])
    around = None if raw else exporting.around(values)
    data = export(program, held, targets, job.run.model.name, around, opset, job.run.model.metadata)
    write_bytes(out, data)
    outputs = targets if around is None else [one.name for one in around.outputs]
    echo(f"{out}: {len(data):,} bytes, ONNX opset {opset}, outputs {', '.join(outputs)} ({values})")
    if around is None:
        echo(f"left out: {'; '.join(exporting.left_out()) or 'nothing, the model takes its data as it is'}")
        return
    beside = exporting.beside(around)
    if beside is not None:
        described = out.with_name(f"{out.name}.data.json")
        write_bytes(described, beside)
        made = dict.fromkeys(lane.source.name for fed in around.feeds.values() for lane in fed.lanes if not lane.source.raw)
        echo(f"{described}: what is given for {', '.join(made)}")
