"""Sequences in exported models: what follows from their offsets is computed by nodes, and is no input."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest

from pe_cli.build.build import build
from pe_cli.config.load import load_model
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.io.onnx.export import export
from pe_cli.ops.define.lod import offsets_name
from pe_cli.program.prune import prune
from tests.io.test_onnx import onnx_values
from tests.ops.support import build as build_op

WORDS = """\
name: words
feeds:
  words: {shape: [6], lod_level: 1}
  whole: {shape: [3]}
layers:
  turned:  {type: sequence_reverse, x: words}
  gates:   {type: fc, input: turned, size: 12}
  states:  {type: dynamic_gru, input: gates, size: 4, is_reverse: true}
  many:    {type: fc, input: states, size: 20}
  cells:   {type: dynamic_lstm, input: many, size: 20}
  score:   {type: fc, input: cells.0, size: 1}
  weight:  {type: sequence_softmax, input: score}
  each:    {type: sequence_expand_as, x: whole, y: words}
  scaled:  {type: elementwise_mul, x: each, y: weight, axis: 0}
  out:     {type: sequence_pool, input: scaled, pool_type: sum}
fetches: [out, weight, turned]
"""
PADDED = """\
name: padded
feeds:
  words: {shape: [6], lod_level: 1}
  block: {shape: [4, 2]}
  count: {shape: [1], dtype: int64}
layers:
  none:    {type: fill_constant, shape: [1], dtype: float32, value: -1}
  pads:    {type: sequence_pad, x: words, pad_value: none}
  mask:    {type: sequence_mask, x: pads.1, dtype: float32}
  few:     {type: sequence_pad, x: words, pad_value: none, maxlen: 5}
  parts:   {type: sequence_unpad, x: block, length: count}
  sums:    {type: sequence_pool, input: parts, pool_type: sum}
fetches: [pads.0, pads.1, mask, few.0, parts, sums]
"""
PARTS = """\
name: parts
feeds:
  words: {shape: [6], lod_level: 1}
  more:  {shape: [6], lod_level: 1}
  ids:   {shape: [1], dtype: int64, lod_level: 1}
  begin: {shape: [1], dtype: int64}
  count: {shape: [1], dtype: int64}
  rows:  {shape: [5]}
layers:
  both:   {type: sequence_concat, input: [words, more]}
  pooled: {type: sequence_pool, input: both, pool_type: sum}
  again:  {type: sequence_expand, x: words, y: more}
  sums:   {type: sequence_pool, input: again, pool_type: sum}
  part:   {type: sequence_slice, input: words, offset: begin, length: count}
  mean:   {type: sequence_pool, input: part, pool_type: average}
  halves: {type: sequence_reshape, input: words, new_dim: 3}
  most:   {type: sequence_pool, input: halves, pool_type: max}
  grams:  {type: sequence_enumerate, input: ids, win_size: 2, pad_value: 9}
  score:  {type: cast, x: ids, dtype: float32}
  marked: {type: sequence_scatter, input: rows, index: ids, updates: score}
fetches: [both, pooled, again, sums, part, mean, halves, most, grams, marked]
"""
REGIONS = """\
name: regions
feeds:
  image: {shape: [2, 9, 9]}
  info:  {shape: [3]}
  rois:  {shape: [4], lod_level: 1}
layers:
  cut:   {type: box_clip, input: rois, im_info: info}
  looks: {type: roi_align, input: image, rois: cut, pooled_height: 2, pooled_width: 3, sampling_ratio: 2}
fetches: [cut, looks]
"""


def same(tmp_path, text, feed, inputs):
    """Compare all fetches of a model, whose file asks for these inputs."""
    (tmp_path / "model.yaml").write_text(text)
    built = build(load_model(tmp_path / "model.yaml"))
    scope = Scope([Place("cpu", 0)])
    run_startup(built.startup, scope, seed=3)
    held = {v.name: scope.get(v.name) for v in built.eval.list_vars() if v.persistable}
    names = list(built.fetches.values())
    (ours,) = Executor(prune(built.eval, names), scope, seed=3).run([feed], names).values
    session = onnxruntime.InferenceSession(export(built.eval, held, names, "model"), providers=["CPUExecutionProvider"])
    assert {i.name for i in session.get_inputs()} == inputs
    for name, theirs in zip(names, session.run(names, feed), strict=True):
        np.testing.assert_allclose(theirs, ours[name], rtol=1e-5, atol=1e-6, err_msg=name)


def test_sequences_that_are_joined_repeated_and_cut_ask_for_offsets_alone(tmp_path):
    rng = np.random.default_rng(3)
    lods = {"words": [0, 3, 4, 8], "more": [0, 2, 3, 5], "ids": [0, 2, 2, 5]}
    offsets = {offsets_name(name, 0): np.array(found) for name, found in lods.items()}
    feed = {
        "words": rng.standard_normal((8, 6)).astype("float32"), "more": rng.standard_normal((5, 6)).astype("float32"),
        "ids": np.array([[1], [4], [0], [2], [2]]), "begin": np.array([[1], [0], [1]]), "count": np.array([[2], [1], [3]]),
        "rows": rng.standard_normal((3, 5)).astype("float32"), **offsets,
    }  # fmt: skip
    same(tmp_path, PARTS, feed, set(feed))


def test_layers_over_sequences_ask_for_offsets_alone(tmp_path):
    rng = np.random.default_rng(1)
    offsets = offsets_name("words", 0)
    feed = {
        "words": rng.standard_normal((9, 6)).astype("float32"), "whole": rng.standard_normal((4, 3)).astype("float32"),
        offsets: np.array([0, 3, 3, 8, 9]),
    }  # fmt: skip
    same(tmp_path, WORDS, feed, {"words", "whole", offsets})


def test_blocks_are_as_long_as_the_longest_sequence(tmp_path):
    rng = np.random.default_rng(3)
    feed = {
        "words": rng.standard_normal((9, 6)).astype("float32"), "block": rng.standard_normal((4, 4, 2)).astype("float32"),
        "count": np.array([[2], [4], [0], [1]]), offsets_name("words", 0): np.array([0, 3, 3, 8, 9]),
    }  # fmt: skip
    same(tmp_path, PADDED, feed, set(feed))


def test_a_sequence_that_is_too_long_for_its_block_ends_the_run_and_says_so():
    inputs = {"X": np.ones((4, 2), "float32"), "PadValue": np.zeros(1, "float32"), "Offsets": np.array([0, 3, 4])}
    program, outs = build_op("sequence_pad", {slot: [array] for slot, array in inputs.items()}, {"padded_length": 2})
    with pytest.raises(Exception, match="longer than padded_length 2"):
        onnx_values(program, {f"{slot}_0": array for slot, array in inputs.items()}, list(outs["Out"]))


def test_regions_in_sequences_belong_to_their_images(tmp_path):
    rng = np.random.default_rng(2)
    low = rng.uniform(-2, 6, (5, 2))
    offsets = offsets_name("rois", 0)
    feed = {
        "image": rng.standard_normal((3, 2, 9, 9)).astype("float32"),
        "info": np.array([[9, 9, 1], [8, 7, 1], [9, 9, 2]], "float32"),
        "rois": np.concatenate([low, low + rng.uniform(1, 7, (5, 2))], 1).astype("float32"), offsets: np.array([0, 2, 2, 5]),
    }  # fmt: skip
    same(tmp_path, REGIONS, feed, {"image", "info", "rois", offsets})
