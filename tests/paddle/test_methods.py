"""Methods and operators of variables: what NumPy gives, by the names that it has."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
import pe_cli.paddle.nn.functional as F
from pe_cli.paddle.fluid.variable_methods import NAMES
from tests.needs import torch

RNG = np.random.default_rng(3)
X, V = RNG.standard_normal((2, 3, 4)).astype("float32"), RNG.standard_normal(4).astype("float32")
YES, NO = np.array([True, True, False]), np.array([True, False, False])


def ran(made, **feed):
    return fluid.Executor(fluid.CPUPlace()).run(feed=feed, fetch_list=made if isinstance(made, list) else [made])


def fed(name, value):
    return fluid.data(name, [*value.shape], str(value.dtype))


#: What both are called with: `x` and `v`, variables or arrays.
ALIKE = [
    lambda x, v: x.mean(axis=1),
    lambda x, v: x.max(),
    lambda x, v: x.T,
    lambda x, v: abs(x),
    lambda x, v: x @ v,
    lambda x, v: x.reshape([-1, 2]).sum(axis=0),
    lambda x, v: x[:, None],
    lambda x, v: x[..., None, 0],
    lambda x, v: x[0, None, 1, :, None],
    lambda x, v: x[1, 2, 3, None],
    lambda x, v: v[None, 1, None],
    lambda x, v: v[None],
]


def test_methods_give_what_numpy_gives():
    x, v = fed("x", X), fed("v", V)
    for found, call in zip(ran([call(x, v) for call in ALIKE], x=X, v=V), ALIKE, strict=True):
        want = np.asarray(call(X, V))
        assert found.shape == (want.shape or (1,))
        np.testing.assert_allclose(found, want.reshape(found.shape), rtol=1e-5)


def test_operators_of_conditions():
    yes, no = fed("yes", YES), fed("no", NO)
    found = ran([yes & no, yes | no, yes ^ no, ~yes], yes=YES, no=NO)
    assert [f.tolist() for f in found] == [(YES & NO).tolist(), (YES | NO).tolist(), (YES ^ NO).tolist(), (~YES).tolist()]


def test_every_method_is_a_function_of_the_top_level():
    x = fed("x", X)
    assert [name for name in NAMES if not callable(getattr(paddle, name, None)) or not callable(getattr(x, name))] == []


def test_a_detached_variable_stops_gradients():
    x = fed("x", X)
    x.stop_gradient = False
    (slope,) = fluid.gradients([(x * x.detach()).sum()], [x])
    np.testing.assert_array_equal(ran(slope, x=X)[0], X)


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda x, i: (i > 0) + (i > 0), id="a sum of conditions"),
        pytest.param(lambda x, i: fluid.layers.elementwise_add(x, i), id="two element types of a layer"),
        pytest.param(lambda x, i: fluid.layers.concat([x, i]), id="lists of several types"),
        pytest.param(lambda x, i: fluid.layers.edit_distance(x, x), id="all of the wrong type"),
        pytest.param(lambda x, i: fluid.embedding(x, [4, 2]), id="ids that are no integers"),
        pytest.param(lambda x, i: x & 1, id="a number for a condition"),
        pytest.param(lambda x, i: fluid.data("half", [2], "float16"), id="an element type that is not there"),
    ],
)
def test_element_types_that_do_not_fit_are_type_errors(call):
    with pytest.raises(TypeError):
        call(fed("x", X), fluid.data("i", [2, 3, 4], "int64"))


def test_shapes_that_do_not_fit_are_value_errors():
    with pytest.raises(ValueError, match="shapes do not fit"):
        fed("x", X) + fluid.data("y", [2, 2, 4])
    with pytest.raises(ValueError, match="must be one number"):
        fluid.optimizer.SGD(0.1).minimize(fed("z", X))


@pytest.mark.parametrize("size", [1, 2, 4, 5])
@pytest.mark.parametrize(("shape", "layouts"), [((2, 5, 7), ("NCL", "NLC")), ((2, 5, 2, 3, 2), ("NCDHW", "NDHWC"))])
def test_local_response_norm_of_any_size_and_rank(shape, layouts, size):
    value = RNG.standard_normal(shape).astype("float32")
    want = torch.nn.functional.local_response_norm(torch.from_numpy(value), size, 0.3, 0.6, 2.0).numpy()
    first = fed("first", value)
    last = fed("last", np.moveaxis(value, 1, -1))
    made = [F.local_response_norm(v, size, 0.3, 0.6, 2.0, layout) for v, layout in zip((first, last), layouts, strict=True)]
    one, other = ran(made, first=value, last=np.ascontiguousarray(np.moveaxis(value, 1, -1)))
    np.testing.assert_allclose(one, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(np.moveaxis(other, -1, 1), want, rtol=1e-5, atol=1e-6)


def test_smoothed_labels_keep_their_element_type():
    assert F.label_smooth(fluid.data("y", [2, 4], "float64")).dtype == "float64"
