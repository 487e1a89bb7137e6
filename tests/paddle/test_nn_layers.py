"""paddle.nn: layer objects make their parameters once, share them between calls, and train; values beside PyTorch's."""

from __future__ import annotations

import inspect

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle import nn
from pe_cli.paddle.nn.made import TABLE
from tests.needs import torch
from tests.paddle.nn_support import values

IMAGES = values(2, 4, 6, 5)


def started() -> fluid.Executor:
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor


def assign(ours, theirs) -> None:
    """Give a layer the parameters of PyTorch's, in the order in which both declare them."""
    scope = fluid.global_scope()
    for one, two in zip((p for p in ours.parameters() if p.trainable), theirs.parameters(), strict=True):
        value = two.detach().numpy()
        value = value.T if isinstance(ours, nn.Linear) and value.ndim == 2 else value
        scope.find_var(one.name).get_tensor().set(np.ascontiguousarray(value).reshape(one.shape), fluid.CPUPlace())


def compare(torch, ours, theirs, *arrays) -> None:
    executor = started()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(torch.randn(p.shape, generator=generator))
    assign(ours, theirs)
    feeds = {f"x{i}": a for i, a in enumerate(arrays)}
    out = ours(*(fluid.data(n, list(a.shape), a.dtype.name) for n, a in feeds.items()))
    (found,) = executor.run(feed=feeds, fetch_list=[out])
    expected = theirs(*map(torch.tensor, arrays)).detach().numpy()
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize(
    ("kind", "facts", "arrays"),
    [
        pytest.param("Linear", (5, 3), (IMAGES,), id="Linear"),
        pytest.param("Bilinear", (4, 5, 3), (values(2, 4), values(2, 5)), id="Bilinear"),
        pytest.param("Embedding", (7, 3), (np.array([[1, 6], [0, 2]]),), id="Embedding"),
        pytest.param("PReLU", (4,), (IMAGES,), id="PReLU"),
        pytest.param("Conv2D", (4, 6, 3, 2, 1, 1, 2), (IMAGES,), id="Conv2D"),
        pytest.param("Conv1D", (4, 3, 3, 2, 1), (values(2, 4, 7),), id="Conv1D"),
        pytest.param("BatchNorm2D", (4,), (IMAGES,), id="BatchNorm2D"),
        pytest.param("BatchNorm1D", (4,), (values(5, 4),), id="BatchNorm1D"),
        pytest.param("LayerNorm", (5,), (IMAGES,), id="LayerNorm"),
        pytest.param("InstanceNorm2D", (4,), (IMAGES,), id="InstanceNorm2D"),
        pytest.param("GroupNorm", (2, 4), (IMAGES,), id="GroupNorm"),
    ],
)
def test_values_of_layers(kind, facts, arrays):
    given = {"affine": True} if kind == "InstanceNorm2D" else {}
    theirs = getattr(torch.nn, kind.replace("1D", "1d").replace("2D", "2d"))(*facts, **given)
    compare(torch, getattr(nn, kind)(*facts), theirs, *arrays)


def test_a_transposed_convolution():
    compare(torch, nn.Conv2DTranspose(4, 6, 3, 2, 1, 1, 1, 2), torch.nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, 2), IMAGES)


def test_a_transposed_convolution_of_rows():
    compare(torch, nn.Conv1DTranspose(4, 6, 3, 2, 1, 1), torch.nn.ConvTranspose1d(4, 6, 3, 2, 1, 1), values(2, 4, 7))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_borders_of_a_convolution(mode):
    theirs = torch.nn.Conv2d(4, 3, 3, padding=(2, 1), padding_mode=mode)
    compare(torch, nn.Conv2D(4, 3, 3, padding=(2, 1), padding_mode=mode), theirs, IMAGES)


