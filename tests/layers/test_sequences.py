"""lstm and multi_head_attention as layers: against torch's modules, and the names of their parameters."""

from __future__ import annotations

import numpy as np
import pytest

from pe_cli.core.errors import PeError
from pe_cli.program.backward import gradients
from pe_cli.program.param_attr import ParamAttr
from tests.layers.support import layers as L
from tests.layers.support import programs, run
from tests.needs import torch


@pytest.fixture
def net():
    with programs() as both:
        yield both


def names(main):
    return [p.name for p in main.global_block().parameters()]


@pytest.mark.parametrize("both", [False, True], ids=["forward", "both directions"])
def test_two_layers_agree_with_torch(net, rng, both):
    peer = torch.nn.LSTM(3, 4, 2, batch_first=True, bidirectional=both)
    attrs = {f"{n}_attr": ParamAttr(n) for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    count = 4 if both else 2
    state = {n: rng.standard_normal((count, 2, 4)).astype("float32") for n in ("h", "c")}
    starts = {f"init_{n}": L.data(n, [count, 2, 4], append_batch_size=False) for n in state}
    made = L.lstm(L.data("x", [5, 3]), 4, 2, is_bidirec=both, **starts, **attrs)
    values = {n: p.detach().numpy().T if "weight" in n else p.detach().numpy() for n, p in peer.named_parameters()}
    assert sorted(names(net[0])) == sorted(values)
    x = rng.standard_normal((2, 5, 3)).astype("float32")
    found = run(*net, {"x": x, **state}, list(made), values)
    out, (h, c) = peer(torch.tensor(x), tuple(torch.tensor(v) for v in state.values()))
    for mine, theirs in zip(found, (out, h, c), strict=True):
        np.testing.assert_allclose(mine, theirs.detach().numpy(), rtol=1e-4, atol=1e-5)


def test_one_layer_keeps_the_names_that_are_given(net):
    L.lstm(L.data("x", [5, 3]), 4, weight_ih_attr=ParamAttr("w"), bias_hh_attr=False, name="rnn")
    assert names(net[0]) == ["w", "rnn.w_0", "rnn.b_0"]


def test_dropout_lies_between_layers(net):
    L.lstm(L.data("x", [5, 3]), 4, num_layers=3, dropout_prob=0.5)
    assert [op.type for op in net[0].global_block().ops].count("dropout") == 2


@pytest.mark.parametrize(
    ("options", "text"),
    [
        pytest.param({"hidden_size": 0}, "hidden_size is 0", id="no units"),
        pytest.param({"hidden_size": 2, "num_layers": 0}, "num_layers 0", id="no layers"),
        pytest.param({"hidden_size": 2, "is_bidirec": True, "is_reverse": True}, "both ways", id="both and backwards"),
    ],
)
def test_lstm_refuses(net, options, text):
    with pytest.raises(PeError, match=text):
        L.lstm(L.data("x", [5, 3]), **options)


def test_an_initial_state_has_a_row_for_each_layer(net):
    with pytest.raises(PeError, match=r"an initial state is .*\[1, 2, 4\]"):
        L.lstm(L.data("x", [5, 3]), 4, 2, init_h=L.data("h", [1, 2, 4], append_batch_size=False))


@pytest.mark.parametrize("causal", [False, True])
def test_multi_head_attention_agrees_with_torch(net, rng, causal):
    peer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    with torch.no_grad():
        peer.in_proj_bias += 0.1  # torch begins with 0
        peer.out_proj.bias -= 0.1
    made = L.multi_head_attention(L.data("x", [5, 8]), 2, causal=causal, name="a")
    p = {n: v.detach().numpy() for n, v in peer.named_parameters()}
    values = {"a.qkv.w_0": p["in_proj_weight"].T, "a.qkv.b_0": p["in_proj_bias"]}
    values |= {"a.out.w_0": p["out_proj.weight"].T, "a.out.b_0": p["out_proj.bias"]}
    assert sorted(names(net[0])) == sorted(values)
    x = rng.standard_normal((3, 5, 8)).astype("float32")
    mask = torch.full((5, 5), -torch.inf).triu(1) if causal else None
    t = torch.tensor(x)
    expected = peer(t, t, t, attn_mask=mask, need_weights=False)[0].detach().numpy()
    (found,) = run(*net, {"x": x}, [made], values)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_heads_divide_the_width(net):
    with pytest.raises(PeError, match="3 heads"):
        L.multi_head_attention(L.data("x", [5, 8]), 3)


def test_a_parameter_of_its_own_takes_the_name_and_the_initializer(net):
    one = L.create_parameter([2, 3], "float32", name="table")
    two = L.create_parameter([4], "float64", attr=ParamAttr("more"), is_bias=True)
    assert [(v.name, str(v.type)) for v in (one, two)] == [("table", "float32[2, 3]"), ("more", "float64[4]")]
    assert L.create_parameter([2, 3], "float32", name="table") is one


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("packed", [False, True])
def test_a_learned_mask_of_attention_has_a_gradient(rng, causal, packed):
    """A bias of places, [heads, time, time], as models with relative positions learn it."""
    given = rng.standard_normal((2, 5, 24)).astype("float32")
    bias = rng.standard_normal((1, 2, 5, 5)).astype("float32")
    with programs() as (main, startup):
        x = L.data("x", [5, 24])
        mask = L.create_parameter([1, 2, 5, 5], "float32", name="bias")
        parts = [x] if packed else [L.slice(x, [2], [8 * i], [8 * i + 8]) for i in range(3)]
        out = L.attention(*parts, mask=mask, num_heads=2, causal=causal, scale=0.3)
        (slope,) = gradients([L.reduce_sum(L.square(out))], [mask])
        found = run(main, startup, {"x": given}, [out, slope], {"bias": bias})
    q, k, v = (t.reshape(2, 5, 2, 4).transpose(1, 2) for t in torch.from_numpy(given).split(8, -1))
    added = torch.tensor(bias, requires_grad=True)
    seen = added + torch.full((5, 5), -torch.inf).triu(1) if causal else added
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, seen.expand(2, 2, 5, 5), scale=0.3)
    want.square().sum().backward()
    np.testing.assert_allclose(found[0], want.transpose(1, 2).reshape(2, 5, 8).detach().numpy(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1], added.grad.numpy(), rtol=1e-4, atol=1e-5)


def test_a_mask_that_is_not_learned_leaves_attention_one_op():
    with programs() as (main, _):
        x, fed = L.data("x", [5, 24]), L.data("keep", [1, 1, 5])
        for mask in (fed, L.scale(fed, 1e9, -1e9)):
            L.attention(x, mask=mask, num_heads=2)
    assert [op.type for op in main.global_block().ops] == ["scale", "attention", "attention"]


def test_a_learned_mask_with_causal_needs_known_lengths():
    with programs():
        x = L.data("x", [-1, -1, 8])
        mask = L.create_parameter([1, 2, 5, 5], "float32")
        with pytest.raises(PeError, match="sequences of known length"):
            L.attention(x, x, x, mask, num_heads=2, causal=True)
