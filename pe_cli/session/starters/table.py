"""A starter for a table: scaled numbers, embeddings of categories and texts, side by side into two hidden layers."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.config.sections.data import SplitSection
from pe_cli.config.substitute import escaped
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.flow import flow, quoted
from pe_cli.data.cells import MISSING, Table
from pe_cli.data.column import Context, discover
from pe_cli.data.columns.date import parse
from pe_cli.data.fields import Rows
from pe_cli.data.split import split_rows
from pe_cli.session.starters import series
from pe_cli.session.starters.files import Lines, Starter, Wish, aligned, column_row, data_section, head, text, training
from pe_cli.session.starters.guess import Guess, guess, guess_target, left_out, markers, no_target
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.plan import Plan, embedding_width, plan, shares

#: Rows that a table must have, so that every part of its split has some.
FEWEST = 10
#: Columns that are written; more are left out.
MOST_COLUMNS = 200
#: Names of layers and feeds that every starter has.
TAKEN = ("x", "label", "value", "all", "hidden1", "drop1", "hidden2", "drop2", "logits", "xent", "loss", "prob", "acc")
TAKEN_NUMBER = ("estimate", "square", "gap", "distance", "mean_distance", "error")
#: Rows of an embedding of texts, at most; and its width.
VOCABULARY, TEXT_WIDTH = 10_000, 32


@dataclass
class Looked:
    """A table, looked at.

    Args:
        table: the rows.
        source: reader and options, as the config says them.
        target: how the target is taken.
        guesses: how other columns are taken.
        split: how the rows are divided.
        parts: the rows of every part.
        states: column -> what it learned from the training rows.
    """

    table: Table
    source: dict[str, Any]
    target: Guess
    guesses: list[Guess]
    split: dict[str, Any]
    parts: Mapping[str, Rows]
    states: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        """Training rows."""
        return len(self.parts["train"])

    def used(self, *types: str) -> list[Guess]:
        """Return the columns of some types."""
        return [found for found in self.guesses if found.type in types]

    def indices(self, name: str) -> int:
        """Return the number of indices of a column with classes."""
        kind = self.target.type if name == self.target.name else next(g.type for g in self.guesses if g.name == name)
        return len(discover()[str(kind)].classes(self.states[name]))

    def tokens(self, name: str) -> int:
        """Return the number of ids of a column of texts."""
        from pe_cli.data.tokens.kinds import open_tokens

        return open_tokens(self.states[name]["tokens"]).size


def starter(wish: Wish) -> Starter:
    """Return a starter for a table in files.

    Raises:
        PeError: USAGE, no target is named; DATA, the table cannot be read, or its target cannot be learned.
    """
    source: dict[str, Any] = {"reader": "table", "files": _files(wish)}
    table = wish.open(source)
    if wish.target is None or wish.target not in table.names:
        raise no_target(table.names, wish.target)
    found = markers(table)
    if found:
        source["missing"] = [*MISSING, *found]
        table = wish.open(source)
    if wish.task in ("auto", "series"):
        guesses = [guess(table, name) for name in table.names if name != wish.target][:MOST_COLUMNS]
        there = series.find(table, wish.target, guesses)
        if isinstance(there, series.Found):
            options = {key: value for key, value in source.items() if key != "reader"}
            return series.starter(wish, table, options, wish.target, there, guesses)
        if wish.task == "series":
            hint = "--task number or classes predicts from the other columns"
            raise PeError(f"{wish.source} holds no series: {there}", hint=hint, code=ExitCode.DATA)
    return of_table(table, source, wish, wish.target)


def of_table(table: Table, source: dict[str, Any], wish: Wish, target: str) -> Starter:
    """Return a starter for a table that is open."""
    looked = look(table, source, wish, target)
    return Starter(_config(looked, wish), _model(looked, wish), _notes(looked))


def _files(wish: Wish) -> str:
    if not wish.source.is_dir():
        return wish.path
    kinds = sorted(
        {
            "".join(path.suffixes[-2:]) if path.suffix in (".gz", ".zst") else path.suffix
            for path in tables_in(wish.source)
        }
    )
    if len(kinds) != 1:
        raise PeError(
            f"{wish.source} has tables of several kinds: {', '.join(kinds)}", hint="name one file", code=ExitCode.DATA
        )
    return f"{glob.escape(wish.path)}/*{kinds[0]}"


def tables_in(folder: Path) -> list[Path]:
    """Return the tables that lie in a folder."""
    from pe_cli.session.given import is_table_file

    return sorted(
        path for path in folder.iterdir() if is_table_file(path) and path.is_file() and not path.name.startswith(".")
    )


# --- looking ----------------------------------------------------------------------------------------------------------


def look(table: Table, source: dict[str, Any], wish: Wish, target: str) -> Looked:
    """Return what a table is, with its rows split and its columns fitted.

    Raises:
        PeError: DATA; it has too few rows, no column to learn from, or a target that cannot be learned.
    """
    if len(table) < FEWEST:
        raise table.error(
            0, target, f"the table has {len(table)} rows, and a model needs at least {FEWEST}", "add rows"
        )
    others = [name for name in table.names if name != target]
    guesses = [guess(table, name) for name in others[:MOST_COLUMNS]]
    guesses += [Guess(name, None, why=f"more than {MOST_COLUMNS} columns") for name in others[MOST_COLUMNS:]]
    aim = guess_target(table, target, wish.task)
    split: dict[str, Any] = {
        **shares(len(table)),
        **({"stratify": target} if aim.type == "category" else {}),
        "seed": 1,
    }
    rows = np.arange(len(table), dtype=np.int64)
    parts = split_rows(table, rows, SplitSection.model_validate(split))
    looked = Looked(table, source, _known(aim, table, parts), guesses, split, parts)
    looked.states[target] = _fitted(looked, looked.target, wish)
    looked.guesses = [_fitting(looked, found, wish) for found in guesses]
    if not any(found.type for found in looked.guesses):
        why = "; ".join(f"'{said(found.name, 30)}': {found.why}" for found in guesses[:10])
        raise table.error(0, target, f"no other column is left to learn from. {why}", "add columns")
    return looked


def _known(aim: Guess, table: Table, parts: Mapping[str, Rows]) -> Guess:
    """Return the target with its classes written out where some are so rare that no training row has them."""
    if aim.type != "category":
        return aim
    codes = table.cells(aim.name).codes()
    there = np.bincount(codes.codes[parts["train"]], minlength=len(codes.words)) > 0
    if there.all():
        return aim
    words = sorted(codes.words, key=lambda word: (float(word) if _is_number(codes.words) else 0.0, word))
    gone = [said(word, 30) for word, known in zip(codes.words, there.tolist(), strict=True) if not known]
    return replace(aim, options={"classes": words}, why=f"{aim.why}; no training row has {', '.join(gone[:5])}")


def _is_number(words: Sequence[str]) -> bool:
    try:
        return all(np.isfinite(float(word)) for word in words)
    except ValueError:
        return False


def _fitted(looked: Looked, found: Guess, wish: Wish) -> dict[str, Any]:
    kind = discover()[str(found.type)]
    is_target = found.name == looked.target.name
    context = Context(looked.table, found.name, is_target, None, None, wish.base)
    options = kind.options.model_validate(dict(found.options))
    state: dict[str, Any] = kind.fit(options, context, looked.parts["train"])
    return state


def _fitting(looked: Looked, found: Guess, wish: Wish) -> Guess:
    """Return a column with what it learned put down; left out where it cannot learn from the training rows."""
    if found.type is None:
        return found
    try:
        looked.states[found.name] = _fitted(looked, found, wish)
    except PeError as error:
        return left_out(found, said(error.message, 120))
    return found


# --- the config -------------------------------------------------------------------------------------------------------


def _plan(looked: Looked) -> Plan:
    made = plan(looked.rows)
    return made if not looked.used("text") else replace(plan(looked.rows, 2000), learning_rate=0.002)


def _config(looked: Looked, wish: Wish) -> str:
    target = looked.target
    classes = target.type == "category"
    what = f"Predicts {'the class' if classes else 'the number'} '{said(target.name)}' from the other columns of {said(wish.source.name)}."
    share = ", ".join(
        f"{100 * looked.split[part]:g}% for {_USES[part]}" for part in ("eval", "test") if part in looked.split
    )
    time = _in_time(looked)
    later = (
        [
            f"Rows are in the order of '{said(time)}'. To evaluate with the latest: {{eval: 0.15, time: {quoted(escaped(time))}, seed: 1}}"
        ]
        if time
        else []
    )
    how = [f"stratify: every part has its share of every class of '{said(target.name)}'."] if classes else []
    columns = [column_row(g.name, g.written, g.why) for g in looked.guesses if g.type] + [
        column_row(target.name, target.written, f"the target: {target.why}")
    ]
    out = [f"  # Left out: '{said(g.name)}': {said(g.why, 200)}" for g in looked.guesses if not g.type]
    comment = f"{len(looked.table):,} rows, drawn by the seed: {share}, the rest for training."
    metric, mode = ("acc", "max") if classes else ("error", "min")
    lines = [
        *head(what, wish),
        *data_section(looked.source, looked.split, [comment, *how, *later], columns, out),
        "",
        *_feeds(looked),
        *training(_plan(looked), looked.rows, best=f"eval/{metric}", mode=mode, metrics=("loss", metric)),
    ]
    return text(lines)


def _in_time(looked: Looked) -> str | None:
    """Return a column of dates by which the rows are sorted; None where there is none."""
    for found in looked.used("date"):
        codes = looked.table.cells(found.name).codes()
        if len(codes.words) * 2 < len(looked.table) or (codes.codes < 0).any():
            continue
        moments = np.array([parse(word, found.options.get("format")).timestamp() for word in codes.words])[codes.codes]
        if (np.diff(moments) >= 0).all():
            return found.name
    return None


_USES = {"eval": "the evaluation after every epoch", "test": "a last test (pe eval --split test)"}


def _feeds(looked: Looked) -> list[str]:
    lines = ["# Input of the model: the columns that make it. Several columns stand side by side."]
    rows: Lines = []
    numbers = _numbers(looked)
    if numbers:
        rows.append(("x:", flow(escaped([g.name for g in numbers])), _sum_of(looked)))
    for found, feed in _branches(looked).items():
        rows.append((f"{feed}:", quoted(escaped(found)), ""))
    goal = ("label:" if looked.target.type == "category" else "value:", quoted(escaped(looked.target.name)), "what is predicted")
    return [*lines, "feeds:", *aligned([*rows, goal], "  ")]


def _numbers(looked: Looked) -> list[Guess]:
    return looked.used("number", "bool", "date")


def _width(looked: Looked, found: Guess) -> int:
    """Return how many numbers a column gives."""
    return len(looked.states[found.name]["divisor"]) if found.type == "date" else 1


def _sum_of(looked: Looked) -> str:
    wide = [(found.name, _width(looked, found)) for found in _numbers(looked)]
    total = sum(width for _, width in wide)
    if all(width == 1 for _, width in wide) or total == len(wide):
        return f"{total} number{'s' * (total > 1)}"
    return (
        f"{total} numbers: "
        + ", ".join(f"{width} of {said(name, 24)}" for name, width in wide if width > 1)
        + ", 1 of each other"
    )


def _branches(looked: Looked) -> dict[str, str]:
    """Return the columns that have a feed of their own, and its name."""
    taken = [*TAKEN, *TAKEN_NUMBER]
    found: dict[str, str] = {}
    for one in looked.used("category", "bag", "text"):
        feed = safe(one.name, taken)
        found[one.name] = feed
        taken += [feed, f"{feed}_row", f"{feed}_sum", f"{feed}_words", f"{feed}_conv", f"{feed}_text"]
    return found


# --- the model --------------------------------------------------------------------------------------------------------


def _model(looked: Looked, wish: Wish) -> str:
    found = _plan(looked)
    classes = looked.target.type == "category"
    feeds: Lines = []
    layers: Lines = []
    outputs: list[str] = []
    if _numbers(looked):
        total = sum(_width(looked, one) for one in _numbers(looked))
        feeds.append(("x:", flow({"shape": [total]}), f"{_sum_of(looked)}, as feeds of the config says"))
        outputs.append("x")
    for name, feed in _branches(looked).items():
        one = next(g for g in looked.guesses if g.name == name)
        outputs.append(_BRANCHES[str(one.type)](looked, one, feed, feeds, layers))
    if classes:
        feeds.append(("label:", "{shape: [1], dtype: int64}", f"index of the class of '{said(looked.target.name)}'"))
    else:
        feeds.append(("value:", "{shape: [1]}", f"'{said(looked.target.name)}', scaled to mean 0 and deviation 1"))
    if len(outputs) > 1:
        layers.append(("all:", flow({"type": "concat", "input": outputs, "axis": 1}), "side by side"))
    first = "all" if len(outputs) > 1 else outputs[0]
    layers += _hidden(first, found) + (_classes(looked) if classes else _number(looked))
    lines = [
        f"# What is computed for {said(wish.config.name)}. `pe ops` lists every type of layer, `pe ops fc` tells one of them.",
        "# Sizes come from the data, which pe init looked at: change them with the columns.",
        f"name: {quoted(safe(wish.config.stem, [], 'starter'))}",
        "",
        "# Inputs, each with the shape of one sample.",
        "feeds:",
        *aligned(feeds, "  "),
        "",
        "# Layers in order: the key names the output; a layer that names no input takes the output of the layer before it.",
        *(
            ["# An embedding of n indices is 1.6 * n ** 0.56 wide, at most 50."]
            if looked.used("category", "bag")
            else []
        ),
        "layers:",
        *aligned(layers, "  "),
        "",
        "# What is measured and predicted; single numbers become metrics.",
        f"fetches: {flow(['loss', 'acc', 'prob'] if classes else ['loss', 'error', 'estimate'])}",
    ]
    return text(lines)


def _category(looked: Looked, one: Guess, feed: str, feeds: Lines, layers: Lines) -> str:
    count = looked.indices(one.name)
    width = embedding_width(count)
    feeds.append((f"{feed}:", "{shape: [1], dtype: int64}", f"index of the class of '{said(one.name)}'"))
    said_of = f"{count - 2} class{'es' * (count != 3)} of the training rows, unknown and missing"
    layers.append((f"{feed}_row:", flow({"type": "embedding", "input": feed, "size": [count, width]}), said_of))
    return f"{feed}_row"


def _bag(looked: Looked, one: Guess, feed: str, feeds: Lines, layers: Lines) -> str:
    count = looked.indices(one.name)
    feeds.append(
        (f"{feed}:", flow({"shape": [count]}), f"1 for every item that '{said(one.name)}' has; {count} indices")
    )
    declared = {"type": "fc", "input": feed, "size": embedding_width(count), "bias_attr": False}
    layers.append((f"{feed}_sum:", flow(declared), "the sum of the items' rows of an embedding"))
    return f"{feed}_sum"


def _text_branch(looked: Looked, one: Guess, feed: str, feeds: Lines, layers: Lines) -> str:
    count = looked.tokens(one.name)
    kind = one.options.get("tokens", "words")
    feeds.append((f"{feed}:", "{shape: [1], dtype: int64, lod_level: 1}", f"ids of the {kind} of '{said(one.name)}'"))
    table = {"type": "embedding", "input": feed, "size": [count, TEXT_WIDTH]}
    layers += [
        (
            f"{feed}_words:",
            flow(table),
            f"{count} ids: those of the training texts, 0 for padding and 1 for unknown ones",
        ),
        (
            f"{feed}_conv:",
            "{type: sequence_conv, num_filters: 64, filter_size: 3, act: relu}",
            "three neighbours at a time",
        ),
        (f"{feed}_text:", "{type: sequence_pool, pool_type: max}", "the strongest of each of 64 patterns"),
    ]
    return f"{feed}_text"


_BRANCHES = {"category": _category, "bag": _bag, "text": _text_branch}


def _hidden(first: str, found: Plan) -> Lines:
    drop = flow({"type": "dropout", "dropout_prob": found.dropout})
    return [
        ("hidden1:", flow({"type": "fc", "input": first, "size": found.hidden, "act": "relu"}), ""),
        ("drop1:", drop, "in training only"),
        ("hidden2:", flow({"type": "fc", "size": found.hidden, "act": "relu"}), ""),
        ("drop2:", drop, ""),
    ]


def _classes(looked: Looked) -> Lines:
    count = looked.indices(looked.target.name)
    return [
        ("logits:", flow({"type": "fc", "size": count}), f"{count} classes of '{said(looked.target.name)}'"),
        *CLASSIFIER,
    ]


#: What follows the logits of a classifier.
CLASSIFIER = [
    ("xent:", "{type: softmax_with_cross_entropy, logits: logits, label: label}", ""),
    ("loss:", "{type: mean, x: xent}", ""),
    ("prob:", "{type: softmax, input: logits}", "probability of every class"),
    ("acc:", "{type: accuracy, input: prob, label: label}", "share of the rows whose most probable class is right"),
]


def _number(looked: Looked) -> Lines:
    deviation = float(np.ravel(looked.states[looked.target.name]["divisor"])[0])
    name = said(looked.target.name)
    return [
        ("estimate:", "{type: fc, size: 1}", f"pe predict gives it in the unit of '{name}'"),
        ("square:", "{type: square_error_cost, input: estimate, label: value}", ""),
        ("loss:", "{type: mean, x: square}", ""),
        ("gap:", "{type: elementwise_sub, x: estimate, y: value}", ""),
        ("distance:", "{type: abs, x: gap}", ""),
        ("mean_distance:", "{type: mean, x: distance}", ""),
        (
            "error:",
            flow({"type": "scale", "x": "mean_distance", "scale": float(f"{deviation:.9g}")}),
            f"mean absolute error in the unit of '{name}': times its deviation in the training rows",
        ),
    ]


def _notes(looked: Looked) -> tuple[str, ...]:
    target = looked.target
    kind = "classes" if target.type == "category" else "a number"
    notes = [f"{len(looked.table):,} rows; '{said(target.name)}' is taken for {kind}: {target.why}"]
    for types, what in (
        (("number", "bool", "date"), "numbers"), (("category",), "categories"), (("bag",), "lists"), (("text",), "texts")
    ):  # fmt: skip
        found = looked.used(*types)
        if found:
            notes.append(f"{what}: {', '.join(said(g.name, 30) for g in found)}")
    notes += [f"left out: '{said(g.name, 30)}': {g.why}" for g in looked.guesses if not g.type]
    return tuple(notes)
