"""Products by cuBLASLt on the test device: what its C interface is asked for gives our numbers, and the choice is measured."""

from __future__ import annotations

import ctypes
from functools import partial
from typing import Any

import numpy as np
import pytest

from pe_cli.config.load import load_run
from pe_cli.core.errors import PeError
from pe_cli.core.types import BFLOAT16, narrowed, widened
from pe_cli.devices import cuda_driver
from pe_cli.devices.cuda_driver_protocol import Extent
from pe_cli.devices.cuda_libraries import cublaslt, loaded_libraries, measured_choice
from pe_cli.devices.cuda_libraries.protocol import NotTaken
from pe_cli.kernels.cuda.library_calls import CUBLAS, Product
from tests.cuda.device.test_bfloat16_tensor_cores import computed
from tests.cuda.libraries.card import with_library
from tests.cuda.libraries.cublaslt import DEAF, ONCE, REFUSED, RIGHT, ROOMY, UNSTEADY, WRONG, CublasLt
from tests.cuda.ptx import models
from tests.needs import torch
from tests.ops import support
from tests.rotation import of_today, on_its_day

Array = np.ndarray[Any, Any]


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> CublasLt:
    """On its card the right algorithm takes a fifth of a launch of ours."""
    found: CublasLt = with_library(monkeypatch, CUBLAS, lambda stream: CublasLt(stream, {RIGHT: 2.0}))[1]
    return found


def whole(rng: np.random.Generator, *shape: int, dtype: str = "float32") -> Array:
    """Return small whole numbers, whose products are exact."""
    return rng.integers(-4, 5, shape).astype(dtype)


@pytest.mark.parametrize(
    ("flip_x", "flip_y", "x", "y"),
    [
        pytest.param(False, False, (5, 7), (7, 3), id="as they are stored"),
        pytest.param(True, False, (7, 5), (7, 3), id="the first transposed"),
        pytest.param(False, True, (5, 7), (3, 7), id="the second transposed"),
        pytest.param(True, True, (2, 7, 5), (2, 3, 7), id="batches, both transposed"),
        pytest.param(False, False, (2, 3, 4, 6), (2, 3, 6, 5), id="two axes of batches"),
        pytest.param(False, False, (3, 4, 6), (6, 5), id="one matrix for a batch"),
    ],
)
def test_a_product_is_what_numpy_says(library: CublasLt, rng, flip_x: bool, flip_y: bool, x: tuple[int, ...], y: tuple[int, ...]):
    a, b = whole(rng, *x), whole(rng, *y)
    found = support.run_op("matmul", {"X": a, "Y": b}, {"transpose_X": flip_x, "transpose_Y": flip_y, "alpha": 0.5})
    first, second = (np.swapaxes(v, -1, -2) if flip else v for v, flip in ((a, flip_x), (b, flip_y)))
    np.testing.assert_array_equal(found, 0.5 * (first @ second))
    assert library.called


def test_bias_and_relu_come_behind_a_product(library: CublasLt, rng):
    library.costs = {DEAF: 1.0, RIGHT: 2.0}
    x, y, bias = whole(rng, 6, 7), whole(rng, 7, 5), whole(rng, 5)
    found = support.run_op("fused_gemm_epilogue", {"X": x, "Y": y, "Bias": bias}, {"activation": "relu"})
    np.testing.assert_array_equal(found, np.maximum(x @ y + bias, 0))
    before = library.called.copy()
    support.run_op("fused_gemm_epilogue", {"X": x, "Y": y, "Bias": bias}, {"activation": "relu"})
    assert library.called == {**before, RIGHT: before[RIGHT] + 1}, "an algorithm that loses a NaN is not taken"


@pytest.mark.parametrize("stored", [pytest.param(BFLOAT16, id="rounded once"), pytest.param("float32", id="not rounded")])
def test_bfloat16_is_multiplied_as_it_lies(library: CublasLt, rng, stored: str):
    x, y = whole(rng, 9, 40), whole(rng, 5, 40)
    attrs = {"transpose_X": False, "transpose_Y": True, "alpha": 1.0}
    found = computed("matmul", {"X": x, "Y": y}, {"Out": (9, 5)}, attrs, stored, libraries=frozenset({CUBLAS}))["Out"]
    expected = torch.from_numpy(x @ y.T)
    np.testing.assert_array_equal(found, (expected.bfloat16() if stored == BFLOAT16 else expected).float().numpy())
    assert library.called


