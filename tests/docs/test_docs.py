"""The documentation: its examples run, its generated parts are up to date, its commands and links exist."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pe_cli.cli.main import cli
from pe_cli.cli.main import run as run_command_line
from pe_cli.devices.cuda import cuda_count
from pe_cli.io.run_folder import RunFolder
from tests.rotation import on_its_day

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGES.md")),
    *sorted(page for page in (ROOT / "docs").rglob("*.md") if page.parent.name != "ops"),
]
NAMED = {"ids": lambda p: str(p.relative_to(ROOT)) if isinstance(p, Path) else None}
_EXAMPLE = re.compile(r"<!-- (complete|tested): (\S+) -->\n```\w+\n(.*?)```\n", re.DOTALL)


def examples(page: Path, kind: str) -> dict[str, str]:
    return {path: text for found, path, text in _EXAMPLE.findall(page.read_text(encoding="utf-8")) if found == kind}


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "how-to").glob("*.md")), ids=lambda page: page.stem)
def test_a_page_of_a_task_begins_with_what_it_gives_and_ends_with_where_to_go_on(page: Path) -> None:
    lines = [line for line in page.read_text(encoding="utf-8").splitlines() if line and not line.startswith("<!--")]
    assert lines[0].startswith("# ")
    assert re.match(r"[\w*`(]", lines[1]), "a sentence stands below the title"
    assert re.match(r"Next: .*\]\([\w./#-]+\)", lines[-1]), "the last line names a page to go on with"


def write(folder: Path, files: dict[str, str]) -> None:
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")


# --- examples ---------------------------------------------------------------------------------------------------------

COMPLETE = [(page, path) for page in PAGES for path in examples(page, "complete")]


@pytest.mark.parametrize(("page", "path"), COMPLETE, ids=[f"{path} of {page.name}" for page, path in COMPLETE])
def test_every_complete_example_has_no_mistakes(page: Path, path: str, tmp_path: Path) -> None:
    write(tmp_path, examples(page, "complete"))
    shutil.copytree(ROOT / "configs" / "data", tmp_path / "configs" / "data")
    assert run_command_line(["check", str(tmp_path / path)]) == 0


CONFIGS = [(page, path) for page, path in COMPLETE if path.startswith("configs/")]


@pytest.mark.parametrize(("page", "path"), CONFIGS, ids=[f"{path} of {page.name}" for page, path in CONFIGS])
def test_every_complete_config_trains(page: Path, path: str, tmp_path: Path) -> None:
    write(tmp_path, examples(page, "complete"))
    shutil.copytree(ROOT / "configs" / "data", tmp_path / "configs" / "data")
    runs = tmp_path / "runs"
    assert run_command_line(["train", str(tmp_path / path), "--quiet", "-o", f"output.dir={runs}"]) == 0
    (folder,) = runs.iterdir()
    newest = [m for m in RunFolder(folder).metrics() if m["split"] == "eval"][-1]
    # ten digits: chance is 0.1
    assert float(str(newest["acc"])) > 0.9


@on_its_day(1, of=3)
def test_the_worked_example_of_an_op_passes_its_tests(tmp_path: Path) -> None:
    files = examples(ROOT / "docs" / "adding-an-op.md", "tested")
    assert len(files) == 2
    write(tmp_path, files)
    # as if the files stood in pe_cli/; a process of its own, because registries are for good
    places = "\n".join(
        f"import pe_cli.{package}\npe_cli.{package}.__path__.append({str(tmp_path / package.replace('.', '/'))!r})"
        for package in ("ops.loss",)
    )
    (tmp_path / "conftest.py").write_text(f"{places}\nfrom tests.conftest import rng\n")
    check = "from pe_cli.layers.define.registry import find\n\n\ndef test_its_layer_is_found():\n    assert find('log_cosh_cost').doc\n"
    (tmp_path / "test_layer.py").write_text(check)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


# --- generated parts --------------------------------------------------------------------------------------------------


def script(name: str) -> Any:
    """Return a script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["config.md", "data.md"])
