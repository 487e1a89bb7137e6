"""Whole inputs, which the tests damage."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import struct
from pathlib import Path

import numpy as np
import onnx
from safetensors.numpy import save as save_safetensors

from pe_cli.collectives.servers.handshake import GREETING, WELCOME, Handshake, proof
from pe_cli.kernels.compiler.cache import MAGIC
from pe_cli.program.backward import append_backward
from pe_cli.program.serialize import to_json
from pe_cli.program.text_forms import from_string, to_string
from tests.data.test_fitted import fitted
from tests.fuzz import messages
from tests.fuzz.read_annotations import annotated, tagged
from tests.fuzz.read_runs import joined
from tests.fuzz.targets import ROOT, STEP_FACTS
from tests.io.runs import CONFIG, ordinary
from tests.program.support import TWO_LAYERS
from tests.session.http.shapes import RIGHT, WRONG

KERNEL = MAGIC + hashlib.sha256(b"\x7fELF machine code").digest() + b"\x7fELF machine code"
#: Files that PaddlePaddle 1.8.5 wrote.
RECORDED = ROOT / "tests" / "paddle" / "recordings"
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


def _onnx() -> bytes:
    arrays = [onnx.numpy_helper.from_array(np.arange(6).reshape(2, 3).astype(kind), kind) for kind in ("float32", "int64", "bool")]
    listed = onnx.helper.make_tensor("listed", onnx.TensorProto.FLOAT, [3], [1.0, 2.0, 3.0])
    return bytes(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [*arrays, listed])).SerializeToString())


def _handshakes() -> list[bytes]:
    """Return what a trainer and a server have said in a handshake that went well, which is worth nothing in another one."""
    greeting = GREETING + bytes(range(32))
    answer = Handshake(b"k" * 32, "127.0.0.1:6174").take(greeting)
    told = proof(b"k" * 32, b"trainer", "127.0.0.1:6174", greeting[4:] + answer[4:36])
    return [greeting + told, answer + WELCOME, greeting + answer[36:]]


def _run_files() -> list[str]:
    """Return the files of a run's folder, each behind a line with its name."""
    status = {"state": "done", "step": 20, "epoch": 2, "started": "2024-02-29T12:00:00+00:00", "updated": "2024-02-29T12:01:30+00:00"}
    status |= {"pid": 1, "seconds": 90.5, "lock": "0c632178f099adae", "best": {"metric": "eval/acc", "value": 0.9, "step": 10}}
    env = {"pe": "1", "cores": 2, "packages": {"numpy": "2.0"}, "devices": ["cpu"], "instructions": "native", "number": 28}
    inputs = {"files": {"data/x.csv": {"sha256": "0" * 64, "bytes": 3}}, "kernels": {"mean": "0" * 32}}
    speed = {"step": 10, "epoch": 1, "samples": 120, "seconds": 3.25}
    return [
        "status.json\n" + json.dumps(status, indent=1),
        "env.json\n" + json.dumps(env),
        "resolved.yaml\n" + CONFIG + "model: {file: m.yaml}\n",
        "metrics.jsonl\n" + "".join(json.dumps(row) + "\n" for row in ordinary()),
        "speed.jsonl\n" + json.dumps(speed) + "\n",
        "inputs.json\n" + json.dumps(inputs),
        "model.yaml\nlayers: {y: {type: fc, input: x, size: 3}}\n",
    ]


def _learned() -> list[str]:
    """Return what shipped configs have learned from their data, and a column whose classes lie in a file beside."""
    shipped = [{"data.json": path.read_bytes()} for path in sorted((Path(__file__).parent / "learned").glob("*.json"))]
    return [joined(files).decode() for files in (*shipped, fitted(150).to_files())]


def _trace() -> str:
    """Return a trace as a run writes it: two lanes, their names, and an op in each."""
    lane = {"pid": 1, "tid": 0}
    event = {"ph": "X", "cat": "forward", **lane, "dur": 1.5, "args": {"kernels": "k", "writes": "y"}}
    ops = [{"name": op, **event, "ts": i * 2.5} for i, op in enumerate(("mul", "mean"))]
    named = [{"name": what, "ph": "M", **lane, "args": {"name": "device 0"}} for what in ("process_name", "thread_name")]
    return json.dumps({"traceEvents": [*named, *ops], "displayTimeUnit": "ms"})


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
        "onnx_values": [_onnx()],
        "frames": messages.wholes(),
        "original_import": [file.read_bytes() for file in sorted((RECORDED / "models").glob("*/__model__"))],
        "original_loops": [file.read_bytes() for file in sorted((RECORDED / "loops").glob("*/__model__"))],
        "original_model": [file.read_bytes() for file in sorted((RECORDED / "models").glob("*/__model__"))],
        "original_values": [(RECORDED / "values" / name).read_bytes() for name in ("persistables", "fc_0.w_0", "saved.pdparams")],
        "handshake": _handshakes(),
        "http": [*WRONG.values(), *(data for data, _ in RIGHT.values())],
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
        "annotations": annotated(),
        "tagged_words": tagged(),
        "multi_slot": ["2 3 4 2 0.5 1e3\n1 18446744073709551615 2 0 -1\n"],
        "checkpoint_meta": [_meta().decode()],
        "run_folder": _run_files(),
        "carried_facts": [STEP_FACTS.decode()],
        "learned": _learned(),
        "hosts": ["node1:4\n10.0.0.2 slots = 2 # two\n\n[::1]\n", "a\nb\n"],
        "timeline": [_trace()],
        "program": [TWO_LAYERS, to_json(two), to_string(two, with_details=True)],
    }  # fmt: skip
