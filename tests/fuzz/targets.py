"""What reads untrusted input: each target takes bytes and a folder, and works or raises PeError."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import time
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import numpy as np

from pe_cli.build.build import build
from pe_cli.cli.main import run as run_command_line
from pe_cli.collectives.servers import frames as server_frames
from pe_cli.collectives.servers.frames import FrameError
from pe_cli.collectives.servers.handshake import Handshake, introduce
from pe_cli.config.load import load_model, load_run
from pe_cli.config.resolved import resolved_yaml
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.data import open_reader
from pe_cli.data.array_dataset import is_table
from pe_cli.io import checkpoint
from pe_cli.io.history import read_run
from pe_cli.io.input_hashes import read_inputs
from pe_cli.io.npz_spool import Spool, path_of
from pe_cli.io.onnx.initializers import read_values
from pe_cli.io.run_folder import RunFolder
from pe_cli.io.tensors import read_npz, read_safetensors, write_safetensors
from pe_cli.io.view.model_facts import Facts
from pe_cli.io.view.page import build_page
from pe_cli.kernels.compiler import cache
from pe_cli.program.serialize import to_json
from pe_cli.program.text_forms import from_string, to_string
from pe_cli.session.verification import step_snapshot as carried
from pe_cli.session.verification.compare import compare
from tests.fuzz import requests
from tests.fuzz.bounds import MOST_BYTES, kept
from tests.fuzz.messages import Wire
from tests.io import runs

ROOT = Path(__file__).parents[2]
#: What `pe check` may end with: a bug of ours (1) is none of them.
_CHECKED = {ExitCode.DONE, ExitCode.USAGE, ExitCode.DATA, ExitCode.DEVICE}

#: What a file says of the step that it carries.
STEP_FACTS = (
    b'{"step": 3, "texts": ["model: m.yaml\\ntrain: {loss: loss, batch_size: 4}\\n", "layers: {y: {type: fc, input: x, size: 3}}\\n"],'
    b' "environment": {"pe": "1", "packages": {"numpy": "2.0"}, "instructions": "native"},'
    b' "ops": {"y": [0, "mul"], "loss": [1, "mean"]}, "fed": {"x": true}}'
)

Target = Callable[[bytes, Path], None]
TARGETS: dict[str, Target] = {}


def target(function: Target) -> Target:
    TARGETS[function.__name__] = function
    return function


@contextlib.contextmanager
def refused(folder: Path, most: int = MOST_BYTES) -> Iterator[None]:
    """Let a PeError pass, when a terminal can show it: text that it can encode, and nothing that steers it."""
    found: PeError | None = None
    with kept(folder, most):
        try:
            yield
        except PeError as error:
            found = error
    if found is not None:
        assert _is_shown(found.render()), repr(found.render())
        assert found.code in _CHECKED


def _is_shown(text: str) -> bool:
    text.encode()
    kinds = {unicodedata.category(c) for c in text if not c.isprintable() and c not in "\n\t"}
    return kinds <= {"Zs", "Cn", "Co", "Cf"}


def project(folder: Path) -> None:
    """Copy the shipped configs, models and data into a folder, once."""
    for name in ("configs", "models"):
        if not (folder / name).exists():
            shutil.copytree(ROOT / name, folder / name)


@target
def config(data: bytes, folder: Path) -> None:
    """`pe check` of a config."""
    project(folder)
    path = folder / "configs/fuzzed.yaml"
    path.write_bytes(data)
    _command(folder, "check", str(path))


@target
def model(data: bytes, folder: Path) -> None:
    """`pe check` of a model."""
    path = folder / "fuzzed.yaml"
    path.write_bytes(data)
    _command(folder, "check", str(path))
    with refused(folder):
        build(load_model(str(path)))


@target
def override(data: bytes, folder: Path) -> None:
    """Values of the command line, one per line."""
    project(folder)
    texts = data.decode("utf-8", "surrogateescape").split("\n")
    with refused(folder):
        resolved_yaml(load_run(str(folder / "configs/iris.yaml"), texts))


def _command(folder: Path, *arguments: str) -> str:
    """Run a command, which ends as it should, and return what it printed."""
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    with kept(folder), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run_command_line(list(arguments))
    err.seek(0)
    said = err.read()
    assert code in _CHECKED, said
    assert "Traceback" not in said
    assert (code == ExitCode.DONE) or "error: " in said
    out.seek(0)
    return out.read()


def _reader(kind: str, **options: object) -> Target:
    def read(data: bytes, folder: Path) -> None:
        (folder / "f").write_bytes(data)
        with refused(folder):
            found = open_reader(kind, options, folder)
            if is_table(found):
                found.prepare(found.names, found.names)
                for name in found.names:
                    assert len(found.cells(name).strings()) == len(found)
                    raise found.error(len(found) - 1, name, found.cells(name).text(len(found) - 1))
            batch = found.take(np.array([len(found) - 1, 0]))
            for name, field in found.fields.items():
                assert batch[name].dtype == field.dtype
                assert batch[name].flags.c_contiguous

    return read


#: Files of a run's folder that other commands read.
RUN_FILES = (b"status.json", b"env.json", b"resolved.yaml", b"metrics.jsonl", b"speed.jsonl", b"inputs.json", b"model.yaml")
SLOTS = {"ids": None, "x": {"type": "float", "dense": True, "shape": [2]}}
TARGETS |= {
    "npy": _reader("npy", files={"x": "f"}),
    "npz": _reader("npz", file="f"),
    "idx": _reader("idx", files={"x": "f"}),
    "csv": _reader("csv", file="f", label="kind"),
    "csv_bare": _reader("csv", file="f", delimiter=";", header=False),
    "table": _reader("table", files="f"),
    "table_jsonl": _reader("table", files="f", format="jsonl"),
    "table_cp1252": _reader("table", files="f", format="csv", encoding="cp1252"),
    "multi_slot": _reader("multi_slot", files=["f"], slots=SLOTS),
}


@target
def safetensors(data: bytes, folder: Path) -> None:
    """A file of tensors alone, as `--init` takes it."""
    path = folder / "f.safetensors"
    path.write_bytes(data)
    with refused(folder):
        for array in read_safetensors(path).values():
            assert array.nbytes <= len(data)


@target
def init_npz(data: bytes, folder: Path) -> None:
    """An archive of arrays, as `--init` takes it."""
    path = folder / "f.npz"
    path.write_bytes(data)
    with refused(folder):
        read_npz(path)


@target
def spool(data: bytes, folder: Path) -> None:
    """Fetched values that a killed run left, and that a resumed one reads."""
    npz = folder / "x.npz"
    path_of(npz).write_bytes(data)
    with refused(folder):
        for record in Spool.read(npz):
            assert sum(array.nbytes for array in record.values()) <= len(data)


@target
def checkpoint_meta(data: bytes, folder: Path) -> None:
    """The description of a checkpoint whose tensors are whole."""
    root = folder / "checkpoints"
    step = root / "step-3"
    if not step.exists():
        checkpoint.write(root, 3, {"w": np.arange(6, dtype=np.float32)}, {"epoch": 1})
    (step / "meta.json").write_bytes(data)
    with refused(folder):
        arrays, meta = checkpoint.load(step)
        assert list(arrays) == list(meta["tensors"])  # type: ignore[call-overload]
    with refused(folder):
        checkpoint.newest_whole(root)


@target
def checkpoint_mark(data: bytes, folder: Path) -> None:
    """The file `last`, that names a checkpoint and may not name any other file."""
    root = folder / "checkpoints"
    if not root.exists():
        checkpoint.write(root, 3, {"w": np.arange(6, dtype=np.float32)}, {})
    (root / "last").write_bytes(data)
    with refused(folder):
        assert checkpoint.load(root)[1]["step"] == 3


@target
def run_folder(data: bytes, folder: Path) -> None:
    """A file of a run's folder, whose name is the first line: it is listed, compared and drawn."""
    parent = folder / "runs"
    if not parent.exists():
        other = runs.make_run(parent, "other-20240229-120005", runs.ordinary())
        for file in ("speed.jsonl", "inputs.json", "config.yaml", "model.yaml", "log.txt", "fold.json"):
            (other / file).write_bytes(b"")
    name, _, contents = data.partition(b"\n")
    changed = parent / "digits-20240229-120005"
    shutil.rmtree(changed, ignore_errors=True)
    shutil.copytree(parent / "other-20240229-120005", changed)
    (changed / (name.decode("latin-1") if name in RUN_FILES else "status.json")).write_bytes(contents)
    for command in (("runs", str(parent)), ("diff", *map(str, sorted(parent.iterdir())))):
        shown = _command(folder, *command)
        assert _is_shown(shown), repr(shown)
    with refused(folder):
        run = read_run(changed)
        read_inputs(RunFolder(changed))
        assert "<script>alert" not in build_page([run], [Facts()])