def test_the_tables_say_what_the_code_checks(name: str) -> None:
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert "<!-- generated: " in text
    assert script("make_config").render(text) == text, "run make docs"


def test_the_stubs_are_those_of_the_functions() -> None:
    stubs = script("make_stubs")
    for package in stubs.PACKAGES:
        assert stubs.render(package) == stubs.place(package).read_text(encoding="utf-8"), "run make docs"


def test_the_page_of_commands_is_what_their_help_says() -> None:
    assert script("make_commands").render() == (ROOT / "docs" / "commands.md").read_text(encoding="utf-8"), "run make docs"


def test_the_page_of_names_is_what_the_modules_have() -> None:
    assert script("make_coverage").render() == (ROOT / "docs" / "coverage.md").read_text(encoding="utf-8"), "run make docs"


PICTURES = script("make_pictures")
GRAPHS = [name for name in PICTURES.DRAWN if PICTURES.DRAWN[name].startswith("graph")]


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Draw the graphs of the pages."""
    folder = tmp_path_factory.mktemp("drawn")
    with PICTURES.workplace():
        for name in GRAPHS:
            PICTURES.draw(name, folder / name)
    return folder


@pytest.mark.parametrize("name", GRAPHS)
def test_a_picture_shows_what_pe_draws_today(name: str, drawn: Path) -> None:
    made = (drawn / name).read_text(encoding="utf-8")
    assert made.count("<g class") > 5
    assert made == (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8"), "run make docs"


def test_the_pictures_of_the_parts_are_those_of_their_tables() -> None:
    for name, text in script("make_inside").drawn().items():
        assert text == (ROOT / "docs" / "pictures" / name).read_text(encoding="utf-8"), "run make docs"
        assert f"pictures/{name})" in (ROOT / "docs" / "inside" / f"{name[7:-4]}.md").read_text(encoding="utf-8")


def test_the_picture_of_the_folders_is_that_of_the_contract() -> None:
    house = script("make_house")
    folders = {path.parent.name for path in (ROOT / "pe_cli").glob("*/__init__.py")}
    assert {name for row in house.rows() for name in row} == folders
    assert house.render() == house.PICTURE.read_text(encoding="utf-8"), "run make docs"


def test_pictures_are_small_carry_no_script_and_are_drawn_by_a_script() -> None:
    known = {*PICTURES.DRAWN, PICTURES.REPORT, *script("make_inside").drawn(), "house.svg", "benchmarks.svg", "scaling.svg", "tables.svg"}
    found = {picture.name: picture.read_bytes() for picture in (ROOT / "docs" / "pictures").iterdir()}
    assert set(found) == known
    assert all(len(data) < 100_000 and b"<script" not in data for data in found.values())


def test_the_pages_of_ops_are_those_of_the_registry(tmp_path: Path) -> None:
    # a process of its own: tests may have registered more
    command = [sys.executable, "-m", "pe_cli.cli.main", "ops", "--write", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True)
    made = {p.name: p.read_text(encoding="utf-8") for p in tmp_path.iterdir()}
    kept = {p.name: p.read_text(encoding="utf-8") for p in (ROOT / "docs" / "ops").iterdir()}
    assert sorted(made) == sorted(kept), "run make docs"
    assert [name for name in made if made[name] != kept[name]] == [], "run make docs"


def test_the_table_of_benchmarks_can_be_replaced() -> None:
    lines = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8").splitlines()
    assert lines.count("<!-- table: made by benchmarks/run.py -->") == 1
    assert lines.count("<!-- end of table -->") == 1


# --- nothing is promised that is not there ----------------------------------------------------------------------------

_CALL = re.compile(r"(?:^|[`$ ;])pe ([a-z]+)((?: [^`\n#|]*)?)", re.MULTILINE)


def calls(text: str) -> list[tuple[str, list[str]]]:
    """Return the commands in code: name and options."""
    code = re.findall(r"```(\w*)\n(.*?)```|`(pe [^`\n]+)`", text, re.DOTALL)
    found = []
    for kind, block, line in code:
        if kind not in ("", "sh", "console", "yaml"):
            continue
        for name, rest in _CALL.findall(block or line):
            found.append((name, re.findall(r"(?<!\S)(--?[a-z-]+)", rest)))
    return found


@pytest.mark.parametrize("page", PAGES, **NAMED)
def test_every_command_and_option_exists(page: Path) -> None:
    context = cli.make_context("pe", [])
    for name, options in calls(page.read_text(encoding="utf-8")):
        command = cli.get_command(context, name)
        assert command is not None, f"pe {name}"
        known = {o for p in command.params for o in p.opts} | {"--help", "-h"}
        if name == "launch":  # what follows the config is pe train's
            known |= {o for p in cli.get_command(context, "train").params for o in p.opts}
        assert set(options) <= known, f"pe {name} {options}"


def test_the_site_has_every_page_and_no_other() -> None:
    named = re.findall(r"- (?:[^:\n]+: )?([\w./-]+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE)
    taken = {"about.md", "SECURITY.md", "CHANGES.md", "CONTRIBUTING.md", "ops/README.md"}  # by docs/site_hook.py, and the index of ops
    pages = {str(p.relative_to(ROOT / "docs")) for p in (ROOT / "docs").rglob("*.md") if p.parent.name != "ops"}
    assert sorted(named) == sorted(pages | taken)


def test_the_first_page_groups_the_how_to_pages_as_the_site_does() -> None:
    nav = yaml.safe_load(re.sub(r"!!\S+", "", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))["nav"]
    (groups,) = (section["How to"] for section in nav if "How to" in section)
    site = {name: set(pages) for group in groups for name, pages in group.items()}
    text = (ROOT / "docs" / "index.md").read_text(encoding="utf-8").partition("## How to\n")[2].partition("\n## ")[0]
    parts = re.split(r"^### (.*)\n", text, flags=re.MULTILINE)[1:]
    listed = {name: set(re.findall(r"\]\((how-to/[\w-]+\.md)\)", part)) for name, part in zip(parts[::2], parts[1::2], strict=True)}
    assert list(listed) == list(site)
    assert listed == site


def test_the_workflow_for_ci_is_yaml_whose_commands_are_those_of_the_page() -> None:
    text = (ROOT / "docs" / "how-to" / "ci.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"<!-- file: .github/workflows/models.yml -->\n```yaml\n(.*?)```", text, re.DOTALL)
    steps = yaml.safe_load(block)["jobs"]["smoke"]["steps"]
    commands = [step["run"] for step in steps if "run" in step]
    assert len(commands) == 3
    for command in commands:
        subprocess.run(["bash", "-n", "-c", command], check=True)


_LINK = re.compile(r"\]\((?!https?:)([^)#]*)(#[^)]*)?\)")


@pytest.mark.parametrize("page", PAGES, **NAMED)
def test_every_link_leads_somewhere(page: Path) -> None:
    for path, anchor in _LINK.findall(page.read_text(encoding="utf-8")):
        target = page.parent / path if path else page
        assert target.exists(), path
        if anchor:
            heads = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            slugs = {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}
            assert anchor[1:] in slugs, f"{path}{anchor}"


@pytest.mark.parametrize("page", PAGES, **NAMED)
def test_files_that_are_named_exist(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for path in re.findall(r"`((?:pe_cli|benchmarks|tests|docs)/[\w./-]+)`", text):
        assert (ROOT / path).exists(), path
    if page.parent.name == "inside" or page.name == "architecture.md":  # paths there start in pe_cli, and may be a file's name alone
        for path in re.findall(r"`([\w/*-]+\.py|[a-z_]+/[\w/]*)`", text):
            assert (ROOT / path).exists() or any((ROOT / "pe_cli").rglob(path.rstrip("/"))), path


# --- exit codes -------------------------------------------------------------------------------------------------------


def _provoked() -> list[object]:
    """Return the rows of the table that are a command to type."""
    text = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d+) \|.*\| `pe ([^`]+)`", text, re.MULTILINE)
    return [pytest.param(int(code), command.split(), id=f"{code}: pe {command}") for code, command in rows]


@pytest.mark.parametrize(("code", "arguments"), _provoked())
def test_the_examples_of_exit_codes_end_with_them(
    code: int, arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "executor.place=cuda" in arguments and cuda_count()[0]:
        pytest.skip("a GPU is here")
    monkeypatch.chdir(ROOT)
    runs = ["-o", f"output.dir={tmp_path}", "--quiet"] if arguments[0] == "train" else []
    assert run_command_line([*arguments, *runs]) == code


def _sessions() -> list[tuple[str, str, int]]:
    """Return the examples of a terminal: command, what it says, exit code."""
    text = (ROOT / "docs" / "exit-codes.md").read_text(encoding="utf-8")
    found = re.findall(r"```\n\$ pe ([^\n]*)\n(.*?)\$ echo \$\?\n(\d+)\n```", text, re.DOTALL)
    return [(command, said, int(code)) for command, said, code in found]


@pytest.mark.parametrize(("command", "said", "code"), _sessions(), ids=[s[0] for s in _sessions()])
def test_the_examples_of_errors_read_as_they_are_shown(
    command: str,
    said: str,
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("CPU_NUM", "2")
    runs = ["-o", f"output.dir={tmp_path}"] if command.startswith("train") else []
    capfd.readouterr()
    assert run_command_line([*command.split(), *runs]) == code
    assert capfd.readouterr().err == said.replace("/home/you/pe", str(ROOT))


# --- messages that a newcomer meets -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(
            ["check", "configs/digits.yaml", "-o", "train.optimizer=Adam"],
            "hint: write optimizer: {type: Adam}, with its arguments",
            id="an optimizer's name alone",
        ),
        pytest.param(
            ["check", "configs/iris.yaml", "-o", "data={train: {reader: csv, file: data/iris.csv, label: species}}",
             "-o", "output.checkpoint.best={by: eval/acc, mode: max}"],
            "hint: add data.eval, or one of train/loss",
            id="the best of what is not measured",
        ),
        pytest.param(
            ["train", "models/mlp.yaml"], "models/mlp.yaml is a model file, not a config", id="a model as config"
        ),
        pytest.param(
            ["check", "configs/digits.yaml", "-o", "executor.place=cuda", "-o", "train.loss=los"],
            "did you mean 'loss'?",
            id="a loss with a typing error",
        ),
        pytest.param(
            ["check", "configs/digits.yaml", "-o", "train.loss=acc"], "hint: name the mean of a cost", id="no gradient"
        ),
    ],
)
def test_messages_say_what_to_do(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert run_command_line(arguments) == 2
    assert said in capfd.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        pytest.param("type: fc, input: image", "type: fc, input: label", "parameter 'hidden1.w_0' would be int64", id="integers into fc"),
    ],
)
def test_messages_about_models_say_what_to_do(
    old: str, new: str, said: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (ROOT / "models" / "mlp.yaml").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "m.yaml").write_text(text.replace(old, new))
    assert run_command_line(["check", str(tmp_path / "m.yaml")]) == 2
    assert said in capfd.readouterr().err


def test_layers_as_a_list_are_told_to_lose_their_dashes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.yaml").write_text("feeds:\n  x: {shape: [4]}\nlayers:\n  - y: {type: relu, x: x}\n")
    assert run_command_line(["check", str(tmp_path / "m.yaml")]) == 2
    assert "hint: write names without a '-' before them" in capfd.readouterr().err
