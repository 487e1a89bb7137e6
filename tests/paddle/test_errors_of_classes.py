"""What the core refuses of classes and functions leaves as one of Python's own types, as the original's does."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.core.errors import PeError
from pe_cli.program.serialize import from_json, to_json

INIT, CLIP, DECAY = fluid.initializer, fluid.clip, fluid.regularizer


def parameter(initializer, shape=(3,), dtype="float32"):
    return fluid.layers.create_parameter(list(shape), dtype, default_initializer=initializer)


@pytest.mark.parametrize(
    ("made", "kind", "message"),
    [
        pytest.param(lambda: INIT.Normal(0.0, -1.0), ValueError, "Normal needs scale >= 0", id="Normal"),
        pytest.param(lambda: INIT.TruncatedNormal(0.0, -1.0), ValueError, "TruncatedNormal needs", id="TruncatedNormal"),
        pytest.param(lambda: INIT.Uniform(2.0, 1.0), ValueError, "low <= high", id="Uniform"),
        pytest.param(lambda: paddle.nn.initializer.Normal(0.0, -1.0), ValueError, "scale >= 0", id="nn's Normal"),
        pytest.param(lambda: CLIP.GradientClipByNorm(-1.0), ValueError, "must be > 0", id="GradientClipByNorm"),
        pytest.param(lambda: CLIP.GradientClipByGlobalNorm(0.0), ValueError, "must be > 0", id="GradientClipByGlobalNorm"),
        pytest.param(lambda: CLIP.GradientClipByValue(1.0, 2.0), ValueError, "min <= max", id="GradientClipByValue"),
        pytest.param(lambda: DECAY.L1Decay(-1.0), ValueError, "must be >= 0", id="L1Decay"),
        pytest.param(lambda: DECAY.L2Decay(-1.0), ValueError, "must be >= 0", id="L2Decay"),
        pytest.param(lambda: parameter(INIT.Bilinear()), ValueError, r"\[.., .., size, size\]", id="Bilinear of a vector"),
        pytest.param(lambda: parameter(paddle.nn.initializer.Bilinear()), ValueError, "size, size", id="nn's Bilinear"),
        pytest.param(lambda: parameter(INIT.Normal(), dtype="int64"), TypeError, "needs a float variable", id="integers"),
        pytest.param(lambda: parameter(INIT.Xavier(fan_in=-9.0)), ValueError, "needs connections", id="Xavier"),
        pytest.param(lambda: parameter(INIT.MSRA(fan_in=-9.0)), ValueError, "needs connections", id="MSRA"),
        pytest.param(
            lambda: parameter(paddle.nn.initializer.Assign([1.0, 2.0])), ValueError, "has shape", id="an array of another shape"
        ),
        pytest.param(lambda: fluid.ParamAttr(learning_rate=-1.0), ValueError, "must be >= 0", id="ParamAttr"),
        pytest.param(lambda: fluid.WeightNormParamAttr(learning_rate=-1.0), ValueError, ">= 0", id="WeightNormParamAttr"),
        pytest.param(lambda: fluid.transpiler.RoundRobin([]), ValueError, "no server", id="RoundRobin"),
        pytest.param(lambda: fluid.transpiler.HashName([]), ValueError, "no server", id="HashName"),
        pytest.param(lambda: paddle.nn.Linear(None, None), ValueError, "would be", id="a class of nn"),
        pytest.param(lambda: paddle.nn.functional.alpha_dropout(None), TypeError, "needs an input X", id="a function of nn"),
        pytest.param(lambda: paddle.static.create_parameter([-1], "float32"), ValueError, "would be", id="create_parameter"),
    ],
)
def test_what_a_class_refuses(made, kind, message):
    with pytest.raises(kind, match=message):
        made()


def test_a_program_with_them_is_saved():
    attr = fluid.ParamAttr(name="w", regularizer=DECAY.L2Decay(0.5), initializer=INIT.Constant(2.0))
    fluid.layers.fc(fluid.data("x", [None, 3]), 2, param_attr=attr)
    CLIP.set_gradient_clip(CLIP.GradientClipByValue(1.0))
    program = fluid.default_main_program()
    assert from_json(to_json(program)).global_block().var("w").regularizer.regularization_coeff == 0.5


@pytest.mark.parametrize("module", [paddle.nn, paddle.nn.functional], ids=["nn", "functional"])
@pytest.mark.filterwarnings("ignore")
def test_nothing_leaves_as_an_error_of_the_core_alone(module):
    public = {k: v for k, v in vars(module).items() if callable(v) and not k.startswith("_") and v.__module__.startswith("pe_cli.")}
    leaked, refused = [], 0
    for called, function in public.items():
        needed = [p for p in inspect.signature(function).parameters.values() if p.default is p.empty and p.kind < p.VAR_POSITIONAL]
        for wrong in (None, -1, "no", []):
            for first in (wrong, fluid.data("x", [None, 4, 6, 6])):
                try:
                    function(*[first, *[wrong] * (len(needed) - 1)][: len(needed)])
                except PeError as error:
                    refused += 1
                    if not isinstance(error, (ValueError, TypeError, NotImplementedError, RuntimeError)):
                        leaked.append((called, str(error)))
                except Exception:  # noqa: BLE001 (Python's own types are what a script catches)
                    continue
    assert not leaked
    assert refused


@pytest.mark.parametrize(("dtype", "instead"), [("float16", "float32"), ("int8", "int32"), ("int16", "int32")])
def test_an_element_type_of_numpy_that_no_variable_has(dtype, instead):
    x = fluid.data("x", [2, 3])
    assert np.can_cast(dtype, instead, "safe")
    for made in (lambda: fluid.layers.cast(x, dtype), lambda: fluid.layers.fill_constant([2], dtype, 1)):
        with pytest.raises(TypeError, match=f"unknown dtype '{dtype}' .*{instead} holds"):
            made()


def test_a_sum_of_bool_counts_in_int64():
    fed = np.array([[1, 0, 2], [0, 0, 3]], "float32")
    summed = paddle.sum(fluid.layers.cast(fluid.data("x", [2, 3]), "bool"), axis=1)
    (found,) = fluid.Executor(fluid.CPUPlace()).run(feed={"x": fed}, fetch_list=[summed])
    np.testing.assert_array_equal(found, fed.astype(bool).sum(1), strict=True)
