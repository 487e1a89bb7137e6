"""Sizes that a model file gives as variables: every layer that takes them, against NumPy and the Python form; training; mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import pe_cli.paddle.fluid as fluid
from pe_cli.build.build import build, load_and_build
from pe_cli.config.load import load_model
from pe_cli.core.errors import PeError, PeErrors
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.plan.dynamic_sizes import DynamicSizesExecutor, executor_of
from pe_cli.execute.startup import run_startup
from pe_cli.io.onnx.export import export
from pe_cli.layers.define.registry import discover
from pe_cli.program.backward import append_backward
from pe_cli.program.prune import prune

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
    "reshape: several": (
        "reshape, x: x, shape: [-1, n, small]",
        lambda v: L.reshape(v["x"], [-1, v["n"], v["small"]]), X.reshape(-1, 3, 2),
    ),
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
    "fill_constant": (
        "fill_constant, shape: [small, n], dtype: float32, value: 2.0",
        lambda v: L.fill_constant([v["small"], v["n"]], "float32", 2.0), FILLED,
    ),
    "fill_constant: value": (
        "fill_constant, shape: [2, 3], dtype: float32, value: power",
        lambda v: L.fill_constant([2, 3], "float32", v["power"]), FILLED,
    ),
    "full": ("full, shape: two, fill_value: power", lambda v: L.full(v["two"], v["power"]), FILLED),
    "zeros": ("zeros, shape: [n, 2], dtype: int64", lambda v: L.zeros([v["n"], 2], "int64"), np.zeros((3, 2), "int64")),
    "ones": ("ones, shape: two, dtype: float32", lambda v: L.ones(v["two"], "float32"), np.ones((2, 3), "float32")),
    "one_hot": ("one_hot, input: ids, depth: five", None, np.eye(5, dtype="float32")[LENGTHS[:, 0]]),
    "sequence_mask": (
        "sequence_mask, x: ids, maxlen: n",
        lambda v: L.sequence_mask(v["ids"], v["n"]), (np.arange(3) < LENGTHS[..., None]).astype("int64"),
    ),
    "unsqueeze": ("unsqueeze, input: x, axes: [small]", lambda v: L.unsqueeze(v["x"], [v["small"]]), X[:, :, None]),
    "concat: axis": ("concat, input: [x, x], axis: one", None, np.concatenate([X, X], 1)),
    "split: sections": ("split, input: x, num_or_sections: [n, -1], dim: 1", lambda v: L.split(v["x"], [v["n"], -1], 1)[0], X[:, :3]),
    "split: all": ("split, input: x, num_or_sections: halves, dim: one", None, X[:, :2]),
    "pad2d": (
        "pad2d, input: image, paddings: four",
        lambda v: L.pad2d(v["image"], v["four"]), np.pad(IMAGE, ((0, 0), (0, 0), (1, 0), (2, 1))),
    ),
    "affine_grid": (
        "affine_grid, theta: theta, out_shape: [4, 1, small, n]",
        lambda v: L.affine_grid(v["theta"], [4, 1, v["small"], v["n"]]), None,
    ),
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
  four_sizes: {type: assign, input: places}
  halves: {type: slice, input: four_sizes, axes: [0], starts: [2], ends: [4]}
"""
ALL = FEEDS.replace("layers:\n", "  places: {shape: [4], dtype: int64, replicate: true}\nlayers:\n") + MADE


@pytest.fixture
def fresh_programs():
    with fluid.program_guard(fluid.Program(), fluid.Program()), fluid.scope_guard(fluid.Scope()):
        yield


def model(tmp_path: Path, text: str):
    path = tmp_path / "model.yaml"
    path.write_text(text)
    return build(load_model(path))


def run(program, feed, fetches, devices=1):
    executor = executor_of(program, Scope([Place("cpu", i) for i in range(devices)]))
    read = {n for op in program.global_block().ops for n in op.input_names()}
    return executor, executor.run({k: v for k, v in feed.items() if k in read}, fetches).values


