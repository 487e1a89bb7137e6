"""Sizes that a model file gives as variables: every layer that takes them, against NumPy and the Python form; training, devices, mistakes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.build.build import build
from pe_cli.config.load import load_model
from pe_cli.core.errors import PeError, PeErrors
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.sized import SizedExecutor, executor_of

L = fluid.layers
X = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
IMAGE = np.random.default_rng(1).standard_normal((4, 1, 3, 5)).astype("float32")
LENGTHS = np.array([[1], [3], [2], [0]], "int64")
FEEDS = """
feeds:
  x: {shape: [6]}
  image: {shape: [1, 3, 5]}
  ids: {shape: [1], dtype: int64}
  theta: {shape: [2, 3]}
  n: {shape: [1], dtype: int64, replicate: true}
  small: {shape: [1], dtype: int32, replicate: true}
  two: {shape: [2], dtype: int64, replicate: true}
  four: {shape: [4], dtype: int32, replicate: true}
  power: {shape: [1], replicate: true}
layers:
"""
FED = {
    "x": X, "image": IMAGE, "ids": LENGTHS, "theta": np.ones((4, 2, 3), "float32"), "n": np.array([3]), "small": np.array([2], "int32"),
    "two": np.array([2, 3]), "four": np.array([1, 0, 2, 1], "int32"), "power": np.array([2.0], "float32"),
}  # fmt: skip
FILLED = np.full((2, 3), 2.0, "float32")

#: Id -> the layer as written, the call of the Python form (None where it has none), and what NumPy gives (None for the Python form alone).
CASES = {
    "topk: k": ("topk, input: x, k: n", lambda v: L.topk(v["x"], v["n"])[0], -np.sort(-X, 1)[:, :3]),
    "topk: k of int32": ("topk, input: x, k: small", lambda v: L.topk(v["x"], v["small"])[0], -np.sort(-X, 1)[:, :2]),
    "reshape: one size": ("reshape, x: x, shape: [-1, n]", lambda v: L.reshape(v["x"], [-1, v["n"]]), X.reshape(-1, 3)),
    "reshape: several": ("reshape, x: x, shape: [-1, n, small]", lambda v: L.reshape(v["x"], [-1, v["n"], v["small"]]), X.reshape(-1, 3, 2)),
    "reshape: all": ("reshape, x: x, shape: four_sizes", None, X.reshape(2, 3, 2, 2)),
    "expand": ("expand, x: x, expand_times: [1, n]", lambda v: L.expand(v["x"], [1, v["n"]]), np.tile(X, (1, 3))),
    "expand: all": ("expand, x: x, expand_times: two", lambda v: L.expand(v["x"], v["two"]), np.tile(X, (2, 3))),
    "tile": ("tile, x: x, repeat_times: [small, 1, n]", None, np.tile(X, (2, 1, 3))),
    "slice: ends": ("slice, input: x, axes: [1], starts: [1], ends: [n]", lambda v: L.slice(v["x"], [1], [1], [v["n"]]), X[:, 1:3]),
    "slice: all": ("slice, input: x, axes: [1], starts: small, ends: n", lambda v: L.slice(v["x"], [1], v["small"], v["n"]), X[:, 2:3]),
    "strided_slice": (
        "strided_slice, input: x, axes: [1], starts: [0], ends: [6], strides: [n]",
        lambda v: L.strided_slice(v["x"], [1], [0], [6], [v["n"]]), X[:, ::3],
    ),
    "crop_tensor": (
        "crop_tensor, x: x, shape: [small, n], offsets: [1, small]",
        lambda v: L.crop_tensor(v["x"], [v["small"], v["n"]], [1, v["small"]]), X[1:3, 2:5],
    ),
    "crop_tensor: -1": ("crop_tensor, x: x, shape: [-1, n]", lambda v: L.crop_tensor(v["x"], [-1, v["n"]]), X[:, :3]),
    "crop: offsets": ("crop, x: x, shape: [-1, 2], offsets: [0, n]", lambda v: L.crop(v["x"], [4, 2], [0, v["n"]]), X[:, 3:5]),
    "fill_constant": ("fill_constant, shape: [small, n], dtype: float32, value: 2.0", lambda v: L.fill_constant([v["small"], v["n"]], "float32", 2.0), FILLED),
    "fill_constant: value": ("fill_constant, shape: [2, 3], dtype: float32, value: power", lambda v: L.fill_constant([2, 3], "float32", v["power"]), FILLED),
    "full": ("full, shape: two, fill_value: power", lambda v: L.full(v["two"], v["power"]), FILLED),
    "zeros": ("zeros, shape: [n, 2], dtype: int64", lambda v: L.zeros([v["n"], 2], "int64"), np.zeros((3, 2), "int64")),
    "ones": ("ones, shape: two, dtype: float32", lambda v: L.ones(v["two"], "float32"), np.ones((2, 3), "float32")),
    "one_hot": ("one_hot, input: ids, depth: five", None, np.eye(5, dtype="float32")[LENGTHS[:, 0]]),
    "sequence_mask": ("sequence_mask, x: ids, maxlen: n", lambda v: L.sequence_mask(v["ids"], v["n"]), (np.arange(3) < LENGTHS[..., None]).astype("int64")),
    "unsqueeze": ("unsqueeze, input: x, axes: [small]", lambda v: L.unsqueeze(v["x"], [v["small"]]), X[:, :, None]),
    "concat: axis": ("concat, input: [x, x], axis: one", None, np.concatenate([X, X], 1)),
    "split: sections": ("split, input: x, num_or_sections: [n, -1], dim: 1", lambda v: L.split(v["x"], [v["n"], -1], 1)[0], X[:, :3]),
    "split: all": ("split, input: x, num_or_sections: halves, dim: one", None, X[:, :2]),
    "pad2d": ("pad2d, input: image, paddings: four", lambda v: L.pad2d(v["image"], v["four"]), np.pad(IMAGE, ((0, 0), (0, 0), (1, 0), (2, 1)))),
    "affine_grid": ("affine_grid, theta: theta, out_shape: [4, 1, small, n]", lambda v: L.affine_grid(v["theta"], [4, 1, v["small"], v["n"]]), None),
    "image_resize": ("image_resize, input: image, out_shape: [small, n]", lambda v: L.image_resize(v["image"], [v["small"], v["n"]]), None),
    "image_resize: scale": ("image_resize, input: image, scale: power", lambda v: L.image_resize(v["image"], scale=v["power"]), None),
    "resize_bilinear": ("resize_bilinear, input: image, out_shape: two", lambda v: L.resize_bilinear(v["image"], v["two"]), None),
    "resize_nearest": ("resize_nearest, input: image, out_shape: [n, 4]", lambda v: L.resize_nearest(v["image"], [v["n"], 4]), None),
    "pow": ("pow, x: x, factor: power", lambda v: L.pow(v["x"], v["power"]), X * X),
    "scale": ("scale, x: x, scale: power, bias: 1.0", lambda v: L.scale(v["x"], v["power"], 1.0), X * 2 + 1),
    "scale: bias first": ("scale, x: x, scale: power, bias: 1.0, bias_after_scale: false", None, (X + 1) * 2),
    "scale: a whole number": ("scale, x: x, scale: n", None, X * 3),
}  # fmt: skip
#: Variables that cases use and that are computed, not fed.
MADE = """\
  five: {type: scale, x: small, scale: 2.0, bias: 1.0}
  one: {type: scale, x: small, scale: 1.0, bias: -1.0}
  shape_of_two: {type: concat, input: [two, two], axis: 0}
  four_sizes: {type: assign, input: places}
  halves: {type: slice, input: four_sizes, axes: [0], starts: [2], ends: [4]}
