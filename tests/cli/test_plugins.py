"""Packages of others: what a run file names is found like our own, what it does not name is never imported."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pe_cli.config import plugins
from pe_cli.data import registry as readers
from pe_cli.layers.define import registry as layers
from pe_cli.metrics import define as metrics
from pe_cli.session.observers import define as observers
from tests.cli.conftest import Pe

CODE = '''\
from __future__ import annotations

from pathlib import Path

import numpy as np
from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.core.errors import PeError
from pe_cli.data.dataset import ArrayDataset
from pe_cli.data.registry import ReaderOptions, reader
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.layers.nn.fc import fc
from pe_cli.metrics.define import Gathered, metric
from pe_cli.program.ir import Variable
from pe_cli.session.observer import Observer
from pe_cli.session.observers.define import observer


class BytesOptions(ReaderOptions):
    file: str
    width: int = Field(ge=1)


@reader("raw_floats", BytesOptions)
def open_bytes(options, origin):
    """Read rows of float32, the last number of each being y."""
    rows = np.fromfile(origin.find(options.file), np.float32).reshape(-1, options.width + 1)
    return ArrayDataset({"x": rows[:, :-1], "y": rows[:, -1:]}, origin)


@layer
def doubled(input: list[Variable], size: int, name: str | None = None) -> Variable:
    """Connect every input to every output, and double it."""
    helper = LayerHelper("doubled", name)
    return helper.one("scale", {"X": fc(input, size, name=helper.name)}, {"scale": 2.0})


class WorstOptions(Section):
    a: str
    b: str


@metric
class Worst(Gathered[WorstOptions]):
    """Largest difference of two variables."""

    name = "worst"
    inputs = ("a", "b")
    options = WorstOptions

    def check(self, options, types):
        if types["a"].shape != types["b"].shape:
            raise PeError("a and b must have one shape")

    def result(self, options, values):
        return float(np.abs(values["a"].astype(np.float64) - values["b"]).max())


class LinesOptions(Section):
    file: str


@observer("lines", LinesOptions)
class Lines(Observer):
    """Write a line for everything."""

    def __init__(self, options, about):
        self.path, self.about = Path(options.file), about

    def say(self, *words):
        with self.path.open("a") as file:
            print(*words, file=file)

    def started(self, start):
        self.say("started", self.about.name, self.about.flat()["train.batch_size"], *self.about.tags)

    def recorded(self, step, epoch, values):
        self.say("recorded", step, epoch, *sorted(values))

    def ended(self, state):
        self.say("ended", state)
'''
POINTS = """\
[pe_cli.readers]
raw_floats = acme_pe.things:open_bytes
[pe_cli.layers]
doubled = acme_pe.things:doubled
[pe_cli.metrics]
worst = acme_pe.things:Worst
[pe_cli.observers]
lines = acme_pe.things:Lines
"""


def install(site: Path, name: str, code: str, points: str) -> None:
    """Put a package and what pip writes of it into a folder."""
    module = name.replace("-", "_")
    (site / module).mkdir()
    (site / module / "__init__.py").write_text("")
    (site / module / "things.py").write_text(code)
    (site / f"{module}-1.0.dist-info").mkdir()
    (site / f"{module}-1.0.dist-info" / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (site / f"{module}-1.0.dist-info" / "entry_points.txt").write_text(points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, `acme-pe` among them; what they register is forgotten afterwards."""
    folder = tmp_path / "site"
    folder.mkdir()
    install(folder, "acme-pe", CODE, POINTS)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=":")
    importlib.invalidate_caches()
    for discover in (layers.discover, metrics.discover, observers.discover):
        discover()  # so that ours stay
    known = (layers.LAYERS, readers.READERS, metrics.KINDS, observers.KINDS)
    before = [dict(one) for one in known]
    monkeypatch.setattr(plugins, "_LOADED", set())
    yield folder
    for one, was in zip(known, before, strict=True):
        one.clear()
        one.update(was)  # type: ignore[arg-type]
    for name in [name for name in sys.modules if name.partition(".")[0] in ("acme_pe", "bad_pe")]:
        del sys.modules[name]