@pytest.mark.parametrize(
    ("ours", "theirs", "arrays"),
    [
        pytest.param(nn.ReLU(), "ReLU()", (IMAGES,), id="ReLU"),
        pytest.param(nn.LeakyReLU(0.3), "LeakyReLU(0.3)", (IMAGES,), id="LeakyReLU"),
        pytest.param(nn.Softmax(1), "Softmax(1)", (IMAGES,), id="Softmax"),
        pytest.param(nn.MaxPool2D(3, 2, 1), "MaxPool2d(3, 2, 1)", (IMAGES,), id="MaxPool2D"),
        pytest.param(nn.AdaptiveAvgPool2D(2), "AdaptiveAvgPool2d(2)", (IMAGES,), id="AdaptiveAvgPool2D"),
        pytest.param(nn.AvgPool1D(2), "AvgPool1d(2)", (values(2, 3, 6),), id="AvgPool1D"),
        pytest.param(nn.Flatten(), "Flatten()", (IMAGES,), id="Flatten"),
        pytest.param(nn.Flatten(2, 3), "Flatten(2, 3)", (IMAGES,), id="Flatten of some axes"),
        pytest.param(nn.Pad1D([1, 2], "reflect"), "ReflectionPad1d((1, 2))", (values(2, 3, 6),), id="Pad1D"),
        pytest.param(nn.Pad2D(2, value=0.5), "ConstantPad2d(2, 0.5)", (IMAGES,), id="Pad2D"),
        pytest.param(nn.PixelShuffle(2), "PixelShuffle(2)", (IMAGES,), id="PixelShuffle"),
        pytest.param(nn.Upsample(scale_factor=2), "Upsample(scale_factor=2)", (IMAGES,), id="Upsample"),
        pytest.param(
            nn.UpsamplingBilinear2D(scale_factor=2), "UpsamplingBilinear2d(scale_factor=2)", (IMAGES,),
            id="UpsamplingBilinear2D",
        ),
        pytest.param(
            nn.UpsamplingNearest2D(size=[12, 10]), "UpsamplingNearest2d(size=(12, 10))", (IMAGES,),
            id="UpsamplingNearest2D",
        ),
        pytest.param(nn.CosineSimilarity(), "CosineSimilarity()", (values(3, 4), values(3, 4, seed=1)), id="CosineSimilarity"),
        pytest.param(
            nn.PairwiseDistance(3.0, keepdim=True), "PairwiseDistance(3.0, keepdim=True)",
            (values(3, 4), values(3, 4, seed=1)), id="PairwiseDistance",
        ),
        pytest.param(nn.MSELoss("sum"), "MSELoss(reduction='sum')", (values(3, 4), values(3, 4, seed=1)), id="MSELoss"),
        pytest.param(nn.CrossEntropyLoss(), "CrossEntropyLoss()", (values(3, 4), np.array([1, 3, 0])), id="CrossEntropyLoss"),
        pytest.param(
            nn.MarginRankingLoss(0.2), "MarginRankingLoss(0.2)",
            (values(4), values(4, seed=1), np.array([1, -1, 1, -1], "float32")), id="MarginRankingLoss",
        ),
    ],
)  # fmt: skip
def test_layers_made_of_functions(ours, theirs, arrays):
    compare(torch, ours, eval(f"nn.{theirs}", {"nn": torch.nn}), *arrays)


@pytest.mark.parametrize("name", list(TABLE))
def test_every_class_made_of_a_function_describes_itself(name):
    kind = getattr(nn, name)
    assert kind.__name__ == name
    assert inspect.getdoc(kind)
    needed = [p for p in inspect.signature(kind).parameters.values() if p.default is p.empty]
    made = kind(*(2 for _ in needed))
    assert repr(made).startswith(f"{name}(")
    assert made.parameters() == []


def test_arguments_that_a_class_does_not_take():
    with pytest.raises(TypeError, match=r"LeakyReLU: got an unexpected keyword argument 'slope'"):
        nn.LeakyReLU(slope=0.1)
    with pytest.raises(TypeError, match=r"Maxout: missing a required argument: 'groups'"):
        nn.Maxout()


