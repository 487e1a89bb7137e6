"""pe init: a first config with comments, and its model; made for data where some is named."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import path_argument, path_option
from pe_cli.cli.say import echo

if TYPE_CHECKING:
    from pe_cli.session.starters.files import Starter


@click.command()
@path_argument("file", default="config.yaml", required=False)
@path_option(
    "--from",
    "source",
    metavar="DATA",
    help="A table, a folder with one folder of pictures per class, or a text, to make a start for.",
)
@click.option("--target", metavar="COLUMN", help="With --from: the column of a table that is to be predicted.")
@click.option(
    "--task",
    type=click.Choice(["auto", "classes", "number", "series"]),
    default="auto",
    show_default=True,
    help="With --from: what the target is: classes, a number, or a series to forecast; auto takes few different whole numbers for "
    "classes, and numbers at regular times for a series.",
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
def command(file: Path, source: Path | None, target: str | None, task: str, force: bool) -> None:
    """Write a first config and its model.

    FILE is the config (default: config.yaml, also where FILE is a folder); its model is written beside it. Both can be trained as they
    are. With --from, the command looks at the data, chooses types of columns, loss, metrics, sizes and a model of the right kind, and
    says in comments what it chose.
    """
    import json

    from pe_cli.core.errors import PeError
    from pe_cli.io import atomic

    if file.is_dir():
        file /= "config.yaml"
    model = file.with_name(f"{file.stem}_model.yaml")
    if not force:
        for path in (file, model):
            if path.exists():
                raise PeError(f"{path} is there already", hint="name another file, or add --force to replace it")
    if source is None and (target is not None or task != "auto"):
        raise click.UsageError(f"{'--target' if target is not None else '--task'} goes with --from DATA")
    made = _plain() if source is None else _made(source, target, file, task)
    atomic.make_folder(file.parent)
    atomic.write_text(model, made.model)
    atomic.write_text(file, made.config.replace("MODEL_FILE", json.dumps(model.name), 1))
    for note in made.notes:
        echo(note)
    first = f"pe check {file}" if source is None else f"pe data {file}"
    echo(f"{file} and {model} are written.\nNext: {first}, then pe train {file}")


def _plain() -> Starter:
    """Return a starter whose data is computed."""
    from importlib import resources

    from pe_cli.session.starters.files import Starter

    here = resources.files("pe_cli.cli")
    config, model = (here.joinpath(f"starter_{name}.yaml").read_text(encoding="utf-8") for name in ("config", "model"))
    return Starter(config, model, ())


def _made(source: Path, target: str | None, file: Path, task: str) -> Starter:
    from pe_cli.session.starters.files import Wish
    from pe_cli.session.starters.look import make

    return make(Wish(source, target, file, task))
