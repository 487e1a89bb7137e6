"""Helpers: files from text, and the errors that reading them gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.load import load_model, load_run
from pe_cli.config.nodes import Node
from pe_cli.config.parse import parse
from pe_cli.config.source import Source
from pe_cli.core.errors import PeError, PeErrors

MODEL = """\
feeds:
  x: {shape: [4]}
layers:
  y: {type: relu, x: x}
"""


@pytest.fixture
def errors_of() -> Callable[[str], list[PeError]]:
    def run(text: str) -> list[PeError]:
        mistakes = Mistakes()
        parse(Source("f.yaml", text), mistakes)
        return mistakes.errors

    return run


@pytest.fixture
def tree() -> Callable[[str], Node]:
    def run(text: str) -> Node:
        mistakes = Mistakes()
        found = parse(Source("f.yaml", text), mistakes)
        mistakes.raise_all()
        assert found is not None
        return found

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write files into the current folder, so that places read `run.yaml:1:1`."""
    monkeypatch.chdir(tmp_path)

    def write(**files: str) -> None:
        for name, text in files.items():
            Path(f"{name}.yaml").write_text(dedent(text), encoding="utf-8")

    write(model=MODEL)
    return write


def list_errors(error: PeError) -> list[PeError]:
    return error.errors if isinstance(error, PeErrors) else [error]


@pytest.fixture
def run_errors(folder: Callable[..., None]) -> Callable[..., list[str]]:
    """Return every error of a run file, rendered."""

    def run(text: str, *overrides: str, model: str = MODEL) -> list[str]:
        folder(run=text, model=model)
        with pytest.raises(PeError) as caught:
            load_run("run.yaml", overrides)
        return [error.render() for error in list_errors(caught.value)]

    return run


@pytest.fixture
def model_errors(folder: Callable[..., None]) -> Callable[[str], list[str]]:
    """Return every error of a model file, rendered."""

    def run(text: str) -> list[str]:
        folder(model=text)
        with pytest.raises(PeError) as caught:
            load_model("model.yaml")
        return [error.render() for error in list_errors(caught.value)]

    return run
