"""The benchmark workloads: batches and initial parameters, the same arrays for every program that is compared.

Fully connected weights are (in, out), convolutions (out, in, height, width). `python workloads.py FOLDER NAME BATCH` writes
FOLDER/NAME-BATCH.npz with the batch and FOLDER/NAME-init.npz with the parameters.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # Python 3.7, on which an old peer runs, cannot evaluate it
    Arrays = dict[str, np.ndarray]

NAMES = ("mlp", "lenet", "resnet20", "lstm", "transformer", "ctr", "chain", "branches", "resnet50", "mobilenet_v1")
#: Those with images of 224x224 and 1000 classes; few steps are timed, and of the peers PyTorch has them.
LARGE = ("resnet50", "mobilenet_v1")
#: Sizes that are compared, by workload.
BATCHES = {
    "mlp": (64, 256, 1024),
    "lenet": (64, 256),
    "resnet20": (64, 128),
    "lstm": (32, 128),
    "transformer": (32,),
    "ctr": (512, 4096),
    "chain": (1,),
    "branches": (128,),
    "resnet50": (8,),
    "mobilenet_v1": (16,),
}
LEARNING_RATE = 0.01
#: Of the workloads that Adam trains.
ADAM = {"lstm": 0.001, "transformer": 0.001}
CHAIN_OPS = 500
#: ctr: hashed slots, rows of their common table, its width, and numbers beside them.
SLOTS, ROWS, NARROW, NUMBERS = 26, 100000, 16, 13
#: Of lstm and transformer: words known, words a text, width of everything, and the transformer's heads, inner width, layers.
VOCABULARY, WORDS, WIDTH = 5000, 64, 128
HEADS, INNER, LAYERS = 4, 512, 2


def batch(name: str, size: int, seed: int = 7) -> Arrays:
    """Return one batch: x float32 or ids, y int64 [size, 1] where the workload has labels; of ctr d and y are float32."""
    draw = np.random.RandomState(seed)
    if name in ADAM:
        return {
            "x": draw.randint(0, VOCABULARY, (size, WORDS)).astype("int64"),
            "y": draw.randint(0, 2, (size, 1)).astype("int64"),
        }
    if name == "branches":
        return {"x": draw.randn(size, 256).astype("float32")}
    if name == "ctr":
        return {
            "x": draw.randint(0, ROWS, (size, SLOTS)).astype("int64"),
            "d": draw.rand(size, NUMBERS).astype("float32"),
            "y": draw.randint(0, 2, (size, 1)).astype("float32"),
        }
    if name == "chain":
        return {"x": draw.rand(64).astype("float32").reshape(1, 64)}
    if name in LARGE:
        x = draw.rand(size, 3, 224, 224).astype("float32")
        return {"x": x, "y": draw.randint(0, 1000, (size, 1)).astype("int64")}
    x = (
        draw.randn(size, 3, 32, 32)
        if name == "resnet20"
        else draw.rand(size, *((784,) if name == "mlp" else (1, 28, 28)))
    )
    return {"x": x.astype("float32"), "y": draw.randint(0, 10, (size, 1)).astype("int64")}


def blocks() -> Iterator[tuple[str, int, int, int]]:
    """Yield name, channels in, channels out and stride of ResNet-20's residual blocks."""
    channels = 16
    for stage, out in enumerate((16, 32, 64)):
        for index in range(3):
            yield f"s{stage}d{index}", channels, out, 2 if stage and not index else 1
            channels = out


def bottlenecks() -> Iterator[tuple[str, int, int]]:
    """Yield name, channels inside and stride of ResNet-50's residual blocks; those called widen have a convolution beside them."""
    for stage, (channels, count) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), 1):
        yield f"widen{stage}", channels, 2 if stage > 1 else 1
        for index in range(count - 1):
            yield f"stage{stage}/{index}", channels, 1


def separables() -> Iterator[tuple[str, int, int, int]]:
    """Yield name, channels in, channels out and stride of MobileNet's pairs of convolutions."""
    widths = (32, 64, 128, 128, 256, 256, 512, *[512] * 5, 1024, 1024)
    for number, channels in enumerate(widths[:-1], 1):
        made = widths[number]
        name = f"sep7/{number - 7}" if 7 <= number <= 11 else f"sep{number}"
        yield name, channels, made, 2 if made > channels and number > 1 else 1