@pytest.mark.parametrize("stored", [BFLOAT16, "float32"])
def test_a_bias_of_float32_comes_before_the_sum_is_rounded(library: CublasLt, rng, stored: str):
    x, y, bias = whole(rng, 6, 7), whole(rng, 7, 5), rng.standard_normal(5).astype("float32") * 40
    given, with_it = {"X": x, "Y": y, "Bias": bias}, {"libraries": frozenset({CUBLAS})}
    found = computed("fused_gemm_epilogue", given, {"Out": (6, 5)}, {"activation": "relu"}, stored, wide=("Bias",), **with_it)["Out"]
    expected = torch.from_numpy(x @ y + bias).relu()
    np.testing.assert_array_equal(found, (expected.bfloat16() if stored == BFLOAT16 else expected).float().numpy())
    assert library.called


@on_its_day(3, of=4)
def test_float64_has_its_own_type(library: CublasLt, rng):
    library.compute = 70, 1
    x, y = whole(rng, 4, 5, dtype="float64"), whole(rng, 5, 3, dtype="float64")
    np.testing.assert_array_equal(support.run_op("matmul", {"X": x, "Y": y}), x @ y)
    assert library.called


@pytest.mark.parametrize(
    ("costs", "chosen"),
    [
        pytest.param({RIGHT: 4.0, ROOMY: 2.0}, ROOMY, id="the faster of two"),
        pytest.param({ROOMY: 4.0, RIGHT: 9.9}, ROOMY, id="the one that is asked first"),
        pytest.param({WRONG: 1.0, UNSTEADY: 1.0, REFUSED: 1.0, RIGHT: 2.0}, RIGHT, id="one that is right, and the same in every run"),
        pytest.param({RIGHT: 9.9}, None, id="ours, where it is no slower"),
        pytest.param({ONCE: 1.0, RIGHT: 2.0}, RIGHT, id="one that a graph is made of"),
        pytest.param({WRONG: 1.0}, None, id="ours, where no other is right"),
    ],
)
def test_the_fastest_that_is_right_is_taken_and_kept(monkeypatch, rng, costs: dict[int, float], chosen: int | None):
    below, library = with_library(monkeypatch, CUBLAS, lambda stream: CublasLt(stream, costs))
    x, y = whole(rng, 5, 7), whole(rng, 7, 3)
    for _ in range(2):
        before, launches = dict(library.called), below.calls.get("cuLaunchKernel", 0)
        np.testing.assert_array_equal(support.run_op("matmul", {"X": x, "Y": y}), x @ y)
    new = {n: count - before.get(n, 0) for n, count in library.called.items() if count > before.get(n, 0)}
    assert (set(new), library.searched) == ({chosen} - {None}, 1)
    assert (below.calls["cuLaunchKernel"] > launches) == (chosen is None)


def test_sums_may_be_in_place_where_bits_may_change_from_run_to_run(monkeypatch, rng):
    _, library = with_library(monkeypatch, CUBLAS, lambda stream: CublasLt(stream, {UNSTEADY: 1.0, RIGHT: 2.0}), deterministic=False)
    library.in_place = 1
    x, y = whole(rng, 5, 7), whole(rng, 7, 3)
    for _ in range(2):
        before = dict(library.called)
        np.testing.assert_allclose(support.run_op("matmul", {"X": x, "Y": y}), x @ y, atol=1e-2)
    assert {n for n in library.called if library.called[n] > before.get(n, 0)} == {UNSTEADY}
    library.in_place, searched = 0, library.searched
    monkeypatch.setattr(support, "Executor", partial(support.Executor, deterministic=True))
    np.testing.assert_array_equal(support.run_op("matmul", {"X": x, "Y": y}), x @ y)
    assert library.searched == searched + 1, "what is kept of one is not read by the other"


