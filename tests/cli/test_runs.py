"""pe runs, diff, plot and report, and the live page of pe train."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

import pe_cli
from tests import needs
from tests.cli.conftest import Pe
from tests.io.runs import EVIL, hostile, make_run, ordinary

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(pe_cli.__file__).parents[1])}


class Page(HTMLParser):
    """What a page is made of: elements with their attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script" and self.cdata_elem == "script":
            self.scripts[-1] += data


def check_self_contained(text: str) -> Page:
    """Check that a page loads nothing, and runs nothing but its own script."""
    page = Page(text)
    for tag, attributes in page.found:
        assert tag not in ("img", "iframe", "object", "embed", "base", "form", "audio", "video", "foreignobject"), tag
        assert not [name for name in attributes if name.startswith("on")], (tag, attributes)
        assert not {"src", "srcset", "action", "xlink:href"} & set(attributes), (tag, attributes)
        assert attributes.get("href", "data:,") == "data:,", attributes
    assert [a.get("type") for tag, a in page.found if tag == "script"] == ["application/json", None]
    assert len(page.scripts) == 2
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert "@import" not in text
    return page


def test_a_report_is_not_written_through_a_link_of_the_run(pe: Pe, tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs", metrics=ordinary())
    mine = tmp_path / "mine.html"
    mine.write_text("mine")
    (folder / "report.html").symlink_to(mine)
    said = pe("report", folder)
    assert said.code == 2
    assert "report.html: this link leads out of the run's folder" in said.err
    assert mine.read_text() == "mine"


@pytest.mark.parametrize("name", ["metrics.jsonl", "speed.jsonl", "status.json", "env.json", "resolved.yaml", "checkpoints"])
def test_no_command_reads_through_a_link_that_leads_out_of_a_run(pe: Pe, trained: Path, tmp_path: Path, name: str) -> None:
    target = tmp_path / f"elsewhere{Path(name).suffix}"
    (trained / name).rename(target)
    (trained / name).symlink_to(target)
    config, out = trained.parent.parent / "line.yaml", tmp_path / "out"
    commands = [["report"], ["plot", "-o", f"{out}.svg"], ["diff", config], ["compare", config], ["replay", "--step", 1], ["verify"]]
    for command, *more in [*commands, ["eval"], ["predict"], ["export", "--onnx", f"{out}.onnx"], ["serve"]]:
        said = pe(command, trained, *more)
        assert said.code == 2, (command, said)
        assert f"{name}: this link leads out of the run's folder" in said.err, command


def test_the_list_of_runs(pe: Pe, tmp_path: Path) -> None:
    make_run(tmp_path, "lenet-20240229-120005", ordinary())
    make_run(tmp_path, "mlp-20240229-120006-2", ordinary(5.0), state="failed", config="train: {loss: loss}\n")
    said = pe("runs", tmp_path)
    assert said.code == 0, said.err
    assert [line.split() for line in said.out.splitlines()[1:]] == [
        ["lenet-20240229-120005", "lenet", "done", "20", "1", "min", "30", "s", "max", "eval/acc", "0.9", "10", "4"],
        ["mlp-20240229-120006-2", "mlp", "failed", "20", "1", "min", "30", "s", "min", "eval/loss", "0.2", "20", "-"],
    ]
    assert said.out.splitlines()[0].split()[-1] == "batch_size"
    (first, _) = json.loads(pe("runs", tmp_path, "--json").out)
    assert (first["state"], first["seconds"], first["best"]["value"]) == ("done", 90, 0.9)
    assert first["metrics"]["train/loss"] == 0.05


def test_a_run_that_was_killed_is_lost_at_once_and_one_that_lives_is_not(pe: Pe, config: Path) -> None:
    runs = config.parent / "runs"
    command = [sys.executable, "-m", "pe_cli.cli.main", "train", config, "-o", "train.epochs=1000000"]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as child:
        assert child.stdout
        assert any(line.strip()[:1].isdigit() for line in child.stdout)
        assert state_of(pe, runs) == "running"
        child.kill()
        # not waited for, so that its number is still taken
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        os.kill(child.pid, 0)
        assert state_of(pe, runs) == "lost"
    assert child.returncode == -signal.SIGKILL
    assert re.search(r" line +lost ", pe("runs", runs).out)
    again = pe("train", config, "--resume", next(runs.iterdir()), "-o", "train.epochs=1000000", "--max-steps", 1, "--quiet")
    assert (again.code, state_of(pe, runs)) == (75, "stopped"), again.err


def state_of(pe: Pe, runs: Path) -> object:
    (run,) = json.loads(pe("runs", runs, "--json").out)
    return run["state"]


def test_a_folder_without_runs_and_no_folder(pe: Pe, tmp_path: Path) -> None:
    assert "no run in it" in pe("runs", tmp_path).out
    assert pe("runs", tmp_path / "x").code == 3


def test_what_tells_two_runs_apart(pe: Pe, tmp_path: Path) -> None:
    one = make_run(tmp_path, "a", ordinary(), config="train: {loss: loss, batch_size: 4}\noutput: {dir: x}\n", env={"cores": 2})
    two = make_run(tmp_path, "b", ordinary(3.0), config="train: {loss: loss, batch_size: 8}\noutput: {dir: y}\n", env={"cores": 4})
    (two / "model.yaml").write_text("name: other\n")
    said = pe("diff", one, two)
    assert said.code == 0, said.err
    rows = {" ".join(line.split()[:-2]): line.split()[-2:] for line in said.out.splitlines()[1:] if line.startswith("  ")}
    assert rows == {
        "train.batch_size": ["4", "8"], "model.yaml": ["differs", "differs"], "min eval/loss": ["0.2", "0.2"],
        "train/loss": ["0.05", "0.15"], "train/learning_rate": ["0.1", "0.1"], "train/gradient_norm": ["0.1", "0.1"],
        "eval/loss": ["0.2", "0.2"], "eval/acc": ["0.8", "0.8"], "steps": ["20", "20"], "seconds": ["90", "90"], "cores": ["2", "4"],
    }  # fmt: skip
    found = json.loads(pe("diff", one, two, "--json").out)
    assert found["config"] == {"train.batch_size": [4, 8]}
    assert "the same" in pe("diff", one, one).out


def test_any_number_of_runs_and_configs_side_by_side(pe: Pe, tmp_path: Path, config: Path) -> None:
    texts = [f"train: {{loss: loss, batch_size: {size}}}\n" for size in (4, 8, 4)]
    runs = [make_run(tmp_path / "made", name, ordinary(), config=text) for name, text in zip("abc", texts, strict=True)]
    (runs[1] / "model.yaml").write_text("name: other\n")
    said = pe("diff", *runs)
    assert said.code == 0, said.err
    rows = [re.split("  +", line.strip()) for line in said.out.splitlines()]
    assert rows[:5] == [
        ["a", "b", "c"], ["config"], ["train.batch_size", "4", "8", "4"], ["model"], ["model.yaml", "model 1", "model 2", "model 1"],
    ]  # fmt: skip
    faster = config.with_name("faster.yaml")
    faster.write_text("extends: line.yaml\ntrain: {optimizer: {learning_rate: 0.5}}\noutput: {note: 'two\n\n  lines'}\n")
    said = pe("diff", config, faster)
    assert said.code == 0, said.err
    rows = [re.split("  +", line.strip()) for line in said.out.splitlines()]
    assert rows == [
        [str(config), str(faster)], ["config"], ["train.optimizer.learning_rate", "0.1", "0.5"], ["output.note", "-", "two lines"],
        ["model"], ["the same"],
    ]  # fmt: skip
    assert pe("train", config, "--quiet").code == 0
    (run,) = (config.parent / "runs").iterdir()
    found = json.loads(pe("diff", run, config, faster, "--json").out)
    assert found["config"]["train.optimizer.learning_rate"] == [0.1, 0.1, 0.5]
    assert found["model"] == {}
    assert [type(value) for value in found["results"]["steps"]] == [int, type(None), type(None)]
    said = pe("diff", run)
    assert (said.code, "name two runs or configs, or more" in said.err) == (2, True)
    assert pe("diff", run, config.with_name("model.yaml")).code == 2


def listed(pe: Pe, *arguments: object) -> list[str]:
    """Return the names of the runs that are listed, the columns cut off."""
    said = pe("runs", *arguments)
    assert said.code == 0, said.err
    return [line.split()[0] for line in said.out.splitlines()[1:] if "  " in line]


@pytest.fixture
def several(tmp_path: Path) -> Path:
    """Runs a, b and c, which differ in rate, size and loss; a and b have tags, a has a note."""
    output = {"a": "{tags: [base, small], note: 'a first\n try'}", "b": "{tags: [base]}", "c": "{dir: x}"}
    for name, rate, size, loss in (("a", 0.1, 4, 2.0), ("b", 0.01, 4, 1.0), ("c", 0.01, 8, 3.0)):
        config = f"train: {{loss: loss, batch_size: {size}, optimizer: {{type: SGD, learning_rate: {rate}}}}}\noutput: {output[name]}\n"
        make_run(tmp_path / "runs", name, ordinary(loss), config=config, state="failed" if name == "c" else "done")
    return tmp_path / "runs"


@pytest.mark.parametrize(
    ("where", "names"),
    [
        pytest.param(["train.batch_size=4"], ["a", "b"], id="a key"),
        pytest.param(["batch_size!=4"], ["c"], id="the end of a key, and not this"),
        pytest.param(["learning_rate<0.1"], ["b", "c"], id="less"),
        pytest.param(["learning_rate <= 1e-1", "batch_size >= 8"], ["c"], id="two conditions"),
        pytest.param(["train/loss>0.1"], ["c"], id="a metric"),
        pytest.param(["tags=base"], ["a", "b"], id="a tag"),
        pytest.param(["tags!=small"], ["b", "c"], id="not a tag"),
        pytest.param(["note=*first*"], ["a"], id="a part of the note"),
        pytest.param(["state=failed"], ["c"], id="a state"),
        pytest.param(["run=a"], ["a"], id="a name"),
        pytest.param(["type=SG?"], [], id="a question mark is itself"),
    ],
)
def test_runs_are_chosen(pe: Pe, several: Path, where: list[str], names: list[str]) -> None:
    options = [part for one in where for part in ("--where", one)]
    assert [run["run"] for run in json.loads(pe("runs", several, *options, "--json").out)] == [str(several / name) for name in names]
    assert listed(pe, several, *options) == names


def test_runs_are_sorted(pe: Pe, several: Path) -> None:
    assert listed(pe, several, "--sort", "train/loss") == ["b", "a", "c"]
    assert listed(pe, several, "--sort", "train/loss", "--reverse") == ["c", "a", "b"]
    assert listed(pe, several, "--sort", "note") == ["a", "b", "c"], "what has none comes last"
    assert listed(pe, several, "--reverse") == ["c", "b", "a"]


def test_columns_show_what_differs(pe: Pe, several: Path) -> None:
    lines = pe("runs", several, "--sort", "train/loss").out.splitlines()
    assert lines[0].split()[-4:] == ["tags", "train/loss", "batch_size", "learning_rate"]
    assert [re.split("  +", line)[-4:] for line in lines[1:4]] == [
        ["base", "0.05", "4", "0.01"], ["base, small", "0.1", "4", "0.1"], ["-", "0.15", "8", "0.01"],
    ]  # fmt: skip
    assert lines[4:] == ["a: a first try"]
    assert pe("runs", several, "--where", "run=a").out.splitlines()[0].split()[-1] == "tags", "one run differs from none"


def test_few_columns_are_shown_of_many(pe: Pe, tmp_path: Path) -> None:
    for name in "ab":
        keys = "".join(f"  k{i}: {'x' * 50}{name}\n" for i in range(7))
        make_run(tmp_path, name, ordinary(), config=f"fetches:\n{keys}train:\n  loss: loss\n  epochs: {ord(name)}\n")
    lines = pe("runs", tmp_path).out.splitlines()
    assert lines[0].split()[-4:] == ["k0", "k1", "k2", "epochs"]
    assert max(map(len, lines)) < 250
    assert lines[-1] == "4 more keys differ: pe diff RUN RUN shows all"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param(["--where", "batch_size"], "--where needs KEY=VALUE, got 'batch_size'", id="no condition"),
        pytest.param(["--where", "batch_sise=4"], "did you mean 'batch_size'?", id="an unknown key"),
        pytest.param(["--where", "batch_size<x"], "compares with 'x', which is no number", id="less than a text"),
        pytest.param(["--sort", "eval/los"], "did you mean 'eval/loss'?", id="an unknown metric"),
    ],
)
def test_mistakes_in_choosing(pe: Pe, several: Path, options: list[str], text: str) -> None:
    said = pe("runs", several, *options)
    assert (said.code, text in said.err) == (2, True), said.err


