"""Packages of others, such as that of docs/how-to/plugins.md: what a run file names is found like our own, nothing else is imported."""

from __future__ import annotations

import importlib
import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from pe_cli.config import plugins
from pe_cli.data import registry as readers
from pe_cli.layers.define import registry as layers
from pe_cli.metrics import define as metrics
from pe_cli.session.observers import define as observers
from tests.cli.conftest import ROOT, Pe

PAGE = (ROOT / "docs" / "how-to" / "plugins.md").read_text(encoding="utf-8")
(CODE,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(PROJECT,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
#: As pip writes it of the page's pyproject.toml.
POINTS = "".join(
    f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in points.items())
    for group, points in tomllib.loads(PROJECT)["project"]["entry-points"].items()
)


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
    before[1] |= {name: found for name, found in readers.READERS.items() if name in readers._modules()}  # read for the first time
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


def test_annotations_of_a_layer_may_be_types(pe: Pe, given: Path, site: Path) -> None:
    path = site / "acme_pe" / "things.py"
    text = path.read_text().replace("from __future__ import annotations\n", "")
    path.write_text(text.replace("name: str | None", "bias: float | None = None, name: str | None"))
    said = pe("check", given)
    assert said.code == 0, said.err
    assert "doubled(input, size, bias=null)" in pe("ops", "doubled", "--config", given).out


def test_a_doubled_layer_is_twice_what_it_is_made_of(pe: Pe, given: Path) -> None:
    text = pe("graph", given, "--stage", "program").out
    assert "scale" in text
    assert "mul" in text


@pytest.mark.parametrize("command", [("ops", "doubled"), ("schema", "--model")])
def test_a_command_that_only_prints_loads_them_itself(pe: Pe, given: Path, command: tuple[str, ...]) -> None:
    said = pe(*command, "--config", given)
    assert said.code == 0, said.err
    assert "doubled" in said.out


def test_schemas_and_the_catalogue_know_what_a_config_names(pe: Pe, given: Path) -> None:
    """Whatever else is wrong with the config; each kind is there with its options, and without the config nothing is imported."""
    before = pe("schema"), pe("schema", "--model"), pe("ops", "doubled")
    given.write_text(given.read_text() + "nonsense: 1\n")
    run, model = (json.loads(pe("schema", *more, "--config", given).out) for more in ((), ("--model",)))
    forms = {form["properties"]["type"]["const"]: form for form in run["properties"]["metrics"]["additionalProperties"]["anyOf"]}
    assert forms["worst"]["required"] == ["type", "a", "b"]
    assert "raw_floats" in run["$defs"]["DataSection"]["properties"]["reader"]["enum"]
    lines, _ = run["$defs"]["OutputSection"]["properties"]["observers"]["properties"]["lines"]["anyOf"]
    assert (list(lines["properties"]), lines["required"]) == (["file"], ["file"])
    doubled = next(form for form in model["$defs"]["layer"]["anyOf"] if form["properties"].get("type") == {"const": "doubled"})
    assert doubled["required"] == ["type", "size"]
    pages = {name: pe("ops", name, "--config", given).out for name in ("doubled", "raw_floats", "worst", "lines")}
    assert "doubled(input, size)" in pages["doubled"]
    assert "| width | required | numbers of a row before y |" in pages["raw_floats"]
    assert "Largest difference of two variables over all rows." in pages["worst"]
    assert "Write a line for everything that happens." in pages["lines"]
    schema, of_model, said = before
    assert not any(f'"{name}"' in text for name in ("raw_floats", "worst", "lines", "doubled") for text in (schema.out, of_model.out))
    assert "the installed package 'acme-pe' has it: --config FILE with plugins: [acme-pe] in it" in said.err


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
            "from pe_cli.layers.define.registry import layer\n@layer\ndef x(input: dict[str, int]):\n    return 1\n",
            "layers", "layer 'x': argument input has the annotation 'dict[str, int]', which no config can give", "list[Variable]",
            id="a type that is none",
        ),
        pytest.param(
            "from pe_cli.layers.define.registry import layer\n@layer\ndef x(input):\n    return 1\n",
            "layers", "layer 'x': argument input has no annotation, which no config can give", "list[Variable]", id="no type",
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
