"""pe import: turns a model of another program into a model file and its values."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import path_argument, path_option
from pe_cli.cli.terminal_text import echo
from pe_cli.core.errors import PeError

#: Notes that are printed; the report has all.
MOST_NOTES = 12


@click.command("import")
@path_argument("source")
@path_option("-o", "--out", "folder", metavar="DIR", required=True, help="Folder to write to; it is made where it is not there.")
@click.option("--partial", is_flag=True, help="End the model before what cannot be imported; what leads there are its outputs.")
@click.option("--fixed", is_flag=True, help="Inputs keep the sizes that the file says, instead of a first axis for the batch.")
@click.option("--flat", is_flag=True, help="Write every layer out, instead of blocks for the parts that are repeated.")
@click.option(
    "--fold-batch-norm",
    is_flag=True,
    help="Convolutions do what the batch norms behind them do in evaluation: for inference or a frozen part.",
)
@click.option(
    "--task",
    type=click.Choice(["classes", "number"]),
    help="Add what training needs: a label, a loss of the first output, and a config; the last layer may get another number of classes.",
)
@click.option("--head", metavar="NAME", help="Of transformers: what the model ends with, such as classes; what the folder has by default.")
@click.option("--classes", type=click.IntRange(1), metavar="N", help="Of transformers: a new last layer for so many classes.")
@click.option("--length", type=click.IntRange(1), metavar="N", help="Of transformers: tokens that the model sees, 128 by default.")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="INPUT=SIZES",
    help="Of ONNX: sizes of an input that the file leaves open, N for the batch, like image=N,3,224,224. May be given again.",
)
@click.option(
    "--constant",
    "constants",
    multiple=True,
    metavar="INPUT=NUMBER",
    help="Of ONNX: an input that is always one number, and no feed, like sr=16000. May be given again.",
)
@click.option(
    "--training",
    is_flag=True,
    help="Of ONNX: batch norms and dropout that are exported in training mode do so in training, and not in evaluation.",
)
@click.option("--force", is_flag=True, help="Replace files of an import that are there.")
def command(  # noqa: PLR0913, PLR0917 - an argument per option
    source: Path,
    folder: Path,
    partial: bool,
    fixed: bool,
    flat: bool,
    fold_batch_norm: bool,
    task: str | None,
    head: str | None,
    classes: int | None,
    length: int | None,
    shapes: tuple[str, ...],
    constants: tuple[str, ...],
    training: bool,
    force: bool,
) -> None:
    """Make a model of another program one that trains here.

    SOURCE is an ONNX file, a folder as Hugging Face's transformers writes it, or a model of PaddlePaddle 1: the folder of
    save_inference_model, or the MODEL.pdmodel of fluid.save. DIR gets model.yaml, which names everything as SOURCE
    does or nearly so, params.safetensors with the values, config.yaml, which names the model, and import.txt with what was folded,
    simplified or left out. Of a folder with a tokenizer.json, DIR also gets train.yaml, an example that trains as it is.
    """
    from pe_cli.session.importing.define import ImportWish, kind_of, read_model
    from pe_cli.session.importing.wishes import parsed_constants, parsed_shapes
    from pe_cli.session.importing.write import REPORT, summary, write

    kind = kind_of(source)
    asked = {
        "partial": partial, "fixed": fixed, "flat": flat, "fold_batch_norm": fold_batch_norm,
        "task": task, "head": head, "classes": classes, "length": length, "shape": shapes, "constant": constants, "training": training,
    }  # fmt: skip
    for option, value in asked.items():
        if value not in (None, False, ()) and option not in kind.options:
            takes = ", ".join(f"--{name.replace('_', '-')}" for name in kind.options)
            option = option.replace("_", "-")
            raise PeError(f"--{option} is not for {kind.looks_like} ({kind.name})", hint=f"leave it out; such a model takes {takes}")
    sizes, numbers = parsed_shapes(shapes), parsed_constants(constants)
    model = read_model(ImportWish(source, partial, fixed, head, classes, length, sizes, numbers, training))
    if fold_batch_norm:
        from pe_cli.session.importing.batch_norm import with_folded_batch_norms
        from pe_cli.session.importing.batch_norm_blocks import with_folded_blocks

        model = with_folded_blocks(model) if model.blocks else with_folded_batch_norms(model)
    if task is not None:
        from pe_cli.session.importing.training import for_training

        model = for_training(model, task)
    if not flat and "flat" in kind.options:
        from pe_cli.session.importing.repeats.fold import with_blocks

        model = with_blocks(model)
    files = write(model, folder, force)
    echo(f"{source}: {summary(model)}")
    for note in model.notes[:MOST_NOTES]:
        echo(f"note: {note}")
    if len(model.notes) > MOST_NOTES:
        echo(f"note: {len(model.notes) - MOST_NOTES} more in {folder / REPORT}")
    echo(f"{', '.join(file.name for file in reversed(files))} are written to {folder}")
