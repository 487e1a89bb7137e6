"""Draw the pictures of docs/pictures with pe itself: `python docs/make_pictures.py`. The one of a report needs Chromium and Pillow.

The models are those of the pages, so that a picture shows what its page says.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pe_cli.cli.main import run
from pe_cli.io.view import drawing

HERE = Path(__file__).resolve().parent
PICTURES = HERE / "pictures"

#: Picture -> command that draws it, in a folder with the files of the pages; {} is where it is drawn to.
DRAWN = {
    "tutorial_loss.svg": "plot {first} -o {}",
    "first_model.svg": "graph config.yaml --stage model --svg {}",
    "tutorial_graph.svg": "graph config.yaml --stage ssa --devices 1 --full --svg {}",
    "tower.svg": "graph tower.yaml --stage ssa --svg {}",
    "multi_device.svg": "graph linear_config.yaml --stage multi_device --devices 2 --full --svg {}",
    "program.svg": "graph linear.yaml --stage program --svg {}",
    "ssa.svg": "graph linear_config.yaml --stage ssa --devices 1 --full --svg {}",
    "before_fusion.svg": "graph net_config.yaml --eval --stage ssa --devices 1 --full --svg {}",
    "after_fusion.svg": (
        "graph net_config.yaml --eval --stage fused --devices 1 --full -o build_strategy.fuse_elewise_add_act_ops=true --svg {}"
    ),
}
#: A photograph of the top of the first run's report.
REPORT = "report.png"

LINEAR = """\
name: linear
feeds:
  x: {shape: [4]}
  y: {shape: [1]}
layers:
  guess: {type: fc, input: x, size: 1}
  cost:  {type: square_error_cost, input: guess, label: y}
  loss:  {type: mean, x: cost}
fetches: [loss]
"""
NET = LINEAR.replace("guess: {type: fc, input: x", "hidden: {type: fc, input: x, size: 8, act: relu}\n  guess: {type: fc")
CONFIG = """\
model: MODEL
data: {train: {reader: synthetic, samples: 64, fields: {x: {shape: [4]}, y: {shape: [1]}}}}
feeds: {x: x, y: y}
train: {loss: loss, epochs: 1, batch_size: 32, optimizer: {type: SGD, learning_rate: 0.1}}
"""


@contextmanager
def workplace() -> Iterator[Path]:
    """Make a folder with the files that the pictures are drawn of, and go there.

    Graphviz is left alone: its layout depends on its version.
    """
    before, boxes = Path.cwd(), drawing.GRAPHVIZ
    drawing.GRAPHVIZ = 0
    with tempfile.TemporaryDirectory() as made:
        os.chdir(made)
        try:
            _say("init config.yaml")
            tower = re.search(r"<!-- file: tower.yaml -->\n```yaml\n(.*?)```", (HERE / "how-to" / "deeper-net.md").read_text(), re.DOTALL)
            assert tower
            Path("tower.yaml").write_text(tower[1].replace("depth: 3", "depth: 2"))
            for name, text in (("linear", LINEAR), ("net", NET)):
                Path(f"{name}.yaml").write_text(text)
                Path(f"{name}_config.yaml").write_text(CONFIG.replace("MODEL", f"{name}.yaml"))
            yield Path(made)
        finally:
            os.chdir(before)
            drawing.GRAPHVIZ = boxes


def draw(name: str, target: Path) -> None:
    """Draw one picture."""
    first = next(Path("runs").glob("first-*"), None) if Path("runs").is_dir() else None
    _say(DRAWN[name].format(target, first=first))


def photograph(target: Path) -> None:
    """Take a picture of the report of the first run as a browser shows it; without a browser, the old one stays."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        return
    from PIL import Image

    (first,) = Path("runs").glob("first-*")
    _say(f"report {first} -o report.html")
    flags = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=4000", "--window-size=1000,640")
    page = Path("report.html").resolve().as_uri()
    subprocess.run([browser, *flags, f"--screenshot={Path('report.png').resolve()}", page], check=True, capture_output=True)
    Image.open("report.png").convert("RGB").quantize(64).save(target, optimize=True)


def _say(line: str) -> None:
    if run(line.split()):
        raise SystemExit(f"pe {line} failed")


def main() -> None:
    """Write all pictures."""
    with workplace():
        _say("train config.yaml -o output.name=first --quiet")
        for name in DRAWN:
            draw(name, PICTURES / name)
        photograph(PICTURES / REPORT)


if __name__ == "__main__":
    main()
