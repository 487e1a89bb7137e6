"""The README, the tutorial and the how-to pages do what they say, command by command."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.console import ROOT, difference, run_page, same
from tests.docs.forked import started
from tests.rotation import of_today

README = ROOT / "README.md"
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "```console\n" in page.read_text(encoding="utf-8")]


@pytest.fixture(scope="module")
def pe() -> Iterator[str]:
    """Return the line of a shell that runs `pe`."""
    with tempfile.TemporaryDirectory() as folder, started(Path(folder)) as line:
        yield line


@pytest.mark.parametrize("page", [README, *of_today(PAGES, 12)], ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_works_as_it_is_told(page: Path, tmp_path: Path, pe: str) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    assert run_page(page, folder, pe) > 0


@pytest.mark.parametrize(
    ("shown", "said", "equal"),
    [
        pytest.param("loss 0.5", "loss 0.48", True, id="a little off"),
        pytest.param("loss 0.5", "loss 0.9", False, id="far off"),
        pytest.param("acc 0.97", "acc 0.1", False, id="not trained"),
        pytest.param("step 20/320", "step 20/321", False, id="another number of steps"),
        pytest.param("-> runs/config-20260102-030405", "-> runs/config-20271231-235959", True, id="another time"),
        pytest.param("took 1.5 s", "took 75 s", True, id="seconds"),
        pytest.param("a  b", "a     b", True, id="wider columns"),
        pytest.param("error: no file x", "error: no file y", False, id="another text"),
        pytest.param("one ... four", "one two three four", True, id="a part left out"),
    ],
)
def test_lines_are_compared(shown: str, said: str, equal: bool) -> None:
    assert same(shown, said) is equal


@pytest.mark.parametrize(
    ("shown", "said", "equal"),
    [
        pytest.param(["a", "...", "d"], ["a", "b", "c", "d"], True, id="lines left out"),
        pytest.param(["a", "...", "d"], ["a", "b", "c"], False, id="the end is missing"),
        pytest.param(["a"], ["a", "b"], False, id="more is said than shown"),
        pytest.param(["a", "b"], ["a"], False, id="less is said than shown"),
        pytest.param(["..."], ["a", "b"], True, id="anything"),
    ],
)
def test_outputs_are_compared(shown: list[str], said: list[str], equal: bool) -> None:
    assert (difference(shown, said) == "") is equal