@target
def carried_facts(data: bytes, folder: Path) -> None:
    """What a file says of the step that it carries; its arrays are whole. It is compared with the step as it was."""
    values = {f"{carried.VALUE}{name}": np.arange(6, dtype=np.float32).reshape(2, 3) for name in ("y", "loss")}
    arrays = values | {f"{carried.BEGIN}x": np.arange(3)}
    for name, facts in (("there", data), ("here", STEP_FACTS)):
        write_safetensors(folder / f"{name}.safetensors", arrays | {carried.FACTS: np.frombuffer(facts, np.uint8)})
    with refused(folder):
        found = compare(carried.StepSnapshot(folder / "there.safetensors"), carried.StepSnapshot(folder / "here.safetensors"))
        assert found.compared <= len(arrays)
        json.dumps(asdict(found))


@target
def onnx_values(data: bytes, folder: Path) -> None:
    """The initializers of an ONNX file, as `--init` takes them."""
    path = folder / "f.onnx"
    path.write_bytes(data)
    with refused(folder):
        read_values(path)


@target
def program(data: bytes, folder: Path) -> None:
    """A program as text or JSON; what is read is written and read again."""
    with refused(folder):
        found = from_string(data)
        text = to_string(found, with_details=True)
        again = from_string(to_json(found))
        assert to_string(again, with_details=True) == text