def parameters(name: str, seed: int = 11) -> Arrays:  # noqa: C901, PLR0912 - one branch per workload
    """Return initial parameters by name, drawn in a fixed order."""
    draw = np.random.RandomState(seed)
    out: Arrays = {}

    def dense(key: str, rows: int, columns: int, gain: float = 2.0) -> None:
        out[f"{key}.w"] = (draw.randn(rows, columns) * np.sqrt(gain / rows)).astype("float32")
        out[f"{key}.b"] = np.zeros(columns, "float32")

    def filters(key: str, made: int, channels: int, side: int) -> None:
        scale = np.sqrt(2.0 / (channels * side * side))
        out[f"{key}.w"] = (draw.randn(made, channels, side, side) * scale).astype("float32")

    def norm(key: str, channels: int) -> None:
        out[f"{key}.g"] = np.ones(channels, "float32")
        out[f"{key}.b"] = np.zeros(channels, "float32")

    if name == "mlp":
        dense("fc1", 784, 256)
        dense("fc2", 256, 256)
        dense("fc3", 256, 10, 1.0)
    elif name == "lenet":
        for key, made, channels in (("conv1", 20, 1), ("conv2", 50, 20)):
            filters(key, made, channels, 5)
            out[f"{key}.b"] = np.zeros(made, "float32")
        dense("fc1", 800, 500)
        dense("fc2", 500, 10, 1.0)
    elif name == "resnet20":
        filters("stem", 16, 3, 3)
        norm("stem_bn", 16)
        for key, channels, made, stride in blocks():
            filters(f"{key}a", made, channels, 3)
            norm(f"{key}a_bn", made)
            filters(f"{key}b", made, made, 3)
            norm(f"{key}b_bn", made)
            if stride != 1:
                filters(f"{key}s", made, channels, 1)
                norm(f"{key}s_bn", made)
        dense("fc", 64, 10, 1.0)
    elif name == "ctr":
        out["emb"] = (draw.randn(ROWS, NARROW) * 0.01).astype("float32")
        out["wide"] = (draw.randn(ROWS, 1) * 0.01).astype("float32")
        dense("fc1", SLOTS * NARROW + NUMBERS, 400)
        dense("fc2", 400, 400)
        dense("fc3", 400, 400)
        dense("fc4", 400, 1, 1.0)
    elif name == "lstm":
        out["emb"] = (draw.randn(VOCABULARY, WIDTH) * 0.1).astype("float32")
        for part in ("ih", "hh"):
            out[f"lstm.w_{part}"] = (draw.randn(WIDTH, 4 * WIDTH) / np.sqrt(WIDTH)).astype("float32")
            out[f"lstm.b_{part}"] = np.zeros(4 * WIDTH, "float32")
        dense("fc", WIDTH, 2, 1.0)
    elif name == "transformer":
        out["emb"] = (draw.randn(VOCABULARY, WIDTH) * 0.1).astype("float32")
        out["pos"] = (draw.randn(WORDS, WIDTH) * 0.1).astype("float32")
        for index in range(LAYERS):
            dense(f"l{index}qkv", WIDTH, 3 * WIDTH, 1.0)
            dense(f"l{index}out", WIDTH, WIDTH, 1.0)
            norm(f"l{index}ln1", WIDTH)
            dense(f"l{index}ff1", WIDTH, INNER)
            dense(f"l{index}ff2", INNER, WIDTH, 1.0)
            norm(f"l{index}ln2", WIDTH)
        dense("fc", WIDTH, 2, 1.0)
    elif name in LARGE:
        return _large(name, draw)
    elif name == "branches":
        for tower in range(8):
            for depth in range(4):
                dense(f"b{tower}d{depth}", 256, 256)
    return out


def _large(name: str, draw: np.random.RandomState) -> Arrays:
    """Return the parameters of `LARGE` workloads, called as in their models."""
    out: Arrays = {}

    def block(key: str, made: int, channels: int, side: int) -> None:
        scale = np.sqrt(2.0 / (channels * side * side))
        out[f"{key}/conv.w_0"] = (draw.randn(made, channels, side, side) * scale).astype("float32")
        out[f"{key}/bn.w_0"] = np.ones(made, "float32")
        out[f"{key}/bn.b_0"] = np.zeros(made, "float32")

    if name == "resnet50":
        block("stem", 64, 3, 7)
        wide = 64
        for key, channels, _ in bottlenecks():
            block(f"{key}/a", channels, wide, 1)
            block(f"{key}/b", channels, channels, 3)
            block(f"{key}/c", 4 * channels, channels, 1)
            if key.startswith("widen"):
                block(f"{key}/short", 4 * channels, wide, 1)
            wide = 4 * channels
    else:
        block("stem", 32, 3, 3)
        for key, channels, wide, _ in separables():
            block(f"{key}/depth", channels, 1, 3)
            block(f"{key}/point", wide, channels, 1)
    out["logits.w_0"] = (draw.randn(wide, 1000) / np.sqrt(wide)).astype("float32")
    out["logits.b_0"] = np.zeros(1000, "float32")
    return out


def write(folder: Path, name: str, size: int) -> tuple[Path, Path]:
    """Write a workload's batch and parameters as npz files and return their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    data, init = folder / f"{name}-{size}.npz", folder / f"{name}-init.npz"
    np.savez(data, **batch(name, size))
    np.savez(init, **parameters(name))
    return data, init


if __name__ == "__main__":
    write(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
