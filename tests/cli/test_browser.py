"""The report in a real browser: its script runs under its own policy, tooltips and zooming work, and nothing hostile does."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import pe_cli
from pe_cli.cli.common import open_trained
from pe_cli.session.evaluation.predictor import Predictor
from pe_cli.session.serving import service as serving
from tests.cli.conftest import Pe
from tests.io.runs import hostile, make_run, ordinary
from tests.needs import needs
from tests.rotation import of_today, on_its_day

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
pytestmark = needs(BROWSER is not None, "Chromium", "apt-get install chromium")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--virtual-time-budget=4000", "--dump-dom",
)  # fmt: skip
#: A page around the report that does what a person would, and writes down what is seen.
AROUND = """<!doctype html><pre id="seen"></pre><iframe id="page" src="page.html" width="WIDTH" height="900"></iframe><script>
window.onerror = (text) => { document.getElementById("seen").textContent = `wrong: ${text}`; };
document.getElementById("page").onload = ({target}) => setTimeout(() => {
  const page = target.contentDocument, seen = [], note = (name, value) => seen.push(`${name}: ${value}`);
  const box = (node) => node.getBoundingClientRect();
  const at = (node, part) => ({clientX: box(node).left + box(node).width * part, clientY: box(node).top + box(node).height / 2});
  const act = (node, kind, more) => node.dispatchEvent(new target.contentWindow.PointerEvent(kind, {bubbles: true, ...more}));
  const tip = page.getElementById("tip"), chart = page.querySelector("svg.chart[data-axes]");
  act(chart, "pointermove", at(chart, 0.99));
  note("tip", tip.innerText.replaceAll("\\n", " | "));
  note("tip inside", box(tip).left >= 0 && box(tip).right <= WIDTH);
  act(page.body, "pointermove", {});
  note("tip gone", tip.hidden);
  const log = page.querySelector("button.log");
  log.click();
  note("log", log.closest("figure").querySelector(".view").hidden && !log.closest("figure").querySelector(".log-view").hidden);
  page.querySelector("[data-toggle='1']").click();
  const drawn = (node) => target.contentWindow.getComputedStyle(node).display !== "none";
  note("lines", [...chart.querySelectorAll("[data-line]")].filter(drawn).length);
  note("lanes", page.querySelectorAll(".roles span span").length);
  note("wide", page.documentElement.scrollWidth);
  note("hacked", page.documentElement.dataset.hacked || page.images.length);
  const svg = page.querySelector("div.graph svg");
  if (svg) {
    const before = svg.getBoundingClientRect().width;
    page.querySelector("[data-zoom=in]").click();
    note("zoom", (svg.getBoundingClientRect().width / before).toFixed(2));
  }
  document.getElementById("seen").textContent = seen.join("\\n");
}, 300);
</script>"""

Look = Callable[[int], dict[str, str]]


@pytest.fixture
def look(tmp_path: Path) -> Iterator[Look]:
    """Open tmp_path/page.html in a browser of some width, and return what is seen."""

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *given: object) -> None:
            super().__init__(*given, directory=str(tmp_path))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()

        def see(width: int) -> dict[str, str]:
            (tmp_path / "around.html").write_text(AROUND.replace("WIDTH", str(width)))
            assert BROWSER
            address = f"http://127.0.0.1:{server.server_port}/around.html"
            command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", address]
            said = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
            found = re.search(r'<pre id="seen">(.*?)</pre>', said.stdout, re.DOTALL)
            assert found, said.stderr[-2000:]
            return dict(line.split(": ", 1) for line in found[1].splitlines())

        yield see
        server.shutdown()


@pytest.mark.parametrize("width", of_today([pytest.param(390, id="a phone"), pytest.param(1300, id="a desktop")], 2))
def test_what_a_person_does_works(pe: Pe, config: Path, tmp_path: Path, look: Look, width: int) -> None:
    for devices in (1, 2):
        wishes = ["output.gradient_norms=true", "output.trace=1", "fetches.loss={every: 1 steps}", "train.epochs=9"]
        wishes.append(f"executor.devices={devices}")
        assert pe("train", config, "--quiet", *(a for w in wishes for a in ("-o", w))).code == 0
    runs = sorted((config.parent / "runs").iterdir())
    assert pe("report", *runs, "-o", tmp_path / "page.html").code == 0
    seen = look(width)
    assert re.fullmatch(r"step 27( \| devices [12] (train|eval): [\d.e-]+){4}", seen["tip"]), seen["tip"]
    assert (seen["tip inside"], seen["tip gone"], seen["log"]) == ("true", "true", "true")
    assert seen["lines"] == "2", "those of one of two runs"
    assert int(seen["lanes"]) >= 2, "the timeline is drawn"
    assert int(seen["wide"]) <= width, "nothing sticks out at the side"
    assert seen["zoom"] == "1.40"


def test_nothing_hostile_runs(pe: Pe, tmp_path: Path, look: Look) -> None:
    runs = [hostile(tmp_path / "runs"), make_run(tmp_path / "runs", "other", ordinary())]
    assert pe("report", *runs, "-o", tmp_path / "page.html").code == 0
    seen = look(800)
    assert seen["hacked"] == "0"
    assert seen["lines"] == "2", "our own script ran"
    assert "notes &lt;/script&gt;" in seen["tip"], "what the two differ in, as text"


@on_its_day(1, of=2)
def test_the_live_page_shows_memory_and_a_timeline_of_the_run(config: Path, tmp_path: Path) -> None:
    """Seen in the page as the browser has it once news came: nothing of this is in the HTML that it was given first."""
    command = [sys.executable, "-m", "pe_cli.cli.main", "train", config, "--live", "-o", "train.epochs=1000000"]
    environment = os.environ | {"PYTHONPATH": str(Path(pe_cli.__file__).parents[1])}
    with subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, env=environment) as run:
        assert run.stderr
        try:
            address = next(found[0] for line in run.stderr if (found := re.search(r"http://127\S+", line)))
            threading.Thread(target=run.stderr.read, daemon=True).start()
            assert BROWSER
            flags = [flag for flag in FLAGS if "virtual-time" not in flag]  # an open stream of news ends no virtual time
            said = subprocess.run(
                [BROWSER, *flags, "--timeout=5000", f"--user-data-dir={tmp_path / 'profile'}", address],
                capture_output=True, text=True, timeout=120, check=True,
            ).stdout  # fmt: skip
        finally:
            run.kill()
    assert re.search(r"cpu:0: [\d.]+ KiB", said)
    roles = re.search(r'<div class="roles">(.*?)</div>', said)
    assert roles, said[-3000:]
    assert {"step", "forward", "backward", "optimize"} <= set(re.findall(r"</span>(\w+)</span>", roles[1]))
    assert '<section id="timelines">' in said
    assert '<span id="live" class="state running">live</span>' in said


TABLE = """\
model: model.yaml
data:
  source: {reader: table, files: t.csv}
  columns:
    a: {type: number, scale: standard}
    day: {type: date, format: "%d.%m.%Y"}
    kind: {type: category, encode: one_hot}
    y: {type: category}
