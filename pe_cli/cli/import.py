"""pe import: a model of another program becomes a model file with its values."""

from __future__ import annotations

from pathlib import Path

import click

from pe_cli.cli.common import path_argument, path_option
from pe_cli.cli.terminal_text import echo

#: Notes that are printed; the report has all.
MOST_NOTES = 12


@click.command("import")
@path_argument("source")
@path_option("-o", "--out", "folder", metavar="DIR", required=True, help="Folder to write to; it is made where it is not there.")
@click.option("--partial", is_flag=True, help="End the model before what cannot be imported; what leads there are its outputs.")
@click.option("--fixed", is_flag=True, help="Inputs keep the sizes that the file says, instead of a first axis for the batch.")
@click.option(
    "--task",
    type=click.Choice(["classes", "number"]),
    help="Add what training needs: a label, a loss of the first output, and a config; the last layer may get another number of classes.",
)
@click.option("--force", is_flag=True, help="Replace files of an import that are there.")
def command(source: Path, folder: Path, partial: bool, fixed: bool, task: str | None, force: bool) -> None:
    """Make a model of another program one that trains here.

    SOURCE is an ONNX file. DIR gets model.yaml, which names everything as SOURCE does, params.safetensors with the values, config.yaml,
    which names the model, and import.txt with what was folded or simplified.
    """
    from pe_cli.session.importing.define import ImportWish, read_model
    from pe_cli.session.importing.write import REPORT, summary, write

    model = read_model(ImportWish(source, partial, fixed))
    if task is not None:
        from pe_cli.session.importing.training import for_training

        model = for_training(model, task)
    files = write(model, folder, force)
    echo(f"{source}: {summary(model)}")
    for note in model.notes[:MOST_NOTES]:
        echo(f"note: {note}")
    if len(model.notes) > MOST_NOTES:
        echo(f"note: {len(model.notes) - MOST_NOTES} more in {folder / REPORT}")
    echo(f"{', '.join(file.name for file in reversed(files))} are written to {folder}")
