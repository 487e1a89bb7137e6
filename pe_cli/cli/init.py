"""pe init: writes a first config and its model, with comments, for given data or as an example."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pe_cli.cli.common import path_argument, path_option
from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pe_cli.session.starters.files import Starter


@click.command()
@path_argument("file", default="config.yaml", required=False)
@path_option(
    "--from",
    "source",
    metavar="DATA",
    help="A table, a folder with one folder of pictures per class, or with masks or annotations beside pictures of boxes, or a text, to "
    "make a start for.",
)
@click.option(
    "--target", metavar="COLUMN", help="With --from: the column of a table that is to be predicted; several with commas: a,b."
)
@click.option(
    "--task",
    type=click.Choice(["auto", "classes", "ordered", "tags", "number", "count", "share", "series", "words", "anomaly", "masks", "boxes"]),
    default="auto",
    show_default=True,
    help="With --from: what the target is: classes, classes that have an order, sets of tags, a number, a count, a share from 0 to 1 (or "
    "100), a series to forecast, words (a tag for every word: CoNLL files, JSON with spans), anomaly (no target: rows and cells that are "
    "unlike the others), masks of pictures, or boxes in them; auto takes few different whole numbers for classes, cells such as a|b for "
    "tags, numbers at regular times for a series, and pictures of few values that are called like others for masks, and looks for "
    "annotations and tagged words.",
)
@click.option(
    "--columns",
    multiple=True,
    metavar="NAME=TYPE",
    help="With --from: what a column is: number, bool, category, date, bag (also called tags) or text, or {type: date, format: "
    "'%d/%m/%Y'} with options as the config has them; or group: it is not learned, and "
    "all rows of one value are in one part of the data. May be given several times.",
)
@click.option("--drop", multiple=True, metavar="NAME", help="With --from: a column to leave out. May be given several times.")
@click.option("--encoding", metavar="NAME", help="With --from: encoding of the text, such as cp1252, where it is not found out.")
@click.option(
    "--positive", metavar="CLASS", help="With --from: of two classes the one that metrics are about; the rarer one when it is not given."
)
@click.option(
    "--known", multiple=True, metavar="NAME", help="With --from, of a series: a column whose future is known, such as a planned price. "
    "May be given several times.",
)
@click.option(
    "--holidays", metavar="COUNTRY", help="With --from: public holidays of a country, such as DE or US-CA, beside the dates of a table; in "
    "a series they are known ahead. Needs pip install 'pe-cli[holidays]'.",
)
@click.option(
    "--event", metavar="COLUMN", help="With --from, of a target that is a time until something happens: the column that says whether it "
    "has happened. Where not, the time is only known to be longer.",
)
@click.option("--force", is_flag=True, help="Replace files that are there.")
def command(  # noqa: PLR0913, PLR0917 - an argument per option
    file: Path,
    source: Path | None,
    target: str | None,
    task: str,
    columns: tuple[str, ...],
    drop: tuple[str, ...],
    encoding: str | None,
    positive: str | None,
    known: tuple[str, ...],
    holidays: str | None,
    event: str | None,
    force: bool,
) -> None:
    """Write a first config and its model.

    FILE is the config (default: config.yaml, also where FILE is a folder); its model is written beside it. Both can be trained as they
    are. With --from, the command looks at the data, chooses types of columns, loss, metrics, sizes and a model of the right kind, and
    says in comments what it chose, and from what. On a terminal it asks where cells may be read in two ways and the model would be worse
    for the wrong one; in a script it takes the likelier one and says so, or ends with code 3 where none is.
    """
    import json
    import sys

    from pe_cli.core.errors import PeError
    from pe_cli.io import atomic
    from pe_cli.session.starters.columns_option import said_columns
    from pe_cli.session.starters.files import Settings
    from pe_cli.session.starters.kind import make

    if file.is_dir():
        file /= "config.yaml"
    model = file.with_name(f"{file.stem}_model.yaml")
    if not force:
        for path in (file, model):
            if path.exists():
                raise PeError(f"{path} is there already", hint="name another file, or add --force to replace it")
    given = {
        "--target": target, "--columns": columns, "--drop": drop, "--encoding": encoding, "--positive": positive,
        "--known": known, "--holidays": holidays, "--event": event,
        "--task": None if task == "auto" else task,
    }  # fmt: skip
    alone = next((name for name, value in given.items() if value), None)
    if source is None and alone is not None:
        raise click.UsageError(f"{alone} goes with --from DATA")
    if source is None:
        made = _plain()
    else:
        ask = _ask if sys.stdin.isatty() and sys.stderr.isatty() else None
        asked = (said_columns(columns), drop, encoding, positive, known, ask)
        made = make(Settings(source, target, file, task, *asked, holidays=holidays, event=event))
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


def _ask(question: str, answers: Sequence[str]) -> int:
    """Ask on the terminal; return the index of the answer."""
    echo(question, err=True)
    for i, answer in enumerate(answers):
        echo(f"  {i + 1}: {answer}", err=True)
    chosen: int = click.prompt("number", type=click.IntRange(1, len(answers)), err=True)
    return chosen - 1
