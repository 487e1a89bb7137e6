"""What a release consists of beside its code agrees with it: version, changes, citation, image, forms for issues."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

from pe_cli import __version__

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
FORMS = sorted(path for path in (ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml") if path.name != "config.yml")


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile: name and what follows."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Containerfile").read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in text.splitlines() if line.strip()]


def test_changes_and_citation_are_of_this_version() -> None:
    changes = (ROOT / "CHANGES.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\S+)", changes, re.MULTILINE)[0] in (__version__, "Unreleased")
    assert f"\n## {__version__}" in changes
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == __version__
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "message", "title", "authors", "date-released"} <= set(citation)


def test_the_image_is_made_from_the_wheel_by_a_python_that_is_tried_and_runs_as_a_user() -> None:
    found = instructions()
    names = [name for name, _ in found]
    assert set(names) <= {"FROM", "ARG", "COPY", "RUN", "USER", "VOLUME", "WORKDIR", "ENTRYPOINT", "CMD"}
    assert names.count("FROM") == 1
    (base,) = (value for name, value in found if name == "FROM")
    version = re.search(r"/python:(3\.\d+)-", base)
    assert version
    assert f"Programming Language :: Python :: {version[1]}" in PROJECT["classifiers"]
    (copied,) = (value for name, value in found if name == "COPY")
    assert copied.split()[0] == "dist/*.whl"
    assert ("USER", "pe") in found
    assert names.index("USER") < names.index("ENTRYPOINT")
    assert ("ENTRYPOINT", '["pe"]') in found
    assert (ROOT / "pe_cli" / "cli" / "pe").exists()


def test_every_command_of_the_image_is_one_of_a_shell() -> None:
    for name, value in instructions():
        if name == "RUN":
            for command in re.split(r"&&|\|\|?|;", value):
                assert shlex.split(command)[0] in ("pip", "rm", "useradd", "mkdir", "chown"), command


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.stem)
def test_a_form_for_issues_asks_for_what_is_needed(form: Path) -> None:
    found = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= set(found)
    ids = [field["id"] for field in found["body"]]
    assert len(set(ids)) == len(ids)
    for field in found["body"]:
        assert field["type"] in ("textarea", "input", "dropdown", "checkboxes", "markdown")
        assert field["attributes"]["label"]
    assert any(field.get("validations", {}).get("required") for field in found["body"])


def test_the_page_for_contributors_names_targets_that_there_are() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    used = set(re.findall(r"(?:^|`)make ([a-z-]+)", (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), re.MULTILINE))
    assert {"test", "check", "docs", "dist"} <= used
    assert used <= targets