class Net(nn.Layer):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(("conv", nn.Conv2D(1, 4, 3)), ("norm", nn.BatchNorm2D(4)), ("act", nn.ReLU()))
        self.drop = nn.Dropout(0.5)
        self.heads = nn.LayerList([nn.Linear(4, 2) for _ in range(2)])
        self.scale = self.create_parameter([2], default_initializer=fluid.initializer.Constant(2.0))

    def forward(self, x):
        hidden = nn.functional.adaptive_avg_pool2d(self.features(x), 1)
        hidden = self.drop(nn.Flatten()(hidden))
        return self.heads[0](hidden) * self.scale + self.heads[1](hidden)


def test_what_a_layer_is_made_of():
    net = Net()
    assert [n for n, _ in net.named_parameters()] == [
        "scale", "features.conv.weight", "features.conv.bias", "features.norm.weight", "features.norm.bias",
        "features.norm._mean", "features.norm._variance", "heads.0.weight", "heads.0.bias", "heads.1.weight", "heads.1.bias",
    ]  # fmt: skip
    assert [n for n, _ in net.named_children()] == ["features", "drop", "heads"]
    assert len(net.sublayers()) == 8
    assert len(net.parameters(include_sublayers=False)) == 1
    net.heads.append(nn.Linear(4, 2))
    assert len(net.heads) == 3
    net.features[2] = nn.Tanh()
    assert [type(layer).__name__ for layer in net.features.children()] == ["Conv2D", "BatchNorm2D", "Tanh"]
    del net.heads[0]
    assert len(net.parameters()) == 11
    with pytest.raises(AttributeError, match="Net has no 'feature'"):
        net.feature  # noqa: B018
    assert "(conv): Conv2D()" in repr(net)
    net.note = 1
    del net.note, net.drop, net.scale
    assert [n for n, _ in net.named_children()] == ["features", "heads"]
    for gone in ("note", "drop", "scale", "never"):
        with pytest.raises(AttributeError):
            delattr(net, gone)


def test_two_calls_share_parameters():
    layer, x, y = nn.Linear(3, 2), fluid.data("x", [-1, 3]), fluid.data("y", [-1, 3])
    first, second = layer(x), layer(y)
    made = [v.name for v in fluid.default_main_program().all_parameters()]
    assert made == [layer.weight.name, layer.bias.name]
    loss = fluid.layers.mean(first + second)
    fluid.optimizer.SGD(0.5).minimize(loss)
    executor, scope = started(), fluid.global_scope()
    before = np.array(scope.find_var(layer.weight.name).get_tensor())
    a, b = values(4, 3), values(4, 3, seed=1)
    executor.run(feed={"x": a, "y": b}, fetch_list=[loss])
    # d mean(first + second) / dW[i, j] = sum_n (a + b)[n, i] / (rows * columns)
    slope = np.repeat((a + b).sum(0)[:, None], 2, 1) / 8
    np.testing.assert_allclose(np.array(scope.find_var(layer.weight.name).get_tensor()), before - 0.5 * slope, rtol=1e-5, atol=1e-6)


def test_one_layer_in_two_programs():
    layer = nn.Linear(3, 2)
    other = fluid.Program()
    with fluid.program_guard(other, fluid.Program()):
        out = layer(fluid.data("x", [-1, 3]))
        assert [p.name for p in other.all_parameters()] == [p.name for p in layer.parameters()]
    executor, a = started(), values(4, 3)
    (found,) = executor.run(other, feed={"x": a}, fetch_list=[out])
    weight = np.array(fluid.global_scope().find_var(layer.weight.name).get_tensor())
    np.testing.assert_allclose(found, a @ weight, rtol=1e-5, atol=1e-6)


def test_a_layer_within_a_branch():
    layer, x, flag = nn.Linear(3, 2), fluid.data("x", [4, 3]), fluid.data("flag", [1], "bool")
    out = fluid.layers.cond(flag, lambda: layer(x), lambda: layer(x) * 2.0)
    executor, a = started(), values(4, 3)
    weight = np.array(fluid.global_scope().find_var(layer.weight.name).get_tensor())
    for given, factor in ((True, 1), (False, 2)):
        (found,) = executor.run(feed={"x": a, "flag": np.array([given])}, fetch_list=[out])
        np.testing.assert_allclose(found, factor * (a @ weight), rtol=1e-5, atol=1e-6)


