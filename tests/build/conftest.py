"""Helpers: files from text, and the errors that building them gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from pe_cli.build.build import Built, build, load_and_build
from pe_cli.config.load import load_model
from pe_cli.core.errors import PeError, PeErrors


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Write files into the current folder, so that places read `run.yaml:1:1`."""
    monkeypatch.chdir(tmp_path)

    def run(**files: str) -> None:
        for name, text in files.items():
            Path(f"{name}.yaml").write_text(dedent(text), encoding="utf-8")

    return run


@pytest.fixture
def built(write: Callable[..., None]) -> Callable[[str], Built]:
    """Return the programs of a model alone."""

    def run(model: str) -> Built:
        write(model=model)
        return build(load_model("model.yaml"))

    return run


@pytest.fixture
def errors(write: Callable[..., None]) -> Callable[..., list[str]]:
    """Return every error of a model, or of a run and its model, rendered."""

    def run(model: str, run: str | None = None) -> list[str]:
        write(model=model, **({"run": run} if run else {}))
        make = (lambda: load_and_build("run.yaml")) if run else (lambda: build(load_model("model.yaml")))
        with pytest.raises(PeError) as caught:
            make()
        found = caught.value.errors if isinstance(caught.value, PeErrors) else [caught.value]
        return [error.render() for error in found]

    return run