def test_too_little_memory_to_measure_leaves_it_to_our_kernels(library: CublasLt, monkeypatch, rng):
    def scarce(*_: Any) -> None:
        raise PeError("cannot allocate 5 MiB on the CUDA device")

    monkeypatch.setattr(measured_choice._Measured, "_place", scarce)
    x, y = whole(rng, 5, 7), whole(rng, 7, 3)
    np.testing.assert_array_equal(support.run_op("matmul", {"X": x, "Y": y}), x @ y)
    assert not library.called


@on_its_day(2, of=3)
@pytest.mark.parametrize(("precision", "within"), of_today([("float32", 1e-5), ("bf16", 1e-3)], 2))
def test_a_config_trains_as_with_our_kernels(library: CublasLt, precision: str, within: float):
    losses = []
    for libraries in ("auto", "none"):
        more = (f"executor.libraries={libraries}", f"executor.precision={precision}")
        losses.append(models.train(models.ROOT / "configs/digits.yaml", "cuda", more, steps=3))
    assert library.called
    np.testing.assert_allclose(losses[0], losses[1], rtol=within)


def test_numbers_are_narrowed_as_by_pytorch(rng):
    ties = np.array([1 + 2**-8, 1 + 3 * 2**-8, 3.4e38, -0.0, 1e-40, np.inf, -np.inf])
    values = np.concatenate([rng.standard_normal(1000), ties]).astype("float32")
    np.testing.assert_array_equal(narrowed(values), torch.from_numpy(values).bfloat16().view(torch.int16).numpy().view(np.uint16))
    assert np.isnan(widened(narrowed(np.array([np.nan], "float32"))))


def test_structures_are_those_of_the_header():
    """96 bytes of a heuristic's result: 64 of the algorithm, then its workspace, state, waves and four words."""
    assert (ctypes.sizeof(cublaslt.Heuristic), cublaslt.Heuristic.workspace.offset, cublaslt.Heuristic.state.offset) == (96, 64, 72)


def test_a_product_is_added_to_what_is_there_and_workspace_is_used(library: CublasLt, rng):
    card = cuda_driver.only_driver()
    library.costs = {ROOMY: 1.0}
    held = {name: Extent(card.allocate(4 * n), 4 * n) for name, n in (("a", 35), ("b", 21), ("c", 15), ("room", 64))}
    a, b, c = whole(rng, 5, 7), whole(rng, 7, 3), whole(rng, 5, 3)
    for name, value in (("a", a), ("b", b), ("c", c)):
        card.write(held[name].address, value)
    what = Product(5, 3, 7, False, False, 7, 3, 1, 0, 0, 0, "float32", "float32", "float32", adds=True)
    found = loaded_libraries.of(card, {CUBLAS})
    assert found
    places = [held[n] for n in ("a", "b", "c", "c", "room")]
    (algorithm,) = found.each[CUBLAS].algorithms(what, places)
    ready = found.each[CUBLAS].ready(what, algorithm, places)
    ready.run()
    out = np.empty_like(c)
    card.read(held["c"].address, out)
    np.testing.assert_array_equal(out, a @ b + c)
    assert ready.workspace == 64
    with pytest.raises(NotTaken, match="64 bytes of workspace"):
        found.each[CUBLAS].ready(what, algorithm, [*places[:-1], Extent(places[-1].address, 32)])
    del ready
    assert not library.open, "descriptors are given back"


def test_what_is_installed_is_told(monkeypatch):
    monkeypatch.setattr(loaded_libraries, "installed", dict)
    assert loaded_libraries.told("auto") == "none is installed: pip install 'pe-cli[cuda-libraries]'"
    assert loaded_libraries.names("auto") == frozenset()
    monkeypatch.setattr(loaded_libraries, "installed", lambda: {CUBLAS: loaded_libraries.Installed("13.1.0", None)})
    assert (loaded_libraries.told("auto"), loaded_libraries.names("auto")) == ("cublasLt 13.1.0", {CUBLAS})
    assert (loaded_libraries.told("none"), loaded_libraries.names("none")) == ("none, as executor.libraries says", frozenset())


def test_a_config_says_auto_or_none():
    with pytest.raises(PeError, match=r"executor\.libraries must be auto or none, got 'all'"):
        load_run(models.ROOT / "configs/digits.yaml", ("executor.libraries=all",))
