"""The two files of a starter as text: what all kinds have in common."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any

from pe_cli.config.paths import PATHS
from pe_cli.config.substitute import escaped
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.array_dataset import is_table
from pe_cli.data.raw_cells import Table
from pe_cli.data.registry import open_reader
from pe_cli.session.starters.training_plan import Plan

#: Lines of a mapping: key with its colon, value, comment.
Lines = list[tuple[str, str, str]]


@dataclass(frozen=True)
class Settings:
    """What the user asked for.

    Args:
        source: file or folder.
        target: column that is predicted; None where none is named.
        config: that will be written.
        task: classes, tags, number, series, or auto.
        columns: column -> how it is declared, with `type`, for columns that are not guessed.
        drop: columns that are left out.
        encoding: of the text; None finds it out.
        positive: class of two that metrics are about; None takes the rarer one.
        known: columns whose future is known when a series is forecast.
        ask: puts a question with answers, and returns the index of one; None where nobody is there to be asked.
        whole: folder that is divided into training and evaluation by what its folders and files are called; `source` is the part of it
            that trains, or the same folder where its parts lie deeper. None where nothing is divided.
        event: column that says whether the time of the target has ended in the event; None where the target is no such time.
        holidays: country whose public holidays stand beside dates; None for none.
    """

    source: Path
    target: str | None
    config: Path
    task: str = "auto"
    columns: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    encoding: str | None = None
    positive: str | None = None
    known: tuple[str, ...] = ()
    ask: Callable[[str, Sequence[str]], int] | None = None
    whole: Path | None = None
    holidays: str | None = None
    event: str | None = None

    @property
    def path(self) -> str:
        """The source as the config names it: relative to the config's folder."""
        found = os.path.relpath(self.source.absolute(), self.config.absolute().parent)
        # Otherwise the name would be read as that of a home folder.
        return f"./{found}" if found.startswith("~") else found

    @property
    def called(self) -> str:
        """What the data is called in comments."""
        return (self.whole or self.source).absolute().name

    @property
    def base(self) -> Path:
        """The config's folder, which may not be there yet."""
        return self.config.absolute().parent

    def open(self, source: Mapping[str, Any]) -> Table:
        """Open the source as the config will.

        Args:
            source: reader and options; paths begin as `path` does, or start at the config's folder.

        Raises:
            PeError: DATA; it cannot be read.
        """
        whole = str(self.source.absolute())
        options = dict(source)
        for key, value in source.items():
            if key in PATHS and isinstance(value, str):
                options[key] = str(self.base / _from(value, self.path, whole))
        reader = str(options.pop("reader"))
        found = open_reader(reader, options, self.source.absolute().parent)
        assert is_table(found), "readers of tables, pictures and texts give tables"
        return found


def _from(value: str, path: str, whole: str) -> str:
    """Return a path that begins as `path` does, beginning with `whole` instead; both may be escaped for a pattern."""
    for make in (str, glob.escape):
        if value.startswith(make(path)):
            return make(whole) + value.removeprefix(make(path))
    return value


@dataclass(frozen=True)
class Starter:
    """Two files, and what to say of them.

    Args:
        config: text of the config; MODEL_FILE stands for the model's name.
        model: text of the model.
        notes: what was chosen, in lines.
    """

    config: str
    model: str
    notes: tuple[str, ...]


def aligned(rows: Iterable[tuple[str, str, str]], indent: str) -> list[str]:
    """Return lines of key, value and comment, each in a column of its own.

    >>> aligned([("a:", "1", "one"), ("long:", "{b: 2}", "")], "  ")
    ['  a:    1  # one', '  long: {b: 2}']
    """
    found = list(rows)
    width = min(32, max((len(key) for key, _, _ in found), default=0))
    most = min(72, max((len(value) for _, value, comment in found if comment), default=0))
    lines = []
    for key, value, comment in found:
        line = f"{indent}{key:<{width}} {value:<{most if comment else 0}}"
        lines.append(f"{line}  # {comment}" if comment else line.rstrip())
    return lines


