"""A pretrained network on pictures of one's own, by pe and by PyTorch: accuracy, time per step, peak memory and installed size.

The network is `ch_ppocr_mobile_v2.0_cls_infer.onnx` of the package rapidocr-onnxruntime (Apache-2.0): a MobileNetV3 of 0.13 million numbers
that tells whether a line of text is upside down. The pictures are lines of words in faces of DejaVu, which the scripts draw: 40 of each
face to learn from, 100 to be asked. Both programs replace the last layer, train all others from the file's values with Adam, and begin
with each seed anew.

    pip download --no-deps rapidocr-onnxruntime
    python benchmarks/fine_tuning.py rapidocr_onnxruntime-*.whl --peer TORCH/bin/python [--fonts FOLDER]

The environment TORCH has `pip install torch onnx onnx2torch`. Times count on an idle machine alone.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

HERE = Path(__file__).parent
MODEL = "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx"
FACES = ("Sans", "Sans-Bold", "Sans-Oblique", "SansMono", "SansMono-Bold", "Serif", "Serif-Bold", "SansCondensed")
WORDS = ["the", "room", "was", "clean", "quiet", "and", "bed", "soft", "nobody", "answered", "when", "called", "soup", "cold", "late"]
TRAINED, ASKED, EPOCHS, BATCH, RATE = 40, 100, 15, 32, 0.001
HEIGHT, WIDTH = 48, 192
CONFIG = f"""\
model: {{file: MODEL/model.yaml, args: {{classes: {len(FACES)}}}}}
data:
  train: {{reader: npz, file: train.npz, shuffle: true}}
  eval: {{reader: npz, file: eval.npz}}
feeds: {{x: x, label: label}}
train:
  loss: loss
  epochs: {EPOCHS}
  batch_size: {BATCH}
  optimizer: {{type: Adam, learning_rate: {RATE}}}INIT
fetches: {{acc: {{every: 1 epoch}}}}
"""
#: `pe` by this interpreter.
RUN = "import sys; from pe_cli.cli.main import main; sys.argv = ['pe', *sys.argv[1:]]; main()"


def pictures(fonts: Path, seed: int, count: int) -> dict[str, Any]:
    """Return lines of words as a recogniser sees them, -1 to 1, and the numbers of their faces."""
    rng = np.random.default_rng(seed)
    made, labels = [], []
    for label, face in enumerate(FACES):
        for _ in range(count):
            font = ImageFont.truetype(str(fonts / f"DejaVu{face}.ttf"), int(rng.integers(16, 30)))
            paper, ink = int(rng.integers(150, 256)), int(rng.integers(0, 90))
            image = Image.new("L", (WIDTH, HEIGHT), paper)
            text = " ".join(rng.choice(WORDS, 4))
            ImageDraw.Draw(image).text((int(rng.integers(-20, 12)), int(rng.integers(2, 16))), text, fill=ink, font=font)
            noisy = np.asarray(image, np.float32) + rng.normal(0, 12, (HEIGHT, WIDTH))
            made.append(np.broadcast_to((noisy / 127.5 - 1).astype(np.float32), (3, HEIGHT, WIDTH)))
            labels.append([label])
    return {"x": np.stack(made), "label": np.asarray(labels)}


def watched(command: list[str], folder: Path) -> tuple[str, float, float]:
    """Run a program; return what it prints, its seconds and the most MB that were resident in it."""
    begin, peak = time.perf_counter(), 0
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
        while process.poll() is None:
            try:
                peak = max(peak, int(Path(f"/proc/{process.pid}/status").read_text().split("VmHWM:")[1].split()[0]))
            except (IndexError, OSError):  # it has just ended
                break
            time.sleep(0.01)
        code = process.wait()
        out.seek(0)
        text = out.read()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}:\n{text}")
    return text, time.perf_counter() - begin, peak / 1024


def ours(folder: Path, seed: int, pretrained: bool) -> dict[str, float]:
    """Train with pe; return the share of pictures whose face it tells, ms per step and MB."""
    config = folder / f"{'fine' if pretrained else 'new'}.yaml"
    config.write_text(CONFIG.replace("INIT", "\n  init: {from: MODEL/params.safetensors}" if pretrained else ""))
    run = folder / f"runs-{config.stem}-{seed}"
    options = ["-o", f"executor.seed={seed}", "-o", f"output.dir={run}"]
    _, _, peak = watched([sys.executable, "-c", RUN, "train", str(config), "--quiet", *options], folder)
    (made,) = run.iterdir()
    said = json.loads(watched([sys.executable, "-c", RUN, "eval", str(made), "--json"], folder)[0].strip().splitlines()[-1])
    seconds = [json.loads(line)["seconds"] for line in (made / "speed.jsonl").read_text().splitlines()]
    times = [after - before for before, after in itertools.pairwise(seconds)]
    return {"accuracy": said["acc"], "ms": 1000 * statistics.median(times), "mb": peak}


def size_of(python: str, name: str) -> float:
    """Return the MB on the disk of a package and of all that it needs, in an environment."""
    return float(subprocess.run([python, str(HERE / "installed_size.py"), name], capture_output=True, text=True, check=True).stdout)


def main() -> None:
    """Run both and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--peer", metavar="PYTHON", help="of an environment with torch, onnx and onnx2torch")
    parser.add_argument("--fonts", type=Path, default=Path("/usr/share/fonts/truetype/dejavu"))
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()
    if missing := [face for face in FACES if not (options.fonts / f"DejaVu{face}.ttf").is_file()]:
        parser.error(f"{options.fonts} has no DejaVu{missing[0]}.ttf: apt-get install fonts-dejavu, or say where the faces are by --fonts")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with zipfile.ZipFile(options.wheel) as archive:
            (folder / "model.onnx").write_bytes(archive.read(MODEL))
        for name, seed, count in (("train", 1, TRAINED), ("eval", 2, ASKED)):
            np.savez(folder / f"{name}.npz", **pictures(options.fonts, seed, count))
        shape = f"x=N,3,{HEIGHT},{WIDTH}"
        watched([sys.executable, "-c", RUN, "import", "model.onnx", "-o", "MODEL", "--task", "classes", "--shape", shape], folder)
        found = {"pe": [ours(folder, seed, True) for seed in range(options.seeds)]}
        found["pe, from nothing"] = [ours(folder, seed, False) for seed in range(options.seeds)]
        if options.peer:
            facts = [str(folder), str(len(FACES)), str(EPOCHS), str(BATCH), str(RATE)]
            found["PyTorch"] = []
            for seed in range(options.seeds):
                text, _, peak = watched([options.peer, str(HERE / "fine_tuning_peer.py"), *facts, str(seed)], folder)
                found["PyTorch"].append({**json.loads(text.strip().splitlines()[-1]), "mb": peak})
    sizes = {"pe": size_of(sys.executable, "pe-cli[onnx]")}
    sizes |= {"PyTorch": size_of(options.peer, "torch onnx onnx2torch")} if options.peer else {}
    for name, rows in found.items():
        shares = [row["accuracy"] for row in rows]
        text = f"{name:<18} accuracy {statistics.mean(shares):.3f} ({min(shares):.3f} to {max(shares):.3f})"
        text += f"  {statistics.median(row['ms'] for row in rows):.1f} ms a step  {max(row['mb'] for row in rows):.0f} MB"
        sys.stdout.write(text + (f"  {sizes[name]:.0f} MB installed\n" if name in sizes else "\n"))


if __name__ == "__main__":
    main()
