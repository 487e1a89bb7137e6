"""A starter for anomalies in a table, without a target: an autoencoder whose errors are the scores of rows and of their cells."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pe_cli.config.substitute import escaped
from pe_cli.core.errors import PeError
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.raw_cells import Table
from pe_cli.session.starters.files import (
    Lines,
    Settings,
    Starter,
    aligned,
    column_row,
    data_section,
    head,
    optimizer,
    text,
    training,
)
from pe_cli.session.starters.guesses import Asked
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.table_columns import Inspected, branches_of, look, numbers_of, sum_of, width_of
from pe_cli.session.starters.training_plan import table_plan

#: Numbers that a row is pressed into: a third of its columns, at most so many; and the share of its numbers that training hides.
CODE, HIDDEN_SHARE = 16, 0.2
#: Logarithms of the variances that are expected, at least and at most: a deviation of 0.05 to 7, in deviations of the column.
LEAST, MOST = -6.0, 4.0
#: Names of the layers, besides those of columns.
_TAKEN = ("x", "score")


def starter(table: Table, source: dict[str, Any], settings: Settings, asked: Asked, comments: Sequence[str]) -> Starter:
    """Return a starter for a table that is open; columns of texts, lists and pictures are left out.

    Raises:
        PeError: DATA; it has too few rows, or no column of numbers or categories.
    """
    if settings.target is not None:
        raise PeError(f"--target '{said(settings.target)}': --task anomaly has no target", hint="leave --target or --task out")
    inspected = look(table, source, settings, [], asked, comments)
    others = inspected.used("bag", "text", "image")
    inspected.guesses = [one for one in inspected.guesses if one not in others]
    if not numbers_of(inspected) and not inspected.used("category"):
        raise table.error(0, table.names[0], "no column of numbers or categories is left", "--columns NAME=category takes one as it is")
    names = _scores(inspected)
    notes = [
        f"{len(table):,} rows; {len(names)} columns are learned, and what a row has that the others do not explain is its score",
        *(f"'{said(one.name, 30)}' is left out: {one.type} columns have no score" for one in others),
        *(f"{what} is left out: {said(why, 120)}" for what, why in inspected.left_out),
        *inspected.notes,
    ]
    return Starter(_config(inspected, settings), _model(inspected, settings, names), tuple(notes))


def _scores(inspected: Inspected) -> dict[str, str]:
    """Return the columns, each with the name of its score."""
    taken = list(_TAKEN)
    found: dict[str, str] = {}
    for one in [*numbers_of(inspected), *inspected.used("category")]:
        found[one.name] = f"score_{safe(one.name, [name.removeprefix('score_') for name in taken])}"
        taken.append(found[one.name])
    return found


def _config(inspected: Inspected, settings: Settings) -> str:
    columns = [column_row(one.name, one.written, one.why) for one in inspected.guesses if one.type]
    made = table_plan(inspected.rows)
    rows: Lines = []
    numbers = numbers_of(inspected)
    if numbers:
        rows.append(("x:", flow(escaped([one.name for one in numbers])), sum_of(inspected)))
    rows += [(f"{feed}:", quoted(escaped(name)), "") for name, feed in branches_of(inspected).items()]
    out = [f"  # Left out: {what}: {said(why, 200)}" for what, why in inspected.left_out]
    comment = f"{len(inspected.table):,} rows, drawn by the seed."
    lines = [
        *head(f"Scores the rows of {said(settings.called)}, and every cell of them: the higher, the less the other cells explain it."),
        *data_section(inspected.sections, inspected.split, [*inspected.comments, comment], columns, out),
        "",
        "# Feed of the model: columns of the data.",
        "feeds:",
        *aligned(rows, "  "),
        *training(made, inspected.rows, best="eval/loss", mode="min", rest=optimizer(made)),
    ]
    return text(lines)


def _model(inspected: Inspected, settings: Settings, names: dict[str, str]) -> str:
    feeds: Lines = []
    layers: Lines = []
    inputs: list[str] = []
    total = sum(width_of(inspected, one) for one in numbers_of(inspected))
    if total:
        feeds.append(("x:", flow({"shape": [total]}), f"{sum_of(inspected)}, as `feeds` of the config says"))
        inputs.append("x")
    categories = [(name, feed, inspected.indices(name)) for name, feed in branches_of(inspected).items()]
    for name, feed, count in categories:
        feeds.append((f"{feed}:", "{shape: [1], dtype: int64}", f"index of the class of '{said(name)}'"))
        layers.append((f"{feed}_hot:", flow({"type": "one_hot", "input": feed, "depth": count}), f"1 at one of {count} classes"))
        inputs.append(f"{feed}_hot")
    code = max(1, min(CODE, round((len(numbers_of(inspected)) + len(categories)) / 3)))
    layers += [
        ("all:", flow({"type": "concat", "input": inputs, "axis": 1}) if len(inputs) > 1 else flow({"type": "scale", "x": inputs[0]}), ""),
        ("drop:", flow({"type": "dropout", "dropout_prob": HIDDEN_SHARE}), "in training only: what is hidden has to be told from the rest"),
        ("hidden:", flow({"type": "fc", "size": table_plan(inspected.rows).hidden, "act": "relu"}), ""),
        ("code:", flow({"type": "fc", "size": code}), f"the row in {code} number{'s' * (code > 1)}: pe predict --fetch code writes them"),
        ("decoded:", flow({"type": "fc", "size": table_plan(inspected.rows).hidden, "act": "relu"}), ""),
    ]
    terms = [names[one.name] for one in numbers_of(inspected)]
    if total:
        layers += _numbers(inspected, names, total)
    for name, feed, count in categories:
        logits, score = f"{feed}_logits", names[name]
        layers += [
            (f"{logits}:", flow({"type": "fc", "input": "decoded", "size": count}), ""),
            (f"{score}:", flow({"type": "softmax_with_cross_entropy", "logits": logits, "label": f"{feed}_hot", "soft_label": True}),
             f"how unlikely '{said(name, 30)}' is, in nats"),
        ]  # fmt: skip
        terms.append(score)
    parts = ["mean_score", *(["mean_spread"] if total else [])]
    layers += [
        ("score:", flow({"type": "sum", "x": terms}), "of the row: the sum over its cells"),
        ("mean_score:", flow({"type": "mean", "x": "score"}), ""),
        # The logarithms of the deviations in the normal density: without them, large variances would explain everything.
        *([("mean_spread:", flow({"type": "scale", "x": "spreads", "scale": 0.5 * total}), "")] if total else []),
        ("loss:", flow({"type": "sum", "x": parts}), "how unlikely rows are, but for a constant"),
    ]
    lines = [
        f"# What is computed for {said(settings.config.name)}: an autoencoder, which presses a row into a few numbers and says it again.",
        "# `pe ops` lists every type of layer, `pe ops fc` explains one of them.",
        f"name: {quoted(safe(settings.config.stem, [], 'starter'))}",
        "",
        "# Inputs, each with the shape of one sample.",
        "feeds:",
        *aligned(feeds, "  "),
        "",
        "layers:",
        *aligned(layers, "  "),
        "",
        "# What is measured and predicted; single numbers become metrics.",
        f"fetches: {flow(['loss', 'score', *names.values()])}",
    ]
    return text(lines)


def _numbers(inspected: Inspected, names: dict[str, str], total: int) -> Lines:
    """Return the layers that expect a mean and a variance of every number, and score how far it is from both."""
    layers: Lines = [
        ("mean:", flow({"type": "fc", "input": "decoded", "size": total}), "what is expected of every number"),
        ("variance:", flow({"type": "fc", "input": "decoded", "size": total}), "the logarithm of how far off is usual, squared"),
        # Unbounded, a number that is always explained would let its variance, and with it the loss, fall without end.
        ("spread:", flow({"type": "clip", "x": "variance", "min": LEAST, "max": MOST}), ""),
        ("spreads:", flow({"type": "mean", "x": "spread"}), ""),
        ("apart:", flow({"type": "elementwise_sub", "x": "x", "y": "mean"}), ""),
        ("square:", flow({"type": "square", "x": "apart"}), ""),
        ("narrow:", flow({"type": "scale", "x": "spread", "scale": -1.0}), ""),
        ("precision:", flow({"type": "exp", "x": "narrow"}), ""),
        ("distance:", flow({"type": "elementwise_mul", "x": "square", "y": "precision"}), "squared, in deviations that are usual"),
        ("surprise:", flow({"type": "scale", "x": "distance", "scale": 0.5}), "in nats"),
    ]
    start = 0
    for one in numbers_of(inspected):
        width = width_of(inspected, one)
        cut = {"type": "slice", "input": "surprise", "axes": [1], "starts": [start], "ends": [start + width]}
        name = names[one.name]
        if width == 1:
            layers.append((f"{name}:", flow(cut), f"of '{said(one.name, 30)}'"))
        else:
            layers += [
                (f"{name}_each:", flow(cut), ""),
                (f"{name}:", flow({"type": "reduce_sum", "dim": 1, "keep_dim": True}), f"of '{said(one.name, 30)}'"),
            ]
        start += width
    return layers