def test_tags_and_a_note_are_kept_in_the_run(pe: Pe, config: Path) -> None:
    said = pe("train", config, "--quiet", "-o", "output.tags=[base]", "-o", "output.tags+=wide", "-o", "output.note=a try")
    assert said.code == 0, said.err
    (run,) = json.loads(pe("runs", config.parent / "runs", "--json").out)
    assert (run["tags"], run["note"]) == (["base", "wide"], "a try")
    (folder,) = (config.parent / "runs").iterdir()
    said = pe("train", config, "--quiet", "--resume", folder, "-o", "output.tags=[other]", "-o", "train.epochs=3")
    assert said.code == 0, said.err
    assert listed(pe, config.parent / "runs", "--where", "tags=other") == [folder.name]
    said = pe("check", config, "-o", "output.tags=base")
    assert (said.code, "output.tags must be a list of 1 to 20 texts" in said.err) == (2, True), said.err
    said = pe("check", config, "-o", f"output.note={'x' * 2001}")
    assert (said.code, "output.note must be a text of 1 to 2000 characters" in said.err) == (2, True), said.err


def test_a_plot_is_svg_and_its_mistakes_are_told(pe: Pe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [make_run(tmp_path, name, ordinary()) for name in ("a", "b")]
    out = tmp_path / "loss.svg"
    said = pe("plot", *runs, "-o", out)
    assert said.code == 0, said.err
    lines = [e for e in ElementTree.parse(out).iter() if e.get("data-line")]
    assert len(lines) == 4
    for arguments, text in (
        (["-o", tmp_path / "x.pdf"], ".svg or .png"),
        (["-o", out, "--metric", "eval/lss"], "did you mean 'eval/loss'?"),
    ):
        said = pe("plot", *runs, *arguments)
        assert (said.code, text in said.err) == (2, True), said.err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    said = pe("plot", *runs, "-o", tmp_path / "x.png")
    assert (said.code, "pe-cli[plot]" in said.err) == (2, True), said.err


def test_a_logarithmic_plot_needs_positive_values(pe: Pe, tmp_path: Path) -> None:
    run = make_run(tmp_path, "a", [{"step": s, "epoch": 0, "split": "train", "loss": v} for s, v in ((1, 0.5), (2, 0.0))])
    said = pe("plot", run, "-o", tmp_path / "x.svg", "--log")
    assert (said.code, "has the value 0" in said.err) == (2, True), said.err
    assert pe("plot", make_run(tmp_path, "b", ordinary()), "-o", tmp_path / "x.svg", "--log").code == 0


def test_a_plot_as_png(pe: Pe, tmp_path: Path) -> None:
    needs.package("matplotlib")
    out = tmp_path / "loss.png"
    said = pe("plot", make_run(tmp_path, "a", ordinary()), "-o", out, "--metric", "acc", "--log")
    assert said.code == 0, said.err
    assert out.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"


def test_the_report_of_a_trained_run_has_every_part(pe: Pe, config: Path) -> None:
    wishes = ["output.gradient_norms=true", "output.trace=2", "executor.devices=2", "output.log=[csv]"]
    assert pe("train", config, "--quiet", *(a for w in wishes for a in ("-o", w))).code == 0
    (folder,) = (config.parent / "runs").iterdir()
    said = pe("report", folder)
    assert said.code == 0, said.err
    text = (folder / "report.html").read_text()
    page = check_self_contained(text)
    assert re.findall(r"<h2>(\w+)", text) == ["Curves", "Timeline", "Graph", "Memory", "Config", "Environment"]
    keys = [a["data-key"] for tag, a in page.found if tag == "svg" and a.get("data-key")]
    assert {"m-loss", "m-learning_rate", "m-gradient_norm", "speed"} <= set(keys)
    data = json.loads(page.scripts[0])
    lanes = [lane["name"] for lane in data["timelines"][0]["lanes"]]
    assert lanes[0] == "steps"
    assert {name.split(" ")[0] for name in lanes[1:]} == {"cpu:0", "cpu:1"}
    for expected in ("gradients by parameter", "guess", "optimizer state", "cpu:1", "batch_size: 16", "safetensors"):
        assert expected in text, expected


def test_a_report_of_several_runs_overlays_them_and_shows_what_differs(pe: Pe, config: Path) -> None:
    for rate in (0.1, 0.01):
        assert pe("train", config, "--quiet", "-o", f"train.optimizer.learning_rate={rate}").code == 0
    runs = sorted((config.parent / "runs").iterdir())
    out = config.parent / "both.html"
    said = pe("report", *runs, "-o", out)
    assert said.code == 0, said.err
    page = check_self_contained(out.read_text())
    data = json.loads(page.scripts[0])
    assert [line["run"] for line in data["charts"]["m-loss"]["lines"]] == [0, 0, 1, 1]
    assert "<th>train.optimizer.learning_rate</th><td>0.1</td><td>0.01</td>" in out.read_text()
    assert pe("report", runs[0], runs[0]).code == 2


def test_a_report_may_measure_afresh(pe: Pe, trained: Path) -> None:
    said = pe("report", trained, "--profile", 2)
    assert said.code == 0, said.err
    data = json.loads(Page((trained / "report.html").read_text()).scripts[0])
    assert len(data["timelines"][0]["lanes"][0]["events"]) == 2
    (trained.parents[1] / "data.npz").unlink()
    assert pe("report", trained, "--profile", 2).code == 3
    assert pe("report", trained).code == 0, "without measuring, data is not needed"


def test_a_report_of_a_run_whose_config_is_broken_says_what_is_missing(pe: Pe, trained: Path) -> None:
    (trained / "model.yaml").unlink()
    (trained / "trace.json").write_text("{")
    said = pe("report", trained)
    assert said.code == 0, said.err
    text = (trained / "report.html").read_text()
    assert "graph and memory are left out" in text
    assert "trace.json can&#x27;t be read" in text


def test_nothing_that_a_run_holds_becomes_markup(pe: Pe, tmp_path: Path) -> None:
    folder = hostile(tmp_path)
    said = pe("report", folder, make_run(tmp_path, "other", ordinary()), "-o", tmp_path / "page.html")
    assert said.code == 0, said.err
    text = (tmp_path / "page.html").read_text()
    page = check_self_contained(text)
    assert EVIL not in text
    assert "&lt;/script&gt;" in text, "it is shown"
    assert any(EVIL in line for line in json.loads(page.scripts[0])["timelines"][0]["names"])
    assert pe("runs", tmp_path).code == 0
    assert pe("plot", folder, "-o", tmp_path / "x.svg", "--metric", EVIL).code == 0
    assert "<img" not in (tmp_path / "x.svg").read_text()


def test_training_with_a_live_page(pe: Pe, config: Path) -> None:
    said = pe("train", config, "--live")
    assert said.code == 0, said.err
    assert re.search(r"note: live page, .*: http://127\.0\.0\.1:\d+/[\w-]{32}/\n", said.err)
    assert re.match(r"live page", pe("train", config, "--live", "--quiet").err)
    said = pe("train", config, "--live-port", 8000)
    assert (said.code, "add --live" in said.err) == (2, True)


def test_a_live_page_does_not_keep_its_port_when_the_run_fails(pe: Pe, config: Path) -> None:
    said = pe("train", config, "--live", "-o", "train.optimizer.learning_rate=1e30", "-o", "train.epochs=20")
    assert said.code == 4, said.err
    port = int(re.search(r"127\.0\.0\.1:(\d+)", said.err)[1])  # type: ignore[index]
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=5)


