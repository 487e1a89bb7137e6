"""An example of a config that trains an imported model on a few made-up rows, with the tokenizer of its folder."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from pe_cli.config.substitute import escaped
from pe_cli.core.patterns import matches
from pe_cli.core.yaml_inline import flow
from pe_cli.data.tokens.tokenizer_json import LIMIT
from pe_cli.io.regular_files import open_regular
from pe_cli.session.importing.hugging_face.config_values import bad
from pe_cli.session.importing.hugging_face.family import Family

TOKENIZER = "tokenizer.json"
#: Classes that the example has rows of, and rows of each.
_MOST_CLASSES, _ROWS = 20, 8
_TEXTS = (
    "The room was clean and the bed was soft",
    "Nobody answered when I called them twice",
    "It came late, and one of the boxes was open",
    "A short walk from the station, and quiet at night",
    "The soup was cold but the bread was good",
    "We would stay here again in the summer",
    "My order has not arrived after two weeks",
    "The new screen is bright and easy to read",
)
_TRAIN = """\
train:
  loss: loss
  epochs: 3
  batch_size: 16
  optimizer: {type: AdamW, learning_rate: 0.00005, weight_decay: 0.01, grad_clip: {type: GradientClipByGlobalNorm, clip_norm: 1.0}}
GROUPS
  init: {from: params.safetensors}
"""
_REST = """\
executor: {devices: 1, seed: 1}
output: {dir: runs, checkpoint: {every: 1 epoch, keep: 2}}
"""


def example(
    family: Family, head: str, values: Mapping[str, Any], labels: Sequence[str], folder: Path, parameters: Collection[str]
) -> tuple[dict[str, bytes], str]:
    """Return the files of an example by name, and what there is to say of it; no files where there can be none.

    Args:
        family: of the model.
        head: of the family.
        values: of the family, see `ConfigValues`.
        labels: names of the classes in order; none where they have only numbers.
        folder: that is imported.
        parameters: names of the model's.

    Raises:
        PeError: DATA; its tokenizer.json is larger than any.
    """
    # A pattern that is about nothing is a mistake in a config: a family may have biases that this model has not.
    no_decay = [pattern for pattern in family.no_decay if any(matches(name, [pattern]) for name in parameters)]
    groups = f"  groups:\n    - {{match: {flow(no_decay)}, weight_decay: 0}}\n" if no_decay else ""
    kind, train = family.heads[head].data, _TRAIN.replace("GROUPS\n", groups)
    if kind not in ("texts", "blocks"):
        return {}, "there is no train.yaml: no reader makes what this head learns from"
    if not (folder / TOKENIZER).is_file():
        return {}, f"there is no train.yaml: the folder has no {TOKENIZER}, which AutoTokenizer(...).save_pretrained() writes"
    with open_regular(folder / TOKENIZER) as stream:
        tokenizer = stream.read(LIMIT + 1)
    if len(tokenizer) > LIMIT:
        raise bad(f"{folder / TOKENIZER} has more than {LIMIT:,} bytes", "take another tokenizer, or leave it out")
    if kind == "blocks":
        files = {TOKENIZER: tokenizer, **_blocks(values["length"], train)}
        return files, "train.yaml trains on text.txt, which is made up: name your own text"
    if values["ending"] != "classes" or values["classes"] > _MOST_CLASSES:
        return {TOKENIZER: tokenizer}, "there is no train.yaml: it is written for up to 20 classes of which each row has one"
    named = labels if len(labels) == values["classes"] else [f"class{i}" for i in range(values["classes"])]
    files = {TOKENIZER: tokenizer, **_texts(values["length"], named, train)}
    return files, "train.yaml trains on texts.csv, which is made up: name your own table"


def _texts(length: int, labels: Sequence[str], train: str) -> dict[str, bytes]:
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    writer.writerow(["text", "label"])
    for i in range(_ROWS * len(labels)):
        writer.writerow([f"{_TEXTS[(i * 5) % 8]}. {_TEXTS[(i * 3 + i // 8) % 8]}.", labels[i % len(labels)]])
    columns = {"text": {"type": "text", "tokens": {"file": TOKENIZER}, "length": length}, "label": {"type": "category", "classes": labels}}
    config = (
        "# An example: name your own table in the place of texts.csv, and its columns.\n"
        "model: model.yaml\n"
        "data:\n"
        "  source: {reader: table, files: texts.csv}\n"
        "  split: {eval: 0.25, stratify: label, seed: 1}\n"
        f"  columns: {flow(escaped(columns))}\n"
        "feeds: {input_ids: text, label: label}\n"
        f"{train}fetches: {{loss: {{every: 1 epoch}}, acc: {{every: 1 epoch}}}}\n{_REST}"
    )
    return {"texts.csv": rows.getvalue().encode(), "train.yaml": config.encode()}


def _blocks(length: int, train: str) -> dict[str, bytes]:
    lines = [f"{_TEXTS[(i * 5) % 8]}. {_TEXTS[(i * 3 + i // 8) % 8]}." for i in range(max(200, 4 * length))]
    config = (
        "# An example: name your own text in the place of text.txt.\n"
        "model: model.yaml\n"
        "data:\n"
        f"  source: {{reader: text, files: text.txt, blocks: {length}}}\n"
        "  split: {eval: 0.1}\n"
        f"  columns: {{tokens: {{type: blocks, tokens: {{file: {TOKENIZER}}}}}}}\n"
        "feeds: {input_ids: tokens, next: next}\n"
        f"{train}fetches: {{loss: {{every: 1 epoch}}}}\n{_REST}"
    )
    return {"text.txt": ("\n".join(lines) + "\n").encode(), "train.yaml": config.encode()}
