"""A starter for sentences whose words have tags: two LSTMs and a conditional random field."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from pe_cli.config.sections.data import SplitSection
from pe_cli.core.errors import PeError
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.data.column import Context, discover
from pe_cli.data.readers.tagged import TAGS, WORDS
from pe_cli.data.row_split import split_rows
from pe_cli.session.starters.divided import divided
from pe_cli.session.starters.files import (
    Lines,
    Settings,
    Starter,
    aligned,
    data_section,
    head,
    optimizer,
    text,
    training,
)
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.table_columns import FEWEST
from pe_cli.session.starters.training_plan import table_plan

#: Endings of files with a line per word.
SUFFIXES = (".conll", ".conllu", ".iob", ".bio", ".iob2", ".bioes")
#: Width of the embedding of words, and of what each LSTM keeps; texts from which a word is known; and steps of training at most.
WIDTH, KEPT, STEPS = 48, 48, 1500
#: Texts from which words that are in one text alone are unknown, so that the model learns what unknown words are like.
LARGER = 100


def has_spans(path: Path) -> bool:
    """Return whether a file of JSON has texts with spans, by its first bytes."""
    with path.open("rb") as file:
        first = file.read(1 << 16).decode("utf-8", "replace")
    found = re.search(r'"(label|labels|spans|entities)"\s*:\s*\[\s*[\[{]', first)
    return '"text"' in first and found is not None


def starter(settings: Settings) -> Starter:
    """Return a starter for files of tagged sentences.

    Raises:
        PeError: DATA; a file has another form, or too few sentences.
    """
    if settings.target not in (None, TAGS):
        raise PeError(f"--target '{said(settings.target)}': tagged words have the target 'tags'", hint="leave --target out")
    source: dict[str, Any] = {"reader": "tagged", "files": settings.path}
    table = settings.open(source)
    if len(table) < FEWEST:
        few = f"there are {len(table)} sentences, and a model needs {FEWEST} at least"
        raise table.error(0, WORDS, few, "an empty line ends a sentence")
    division = divided(settings, source, table)
    # Of all parts: a tag that the training part lacks would be an error in the evaluation.
    tags = Counter(tag for one in (table, *division.others) for row in range(len(one)) for tag in one.cells(TAGS).text(row).split())
    counts = Counter(tag for row in range(len(table)) for tag in table.cells(TAGS).text(row).split())
    rows = np.arange(len(table), dtype=np.int64)
    train = split_rows(table, rows, SplitSection.model_validate(division.split))["train"] if division.split else rows
    rare = {"min_count": 2} if len(table) >= LARGER else {}
    declared: dict[str, dict[str, Any]] = {WORDS: {"items": "category", **rare}, TAGS: {"items": "category", "classes": sorted(tags)}}
    kind = discover()["sequence"]
    sizes = {}
    for name, options in declared.items():
        state = kind.fit(kind.options.model_validate(options), Context(table, name, name == TAGS, base=settings.base), train)
        sizes[name] = len(kind.classes(state))
    made = table_plan(len(train), STEPS)
    shown = f"{len(table):,} sentences of {sum(counts.values()):,} words; {len(tags)} tags: {said(', '.join(sorted(tags)), 120)}"
    most, times = counts.most_common(1)[0]
    columns = [
        (f"{WORDS}:", flow({"type": "sequence", **declared[WORDS]}), f"{sizes[WORDS] - 1:,} words; others have an index of their own"),
        (f"{TAGS}:", flow({"type": "sequence", **declared[TAGS]}), "one for each word"),
    ]
    lines = [
        *head(f"Gives every word of texts like those of {said(settings.called)} a tag."),
        *data_section(division.sections, division.split, [f"{shown}.", *division.told], columns),
        "",
        "# Feed of the model: column of the data.",
        "feeds: {words: words, tags: tags}",
        *training(made, len(train), best="eval/acc", mode="max", metrics=("loss", "acc"), rest=optimizer(made)),
    ]
    share = f"{times / sum(counts.values()):.0%}"
    facts = (shown, *division.told, f"the most frequent tag, {said(most, 30)}, has {share} of the words: compare eval/acc with that")
    return Starter(text(lines), _model(settings, sizes, made.dropout), facts)


def _model(settings: Settings, sizes: dict[str, int], dropout: float) -> str:
    table = {"type": "embedding", "input": WORDS, "size": [sizes[WORDS], WIDTH]}
    # As in fluid, dynamic_lstm takes the inputs of its four gates ready-made, and its size counts all four.
    lstm = {"type": "dynamic_lstm", "size": 4 * KEPT, "use_peepholes": False}
    # Loss and decoding have to read the same transitions, which only a common name makes one parameter.
    named = {"param_attr": {"name": "transitions"}}
    layers: Lines = [
        ("table:", flow(table), "a row of numbers for each word, 0 for unknown ones"),
        ("drop1:", flow({"type": "dropout", "dropout_prob": dropout}), "in training only"),
        ("ahead:", flow({"type": "fc", "input": "drop1", "size": 4 * KEPT}), ""),
        ("forth:", flow({**lstm, "input": "ahead"}), "knows what stands before"),
        ("behind:", flow({"type": "fc", "input": "drop1", "size": 4 * KEPT}), ""),
        ("back:", flow({**lstm, "input": "behind", "is_reverse": True}), "and what behind"),
        ("both:", flow({"type": "concat", "input": ["forth.0", "back.0"], "axis": 1}), ""),
        ("drop2:", flow({"type": "dropout", "dropout_prob": dropout}), ""),
        ("scores:", flow({"type": "fc", "size": sizes[TAGS]}), "how much speaks for each tag of each word"),
        ("cost:", flow({"type": "linear_chain_crf", "input": "scores", "label": TAGS, **named}), "of all tags of a sentence together"),
        ("loss:", flow({"type": "mean", "x": "cost"}), "nats per sentence"),
        ("best:", flow({"type": "crf_decoding", "input": "scores", **named}), "the best tags of a sentence"),
        ("right:", flow({"type": "crf_decoding", "input": "scores", **named, "label": TAGS}), ""),
        ("rights:", flow({"type": "cast", "x": "right", "dtype": "float32"}), ""),
        ("acc:", flow({"type": "mean", "x": "rights"}), "share of words with the right tag"),
    ]
    lines = [
        f"# What is computed for {said(settings.config.name)}: two LSTMs, and a field that knows which tag may follow which.",
        "# `pe ops` lists every type of layer, `pe ops linear_chain_crf` explains one of them.",
        f"name: {quoted(safe(settings.config.stem, [], 'starter'))}",
        "",
        "# Inputs: an index for each word of a sentence, of any length.",
        "feeds:",
        "  words: {shape: [1], dtype: int64, lod_level: 1}",
        "  tags:  {shape: [1], dtype: int64, lod_level: 1}",
        "",
        "layers:",
        *aligned(layers, "  "),
        "",
        "# What is measured and predicted; single numbers become metrics.",
        "fetches: [loss, acc, scores, best]",
    ]
    return text(lines)
