"""Measure the way from files to batches, and from a file to a trained model, beside the libraries that people would otherwise use.

Run `python benchmarks/data.py [table] [train] [images] [tar] [text]`; `--python PATH` names the interpreter that has torch, torchvision
and webdataset,
`--folder DIR` keeps the made-up files, `--write FILE` writes the table as Markdown. Every program is a process of its own, on the same
cores, in turn with the others; times are taken inside, without imports, and memory is the largest that the process ever held.
"""

from __future__ import annotations

import argparse
import io
import json
import resource
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
ROWS, NUMBERS, CATEGORIES, MISSING = 1_000_000, 10, 6, 0.02
SIZES = (3, 8, 20, 50, 200, 1000)
PICTURES, SIDE, CROP = 5_000, 256, 224
TEXT_BYTES = 100_000_000
#: Pictures in an archive.
IN_TAR = 1000
REPEATS = 3


# --- files ------------------------------------------------------------------------------------------------------------


def make_table(path: Path) -> None:
    """Write a table of numbers and categories, 2% of whose cells are missing, and a class that follows them."""
    rng = np.random.default_rng(1)
    numbers = rng.normal(size=(ROWS, NUMBERS)) * rng.uniform(0.5, 50, NUMBERS) + rng.uniform(-100, 100, NUMBERS)
    codes = np.stack([rng.integers(0, n, ROWS) for n in SIZES], axis=1)
    scaled = (numbers - numbers.mean(0)) / numbers.std(0)
    effects = [rng.normal(0, 0.7, n) for n in SIZES]
    score = scaled @ rng.normal(0, 0.5, NUMBERS) + np.tanh(scaled[:, 0] * scaled[:, 1])
    score += sum(effect[codes[:, i]] for i, effect in enumerate(effects))
    label = np.where(rng.random(ROWS) < 1 / (1 + np.exp(-2 * score)), "yes", "no")
    gone = rng.random((ROWS, NUMBERS + CATEGORIES)) < MISSING
    columns = [np.where(gone[:, i], "", np.char.mod("%.4f", numbers[:, i])) for i in range(NUMBERS)]
    for i in range(CATEGORIES):
        names = np.array([f"c{i}_{k}" for k in range(SIZES[i])])
        columns.append(np.where(gone[:, NUMBERS + i], "", names[codes[:, i]]))
    header = ",".join([f"n{i}" for i in range(NUMBERS)] + [f"c{i}" for i in range(CATEGORIES)] + ["y"])
    with path.open("w", encoding="utf-8") as file:
        file.write(header + "\n")
        for cells in zip(*columns, label, strict=True):
            file.write(",".join(cells) + "\n")


def make_pictures(folder: Path) -> None:
    """Write JPEGs in two folders: smooth colours with noise, which compress about as photographs do."""
    from PIL import Image

    rng = np.random.default_rng(2)
    for i in range(PICTURES):
        coarse = rng.integers(0, 256, (9, 9, 3), np.uint8)
        smooth = np.asarray(Image.fromarray(coarse).resize((SIDE, SIDE), Image.Resampling.BICUBIC), np.int16)
        noisy = np.clip(smooth + rng.normal(0, 9, (SIDE, SIDE, 1)), 0, 255).astype(np.uint8)
        place = folder / ("a", "b")[i % 2]
        place.mkdir(parents=True, exist_ok=True)
        Image.fromarray(noisy).save(place / f"{i:05d}.jpg", quality=88)


