"""Small networks and archives of the tests."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np

import pe_cli.paddle.fluid as fluid


def regression(width: int = 10):
    """X[1] -> fc -> mean: the network of the reference's samples."""
    x = fluid.layers.data(name="X", shape=[1], dtype="float32")
    return fluid.layers.mean(fluid.layers.fc(input=x, size=width))


def trained(rate: float = 0.01):
    """The same with SGD, initialised; returns the loss and its executor."""
    loss = regression()
    fluid.optimizer.SGD(learning_rate=rate).minimize(loss)
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return loss, executor


def rows(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((n, 1), dtype="float32")


def pack(path: Path, files: dict[str, Any]) -> None:
    """Write files, by name, into a tar archive."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as archive:
        for name, contents in files.items():
            data = contents.encode() if isinstance(contents, str) else contents
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
