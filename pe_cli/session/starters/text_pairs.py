"""Two columns of texts that speak of the same things: one vocabulary for both, and layers that compare them."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import replace

from pe_cli.core.yaml_inline import flow
from pe_cli.data.raw_cells import Table
from pe_cli.session.starters.files import Lines
from pe_cli.session.starters.guesses import Guess
from pe_cli.session.starters.names import said

#: Share of the words of one column that the other one has, and rows that are looked at.
SHARED, LOOKED = 0.3, 2000
#: Layers that compare two texts.
LAYERS = ("pair_gap", "pair_alike", "mean_gap", "mean_alike")


def paired(table: Table, guesses: Sequence[Guess], declared: Container[str]) -> list[Guess]:
    """Return columns, of which the only two of texts have one vocabulary where they share words.

    Args:
        table: has the columns.
        guesses: how they are taken.
        declared: columns of which the user has said what they are.
    """
    texts = [one for one in guesses if one.type == "text"]
    if len(texts) != 2 or any(one.name in declared for one in texts) or texts[0].options != texts[1].options:
        return list(guesses)
    words = [_words(table, one.name) for one in texts]
    # Relative to the smaller vocabulary: short texts can share only few of the words of long ones.
    if len(words[0] & words[1]) < SHARED * min(map(len, words)):
        return list(guesses)
    names = [one.name for one in texts]
    both = f"'{said(names[0], 30)}' and '{said(names[1], 30)}'"
    note = f"{both} share words, and are compared: one vocabulary, and layers that take their gap"
    return [
        replace(one, options={**one.options, "vocabulary": names}, note=note if one is texts[0] else one.note) if one in texts else one
        for one in guesses
    ]


def _words(table: Table, name: str) -> set[str]:
    strings = table.cells(name).strings()
    return {word for row in range(min(len(strings), LOOKED)) for word in strings[row].lower().split()}


def compared(feeds: Sequence[str]) -> tuple[Lines, list[str]]:
    """Return layers that compare two encoded texts, and those of them that go on.

    Args:
        feeds: of the texts; their layers `FEED_text` and `FEED_mean` are there.

    Source:
        Conneau et al. 2017, Supervised Learning of Universal Sentence Representations: |u - v| and u * v beside u and v.
    """
    layers: Lines = []
    for what, of in (("pair", "text"), ("mean", "mean")):
        pair = {"x": f"{feeds[0]}_{of}", "y": f"{feeds[1]}_{of}"}
        layers += [
            (f"{what}_away:", flow({"type": "elementwise_sub", **pair}), ""),
            (f"{what}_gap:", flow({"type": "abs", "x": f"{what}_away"}), "how far the two texts are apart, number by number"),
            (f"{what}_alike:", flow({"type": "elementwise_mul", **pair}), "what both have"),
        ]
    return layers, list(LAYERS)
