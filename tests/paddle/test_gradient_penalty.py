"""A penalty on the gradient of a critic of images, against PyTorch: gradients of gradients through the layers that critics have."""

from __future__ import annotations

import numpy as np

import pe_cli.paddle.fluid as fluid
from tests.needs import torch

L = fluid.layers


def test_the_penalty_and_its_gradients(rng):
    images = rng.standard_normal((3, 2, 6, 6)).astype("float32")
    shapes = {"first": (3, 2, 3, 3), "second": (4, 3, 3, 3), "wide": (4, 5), "last": (5, 1), "channel": (4,), "row": (5,)}
    values = {name: 0.4 * rng.standard_normal(shape).astype("float32") + (len(shape) < 2) for name, shape in shapes.items()}

    def attr(name):
        return fluid.ParamAttr(name=name, initializer=fluid.initializer.NumpyArrayInitializer(values[name]))

    x = fluid.data("x", [None, 2, 6, 6])
    x.stop_gradient = False
    h = L.leaky_relu(L.conv2d(x, 3, 3, padding=1, param_attr=attr("first"), bias_attr=False), 0.1)
    h = L.pool2d(h, 2, "max", 2)
    h = L.relu(L.batch_norm(L.conv2d(h, 4, 3, padding=1, param_attr=attr("second"), bias_attr=False), param_attr=attr("channel")))
    h = L.layer_norm(L.fc(L.pool2d(h, 3, "max", 3), 5, param_attr=attr("wide"), bias_attr=False), param_attr=attr("row"))
    out = L.fc(L.elementwise_mul(L.tanh(h), L.softmax(h)), 1, param_attr=attr("last"), bias_attr=False)
    (slope,) = fluid.gradients(out, x)
    penalty = L.mean(L.square(L.sqrt(L.reduce_sum(L.square(slope), dim=[1, 2, 3])) - 1.0))
    block = fluid.default_main_program().global_block()
    gradients = fluid.gradients(penalty, [block.var(name) for name in shapes])
    exe = fluid.Executor(fluid.CPUPlace())
    exe.run(fluid.default_startup_program())
    ours, *found = exe.run(feed={"x": images}, fetch_list=[penalty, *gradients])

    f, w = torch.nn.functional, {name: torch.tensor(value, requires_grad=True) for name, value in values.items()}
    t = torch.tensor(images, requires_grad=True)
    h = f.max_pool2d(f.leaky_relu(f.conv2d(t, w["first"], padding=1), 0.1), 2)
    h = f.relu(f.batch_norm(f.conv2d(h, w["second"], padding=1), None, None, w["channel"], training=True))
    h = f.layer_norm(f.max_pool2d(h, 3).flatten(1) @ w["wide"], (5,), w["row"])
    (slope,) = torch.autograd.grad(((torch.tanh(h) * torch.softmax(h, 1)) @ w["last"]).sum(), t, create_graph=True)
    theirs = (slope.square().sum((1, 2, 3)).sqrt() - 1).square().mean()
    theirs.backward()
    np.testing.assert_allclose(ours, [theirs.item()], rtol=1e-5)
    for name, got in zip(shapes, found, strict=True):
        np.testing.assert_allclose(got, w[name].grad, rtol=1e-4, atol=1e-6, err_msg=name)