def test_texts_of_a_run_do_not_steer_the_terminal(pe: Pe, tmp_path: Path) -> None:
    steer = "a\x1b]0;title\x07b\x9b31mc\u202ed"
    evil = [{"step": 3, "epoch": 1, "split": "train", "loss": 1.0, steer: 1.0}]
    config = "output: {tags: [%s], note: %s}\ntrain: {loss: loss, %s: %s%d}\n"
    told = json.dumps(f"{steer}\nx")
    runs = [
        make_run(
            tmp_path,
            f"{steer}-20240229-12000{i}",
            [*ordinary(), *evil],
            config=config % (told, told, told, "v", i),
            env={"pe": steer, "cpu": f"{steer}{i}", "packages": {steer: f"{steer}{i}"}},
            state=steer,
            warning=steer,
            error=steer,
            best={"by": steer, "mode": steer, "value": 1.0, "step": 3},
        )
        for i in (1, 2)
    ]
    shown = (["runs", tmp_path], ["runs", tmp_path, "--sort", f"train/{steer}"], ["runs", tmp_path, "--where", f"{steer}=1"])
    for arguments in (*shown, ["diff", *runs], ["report", *runs, "-o", tmp_path / "page.html"], ["plot", *runs]):
        said = pe(*arguments)
        for text in (said.out, said.err):
            assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text), arguments[0]