@pytest.mark.parametrize("name", CASES)
def test_a_layer_takes_variables_as_in_python_and_gives_what_numpy_does(tmp_path, fresh_programs, name):
    layer, call, expected = CASES[name]
    made = model(tmp_path, ALL + f"  out: {{type: {layer}}}\nfetches: [out]\n")
    fetched = made.fetches["out"]
    part = prune(made.eval, [fetched])
    fed = {**FED, "places": np.array([2, 3, 2, 2])}
    if "halves" in layer:
        fed["places"] = np.array([2, 3, 2, 4])
    _, (got,) = run(part, fed, [fetched])
    if expected is not None:
        np.testing.assert_allclose(got[fetched], expected, rtol=1e-6)
        assert got[fetched].dtype == expected.dtype
    if call is not None:
        with fluid.program_guard(fluid.Program(), fluid.Program()):
            feeds = {k: fluid.data(k, list(v.shape) if v.ndim == 1 else [-1, *v.shape[1:]], str(v.dtype)) for k, v in FED.items()}
            (python,) = fluid.Executor(fluid.CPUPlace()).run(feed=FED, fetch_list=[call(feeds)])
        np.testing.assert_array_equal(got[fetched], python)


TRAINED = """
feeds: {{x: {{shape: [6]}}, y: {{shape: [1]}}, n: {{shape: [1], dtype: int64, replicate: true}}}}
layers:
  h:    {{type: fc, input: x, size: 6, act: tanh}}
  top:  {{type: topk, input: h, k: {n}}}
  part: {{type: slice, input: h, axes: [1], starts: [0], ends: [{n}]}}
  both: {{type: elementwise_add, x: top.0, y: part}}
  rows: {{type: reshape, x: both, shape: [-1, {n}]}}
  sum:  {{type: reduce_sum, input: rows, dim: [1], keep_dim: true}}
  out:  {{type: fc, input: sum, size: 1}}
  cost: {{type: square_error_cost, input: out, label: y}}
  loss: {{type: mean, x: cost}}
fetches: [loss]
"""
RUN = """
model: model.yaml
data: {train: {reader: npz, file: none.npz}}
feeds: {x: x, y: y, n: {value: 3}}
train: {loss: loss, epochs: 1, batch_size: 8, optimizer: {type: SGD, learning_rate: 0.1}}
"""


def trained(tmp_path, n, sizes, devices=1):
    """Train some steps and return the losses and the weights."""
    (tmp_path / "model.yaml").write_text(TRAINED.format(n=n))
    (tmp_path / "run.yaml").write_text(RUN)
    _, made = load_and_build(tmp_path / "run.yaml")
    program, fed = made.train, {v.name for v in made.train.list_vars() if v.is_data}
    scope = Scope([Place("cpu", i) for i in range(devices)])
    run_startup(made.startup, scope, 1)
    executor = executor_of(program, scope, seed=1)
    r, losses = np.random.default_rng(2), []
    for step, size in enumerate(sizes):
        x = r.standard_normal((8, 6)).astype("float32")
        feed = {"x": x, "y": x[:, :1], "n": np.array([size])}
        found = executor.run({k: v for k, v in feed.items() if k in fed}, [made.fetches["loss"]], step).values
        losses.append(np.mean([v[made.fetches["loss"]] for v in found]))
    return executor, losses, {p.name: np.array(scope.get(p.name)) for p in program.global_block().parameters()}


def test_a_training_with_a_variable_makes_the_bits_of_one_with_the_number(tmp_path):
    executor, losses, weights = trained(tmp_path, "n", [3] * 4)
    _, expected, known = trained(tmp_path, 3, [3] * 4)
    assert losses == expected
    assert len(executor.forms) == 1
    for name, value in known.items():
        np.testing.assert_array_equal(weights[name], value)


@pytest.mark.parametrize("name", [name for name, (layer, *_) in CASES.items() if re.search(r": (x|image|theta),", layer)])
def test_gradients_are_central_differences(tmp_path, name):
    layer = CASES[name][0]
    source = re.search(r": (x|image|theta),", layer)[1]
    text = f"""\
  w: {{type: create_parameter, shape: [{FED[source].shape[-1]}], dtype: float32}}
  mine: {{type: elementwise_mul, x: {source}, y: w}}
  out: {{type: {layer.replace(f": {source},", ": mine,", 1)}}}
  square: {{type: elementwise_mul, x: out, y: out}}
  loss: {{type: mean, x: square}}
fetches: [loss]
"""
    made = model(tmp_path, ALL + text)
    program = prune(made.eval, ["loss"])
    (weight,) = program.global_block().parameters()
    append_backward(program.global_block().var("loss"))
    scope = Scope([Place("cpu", 0)])
    run_startup(made.startup, scope, 1)
    executor = executor_of(program, scope)
    assert isinstance(executor, DynamicSizesExecutor) == (layer.split(",")[0] not in ("pow", "scale"))
    feed = executor.known({**FED, "places": np.array([2, 3, 2, 4 if "halves" in layer else 2])})

    def at(value, fetch):
        scope.set(weight.name, value.astype("float32"))
        return executor.run(feed, [fetch]).values[0][fetch]

    r = np.random.default_rng(4)
    value, way = r.uniform(0.5, 1.5, weight.shape), r.standard_normal(weight.shape) * 0.01
    slope = float((at(value, f"{weight.name}@GRAD") * way).sum())
    np.testing.assert_allclose(slope, (at(value + way, "loss") - at(value - way, "loss")).item() / 2, rtol=1e-2, atol=1e-6)
    assert slope


