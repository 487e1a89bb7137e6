"""Layers that are made of several ops, in model files: values, gradients and what ONNX computes, against PyTorch and NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from pe_cli.build.build import Built
from pe_cli.core.types import Place
from pe_cli.devices.scope import Scope
from pe_cli.execute.executor import Executor
from pe_cli.execute.startup import run_startup
from pe_cli.io.onnx.export import export
from pe_cli.program.backward import gradients
from pe_cli.program.defaults import program_guard
from pe_cli.program.prune import prune
from tests.layers.support import layers as L
from tests.needs import torch

Array = np.ndarray[Any, Any]
F = torch.nn.functional
BATCH = 6


@dataclass(frozen=True)
class Case:
    """A layer in a model file.

    Args:
        layers: lines of `layers:`; the last one is `out`. `x` and `y` are inputs that gradients flow to.
        theirs: what `out` should be: of tensors by name.
        x, y: sizes of a sample; () where there is no such input.
        more: name -> another feed.
        learned: of x and y, those whose gradients are compared.
        onnx: its ops have ONNX forms, and onnxruntime computes them in float64.
    """

    layers: str
    theirs: Callable[..., Any]
    x: tuple[int, ...] = ()
    y: tuple[int, ...] = ()
    more: dict[str, Array] = field(default_factory=dict)
    learned: str = "x"
    onnx: bool = True


def column(*numbers: int) -> Array:
    return np.array(numbers)[:, None]


def per_channel(x: Any, v: Any) -> Any:
    return x * v.reshape(1, -1, 1, 1)


def shifted(x: Any) -> Any:
    film = x.reshape(2, 3, 4, 2, 2)
    out = film.clone()
    out[:, :, :2] = 0
    out[:, 1:, 0] = film[:, :-1, 0]
    out[:, :-1, 1] = film[:, 1:, 1]
    return out.reshape(x.shape)


def npair(anchor: Any, positive: Any, label: Any) -> Any:
    same = (label == label.T).double()
    share = same / same.sum(1, keepdim=True)
    entropy = -(share * F.log_softmax(anchor @ positive.T, 1)).sum(1, keepdim=True)
    lengths = (anchor**2).sum(1).mean() + (positive**2).sum(1).mean()
    return ((share * entropy).sum(0).mean() + 0.25 * 0.5 * lengths).reshape(1)


def focal(x: Any, label: Any) -> Any:
    target = F.one_hot(label[:, 0], 5)[:, 1:].double()
    p = torch.sigmoid(x)
    right, weight = torch.where(target > 0, p, 1 - p), torch.where(target > 0, 0.3, 0.7)
    return -weight * (1 - right) ** 3 * torch.log(right) / 4


def bpr(x: Any, label: Any) -> Any:
    gap = F.logsigmoid(x.gather(1, label) - x)
    others = 1 - F.one_hot(label[:, 0], x.shape[1])
    return -(gap * others).sum(1, keepdim=True) / (x.shape[1] - 1)


def clipped(x: Any) -> Any:
    length = (x**2).sum().sqrt()
    return x * 2.0 / torch.clamp(length, min=2.0)


def encoded(x: Any) -> Any:
    t, k = torch.arange(5.0, dtype=torch.float64)[:, None], torch.arange(3.0, dtype=torch.float64)
    angles = t / 10000 ** (k / 2)
    return 2 * x + 0.5 * torch.cat([angles.sin(), angles.cos()], 1)


IMAGE = (6, 4, 4)
LABEL = {"label": column(0, 2, 1, 2, 3, 0)}
CHANNELS = """\
a: {type: create_parameter, shape: [6], dtype: float64, attr: {initializer: {type: Constant, value: 2}}}
  b: {type: create_parameter, shape: [6], dtype: float64, attr: {initializer: {type: Constant, value: 3}}}
  out: {type: affine_channel, x: x, scale: a, bias: b, act: tanh}"""
CASES = {
    # --- normalisation
    "group_norm": Case("out: {type: group_norm, input: x, groups: 3, epsilon: 0.01}", lambda x: F.group_norm(x, 3, eps=0.01), IMAGE),
    "group_norm, channels last, an activation": Case(
        "out: {type: group_norm, input: x, groups: 2, data_layout: NHWC, act: sigmoid, param_attr: false}",
        lambda x: torch.sigmoid(F.group_norm(x.permute(0, 3, 1, 2), 2)).permute(0, 2, 3, 1), IMAGE,
    ),
    "instance_norm": Case("out: {type: instance_norm, input: x, epsilon: 0.1}", lambda x: F.instance_norm(x, eps=0.1), IMAGE),
    "instance_norm of volumes": Case("out: {type: instance_norm, input: x}", lambda x: F.instance_norm(x), (2, 3, 2, 2)),
    "inplace_abn": Case(
        "out: {type: inplace_abn, input: x, act: leaky_relu, act_alpha: 0.1, epsilon: 0.5}",
        lambda x: F.leaky_relu(x / 1.5**0.5, 0.1), IMAGE,
    ),
    "lrn": Case("out: {type: lrn, input: x, n: 3, alpha: 0.5, k: 2.0}", lambda x: F.local_response_norm(x, 3, 1.5, 0.75, 2.0), IMAGE),
    # --- activations
    "selu": Case("out: {type: selu, x: x}", lambda x: F.selu(x), (5,)),
    "prelu": Case("out: {type: prelu, x: x, mode: all}", lambda x: F.prelu(x, torch.full((1,), 0.25).double()), IMAGE),
    "prelu by channel": Case(
        "out: {type: prelu, x: x, mode: channel, param_attr: {initializer: {type: Constant, value: 0.5}}}",
        lambda x: F.prelu(x, torch.full((6,), 0.5).double()), IMAGE,
    ),
    "maxout": Case("out: {type: maxout, x: x, groups: 2}", lambda x: x.reshape(-1, 3, 2, 4, 4).amax(2), IMAGE),
    # --- channels and pixels
    "affine_channel": Case(CHANNELS, lambda x: torch.tanh(2 * x + 3), IMAGE),
    "affine_channel, channels last": Case(CHANNELS.replace("act:", "data_layout: NHWC, act:"), lambda x: torch.tanh(2 * x + 3), (4, 4, 6)),
    "shuffle_channel": Case("out: {type: shuffle_channel, x: x, group: 3}", lambda x: F.channel_shuffle(x, 3), IMAGE),
    "pixel_shuffle": Case("out: {type: pixel_shuffle, x: x, upscale_factor: 2}", lambda x: F.pixel_shuffle(x, 2), (8, 2, 3)),
    "space_to_depth": Case(
        "out: {type: space_to_depth, x: x, blocksize: 2}",
        lambda x: x.reshape(-1, 6, 2, 2, 2, 2).permute(0, 3, 5, 1, 2, 4).reshape(-1, 24, 2, 2), IMAGE,
    ),
    "temporal_shift": Case("out: {type: temporal_shift, x: x, seg_num: 3, shift_ratio: 0.25}", shifted, (4, 2, 2)),
    "im2sequence": Case(
        "out: {type: im2sequence, input: x, filter_size: [2, 3], stride: [2, 1], padding: 1}",
        lambda x: F.unfold(x, (2, 3), padding=1, stride=(2, 1)).permute(0, 2, 1).reshape(-1, 36), IMAGE, onnx=False,
    ),
    "image_resize_short": Case(
        "out: {type: image_resize_short, input: x, out_short_len: 6}",
        lambda x: F.interpolate(x, (6, 12), mode="bilinear", align_corners=True), (2, 3, 6), onnx=False,
    ),
    "image_resize by a cubic": Case(
        "out: {type: image_resize, input: x, scale: 1.5, resample: BICUBIC, align_corners: false}",
        lambda x: F.interpolate(x, (6, 9), mode="bicubic", align_corners=False), (2, 4, 6),
    ),
    # --- products
    "bilinear_tensor_product": Case(
        "out: {type: bilinear_tensor_product, x: x, y: y, size: 3, param_attr: {initializer: {type: Constant, value: 0.5}}, act: tanh}",
        lambda x, y: torch.tanh(F.bilinear(x, y, torch.full((3, 4, 2), 0.5).double())), (4,), (2,), learned="xy",
    ),
    "fsp_matrix": Case(
        "out: {type: fsp_matrix, x: x, y: y}", lambda x, y: torch.einsum("nchw,ndhw->ncd", x, y) / 6, (3, 2, 3), (2, 2, 3), learned="xy",
    ),
    "add_position_encoding": Case("out: {type: add_position_encoding, input: x, alpha: 2.0, beta: 0.5}", encoded, (5, 6)),
    "piecewise_linear_encoding": Case(
        "out: {type: piecewise_linear_encoding, input: x, edges: [[-1, 0.25, 2], [], [-0.5, 0.5]]}",
        lambda x: torch.stack([(x[:, 0] + 1) / 1.25, (x[:, 0] - 0.25) / 1.75, x[:, 2] + 0.5], 1).clamp(0, 1), (3,),
    ),
    "cos_sim": Case("out: {type: cos_sim, X: x, Y: y}", lambda x, y: F.cosine_similarity(x, y)[:, None], (5,), (5,), learned="xy"),
    # --- losses
    "bpr_loss": Case("out: {type: bpr_loss, input: x, label: label}", bpr, (4,), more=LABEL),
    "rank_loss": Case(
        "out: {type: rank_loss, label: won, left: x, right: y}",
        lambda x, y, won: F.binary_cross_entropy_with_logits(x - y, won, reduction="none"),
        (1,), (1,), {"won": column(0, 1, 1, 0, 1, 0).astype(float)}, learned="xy",
    ),
    "margin_rank_loss": Case(
        "out: {type: margin_rank_loss, label: won, left: x, right: y, margin: 0.7}",
        lambda x, y, won: F.margin_ranking_loss(x, y, won, 0.7, reduction="none"),
        (1,), (1,), {"won": column(-1, 1, 1, -1, 1, -1).astype(float)}, learned="xy",
    ),
    "npair_loss": Case(
        "out: {type: npair_loss, anchor: x, positive: y, labels: label, l2_reg: 0.5}",
        lambda x, y, label: npair(x, y, label), (4,), (4,), LABEL, learned="xy",
    ),
    "sigmoid_focal_loss": Case(
        "seen: {type: full, shape: [1], fill_value: 4, dtype: int32}\n"
        "  out: {type: sigmoid_focal_loss, x: x, label: label, fg_num: seen, gamma: 3.0, alpha: 0.3}",
        focal, (4,), more={"label": column(0, 1, 4, 0, 2, 3)},
    ),
    # --- tensors
    "strided_slice": Case("out: {type: strided_slice, input: x, axes: [1, 2], starts: [0, 3], ends: [6, 0], strides: [4, -2]}",
                          lambda x: x[:, 0:6:4].flip(2)[:, :, 0:3:2], IMAGE),
    "crop_tensor": Case("out: {type: crop_tensor, x: x, shape: [-1, 2, 4, 3], offsets: [0, 4, 0, 1]}", lambda x: x[:, 4:, :, 1:], IMAGE),
    "crop": Case("out: {type: crop, x: x, shape: [-1, 3]}", lambda x: x[:, :3], (5,)),
    "unbind": Case("parts: {type: unbind, input: x, axis: 1}\n  out: {type: scale, x: parts.1, scale: 2.0}",
                   lambda x: 2 * x[:, 1], (3, 2)),
    "flip": Case("out: {type: flip, input: x, dims: [1, 2]}", lambda x: x.flip(1, 2), (3, 2)),
    "pad_constant_like": Case("out: {type: pad_constant_like, x: y, y: x, pad_value: 1.5}",
                              lambda x, y: F.pad(x, (0, 2), value=1.5), (3,), (5,)),
    "expand_as to the batch": Case(
        "one: {type: create_parameter, shape: [1, 2], dtype: float64, attr: {initializer: {type: Constant, value: 2}}}\n"
        "  many: {type: expand_as, x: one, target_tensor: x}\n  out: {type: elementwise_mul, x: x, y: many}",
        lambda x: 2 * x, (4,),
    ),
    "eye": Case("one: {type: eye, num_rows: 3, num_columns: 2, dtype: float64}\n  out: {type: matmul, x: x, y: one}",
                lambda x: x[:, :2], (3,)),
    "linspace": Case("line: {type: linspace, start: 1, stop: 2, num: 3, dtype: float64}\n  out: {type: elementwise_add, x: x, y: line}",
                     lambda x: x + torch.tensor([1, 1.5, 2]).double(), (3,)),
    "range": Case("line: {type: range, start: 5, end: 0, step: -2, dtype: float64}\n  out: {type: elementwise_add, x: x, y: line}",
                  lambda x: x + torch.tensor([5, 3, 1.0]).double(), (3,)),
    "full_like": Case("two: {type: full_like, x: x, fill_value: 2.5}\n  out: {type: elementwise_mul, x: x, y: two}",
                      lambda x: x * 2.5, (3,)),
    "diag": Case("line: {type: linspace, start: 1, stop: 3, num: 3, dtype: float64}\n  square: {type: diag, diagonal: line}\n"
                 "  out: {type: matmul, x: x, y: square}", lambda x: x * torch.tensor([1, 2, 3.0]).double(), (3,)),
    "shape": Case("out: {type: shape, input: x}", lambda x: torch.tensor([BATCH, 3, 2]).int(), (3, 2), learned=""),
    "size": Case("out: {type: size, input: x}", lambda x: torch.tensor([BATCH * 6]), (3, 2), learned=""),
    "rank": Case("out: {type: rank, input: x}", lambda x: torch.tensor(3).int(), (3, 2), learned=""),
    "multiplex": Case(
        "out: {type: multiplex, inputs: [x, y], index: which}",
        lambda x, y, which: torch.where(which == 0, x, y), (3,), (3,), {"which": column(0, 1, 1, 0, 1, 0)}, learned="xy",
    ),
    "scatter_nd": Case("out: {type: scatter_nd, index: label, updates: x, shape: [4, 3]}",
                       lambda x, label: torch.zeros(4, 3).double().index_add(0, label[:, 0], x), (3,), more=LABEL, onnx=False),
    "shard_index": Case("out: {type: shard_index, input: label, index_num: 4, nshards: 2, shard_id: 1}",
                        lambda label: torch.where(label >= 2, label - 2, -1), more=LABEL, learned=""),
    "reduce_all": Case("out: {type: reduce_all, input: label, dim: 1}", lambda label: label[:, 0] != 0, more=LABEL, learned=""),
    "reduce_any": Case("out: {type: reduce_any, input: label, keep_dim: true}", lambda label: (label != 0).any().reshape(1, 1),
                       more=LABEL, learned=""),
    "argmin": Case("out: {type: argmin, x: x, axis: 1}", lambda x: x.argmin(1), (5,), learned=""),
    "clip_by_norm": Case("out: {type: clip_by_norm, x: x, max_norm: 2.0}", clipped, (5,), learned=""),
    "elementwise_mod": Case("out: {type: elementwise_mod, x: x, y: y}", lambda x, y: torch.remainder(x, y), (5,), (5,), learned=""),
    "elementwise_floordiv": Case("out: {type: elementwise_floordiv, x: x, y: y}",
                                 lambda x, y: torch.floor_divide(x, y), (5,), (5,), learned=""),
}  # fmt: skip


def model(case: Case) -> str:
    """Return a model file whose x and y are feeds plus parameters of zeros, so that gradients flow to them."""
    feeds, lines = [], []
    for name, sizes in (("x", case.x), ("y", case.y)):
        if sizes:
            feeds.append(f"  {name}_fed: {{shape: {list(sizes)}, dtype: float64}}")
            zeros = f"shape: {list(sizes)}, dtype: float64, default_initializer: {{type: Constant, value: 0}}"
            lines.append(f"  {name}_zeros: {{type: create_parameter, {zeros}}}")
            lines.append(f"  {name}: {{type: elementwise_add, x: {name}_fed, y: {name}_zeros, axis: 1}}")
    for name, value in case.more.items():
        feeds.append(f"  {name}: {{shape: {list(value.shape[1:])}, dtype: {value.dtype}}}")
    return "\n".join(["feeds:", *feeds, "layers:", *lines, f"  {case.layers}", "fetches: [out]", ""])


@pytest.mark.parametrize("name", CASES)
def test_a_layer_of_a_model_file_computes_what_others_compute(built: Callable[[str], Built], rng: np.random.Generator, name: str) -> None:
    case = CASES[name]
    arrays = {n: rng.standard_normal((BATCH, *s)) for n, s in (("x", case.x), ("y", case.y)) if s}
    found = built(model(case))
    tensors = {n: torch.tensor(a, requires_grad=n in case.learned) for n, a in {**arrays, **case.more}.items()}
    expected = case.theirs(**tensors)
    feed = {**{f"{n}_fed": a for n, a in arrays.items()}, **case.more}
    scope = Scope([Place("cpu", 0)])
    if found.startup.global_block().ops:
        run_startup(found.startup, scope, seed=5)
    held = {v.name: scope.get(v.name) for v in found.eval.list_vars() if v.persistable}
    if case.onnx:
        onnxruntime = pytest.importorskip("onnxruntime")
        session = onnxruntime.InferenceSession(export(found.eval, held, ["out"], "model"), providers=["CPUExecutionProvider"])
        (theirs,) = session.run(["out"], {i.name: feed[i.name] for i in session.get_inputs()})
        np.testing.assert_allclose(theirs, expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    wanted = ["out"]
    with program_guard(found.eval, found.startup):
        out = found.eval.global_block().var("out")
        if case.learned:
            feed["weight"] = np.arange(1.0, 1 + expected.numel()).reshape(expected.shape)
            weight = L.data("weight", list(expected.shape), append_batch_size=False, dtype="float64")
            total = L.reduce_sum(L.elementwise_mul(out, weight))
            made = gradients([total], [found.eval.global_block().var(n) for n in case.learned])
            wanted += [v.name for v in made if v is not None]
    program = prune(found.eval, wanted)
    needed = {n: a for n, a in feed.items() if n in program.global_block().vars}
    values = Executor(program, scope, seed=5).run(needed, wanted).values[0]
    assert str(values["out"].dtype) == str(expected.dtype).removeprefix("torch.")
    np.testing.assert_allclose(values["out"], expected.detach().numpy(), rtol=1e-7, atol=1e-9)
    if case.learned:
        (expected.reshape(-1) * torch.arange(1.0, 1 + expected.numel(), dtype=torch.float64)).sum().backward()
        assert len(wanted) == 1 + len(case.learned)
        for n, grad in zip(case.learned, wanted[1:], strict=True):
            np.testing.assert_allclose(values[grad], tensors[n].grad.numpy(), rtol=1e-6, atol=1e-8, err_msg=n)