"""


def model(tmp_path: Path, text: str):
    path = tmp_path / "model.yaml"
    path.write_text(text)
    return build(load_model(path))


def run(program, feed, fetches, devices=1):
    executor = executor_of(program, Scope([Place("cpu", i) for i in range(devices)]))
    read = {n for op in program.global_block().ops for n in op.input_names()}
    return executor, executor.run({k: v for k, v in feed.items() if k in read}, fetches).values


def without(text: str, used: str) -> str:
    """Return the feeds and layers that a layer needs."""
    return text


@pytest.mark.parametrize("name", CASES)
def test_a_layer_takes_variables_as_in_python_and_gives_what_numpy_does(tmp_path, fresh_programs, name):
    layer, call, expected = CASES[name]
    made = model(tmp_path, FEEDS.replace("layers:\n", "  places: {shape: [4], dtype: int64, replicate: true}\nlayers:\n") + MADE + f"  out: {{type: {layer}}}\nfetches: [out]\n")
    fetched = made.fetches["out"]
    from pe_cli.program.prune import prune

    part = prune(made.eval, [fetched])
    fed = {**FED, "places": np.array([2, 3, 2, 2])}
    if "halves" in layer:
        fed["places"] = np.array([2, 3, 2, 4])
    _, (got,) = run(part, fed, [fetched])
    if expected is not None:
        np.testing.assert_allclose(got[fetched], expected, rtol=1e-6)
        assert got[fetched].dtype == expected.dtype
    if call is not None:
        feeds = {k: fluid.data(k, list(v.shape) if v.ndim == 1 else [-1, *v.shape[1:]], str(v.dtype)) for k, v in FED.items()}
        (python,) = fluid.Executor(fluid.CPUPlace()).run(feed=FED, fetch_list=[call(feeds)])
        np.testing.assert_array_equal(got[fetched], python)


@pytest.fixture
def fresh_programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield
