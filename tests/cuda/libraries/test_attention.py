"""Attention by cuDNN on the test device: what its backend is asked for gives PyTorch's numbers, forward and backward."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from pe_cli.core.types import BFLOAT16
from pe_cli.devices.cuda_libraries import measured_choice
from pe_cli.kernels.cuda.library_calls import CUDNN
from tests.cuda.device.test_bfloat16_tensor_cores import computed, rounded
from tests.cuda.libraries.card import with_library
from tests.cuda.libraries.cudnn import Cudnn, Engine
from tests.cuda.ptx import models
from tests.needs import torch
from tests.rotation import of_today, on_its_day

Array = np.ndarray[Any, Any]
#: An engine that compiles its kernel.
COMPILES = 0
#: In float32, whatever is computed in bfloat16.
WIDE = ("Mask", "Level")
CASES = [
    pytest.param({"Q": (2, 7, 48)}, {"causal": True}, id="side by side, causal"),
    pytest.param({"Q": (2, 5, 32), "K": (2, 9, 32), "V": (2, 9, 16), "Mask": (2, 1, 1, 9)}, {"scale": 0.4}, id="apart, a mask for keys"),
    pytest.param({"Q": (1, 6, 48), "Mask": (1, 2, 6, 6)}, {"causal": True}, id="causal, a mask for each head"),
    pytest.param({"Q": (2, 4, 16), "K": (2, 6, 16), "V": (2, 6, 16)}, {}, id="all keys"),
]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Cudnn:
    """On its card one engine takes a part of a launch of ours, and compiles."""
    engines = Engine(0.3, behaviours=(COMPILES,)), Engine(0.1, off=1.0), Engine(0.2, off=1.0, of_level=True)
    found: Cudnn = with_library(monkeypatch, CUDNN, lambda stream: Cudnn(stream, *engines), "bf16")[1]
    return found


def drawn(rng: np.random.Generator, shapes: dict[str, tuple[int, ...]]) -> dict[str, Array]:
    return {slot: rounded(rng.standard_normal(shape).astype("float32")) for slot, shape in shapes.items()}


def expected(given: dict[str, Array], attrs: dict[str, Any], dout: Array | None = None) -> tuple[Array, list[Array]]:
    """Return PyTorch's attention of two heads, in float64, and its gradients."""
    apart = [torch.tensor(given[slot], dtype=torch.float64, requires_grad=True) for slot in ("Q", "K", "V") if slot in given]
    parts = apart if len(apart) > 1 else apart[0].chunk(3, -1)
    q, k, v = (part.unflatten(-1, (2, -1)).transpose(1, 2) for part in parts)
    mask = torch.tensor(given["Mask"]).double() if "Mask" in given else torch.zeros(1, dtype=torch.float64)
    if attrs.get("causal"):
        mask = mask + torch.full((q.shape[2], k.shape[2]), -torch.inf, dtype=torch.float64).triu(1)
    mask = mask.expand(q.shape[0], 2, q.shape[2], k.shape[2])
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=attrs.get("scale"))
    flat = out.transpose(1, 2).flatten(2)
    if dout is not None:
        flat.backward(torch.tensor(dout).double())
    return flat.detach().numpy(), [t.grad.numpy() for t in apart if t.grad is not None]


@pytest.mark.parametrize(("shapes", "attrs"), of_today(CASES, 2))
def test_values_are_those_of_pytorch(library: Cudnn, rng, shapes: dict[str, tuple[int, ...]], attrs: dict[str, Any]):
    given = drawn(rng, shapes)
    wanted, _ = expected(given, attrs)
    outs = {"Out": wanted.shape, "Level": (wanted.shape[0], 2, wanted.shape[1])}
    attrs = {"num_heads": 2, "causal": False, "scale": 0.0} | attrs
    found, ours = (computed("attention", given, outs, attrs, BFLOAT16, wide=WIDE, libraries=on) for on in (frozenset({CUDNN}), frozenset()))
    np.testing.assert_allclose(found["Out"], wanted, rtol=2**-8, atol=1e-6)
    np.testing.assert_allclose(found["Level"], ours["Level"], rtol=1e-5, atol=1e-6)
    assert (library.called.keys(), library.searched) == ({0, 1, 2}, 2), "engines are asked for, and those that are wrong not taken"


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize(("shapes", "attrs"), of_today(CASES, 8))
def test_gradients_are_asked_for_where_bits_may_change(
    library: Cudnn, rng, shapes: dict[str, tuple[int, ...]], attrs: dict[str, Any], deterministic: bool
):
    given = drawn(rng, shapes)
    out, _ = expected(given, attrs)
    dout = rounded(rng.standard_normal(out.shape).astype("float32"))
    _, wanted = expected(given, attrs, dout)
    attrs = {"num_heads": 2, "causal": False, "scale": 0.0} | attrs
    level = computed("attention", given, {"Out": out.shape, "Level": (out.shape[0], 2, out.shape[1])}, attrs, BFLOAT16, wide=WIDE)["Level"]
    given |= {"Out": rounded(out), "Level": level, "Out@GRAD": dout}
    outs = {f"{slot}@GRAD": shape for slot, shape in shapes.items() if slot != "Mask"}
    wishes = {"libraries": frozenset({CUDNN}), "deterministic": deterministic}
    found = computed("attention_grad", given, outs, attrs, BFLOAT16, wide=WIDE, **wishes)
    for each, right in zip(found.values(), wanted, strict=True):
        np.testing.assert_allclose(each, right, atol=2**-6 * np.abs(right).max())
    assert bool(library.called) == (not deterministic)


@pytest.mark.parametrize(
    ("width", "stored"), [pytest.param(12, BFLOAT16, id="heads of four channels"), pytest.param(48, "float32", id="float32")]
)
def test_what_cudnn_has_no_kernels_for_stays_with_ours(library: Cudnn, rng, width: int, stored: str):
    given = drawn(rng, {"Q": (1, 3, width)})
    slots = WIDE if stored == BFLOAT16 else (*WIDE, "Q", "Out")
    attrs = {"num_heads": 1, "causal": False, "scale": 0.0}
    outs = {"Out": (1, 3, width // 3), "Level": (1, 1, 3)}
    computed("attention", given, outs, attrs, stored, wide=slots, libraries=frozenset({CUDNN}))
    assert not library.searched


@on_its_day(2, of=4)
@pytest.mark.parametrize("deterministic", [True, False])
def test_a_gpt_trains_as_with_our_kernels(library: Cudnn, deterministic: bool):
    args = "{length: 16, width: 32, wide: 32, layers: 1, dropout: 0.0}"
    smaller = f"model={{file: ../models/gpt.yaml, args: {args}}}", "data.source.blocks=16"
    losses = []
    for wishes in (("executor.libraries=auto", f"executor.deterministic={str(deterministic).lower()}"), ("executor.libraries=none",)):
        more = (*smaller, "executor.precision=bf16", *wishes)
        losses.append(models.train(models.ROOT / "configs/gpt.yaml", "cuda", more, steps=3))
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-3)
    chosen = [json.loads(body) for body in measured_choice.cache.bodies.values()]
    whose = sorted(each["what"].split("_")[1] for each in chosen if each["algorithm"])
    assert (whose, len(chosen)) == ((["values"], 1) if deterministic else (["back", "values"], 2))