def test_a_size_may_be_another_one_in_every_step_on_one_device_and_on_two(tmp_path):
    executor, losses, weights = trained(tmp_path, "n", [3, 2, 6, 3])
    assert isinstance(executor, DynamicSizesExecutor)
    assert len(executor.forms) == 3
    _, both, of_both = trained(tmp_path, "n", [3, 2, 6, 3], devices=2)
    np.testing.assert_allclose(both, losses, rtol=1e-5)
    for name, value in weights.items():
        np.testing.assert_allclose(of_both[name], value, rtol=1e-4, atol=1e-6)


def test_known_sizes_of_a_list_stay_known(tmp_path):
    made = model(tmp_path, ALL + "  r: {type: reshape, x: x, shape: [-1, n, 2]}\n  u: {type: uniform_random, shape: [n, 3]}\n")
    shapes = [made.eval.global_block().vars[name].shape for name in ("r", "u")]
    assert shapes == [(-1, -1, 2), (-1, 3)]


def test_a_size_that_follows_from_a_size(tmp_path):
    text = ALL + """\
  top: {type: topk, input: x, k: n}
  sizes: {type: shape, input: top.0}
  last: {type: slice, input: sizes, axes: [0], starts: [1], ends: [2]}
  out: {type: reshape, x: top.0, shape: [last, -1]}
fetches: [out]
"""
    made = model(tmp_path, text)
    _, (got,) = run(prune(made.eval, ["out"]), FED, ["out"])
    np.testing.assert_array_equal(got["out"], -np.sort(-X, 1)[:, :3].reshape(3, -1))


def test_drawn_numbers_have_the_shape_of_the_step(tmp_path):
    made = model(tmp_path, ALL + "  a: {type: uniform_random, shape: two}\n  b: {type: gaussian_random, shape: [n, 2]}\n")
    _, (got,) = run(prune(made.eval, ["a", "b"]), FED, ["a", "b"])
    assert (got["a"].shape, got["b"].shape) == ((2, 3), (3, 2))


def test_places_along_each_axis(tmp_path):
    made = model(tmp_path, ALL + "  z: {type: nonzero, input: ids, as_tuple: true}\nfetches: [z.0, z.1, z.2]\n")
    names = [made.fetches[f"z.{i}"] for i in range(3)]
    _, (got,) = run(prune(made.eval, names), FED, names)
    found = [got[name] for name in names]
    places = np.argwhere(LENGTHS)
    assert found[2] == len(places)
    for axis in range(2):
        np.testing.assert_array_equal(found[axis][: len(places), 0], places[:, axis])


def test_places_of_the_boxes_that_are_kept(tmp_path):
    text = """
feeds: {boxes: {shape: [3, 4]}, scores: {shape: [2, 3]}}
layers:
  kept: {type: matrix_nms, bboxes: boxes, scores: scores, score_threshold: 0.1, post_threshold: 0.0, nms_top_k: -1, keep_top_k: 3,
         background_label: -1, return_index: true}
fetches: [kept.0, kept.1, kept.2]
"""
    made = model(tmp_path, text)
    r = np.random.default_rng(3)
    corner = r.uniform(0, 0.5, (2, 3, 2)).astype("float32")
    boxes, scores = np.concatenate([corner, corner + 0.3], 2), r.uniform(0.2, 1, (2, 2, 3)).astype("float32")
    names = [made.fetches[f"kept.{i}"] for i in range(3)]
    _, (got,) = run(made.eval, {"boxes": boxes, "scores": scores}, names)
    rows, count, index = (got[name] for name in names)
    assert count.ravel().tolist() == [3, 3]
    np.testing.assert_allclose(boxes.reshape(6, 4)[index.reshape(-1)], rows[..., 2:].reshape(-1, 4))