@target
def frames(data: bytes, folder: Path) -> None:
    """What a connection says that knows the secret of trainers and servers; what is read is written and read again."""
    wire, most = Wire(data, 999), 1 << 16
    with refused(folder), contextlib.suppress(EOFError):
        while True:
            found = server_frames.read(wire.as_socket(), most)
            assert sum(a.nbytes for a in found.arrays.values()) <= most
            for name in found.facts:
                for ask in (found.number, found.text, found.names, found.folder):
                    with contextlib.suppress(FrameError):
                        ask(name)
            copy = Wire()
            server_frames.write(copy.as_socket(), found)
            again = server_frames.read(Wire(copy.sent).as_socket(), most)
            assert (again.kind, again.facts, list(again.arrays)) == (found.kind, found.facts, list(found.arrays))
            for name, a in found.arrays.items():
                assert again.arrays[name].tobytes() == a.tobytes()


@target
def handshake(data: bytes, folder: Path) -> None:
    """What a connection says that knows no secret, to a server and to a trainer: neither takes it for one of its group."""
    key, here = b"k" * 32, "127.0.0.1:6174"
    server, wire = Handshake(key, here), Wire(data, 1 + len(data) % 50)
    with refused(folder):
        while said := wire.recv(server.missing):
            server.take(said)
    assert not server.proved
    assert len(data) < 1000 or server.heard <= 68
    let_in = True
    with refused(folder):
        try:
            introduce(Wire(data, 1 + len(data) % 50).as_socket(), key, here, time.monotonic() + 60)
        except (EOFError, FrameError):
            let_in = False
    assert not let_in


@target
def http(data: bytes, folder: Path) -> None:
    """Bytes of a connection to `pe serve` or `pe train --live`."""
    with kept(folder):
        requests.check(data)


@target
def kernel(data: bytes, folder: Path) -> None:
    """An object of the cache: damaged ones are recognised, removed, and never loaded."""
    path = folder / f"{'0' * 8}.o"
    path.write_bytes(data)
    with kept(folder), mock.patch.object(cache, "folder", return_value=folder):
        body = cache.read("0" * 8)
    assert body == b""
    assert not path.exists()