feeds: {x: [a, day, kind]}
train: {loss: loss, epochs: 2, batch_size: 10, optimizer: {type: SGD, learning_rate: 0.05}}
executor: {devices: 1}
output: {dir: RUNS}
"""
CLASSES = """\
feeds: {x: {shape: [12]}, y: {shape: [1], dtype: int64}}
layers:
  guess: {type: fc, input: x, size: 2}
  xent: {type: softmax_with_cross_entropy, logits: guess, label: y}
  loss: {type: mean, x: xent}
fetches: [loss]
"""


@on_its_day(0, of=2)
def test_the_page_of_a_server_asks_with_values_that_the_model_takes(pe: Pe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [f"{i},{i % 28 + 1:02}.03.2021,{'odd' if i % 2 else 'even'},{'yes' if i % 3 else 'no'}" for i in range(40)]
    (tmp_path / "t.csv").write_text("\n".join(["a,day,kind,y", *lines]) + "\n")
    (tmp_path / "model.yaml").write_text(CLASSES)
    (tmp_path / "c.yaml").write_text(TABLE.replace("RUNS", str(tmp_path / "runs")))
    said = pe("train", tmp_path / "c.yaml", "--quiet")
    assert said.code == 0, said.err
    predictor = Predictor(open_trained(next((tmp_path / "runs").iterdir()), (), None)[0])
    page = serving._page()
    click = b"<script>setTimeout(() => document.querySelector('button').click(), 800)</script>"
    monkeypatch.setattr(serving, "_page", lambda: replace(page, body=page.body + click))
    wishes = {"body": 10_000, "memory": 64 << 20, "waiting": 9, "batch": 8, "patience": 0.0}
    service = serving.Service(predictor, {"model": "classes"}, ("127.0.0.1", 0), **wishes)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        assert BROWSER
        command = [BROWSER, *FLAGS, f"--user-data-dir={tmp_path / 'profile'}", f"http://127.0.0.1:{service.server.address[1]}/"]
        seen = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    finally:
        service.stop()
        thread.join(20)
    out = seen[seen.index('<div id="out"') : seen.index("<script>")]
    assert re.search(r"y: (yes|no)", out), out
    assert out.count('class="bar"') == 2
    assert "date, %d.%m.%Y, 01.03.2021 to 28.03.2021 in the training data" in seen