def data_section(
    sections: Mapping[str, Mapping[str, Any]],
    split: Mapping[str, Any],
    comments: Sequence[str],
    columns: Sequence[tuple[str, str, str]],
    more: Sequence[str] = (),
) -> list[str]:
    """Return the lines of `data`.

    Args:
        sections: source, or train, eval and test -> reader and options.
        split: of the source; empty where there is none.
        comments: on where the data comes from and how it is divided.
        columns: lines of columns.
        more: lines behind them.
    """
    shuffled = {use: {**made, **({"shuffle": True} if use == "train" else {})} for use, made in sections.items()}
    lines = [
        "data:",
        *aligned([(f"{use}:", flow(escaped(made)), "") for use, made in shuffled.items()], "  "),
        *(f"  # {comment}" for comment in comments),
        *([f"  split: {flow(escaped(split))}"] if split else []),
    ]
    if columns:
        lines += [
            "  # What each column means; means, classes and vocabularies are learned from the training rows and kept with the model."
        ]
        lines += ["  columns:", *aligned(columns, "    ")]
    return [*lines, *more]


def training(
    found: Plan,
    rows: int,
    *,
    best: str,
    mode: str,
    rest: Sequence[str] = (),
    metrics: Sequence[str] = ("loss",),
    decide: Sequence[str] = (),
) -> list[str]:
    """Return the lines from `train` on.

    Args:
        found: numbers.
        rows: of the training part.
        best: metric that decides which checkpoint is the best.
        mode: min or max.
        rest: lines of the optimizer after its first.
        metrics: names that are written every epoch.
        decide: lines on what is decided of a classifier.
    """
    optimizer = ["  optimizer:", *rest] if rest else [f"  optimizer: {{type: Adam, learning_rate: {found.learning_rate!r}}}"]
    if found.ema is not None:
        optimizer.append(f"  ema: {{decay: {found.ema!r}}}  # evaluated are averages of the last {round(1 / (1 - found.ema))} steps or so")
    return [
        "",
        f"# Sizes for {rows:,} training rows: more rows would take larger batches and fewer epochs.",
        "train:",
        "  loss: loss",
        f"  epochs: {found.epochs}  # at most: early_stopping ends training when the evaluation gets no better",
        f"  batch_size: {found.batch_size}",
        *optimizer,
        f"  early_stopping: {{by: eval/loss, mode: min, patience: {found.patience}}}",
        *decide,
        "",
        "# How often metrics are written to metrics.jsonl.",
        "fetches:",
        *(f"  {name}: {{every: 1 epoch}}" for name in metrics),
        "",
        "executor: {seed: 1}",
        "",
        f"# Each run makes a folder in dir. checkpoints/best is the one with the {'highest' if mode == 'max' else 'lowest'} {best}.",
        "# use: pe predict and others that are given the folder take that one, not the last, which knows more of its rows by heart.",
        f"output: {{dir: runs, checkpoint: {{every: 1 epoch, keep: 2, best: {flow(escaped({'by': best, 'mode': mode, 'use': True}))}}}}}",
    ]


def optimizer(made: Plan) -> list[str]:
    """Return the lines of AdamW with a rate that falls to 0."""
    rate = {"type": "cosine_decay", "learning_rate": made.learning_rate, "step_each_epoch": "1 epoch", "epochs": made.epochs}
    return [
        "    type: AdamW",
        f"    learning_rate: {flow(rate)}  # falls to 0 over the epochs",
        f"    weight_decay: {made.weight_decay!r}  # parameters that nothing needs shrink",
    ]


def head(what: str) -> list[str]:
    """Return the lines that a config begins with."""
    return [
        f"# {what}",
        "# Written by pe init --from; change what you like. `pe data` shows the data, `pe check` reports all mistakes, `pe train` trains.",
        "# Any value can be set on the command line, too: pe train FILE -o train.epochs=1",
        "model: MODEL_FILE",
        "",
        "# Paths start at this file's folder.",
    ]


def text(lines: Sequence[str]) -> str:
    """Return lines as a file."""
    return "\n".join(line.rstrip() for line in lines) + "\n"


def column_row(name: str, declared: Mapping[str, Any], comment: str) -> tuple[str, str, str]:
    """Return a column's line."""
    return f"{quoted(name)}:", flow(escaped(declared)), comment