def test_a_net_trains_and_is_evaluated():
    paddle.seed(3)
    fluid.default_startup_program().random_seed = 3
    x, y = fluid.data("x", [-1, 1, 8, 8]), fluid.data("y", [-1], "int64")
    net = Net()
    scores = net(x)
    loss = nn.CrossEntropyLoss()(scores, y)
    test = fluid.default_main_program().clone(for_test=True)
    paddle.optimizer.Adam(learning_rate=0.05, parameters=net.parameters()).minimize(loss)
    executor = started()
    images = values(32, 1, 8, 8)
    labels = (np.arange(32) % 2).astype("int64")
    images += labels[:, None, None, None] * 2
    losses = [float(executor.run(feed={"x": images, "y": labels}, fetch_list=[loss])[0].item()) for _ in range(30)]
    assert np.mean(losses[-5:]) < 0.5 * losses[0]
    first, second = (executor.run(test, feed={"x": images, "y": labels}, fetch_list=[scores])[0] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert (first.argmax(1) == labels).mean() > 0.9
    net.eval()
    again = fluid.Program()
    with fluid.program_guard(again, fluid.Program()):
        out = net(fluid.data("x", [-1, 1, 8, 8]))
    (found,) = executor.run(again, feed={"x": images}, fetch_list=[out])
    np.testing.assert_allclose(found, first, rtol=1e-5, atol=1e-5)
    net.train()
    assert net.drop.training


def test_running_statistics_move():
    norm, x = nn.BatchNorm1D(3, momentum=0.8), fluid.data("x", [-1, 3])
    out = norm(x)
    executor, batch = started(), values(16, 3)
    executor.run(feed={"x": batch}, fetch_list=[out])
    found = [np.array(fluid.global_scope().find_var(p.name).get_tensor()) for p in (norm._mean, norm._variance)]
    np.testing.assert_allclose(found[0], 0.2 * batch.mean(0), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(found[1], 0.8 + 0.2 * batch.var(0), rtol=1e-4)


def test_batch_norm_by_the_arguments_of_1x():
    norm = nn.BatchNorm(3, act="relu", is_test=True, moving_mean_name="m", moving_variance_name="v")
    out, executor = norm(fluid.data("x", [-1, 3])), started()
    (found,) = executor.run(feed={"x": values(4, 3)}, fetch_list=[out])
    np.testing.assert_allclose(found, np.maximum(values(4, 3), 0), rtol=1e-4)
    assert [norm._mean.name, norm._variance.name] == ["m", "v"]


def test_lists_of_parameters():
    class Scales(nn.Layer):
        def __init__(self):
            super().__init__()
            self.scales = nn.ParameterList([self.create_parameter([1], name) for name in ("a", "b")])

    made = Scales()
    assert [(n, p.name) for n, p in made.named_parameters()] == [("scales.0", "a"), ("scales.1", "b")]
    assert [p.name for p in made.scales] == ["a", "b"]


def test_hooks():
    layer, seen = nn.ReLU(), []
    before = layer.register_forward_pre_hook(lambda layer, inputs: (inputs[0] * 2.0,))
    layer.register_forward_post_hook(lambda layer, inputs, out: seen.append(out.shape))
    layer(fluid.data("x", [4, 3]))
    before.remove()
    assert seen == [(4, 3)]
    layer.apply(lambda each: seen.append(type(each).__name__))
    assert seen[1] == "ReLU"


def test_mistakes_in_a_layer():
    class Early(nn.Layer):
        def __init__(self):
            self.inner = nn.ReLU()

    with pytest.raises(AttributeError, match=r"Early: call super\(\).__init__\(\) before 'inner' is set"):
        Early()
    with pytest.raises(TypeError, match="add_sublayer needs a layer, got int"):
        nn.Sequential(3)
    with pytest.raises(NotImplementedError, match="Layer has no forward"):
        nn.Layer()(1)
    with pytest.raises(AttributeError, match=r"paddle.nn.grid_sampler is a name of PaddlePaddle's reference that is not there yet"):
        nn.grid_sampler  # noqa: B018