@pytest.fixture
def given(config: Path, site: Path) -> Path:
    """A config that needs the package for everything: rows of bytes, a layer, a metric, an observer."""
    import numpy as np

    with np.load(config.parent / "data.npz") as data:
        np.concatenate([data["x"], data["y"]], 1).tofile(config.parent / "rows.bin")
    model = (config.parent / "model.yaml").read_text()
    (config.parent / "model.yaml").write_text(model.replace("type: fc", "type: doubled"))
    text = config.read_text().replace("reader: npz, file: data.npz", "reader: raw_floats, file: rows.bin, width: 4")
    text = text.replace("output: {", f"output: {{tags: [first], observers: {{lines: {{file: {config.parent / 'said'}}}}}, ")
    config.write_text(f"plugins: [acme-pe]\n{text}metrics: {{worst: {{type: worst, a: guess, b: y}}}}\n")
    return config


def test_a_named_package_gives_readers_layers_metrics_and_observers(pe: Pe, given: Path) -> None:
    said = pe("check", given)
    assert said.code == 0, said.err
    said = pe("train", given)
    assert said.code == 0, said.err
    run = next((given.parent / "runs").glob("line-*"))
    evaluated = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines() if '"eval"' in line]
    assert all(line["worst"] ** 2 >= line["loss"] for line in evaluated)  # the largest error is at least the root of the mean square
    lines = (given.parent / "said").read_text().splitlines()
    assert lines[0] == f"started {run.name} 16 first"
    assert "recorded 6 2 eval/loss eval/worst" in lines
    assert lines[-1] == "ended done"
    assert "plugins:" in (run / "resolved.yaml").read_text()
    assert pe("eval", run).code == 0


def test_a_doubled_layer_is_twice_what_it_is_made_of(pe: Pe, given: Path) -> None:
    text = pe("graph", given, "--stage", "program").out
    assert "scale" in text
    assert "mul" in text


def test_what_no_file_names_is_not_imported(pe: Pe, given: Path) -> None:
    given.write_text(given.read_text().replace("plugins: [acme-pe]\n", ""))
    said = pe("check", given)
    assert said.code == 2
    assert not any(name.startswith("acme_pe") for name in sys.modules)
    for kind in ("reader 'raw_floats'", "layer type 'doubled'"):
        assert f"there is no {kind}" in said.err
    assert said.err.count("the installed package 'acme-pe' has it: add plugins: [acme-pe]") >= 2


@pytest.mark.parametrize(
    ("written", "place", "message", "hint"),
    [
        pytest.param("[acme-pee]", "1:11", "the package 'acme-pee' is not installed", "did you mean 'acme-pe'?", id="a misspelled package"),
        pytest.param("[numpy]", "1:11", "the package 'numpy' has no entry point for pe", "pe_cli.readers", id="a package of others"),
        pytest.param("[[acme-pe]]", "1:11", "plugins must be a list of packages", "for example", id="no name"),
    ],
)
def test_a_wrong_name_has_place_and_remedy(pe: Pe, given: Path, written: str, place: str, message: str, hint: str) -> None:
    given.write_text(given.read_text().replace("[acme-pe]", written))
    said = pe("check", given)
    assert said.code == 2
    assert f"{given}:{place}: error: " in said.err
    assert message in said.err
    assert hint in said.err


@pytest.mark.parametrize(
    ("code", "group", "message", "hint"),
    [
        pytest.param("x = 1 / 0\n", "readers", "ZeroDivisionError: division by zero", "raised in things.py line 1", id="it raises"),
        pytest.param("y = 1\n", "readers", "AttributeError", "mend the package", id="it lacks what it declares"),
        pytest.param(
            "from pe_cli.layers.define.registry import layer\n@layer\ndef fc():\n    return 1\nx = fc\n",
            "layers", "there is a layer 'fc' already", "another name", id="a name of ours",
        ),
        pytest.param(
            "from pe_cli.data.registry import ReaderOptions, reader\nx = reader('csv', ReaderOptions)(lambda options, origin: None)\n",
            "readers", "there is a reader 'csv' already", "another name", id="a reader of ours that is not imported yet",
        ),
    ],
)  # fmt: skip
def test_a_package_that_fails_is_an_error_at_its_name(
    pe: Pe, given: Path, site: Path, code: str, group: str, message: str, hint: str
) -> None:
    install(site, "bad-pe", code, f"[pe_cli.{group}]\nx = bad_pe.things:x\n")
    importlib.invalidate_caches()
    given.write_text(given.read_text().replace("[acme-pe]", "[acme-pe, bad-pe]"))
    said = pe("check", given)
    assert said.code == 2
    assert f"{given}:1:20: error: plugins: bad-pe: pe_cli.{group} x = bad_pe.things:x" in said.err
    assert message in said.err
    assert hint in said.err
    assert "Traceback" not in said.err
