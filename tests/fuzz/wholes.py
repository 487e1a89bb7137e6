"""Whole inputs, which the tests damage."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct

import numpy as np
from safetensors.numpy import save as save_safetensors

from pe_cli.kernels.cache import MAGIC
from pe_cli.program.backward import append_backward
from pe_cli.program.forms import from_string, to_string
from pe_cli.program.serialize import to_json
from tests.fuzz.targets import ROOT
from tests.program.support import TWO_LAYERS

KERNEL = MAGIC + hashlib.sha256(b"\x7fELF machine code").digest() + b"\x7fELF machine code"
OVERRIDES = (
    "train.epochs=1", "data.train.file=x.csv", "fetches={loss: {every: 1 steps}}",
    "train.optimizer.learning_rate=0.1", "model.args.classes=3", "args.size=4", "train.batch_size=${size}", "train.groups+={match: fc}",
)  # fmt: skip
EXTENDING = """\
extends: [iris.yaml, ./digits.yaml]
args: {size: 8, rate: ~, whole: ["${size}", {a: "x${size}"}]}
model: {file: ../models/mlp.yaml, args: {hidden: "${size}"}}
train: {batch_size: "${size}", optimizer: {learning_rate: "${rate}"}, early_stopping: ~}
output: {tags: [a, b], note: "$${x} ${size}", name: "${whole}"}
"""


def _arrays(save: object = np.savez) -> bytes:
    file = io.BytesIO()
    save(file, a=np.arange(6), b=np.zeros((6, 2), np.float32))  # type: ignore[operator]
    return file.getvalue()


def _npy(order: str) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(np.arange(24, dtype=np.float32).reshape(4, 6), order=order))  # type: ignore[call-overload]
    return file.getvalue()


def _idx() -> bytes:
    return struct.pack(">HBB3I", 0, 8, 3, 4, 2, 2) + bytes(range(16))


def _meta() -> bytes:
    tensors = {"w": {"dtype": "float32", "shape": [6]}}
    return json.dumps({"format": 1, "step": 3, "sha256": "0" * 64, "bytes": 88, "tensors": tensors}).encode()


def binaries() -> dict[str, list[bytes]]:
    """Return target -> whole inputs that are bytes."""
    return {
        "npy": [_npy("C"), _npy("F")],
        "npz": [_arrays(), _arrays(np.savez_compressed)],
        "init_npz": [_arrays(), _arrays(np.savez_compressed)],
        "idx": [_idx(), gzip.compress(_idx(), mtime=0)],
        "spool": [b'["step", "a"]\n' + _npy("C") + _npy("F") + b'["step"]\n' + _npy("C")],
        "safetensors": [save_safetensors({"w": np.arange(6, dtype=np.float32), "n": np.arange(2)})],
        "checkpoint_mark": [b"step-3\n", b"step-3/../../etc\n"],
        "kernel": [KERNEL],
    }


def texts() -> dict[str, list[str]]:
    """Return target -> whole inputs that are text."""
    two = from_string(TWO_LAYERS)
    append_backward(two.global_block().var("loss"))
    return {
        "config": [path.read_text() for path in sorted((ROOT / "configs").glob("*.yaml")) if path.stat().st_size < 2000] + [EXTENDING],
        "model": [path.read_text() for path in sorted((ROOT / "models").glob("*.yaml")) if path.stat().st_size < 3000],
        "override": ["\n".join(OVERRIDES)],
        "csv": ["a,b,kind\n" + "".join(f"{i},{i / 3},c{i % 2}\n" for i in range(5))],
        "csv_bare": ["1;2.5\n3;4\n"],
        "table": ['a,b,"c ""d"""\r\n1,2.5e-7,"x\n"\r\n, NA ,"y"\r\n', "x;y\n1;é\n"],
        "table_jsonl": ['{"a": 1, "b": [2, {"c": null}]}\n{"a": "x"}\n'],
        "table_cp1252": ["a|b\n1|2\n"],
        "multi_slot": ["2 3 4 2 0.5 1e3\n1 18446744073709551615 2 0 -1\n"],
        "checkpoint_meta": [_meta().decode()],
        "program": [TWO_LAYERS, to_json(two), to_string(two, with_details=True)],
    }  # fmt: skip
