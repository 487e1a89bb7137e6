"""paddle.nn: attention, encoders and decoders beside PyTorch's with the same parameters."""

from __future__ import annotations

import numpy as np
import pytest

import pe_cli.paddle as paddle
import pe_cli.paddle.fluid as fluid
from pe_cli.paddle import nn
from tests.needs import torch
from tests.paddle.nn_support import values

WIDTH, HEADS = 8, 2
SRC, TGT = values(3, 5, WIDTH), values(3, 4, WIDTH, seed=1)


def put(parameter, value) -> None:
    given = np.ascontiguousarray(value.detach().numpy())
    fluid.global_scope().find_var(parameter.name).get_tensor().set(given, fluid.CPUPlace())


def copy_linear(ours, weight, bias) -> None:
    put(ours.weight, weight.T)
    put(ours.bias, bias)


def copy_attention(ours, theirs) -> None:
    weights, biases = theirs.in_proj_weight.chunk(3), theirs.in_proj_bias.chunk(3)
    for part, weight, bias in zip((ours.q_proj, ours.k_proj, ours.v_proj), weights, biases, strict=True):
        copy_linear(part, weight, bias)
    copy_linear(ours.out_proj, theirs.out_proj.weight, theirs.out_proj.bias)


def copy_block(ours, theirs) -> None:
    copy_attention(ours.self_attn, theirs.self_attn)
    if hasattr(theirs, "multihead_attn"):
        copy_attention(ours.cross_attn, theirs.multihead_attn)
    for name in ("linear1", "linear2"):
        copy_linear(getattr(ours, name), getattr(theirs, name).weight, getattr(theirs, name).bias)
    for name, norm in theirs.named_children():
        if name.startswith("norm"):
            copy_norm(getattr(ours, name), norm)


def copy_norm(ours, theirs) -> None:
    put(ours.weight, theirs.weight)
    put(ours.bias, theirs.bias)


def varied(module):
    """Return a module of PyTorch whose norms and biases are not 1 and 0."""
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(torch.tensor(values(*p.shape, seed=i) * 0.5))
    return module


def started() -> fluid.Executor:
    executor = fluid.Executor(fluid.CPUPlace())
    executor.run(fluid.default_startup_program())
    return executor


def feeds(*arrays):
    return [fluid.data(f"x{i}", [-1, *a.shape[1:]], a.dtype.name) for i, a in enumerate(arrays)]


def close(found, expected) -> None:
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=5e-5, atol=5e-6)


FLOATS = np.where(np.tri(4, 5) > 0, 0, -1e9).astype("float32")


@pytest.mark.parametrize("need_weights", [False, True], ids=["by one op", "by many ops"])
@pytest.mark.parametrize("mask", [None, FLOATS, FLOATS == 0], ids=["no mask", "a mask of floats", "a mask of bools"])
def test_attention(mask, need_weights):
    theirs = varied(torch.nn.MultiheadAttention(WIDTH, HEADS, batch_first=True))
    ours = nn.MultiHeadAttention(WIDTH, HEADS, need_weights=need_weights)
    q, k = feeds(TGT, SRC)
    out = ours(
        q,
        k,
        k,
        None
        if mask is None
        else fluid.layers.cast(fluid.layers.assign(FLOATS == 0 if mask.dtype == bool else mask), mask.dtype.name),
    )
    executor = started()
    copy_attention(ours, theirs)
    wanted, weights = theirs(
        *map(torch.tensor, (TGT, SRC, SRC)),
        attn_mask=None if mask is None else torch.tensor(FLOATS),
        average_attn_weights=False,
    )
    found = executor.run(feed={"x0": TGT, "x1": SRC}, fetch_list=list(out) if need_weights else [out])
    close(found[0], wanted)
    if need_weights:
        close(found[1], weights)


