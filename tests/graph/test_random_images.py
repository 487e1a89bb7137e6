"""Random programs on images: layout, fusions and devices change no value beyond rounding."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.program.backward import append_backward
from pe_cli.program.ir import Program, Role
from tests.rotation import on_its_day


def random_network(seed: int) -> Program:  # noqa: C901 - one branch per kind of op
    """Return a small convolutional network of random shape, with branches, batch_norm, pooling, transposes and dropout."""
    rng = np.random.default_rng(seed)
    program = Program(f"images{seed}")
    block = program.global_block()
    channels = int(rng.integers(1, 6))
    size = int(rng.integers(4, 7))
    shapes = {"x": (channels, size, int(rng.choice([size, size + 1, channels + 3])))}
    block.create_var("x", TensorType((-1, *shapes["x"])), is_data=True, stop_gradient=True)
    block.create_var("lr", TensorType((1,)), persistable=True, stop_gradient=True)
    for i in range(9):
        kind = rng.choice(["conv", "bn", "relu", "pool", "add", "sum", "twist", "bias", "dropout", "scale"])
        source = str(rng.choice(list(shapes)))
        same = [n for n in shapes if shapes[n] == shapes[source]]
        other = str(rng.choice(same))
        c, h, w = shapes[source]
        out, made = f"v{i}", (c, h, w)
        if kind == "conv":
            filters = int(rng.integers(1, 6))
            block.create_parameter(f"k{i}", TensorType((filters, c, 3, 3)))
            block.append_op("conv2d", {"Input": source, "Filter": f"k{i}"}, {"Output": out}, {"paddings": [1, 1]})
            made = (filters, h, w)
        elif kind == "bn":
            for name in ("g", "b"):
                block.create_parameter(f"{name}{i}", TensorType((c,)))
            for name in ("m", "s"):
                block.create_var(f"{name}{i}", TensorType((c,)), persistable=True, stop_gradient=True)
            ins = {"X": source, "Scale": f"g{i}", "Bias": f"b{i}", "Mean": f"m{i}", "Variance": f"s{i}"}
            outs = {"Y": out, "MeanOut": f"m{i}", "VarianceOut": f"s{i}", "SavedMean": f"p{i}", "SavedVariance": f"q{i}"}
            block.append_op("batch_norm", ins, outs)
        elif kind == "relu":
            block.append_op("relu", {"X": source}, {"Out": out})
        elif kind == "pool":
            attrs = {"ksize": [3, 3], "paddings": [1, 1], "pooling_type": str(rng.choice(["max", "avg"]))}
            block.append_op("pool2d", {"X": source}, {"Out": out}, attrs)
        elif kind == "add":
            block.append_op("elementwise_add", {"X": source, "Y": other}, {"Out": out}, {"axis": -1})
        elif kind == "sum":
            block.append_op("sum", {"X": [source, other, source]}, {"Out": out})
        elif kind == "twist":
            block.append_op("transpose", {"X": source}, {"Out": out}, {"axis": [0, 1, 3, 2]})
            made = (c, w, h)
        elif kind == "bias":
            block.create_parameter(f"c{i}", TensorType((c,)))
            block.append_op("elementwise_add", {"X": source, "Y": f"c{i}"}, {"Out": out}, {"axis": 1})
        elif kind == "dropout":
            block.append_op("dropout", {"X": source}, {"Out": out, "Mask": f"mask{i}"}, {"dropout_prob": 0.3})
        else:
            block.append_op("scale", {"X": source}, {"Out": out}, {"scale": 0.7, "bias": 0.1})
        shapes[out] = made
    ends = list(shapes)[-3:]
    rows = []
    for k, name in enumerate(ends):
        block.append_op("reshape", {"X": name}, {"Out": f"flat{k}"}, {"shape": [0, int(np.prod(shapes[name]))]})
        rows.append(f"flat{k}")
    block.append_op("concat", {"X": rows}, {"Out": "row"}, {"axis": 1})
    block.create_parameter("w", TensorType((sum(int(np.prod(shapes[n])) for n in ends), 2)))
    block.append_op("mul", {"X": "row", "Y": "w"}, {"Out": "score"})
    block.append_op("square", {"X": "score"}, {"Out": "cost"})
    block.append_op("mean", {"X": "cost"}, {"Out": "loss"})
    for parameter, gradient in append_backward(block.var("loss")):
        with program.role(Role.OPTIMIZE, [parameter.name, gradient.name]):
            ins = {"Param": parameter, "Grad": gradient, "LearningRate": "lr"}
            block.append_op("sgd", ins, {"ParamOut": parameter})
    return program


def train(seed: int, devices: int, **build: object) -> dict[str, np.ndarray]:
    program = random_network(seed)
    scope = Scope([Place("cpu", d) for d in range(devices)])
    executor = Executor(program, scope, build=BuildStrategy(**build), seed=3)  # type: ignore[arg-type]
    rng = np.random.default_rng(seed)
    for name in sorted(scope):
        value = rng.standard_normal(scope.type(name).shape) * 0.3
        scope.set(name, (np.abs(value) + 0.5 if name[0] in "gs" else value).astype("float32"))
    scope.set("lr", np.array([1e-3], "float32"))
    kind = program.global_block().var("x").shape[1:]
    fetched = {}
    for step in range(2):
        x = np.random.default_rng(step).standard_normal((6, *kind)).astype("float32")
        values = executor.run({"x": x}, ["loss", "v2", "v5"], step).values
        for name in ("v2", "v5"):
            fetched[f"{name}.{step}"] = np.concatenate([v[name] for v in values])
        fetched[f"loss.{step}"] = np.mean([v["loss"] for v in values])
    return {**fetched, **{name: scope.get(name) for name in sorted(scope)}}


def near(found: np.ndarray, expected: np.ndarray, what: str) -> None:
    """Compare up to rounding: sums run in another order, so errors go with the largest values."""
    np.testing.assert_allclose(found, expected, rtol=0, atol=3e-5 * max(1.0, np.abs(expected).max()), err_msg=what)


FUSIONS = {"fuse_bn_act_ops": True, "fuse_bn_add_act_ops": True, "fuse_elewise_add_act_ops": True, "enable_addto": True}


@pytest.mark.parametrize("seed", range(24))
def test_layout_and_fusions_change_no_value(seed):
    expected = train(seed, 1, data_layout="keep", memory_optimize=False, enable_addto=False)
    for build in ({}, {"data_layout": "keep"}, FUSIONS, {**FUSIONS, "fuse_all_optimizer_ops": True}):
        found = train(seed, 1, **build)
        for name, value in expected.items():
            near(found[name], value, f"{name} with {build}")


@on_its_day(2, of=3)
@pytest.mark.parametrize("seed", range(24))
def test_devices_with_synchronised_norms_change_no_value(seed):
    expected = train(seed, 1)
    for devices, build in ((2, {}), (3, {"reduce_strategy": "Reduce"}), (2, {"data_layout": "keep"})):
        found = train(seed, devices, sync_batch_norm=True, **build)
        for name, value in expected.items():
            near(found[name], value, f"{name} with {build}")