@pytest.mark.parametrize(
    ("layer", "column", "message"),
    [
        ("topk, input: x, k: m", 34, "there is no variable 'm'"),
        ("topk, input: x, k: power", 34, "or the name of an integer variable of one element, and 'power' is float32[1]"),
        ("topk, input: x, k: 2.5", 34, "must be a whole number, or the name of an integer variable of one element, got 2.5"),
        ("topk, input: x, k: two", 9, "topk: k is one number, got two: int64[2]"),
        ("reshape, x: x, shape: [-1, m]", 42, "there is no variable 'm'"),
        ("reshape, x: x, shape: [-1, power]", 42, "and 'power' is float32[1]"),
        ("reshape, x: x, shape: [-1, 1.5]", 42, "must be a list of whole numbers and names of integer variables"),
        ("reshape, x: x, shape: [n, 1.5]", 41, "must be a whole number, or the name of an integer variable of one element, got 1.5"),
        ("reshape, x: x, shape: ids", 9, "shape is ids: int64[batch, 1], whose length is not known"),
        ("pow, x: x, factor: two", 9, "factor is one number, got two: int64[2]"),
        ("affine_grid, theta: theta, out_shape: [4, n]", 9, "4"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_where_it_stands(tmp_path, layer, column, message):
    with pytest.raises(PeError) as caught:
        model(tmp_path, ALL + f"  out: {{type: {layer}}}\n")
    (error,) = caught.value.errors if isinstance(caught.value, PeErrors) else [caught.value]
    assert message in error.message
    assert error.at.line == len(ALL.splitlines()) + 1
    assert error.at.column == column


def test_what_is_drawn_gives_no_size(tmp_path):
    text = ALL + "  d: {type: randint, low: 1, high: 4, shape: [1]}\n  out: {type: topk, input: x, k: d}\nfetches: [out]\n"
    made = model(tmp_path, text)
    with pytest.raises(PeError, match="a size depends on this: op 'uniform_random' draws numbers"):
        run(prune(made.eval, [made.fetches["out"]]), FED, [made.fetches["out"]])


@pytest.mark.parametrize("devices", [2, 3])
def test_parts_of_a_batch_have_sizes_of_their_own(tmp_path, devices):
    text = ALL + "  s: {type: shape, input: x}\n  b: {type: slice, input: s, axes: [0], starts: [0], ends: [1]}\n"
    made = model(tmp_path, text + "  out: {type: reshape, x: x, shape: [6, b]}\nfetches: [out]\n")
    part = prune(made.eval, ["out"])
    _, (got,) = run(part, FED, ["out"])
    np.testing.assert_array_equal(got["out"], X.reshape(6, 4))
    _, found = run(part, {**FED, "x": X[:3]}, ["out"], devices=devices)
    first = 0
    for each in found:
        rows = each["out"].shape[1]
        np.testing.assert_array_equal(each["out"], X[first : first + rows].reshape(6, rows))
        first += rows
    assert first == 3


def test_the_page_lists_the_layers_that_take_variables():
    page = Path("docs/config.md").read_text()
    section = page.partition("#### Sizes from variables")[2].partition("\n### ")[0]
    listed = {(row[1], argument) for row in re.findall(r"(\| `(\w+)` \|.*)", section) for argument in re.findall(r"`(\w+)`", row[0])[1:]}
    kinds = ("size", "sizes", "int_or_sizes", "number")
    assert listed == {(name, a.name) for name, layer in discover().items() for a in layer.args.values() if a.kind in kinds}


def test_an_export_names_the_variable_that_gives_a_size(tmp_path):
    pytest.importorskip("onnx")
    made = model(tmp_path, ALL + "  out: {type: topk, input: x, k: n}\nfetches: [out]\n")
    with pytest.raises(PeError, match="'top_k' has no form in ONNX where a variable gives sizes, here 'n'") as caught:
        export(made.eval, {}, [made.fetches["out"]], "m")
    assert caught.value.at.line == len(ALL.splitlines()) + 1


def test_a_size_inside_a_loop_is_a_number(tmp_path):
    text = """
feeds: {x: {shape: [4, 3]}, start: {shape: [1]}, n: {shape: [1], dtype: int64, replicate: true}}
blocks:
  add:
    args: {input: ~, sum: ~}
    layers:
      part: {type: slice, input: "${input}", axes: [1], starts: [0], ends: [n]}
      row: {type: reduce_sum, input: part, dim: [1], keep_dim: true}
      more: {type: elementwise_add, x: sum, y: row}
    next: {sum: more}
layers:
  sums: {scan: add, input: x, start: {sum: start}}
"""
    with pytest.raises(PeError, match="op 'slice' takes a size from a variable, which it cannot inside scan") as caught:
        model(tmp_path, text)
    (error,) = caught.value.errors if isinstance(caught.value, PeErrors) else [caught.value]
    assert error.at.line == 7
