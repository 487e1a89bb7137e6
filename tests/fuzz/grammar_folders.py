"""Folders of Hugging Face's transformers: those of the tests, with a config and values of which some are changed."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

FOLDERS = Path(__file__).parents[1] / "session" / "importing" / "folders"
_ODD: list[Any] = [
    0, -1, 1, 2, 3, 7, 2**31, 2**62, 0.5, 1e308, float("nan"), None, True, "", "gelu", "relu", "bert", "x" * 300, [], [1, -2], {},
    {"0": "a"},
]  # fmt: skip
_ENDS = (".x", "\u202e", "\n", "/../a")
_TYPES = ["F32", "F16", "BF16", "F64", "I64", "I8", "BOOL", "F8_E4M3", "odd"]


def packed(config: bytes, values: bytes) -> bytes:
    """Return one input: how long the config is, the config, and the file of values."""
    return len(config).to_bytes(4, "little") + config + values


def unpacked(data: bytes) -> tuple[bytes, bytes]:
    """Return config and values of an input."""
    size = int.from_bytes(data[:4], "little")
    return data[4 : 4 + size], data[4 + size :]


def whole() -> list[bytes]:
    """Return the folders of the tests."""
    return [packed(f.read_bytes(), (f.parent / "model.safetensors").read_bytes()) for f in sorted(FOLDERS.glob("*/config.json"))]


def _config(draw: random.Random, given: bytes) -> bytes:
    facts = json.loads(given)
    for _ in range(draw.choice([0, 1, 1, 2, 4])):
        name = draw.choice([*facts, "num_labels", "id2label", "hidden_act", "layers"])
        if draw.random() < 0.2:
            facts.pop(name, None)
        else:
            facts[name] = draw.choice(_ODD)
    return json.dumps(facts).encode()


def _values(draw: random.Random, given: bytes) -> bytes:
    size = int.from_bytes(given[:8], "little")
    header, rest = json.loads(given[8 : 8 + size]), given[8 + size :]
    for _ in range(draw.choice([0, 0, 1, 2])):
        name = draw.choice([one for one in header if one != "__metadata__"] or ["none"])
        facts, what = header.get(name, {}), draw.randint(0, 5)
        if what == 0:
            header.pop(name, None)
        elif what == 1:
            header[name + draw.choice(_ENDS)] = header.pop(name, {})
        elif what == 2:
            facts["shape"] = draw.choice([[], [0], [1, -1], facts.get("shape", [])[::-1], [2**40, 2**40], [3], "odd"])
        elif what == 3:
            facts["dtype"] = draw.choice(_TYPES)
        elif what == 4:
            facts["data_offsets"] = draw.choice([[0, 4], [4, 0], [0, 2**62], [-8, 8], [1], None])
        else:
            rest = rest[: draw.randint(0, len(rest))]
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


def folder(draw: random.Random) -> bytes:
    """Return a folder."""
    config, values = unpacked(draw.choice(whole()))
    return packed(_config(draw, config), _values(draw, values))
