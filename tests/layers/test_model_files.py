"""Every call of test_catalogue.py as lines of a model file: the same ops come out."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
import yaml

from pe_cli import layers
from pe_cli.build.build import build
from pe_cli.config.load import load_model
from pe_cli.layers.define.registry import LAYERS, discover
from tests.layers import sequence_calls, support
from tests.layers.test_catalogue import CALLS, FEEDS

FAMILIES = Path(layers.__file__).parent
#: Layer -> why a model file cannot call it as fluid does.
ELSEWHERE = {"data": "feeds: declares what is fed"}


class Said:
    """Stands for what a layer gives: its name in the file, and those of its outputs."""

    def __init__(self, name):
        self.name = name

    def __getitem__(self, i):
        return [self[k] for k in range(i.stop)[i]] if isinstance(i, slice) else Said(f"{self.name}.{i}")

    def __iter__(self):
        return iter(self[:2])  # calls that are handed all outputs of another have two


class Feeds:
    """Feeds of the catalogue by name, and which of them were asked for."""

    def __init__(self):
        self.used = {}

    def __getattr__(self, name):
        levels = int(name in sequence_calls.FEEDS)
        shape, dtype = (sequence_calls.FEEDS if levels else FEEDS)[name]
        self.used[name] = {"shape": shape, "dtype": dtype, **({"lod_level": levels} if levels else {})}
        return Said(name)


def plain(value):
    if isinstance(value, Said):
        return value.name
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


@pytest.fixture
def written(monkeypatch):
    """Make calls of layers entries of a mapping, which is returned."""
    entries = {}

    def layer(self, name):
        def call(*args, **kwargs):
            given = inspect.signature(discover()[name].fn).bind(*args, **kwargs).arguments
            key = given.pop("name", None) or f"layer{len(entries)}"
            entries[key] = {"type": name} | {k: plain(v) for k, v in given.items()}
            return Said(key)

        return call

    monkeypatch.setattr(support.Layers, "__getattr__", layer)
    return entries


@pytest.mark.parametrize("name", [n for n in sorted(CALLS) if n not in ELSEWHERE])
def test_a_model_file_says_the_same_as_a_call(name, written, tmp_path):
    call, ops, types = CALLS[name]
    feeds = Feeds()
    made = call(feeds)
    found = made[: len(types)] if isinstance(made, Said) and len(types) > 1 else made if isinstance(made, (list, tuple)) else [made]
    text = {"name": "m", "feeds": feeds.used, "layers": written, "fetches": [v.name for v in found]}
    (tmp_path / "m.yaml").write_text(yaml.safe_dump(text, sort_keys=False))
    built = build(load_model(tmp_path / "m.yaml"))
    assert name in LAYERS
    assert [op.type for op in built.eval.global_block().ops] == ops.split()


@pytest.mark.parametrize("name", [n for n in sorted(discover()) if n not in ELSEWHERE])
def test_the_example_of_a_layer_is_a_model_file_without_mistakes(name, tmp_path):
    (tmp_path / "m.yaml").write_text(discover()[name].example)
    read = yaml.safe_load(discover()[name].example)
    assert name in [entry["type"] for entry in read["layers"].values()]
    assert build(load_model(tmp_path / "m.yaml")).eval.global_block().vars


def test_every_example_belongs_to_a_layer():
    keys = [key for file in FAMILIES.glob("*/examples.yaml") for key in yaml.safe_load(file.read_text())]
    assert len(keys) == len(set(keys))
    assert set(keys) <= set(discover()) - set(ELSEWHERE)
