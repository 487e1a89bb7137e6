"""A model that is exported with the data's side says in onnxruntime what `pe predict` says, from the raw columns."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner

import pe_cli
from pe_cli.cli.main import cli
from pe_cli.core.encoding import TEXT
from pe_cli.core.errors import PeError
from pe_cli.data.arrays import is_table
from pe_cli.io.onnx import export
from pe_cli.ops.lod import offsets_name
from pe_cli.session.answers import answers, said
from pe_cli.session.exporting import Exporting
from pe_cli.session.job import Job

ROOT = Path(pe_cli.__file__).parents[1]
CONFIGS = sorted((ROOT / "configs").rglob("*.yaml"))
#: Overrides by config: pictures of 224x224 are smaller, and files of a Debian package are made up as they are.
FEWER = {
    "[3, 224, 224]": [
        "model.args.side=64",
        "data.train={reader: synthetic, samples: 16, fields: {x: {shape: [3, 64, 64]}, y: {shape: [1], dtype: int64, classes: 9}}}",
    ],
    "dataset-fashion-mnist": [
        f"data.{use}={{reader: synthetic, samples: 64, fields: {{image: {{shape: [28, 28]}}, label: {{shape: [], dtype: int64, classes: 10}}}}}}"
        for use in ("train", "eval")
    ],
}


def trained(path, overrides=()):
    """Return a job of a config that has been trained for two steps."""
    job = Job.open(path, ["executor.devices=1", *overrides] if "type: async" not in Path(path).read_text() else overrides)
    job.initialise()
    if job.built.train is None:
        return job
    executor = job.executor(job.program)
    for i, feed in zip(range(2), job.loader("train", job.program, min(job.batch_size, 32)).epoch(0), strict=False):
        executor.run(feed, [], i)
    return job


def exported(job, targets):
    """Return a model with the data's side in onnxruntime, and that side."""
    held = {v.name: job.scope.get(v.name) for v in job.built.eval.list_vars() if v.persistable}
    around = Exporting(job, targets).around("somewhere")
    data = export(job.built.eval, held, targets, "model", around)
    return onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]), around, data


def given(job, around, use, rows):
    """Return the raw columns of some rows of a use, as somebody would read them from the file."""
    opened = job.prepared.opened(use)
    inputs = {}
    for feed, fed in around.feeds.items():
        level = job.run.model.feeds[feed].lod_level
        for lane in fed.lanes:
            source = lane.source
            if not is_table(opened) and not job.prepared.wishes.columns:
                batch = opened.take(rows)
                inputs[source.name] = batch[source.column]
                if level:
                    inputs[offsets_name(feed, 0)] = batch[offsets_name(source.column, 0)]
                continue
            cells = job.prepared.table(use).cells(source.column)
            if level:
                inputs[source.name], inputs[offsets_name(feed, 0)] = items(job, source, cells, rows)
            else:
                inputs[source.name] = raw(job, source, cells, rows)
    return inputs


def raw(job, source, cells, rows):
    texts = [cells.text(row) for row in rows]
    if source.part:
        return np.array([[moment(text, source.part)] for text in texts], np.float64)
    if source.kind.dtype == "uint8":
        pictures = job.prepared.field(job.prepared.table("train"), source.column, "train").pictures(rows)
        return np.stack(pictures)
    if cells.array() is not None:
        return np.asarray(cells.array()[rows], source.kind.dtype)
    if source.kind.dtype != TEXT:
        return np.array([[float(text) if text else np.nan] for text in texts], source.kind.dtype)
    if source.kind.shape == (1,):
        return np.array([[text] for text in texts], object)
    bags = [[part.strip() for part in text.split("|")] for text in texts]
    width = max(map(len, bags))
    return np.array([bag + [""] * (width - len(bag)) for bag in bags], object)


def items(job, source, cells, rows):
    """Return what cells of sequences hold, one below the other, and offsets."""
    lists = [cells.text(row).replace("|", " ").split() or [""] for row in rows]
    flat = [[item] for found in lists for item in found]
    offsets = np.append(0, np.cumsum([len(found) for found in lists])).astype(np.int64)
    if source.kind.dtype == TEXT:
        return np.array(flat, object), offsets
    return np.array([[float(item) if item else np.nan] for (item,) in flat]), offsets


def moment(text, part):
    if not text:
        return np.nan
    found = datetime.fromisoformat(text).replace(tzinfo=UTC)
    return {"timestamp": found.timestamp(), "month": found.month, "weekday": found.weekday(), "year": found.year, "hour": found.hour}[part]


def compare(job, use, targets, rtol=1e-4, atol=1e-5):
    """Compare a batch of predictions with what onnxruntime says for the same rows of the file."""
    session, around, _ = exported(job, targets)
    wanted = next(iter(job.predict(use, targets, limit=1)))
    kept = job.sample_rows(use)
    count = min(job.batch_size, len(job.dataset(use)))
    rows = np.arange(count) if kept is None else kept[:count]
    inputs = {i.name for i in session.get_inputs()}
    fed = {name: value for name, value in given(job, around, use, rows).items() if name in inputs}
    found = dict(zip((o.name for o in session.get_outputs()), session.run(None, fed), strict=True))
    for answer in answers(job, targets):
        if len(job.built.eval.global_block().var(answer.variable).shape) != 2:
            np.testing.assert_allclose(found[answer.variable], wanted[answer.variable], rtol=rtol, atol=atol)
            continue
        told = said([answer], wanted)
        if answer.classes:
            np.testing.assert_allclose(found[answer.variable], wanted[answer.variable], rtol=rtol, atol=atol)
            assert found[f"{answer.variable}_label"][:, 0].tolist() == told[answer.name]
        else:
            columns = np.array(list(told.values())).T
            scale = np.abs(columns).max() if answer.column else 1.0
            np.testing.assert_allclose(found[answer.variable], columns, rtol=rtol, atol=atol * max(1.0, scale))
    return session, found


@pytest.mark.parametrize("path", [pytest.param(p, id=f"{p.parent.name}/{p.stem}") for p in CONFIGS])
def test_every_shipped_model_says_what_predict_says(path):
    text = path.read_text()
    job = trained(path, next((given for mark, given in FEWER.items() if mark in text), []))
    outputs = [v for v in job.built.fetches.values() if job.built.eval.global_block().var(v).shape[:1] == (-1,)]
    compare(job, "eval" if "eval" in job.run.data else "train", outputs or list(job.built.fetches.values()))