@pytest.mark.parametrize("before", [False, True], ids=["norms behind", "norms before"])
def test_an_encoder(before):
    layer = torch.nn.TransformerEncoderLayer(WIDTH, HEADS, 12, 0.0, "gelu", batch_first=True, norm_first=before)
    theirs = varied(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
    ours = nn.TransformerEncoder(nn.TransformerEncoderLayer(WIDTH, HEADS, 12, 0.0, "gelu", normalize_before=before), 2)
    out, executor = ours(*feeds(SRC)), started()
    for one, two in zip(ours.layers, theirs.layers, strict=True):
        copy_block(one, two)
    (found,) = executor.run(feed={"x0": SRC}, fetch_list=[out])
    close(found, theirs(torch.tensor(SRC)))


@pytest.mark.filterwarnings("ignore:enable_nested_tensor is True")
@pytest.mark.parametrize("before", [False, True], ids=["norms behind", "norms before"])
def test_a_whole_transformer(before):
    theirs = varied(torch.nn.Transformer(WIDTH, HEADS, 2, 2, 12, 0.0, batch_first=True, norm_first=before))
    if not before:
        theirs.encoder.norm = theirs.decoder.norm = None
    ours = nn.Transformer(WIDTH, HEADS, 2, 2, 12, 0.0, normalize_before=before)
    src, tgt = feeds(SRC, TGT)
    out, executor = ours(src, tgt, tgt_mask=ours.generate_square_subsequent_mask(4)), started()
    for one, two in ((ours.encoder, theirs.encoder), (ours.decoder, theirs.decoder)):
        for mine, other in zip(one.layers, two.layers, strict=True):
            copy_block(mine, other)
        if before:
            copy_norm(one.norm, two.norm)
    (found,) = executor.run(feed={"x0": SRC, "x1": TGT}, fetch_list=[out])
    mask = torch.nn.Transformer.generate_square_subsequent_mask(4)
    close(found, theirs(torch.tensor(SRC), torch.tensor(TGT), tgt_mask=mask))


def test_a_transformer_trains():
    fluid.default_startup_program().random_seed = 5
    ids, following = fluid.data("ids", [-1, 6], "int64"), fluid.data("following", [-1, 6], "int64")
    table = nn.Embedding(7, 16)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, 32, 0.1), 2)
    scores = nn.Linear(16, 7)(encoder(table(ids)))
    loss = nn.functional.cross_entropy(scores, following)
    test = fluid.default_main_program().clone(for_test=True)
    paddle.optimizer.Adam(learning_rate=0.01).minimize(loss)
    executor = started()
    batch = np.random.default_rng(0).integers(0, 7, (16, 6))
    fed = {"ids": batch, "following": (batch * 3 + 1) % 7}
    losses = [executor.run(feed=fed, fetch_list=[loss])[0].item() for _ in range(60)]
    assert np.mean(losses[-5:]) < 0.3 * losses[0]
    first, second = (executor.run(test, feed=fed, fetch_list=[loss])[0] for _ in range(2))
    assert first == second


def test_layers_of_a_stack_have_parameters_of_their_own():
    stack = nn.TransformerDecoder(nn.TransformerDecoderLayer(WIDTH, HEADS, 12), 3)
    # Two attentions of four products, two products, and three norms, with two parameters each.
    assert len(stack.parameters()) == 3 * (8 + 2 + 3) * 2


def test_attributes_of_the_parts():
    attrs = [fluid.ParamAttr(learning_rate=rate) for rate in (0.1, 0.2)]
    made = nn.Transformer(WIDTH, HEADS, 1, 1, 12, weight_attr=attrs, bias_attr=False)
    layer = made.decoder.layers[0]
    rates = [part.weight.learning_rate for part in (layer.self_attn.q_proj, layer.cross_attn.out_proj, layer.linear1)]
    assert rates == [0.1, 0.1, 0.2]
    assert layer.linear2.bias is None
    with pytest.raises(ValueError, match="there are 3 attributes for 2 parts"):
        nn.TransformerEncoderLayer(WIDTH, HEADS, 12, weight_attr=[*attrs, None])


def test_mistakes():
    with pytest.raises(ValueError, match="MultiHeadAttention: 3 heads on a width of 8"):
        nn.MultiHeadAttention(WIDTH, 3)
    with pytest.raises(NotImplementedError, match="MultiHeadAttention: cache is not there yet"):
        nn.MultiHeadAttention(WIDTH, HEADS)(*feeds(SRC), cache=1)
