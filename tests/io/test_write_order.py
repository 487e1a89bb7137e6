"""The order in which files reach the disk, as a recorder sees it: contents before names, names before what relies on them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from pe_cli.io import atomic, checkpoint
from pe_cli.session.training.checkpoint_writer import CheckpointWriter, Snapshot


class Recorder:
    """What was written, flushed and renamed, in order; paths relative to a folder."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.events: list[tuple[str, str]] = []
        self._root = root
        self._paths: dict[int, str] = {}
        calls = {name: getattr(os, name) for name in ("open", "close", "write", "fsync", "rename", "replace")}

        def opened(path, *args, **given):
            descriptor = calls["open"](path, *args, **given)
            self._paths[descriptor] = self._name(path)
            return descriptor

        def closed(descriptor):
            self._paths.pop(descriptor, None)
            calls["close"](descriptor)

        def written(descriptor, data):
            self._note("write", self._paths.get(descriptor))
            return calls["write"](descriptor, data)

        def flushed(descriptor):
            self._note("fsync", self._paths.get(descriptor))

        def renamed(source, target, *args, **given):
            calls["rename"](source, target, *args, **given)
            self._note("rename", self._name(source), self._name(target))

        for name, fake in (("open", opened), ("close", closed), ("write", written), ("fsync", flushed)):
            monkeypatch.setattr(os, name, fake)
        monkeypatch.setattr(os, "rename", renamed)
        monkeypatch.setattr(os, "replace", renamed)

    def _name(self, path) -> str:
        try:
            return str(Path(path).resolve().relative_to(self._root.resolve()))
        except (TypeError, ValueError):
            return ""

    def _note(self, what: str, *names: str | None) -> None:
        if all(names):
            self.events.append((what, " -> ".join(filter(None, names))))

    def check(self, lossy: str = "") -> list[str]:
        """Check every rename; return the names that were given.

        What gets a name has been flushed since it was last written, and so has the folder that holds it if it is a folder itself; the
        folder that holds the name is flushed afterwards. Files called `lossy` may be lost with the power.
        """
        given = []
        for i, (what, names) in enumerate(self.events):
            if what != "rename":
                continue
            source, target = names.split(" -> ")
            if Path(target).name.startswith(".old-") or Path(target).name == lossy:
                continue  # the former makes room, and is removed
            before = self.events[:i]
            for file in {n for w, n in before if w == "write" and (n == source or n.startswith(f"{source}/"))}:
                last = max(j for j, e in enumerate(before) if e == ("write", file))
                assert ("fsync", file) in before[last:], f"{file} is not on the disk when {target} gets its name"
            if any(n.startswith(f"{source}/") for _, n in before):
                assert ("fsync", source) in before, f"the names in {source} are not on the disk when it becomes {target}"
            folder = str(Path(target).parent)
            assert ("fsync", folder) in self.events[i:], f"the name {target} is not on the disk"
            given.append(target)
        return given


@pytest.fixture
def recorder(tmp_path, monkeypatch):
    return Recorder(tmp_path, monkeypatch)


def test_a_file_is_on_the_disk_before_its_name_and_then_its_name(recorder, tmp_path):
    atomic.write_text(tmp_path / "status.json", "{}")
    assert recorder.check() == ["status.json"]
    assert [what for what, _ in recorder.events] == ["write", "fsync", "rename", "fsync"]


def test_progress_that_may_be_lost_is_not_flushed(recorder, tmp_path):
    atomic.write_text(tmp_path / "status.json", "{}", sync=False)
    assert [what for what, _ in recorder.events] == ["write", "rename"]


ARRAYS = {"w": np.ones((3, 2), "float32"), "b": np.zeros(4, "float64")}


def test_a_checkpoint_is_on_the_disk_before_its_name_and_then_its_name(recorder, tmp_path):
    checkpoint.write(tmp_path / "checkpoints", 7, ARRAYS, {"epoch": 1}, keep=1, files={"data.json": b"{}"})
    assert recorder.check() == ["checkpoints/step-7"]
    files = {Path(n).name for what, n in recorder.events if what == "fsync"}
    assert {"params.safetensors", "meta.json", "data.json", "checkpoints"} <= files


def test_a_checkpoint_replaces_that_of_the_same_step(recorder, tmp_path):
    for _ in range(2):
        checkpoint.write(tmp_path / "checkpoints", 7, ARRAYS, {}, keep=1)
    assert recorder.check() == ["checkpoints/step-7"] * 2


def test_outputs_are_on_the_disk_before_the_checkpoint_that_counts_on_them(recorder, tmp_path):
    metrics, fetched = tmp_path / "metrics.jsonl", tmp_path / "loss.npy"
    for file in (metrics, fetched):
        atomic.write_plain(file, b"line\n")
    saver = CheckpointWriter(tmp_path / "checkpoints", 1, {})
    saver.save(Snapshot(3, ARRAYS, {}, True, [metrics, fetched, tmp_path / "not there yet"]))
    saver.wait()
    assert "checkpoints/step-3" in recorder.check()
    named = next(i for i, (what, n) in enumerate(recorder.events) if what == "rename" and n.endswith("-> checkpoints/step-3"))
    for file in ("metrics.jsonl", "loss.npy"):
        assert ("fsync", file) in recorder.events[:named], f"{file} may be shorter than the checkpoint says"


def test_a_run_flushes_its_outputs_before_every_checkpoint(recorder, tmp_path, monkeypatch):
    from pe_cli.cli.main import run

    monkeypatch.chdir(tmp_path)
    (tmp_path / "model.yaml").write_text(
        "name: line\nfeeds: {x: {shape: [2]}, y: {shape: [1]}}\nlayers:\n"
        "  guess: {type: fc, input: x, size: 1}\n  cost: {type: square_error_cost, input: guess, label: y}\n"
        "  loss: {type: mean, x: cost}\nfetches: [loss]\n"
    )
    (tmp_path / "run.yaml").write_text(
        "model: model.yaml\ndata: {train: {reader: synthetic, samples: 8, fields: {x: {shape: [2]}, y: {shape: [1]}}}}\n"
        "train: {loss: loss, epochs: 3, batch_size: 4, optimizer: {type: SGD, learning_rate: 0.1}}\n"
        "output: {dir: here, checkpoint: {every: 1 epoch, keep: 5}}\n"
    )
    assert run(["train", "run.yaml", "--quiet"]) == 0
    recorder.check(lossy="status.json")
    (metrics,) = (str(path.relative_to(tmp_path)) for path in (tmp_path / "here").rglob("metrics.jsonl"))
    begin = 0
    for i, (what, names) in enumerate(recorder.events):
        if what == "rename" and "checkpoints/step-" in names.partition(" -> ")[2]:
            assert ("fsync", metrics) in recorder.events[begin:i], f"before {names}"
            begin = i
    assert begin, "there were checkpoints"