def make_tar(folder: Path) -> None:
    """Write the pictures into archives of a thousand, each with its class beside it."""
    if not (folder.parent / "pictures").exists():
        make_pictures(folder.parent / "pictures")
    folder.mkdir(parents=True)
    found = sorted((folder.parent / "pictures").glob("*/*.jpg"), key=lambda path: path.name)
    for begin in range(0, len(found), IN_TAR):
        with tarfile.open(folder / f"{begin // IN_TAR:04d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for path in found[begin : begin + IN_TAR]:
                archive.add(path, path.name)
                label = tarfile.TarInfo(f"{path.stem}.cls")
                label.size = 1
                archive.addfile(label, io.BytesIO(b"01"[path.parent.name == "b" :][:1]))


def make_text(path: Path) -> None:
    """Write sentences of words whose frequencies fall as in natural text (Zipf)."""
    rng = np.random.default_rng(3)
    syllables = [c + v for c in "bdfghklmnprstvz" for v in "aeiou"]
    words = np.array(["".join(rng.choice(syllables, int(rng.integers(1, 5)))) for _ in range(50_000)])
    written = 0
    with path.open("w", encoding="utf-8") as file:
        while written < TEXT_BYTES:
            ids = np.minimum(rng.zipf(1.25, 200_000) - 1, len(words) - 1)
            lines = [" ".join(part).capitalize() + "." for part in np.array_split(words[ids], 200_000 // 12)]
            written += file.write("\n".join(lines) + "\n")


# --- programs ---------------------------------------------------------------------------------------------------------

CONFIG = {
    "table": """
model: model.yaml
data:
  source: {{reader: table, files: {path}}}
  columns:
{columns}
feeds: {{x: [{numbers}], label: y}}
train: {{loss: loss, epochs: 10, batch_size: 1024, eval_every: 10 epochs, optimizer: {{type: Adam, learning_rate: 0.001}}}}
executor: {{seed: 1}}
output: {{dir: runs, checkpoint: {{every: 10 epochs}}}}
""",
    "images": """
model: model.yaml
data:
  source: {{reader: images, folder: {path}}}
  columns:
    image:
      type: image
      size: [{crop}, {crop}]
      crop_from: [{side}, {side}]
      scale: standard
      mean: [0.485, 0.456, 0.406]
      std: [0.229, 0.224, 0.225]
    label: {{type: category}}
  augment: [random_crop, {{flip: {{p: 0.5}}}}]
train: {{loss: loss, epochs: 1, batch_size: 64, optimizer: {{type: SGD, learning_rate: 0.01}}}}
executor: {{seed: 1}}
""",
    "text": """
model: model.yaml
data:
  source: {{reader: text, files: {path}, blocks: 128}}
  columns: {{tokens: {{type: blocks, tokens: {tokens}, size: 8000, min_count: 1}}}}
train: {{loss: loss, epochs: 1, batch_size: 64, optimizer: {{type: SGD, learning_rate: 0.01}}}}
executor: {{seed: 1}}
""",
}

CONFIG["tar"] = CONFIG["images"].replace(
    "source: {{reader: images, folder: {path}}}", "source: {{reader: tar, files: '{path}/*.tar', shuffle: {{window: 1000}}}}"
)

MODELS = {
    "images": """
feeds: {{image: {{shape: [3, {crop}, {crop}]}}, label: {{shape: [1], dtype: int64}}}}
layers:
  pooled: {{type: pool2d, input: image, pool_size: 32, pool_stride: 32, pool_type: avg}}
  logits: {{type: fc, size: 2}}
  xent: {{type: softmax_with_cross_entropy, logits: logits, label: label}}
  loss: {{type: mean, x: xent}}
fetches: [loss]
""",
    "text": """
feeds: {{tokens: {{shape: [128], dtype: int64}}, next: {{shape: [128], dtype: int64}}}}
layers:
  ids: {{type: reshape, x: tokens, shape: [-1, 1]}}
  labels: {{type: reshape, x: next, shape: [-1, 1]}}
  rows: {{type: embedding, input: ids, size: [9000, 8]}}
  logits: {{type: fc, input: rows, size: 2}}
  picked: {{type: reduce_mean, input: logits}}
  loss: {{type: mean, x: picked}}
  unused: {{type: cast, x: labels, dtype: float32}}
  other: {{type: mean, x: unused}}
fetches: [loss, other]
""",
}


def table_model() -> str:
    """Return the model of the table: embeddings, two hidden layers, two classes."""
    lines = ["feeds:", f"  x: {{shape: [{NUMBERS}]}}", "  label: {shape: [1], dtype: int64}"]
    lines += [f"  c{i}: {{shape: [1], dtype: int64}}" for i in range(CATEGORIES)]
    lines += ["layers:"]
    lines += [f"  e{i}: {{type: embedding, input: c{i}, size: [{n + 2}, 8]}}" for i, n in enumerate(SIZES)]
    parts = ", ".join(f"e{i}" for i in range(CATEGORIES))
    lines += [
        f"  all: {{type: concat, input: [x, {parts}], axis: 1}}",
        "  h1: {type: fc, size: 128, act: relu}", "  h2: {type: fc, size: 64, act: relu}", "  logits: {type: fc, size: 2}",
        "  xent: {type: softmax_with_cross_entropy, logits: logits, label: label}", "  loss: {type: mean, x: xent}",
        "  prob: {type: softmax, input: logits}", "  acc: {type: accuracy, input: prob, label: label}",
        "fetches: [loss, acc]",
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def configure(folder: Path, kind: str, path: Path, split: bool = False, tokens: str = "bpe") -> Path:
    """Write a config and its model, and return the config."""
    columns = [f"    n{i}: {{type: number, missing: median, scale: standard}}" for i in range(NUMBERS)]
    columns += [f"    c{i}: {{type: category}}" for i in range(CATEGORIES)] + ["    y: {type: category}"]
    text = CONFIG[kind].format(
        path=path, columns="\n".join(columns), numbers=", ".join(f"n{i}" for i in range(NUMBERS)), side=SIDE, crop=CROP, tokens=tokens
    )
    if split:
        text = text.replace("  columns:", "  split: {eval: 0.2, order: position}\n  columns:")
    folder.mkdir(parents=True, exist_ok=True)
    config = folder / "config.yaml"
    config.write_text(text, encoding="utf-8")
    model = table_model() if kind == "table" else MODELS["images" if kind == "tar" else kind].format(crop=CROP)
    (folder / "model.yaml").write_text(model, encoding="utf-8")
    return config


def run(command: list[str], folder: Path) -> tuple[dict[str, Any], float, float]:
    """Run a program that prints a JSON object last; return it, the process's seconds and its peak memory in MB."""
    begin = time.perf_counter()
    code = (
        "import json,resource,subprocess,sys\n"
        "done=subprocess.run(sys.argv[1:],capture_output=True,text=True)\n"
        "peak=resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss/1024\n"
        "print(json.dumps([done.returncode,done.stdout,done.stderr[-2000:],peak]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=folder, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - begin
    status, out, err, peak = json.loads(done.stdout)
    if status:
        raise SystemExit(f"{' '.join(command)} ended with {status}:\n{out[-2000:]}{err}")
    last = out.strip().splitlines()[-1] if out.strip() else "{}"
    return (json.loads(last) if last.startswith("{") else {"said": last}), seconds, peak


def pe(*arguments: str) -> list[str]:
    """Return a command of pe."""
    return [sys.executable, "-m", "pe_cli", *arguments]


# --- what is compared -------------------------------------------------------------------------------------------------

Row = tuple[str, str, float, float, str]
#: Of each comparison the file or folder that it reads, and those whose figure is samples a second.
NEEDED = {
    "table": "table.csv", "train": "table.csv", "images": "pictures", "tar": "archives", "text": "text.txt", "words": "text.txt",
}  # fmt: skip
PICTURED = ("images", "tar")


def medians(times: int, measure: Callable[[], tuple[float, float, str]]) -> tuple[float, float, str]:
    """Repeat a measurement; return the median of the figure, the largest memory, and the last remark."""
    found = [measure() for _ in range(times)]
    return statistics.median(f for f, _, _ in found), max(m for _, m, _ in found), found[-1][2]


def compare(name: str, folder: Path, python: str, repeats: int) -> list[Row]:
    """Return one row per program of a comparison; its figure is seconds, or samples a second for pictures."""
    path = folder / NEEDED[name]
    peer = [python, str(HERE / "data_peer.py")]
    kind = {"train": "table", "words": "text"}.get(name, name)
    config = configure(folder / f"pe-{name}", kind, path, split=name == "train", tokens="words" if name == "words" else "bpe")

    def bench() -> tuple[float, float, str]:
        found, _, peak = run(pe("bench", str(config), "--data", "--steps", "4", "--json"), config.parent)
        figure = found["data_samples_per_s"] if name in PICTURED else found["data_opened_s"]
        return figure, peak, ""

    def train() -> tuple[float, float, str]:
        found, seconds, peak = run(pe("train", str(config), "--quiet"), config.parent)
        return seconds, peak, found["said"].partition("eval/acc ")[2].partition(" ")[0]

    def other(what: str) -> Callable[[], tuple[float, float, str]]:
        def measure() -> tuple[float, float, str]:
            found, seconds, peak = run([*peer, what, str(path)], folder)
            return found.get("figure", seconds), peak, str(found.get("said", ""))

        return measure

    rivals = {
        "table": ["columns"], "train": ["torch", "sklearn"], "images": ["torchvision"], "tar": ["webdataset"],
        "text": ["bpe"], "words": ["words"],
    }[name]  # fmt: skip
    rows: list[Row] = [(name, "pe", *medians(repeats, train if name == "train" else bench))]
    rows += [(name, rival, *medians(1 if rival == "sklearn" else repeats, other(rival))) for rival in rivals]
    return rows


def report(rows: list[Row]) -> str:
    """Return the rows as a Markdown table; the ratio is above 1 where pe is faster."""
    lines = ["| what | program | figure | ratio | peak MB | held-out accuracy |", "|---|---|---|---|---|---|"]
    own = {name: figure for name, program, figure, _, _ in rows if program == "pe"}
    for name, program, figure, peak, said in rows:
        unit = "samples/s" if name in PICTURED else "s"
        ratio = own[name] / figure if name in PICTURED else figure / own[name]
        lines.append(f"| {name} | {program} | {figure:,.2f} {unit} | {ratio:.2f} | {peak:,.0f} | {said} |")
    return "\n".join(lines)


def main() -> None:
    """Make the files that are missing, run everything that is named, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", help=f"{', '.join(NEEDED)}; all when absent")
    parser.add_argument("--python", default=sys.executable, help="interpreter with torch, torchvision and webdataset")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "pe-bench-data")
    parser.add_argument("--repeats", type=int, default=REPEATS)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    made = {"table.csv": make_table, "pictures": make_pictures, "archives": make_tar, "text.txt": make_text}
    wanted = options.what or [*NEEDED]
    for file in {NEEDED[name] for name in wanted}:
        if not (options.folder / file).exists():
            print(f"making {file}", file=sys.stderr)
            made[file](options.folder / file)
    rows = [row for name in wanted for row in compare(name, options.folder, options.python, options.repeats)]
    text = report(rows)
    print(text)
    print(f"this process held {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB", file=sys.stderr)
    if options.write:
        options.write.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
