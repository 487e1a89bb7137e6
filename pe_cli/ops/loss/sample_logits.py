"""sample_logits: the logits of the labels and of some classes that are drawn without repetition."""

from __future__ import annotations

import math

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.language import Int, Ptr, PtrI64, Status, T, helper, kernel
from pe_cli.kernels.math.random import uniform
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import classes, report
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.lowering import STATUS, STEP, Lowering
from pe_cli.ops.define.onnx import SAMPLES, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Random, ReportsData


@helper
def _unlikely(k, count):
    """Return the probability that a draw is class k, where small classes are drawn more often."""
    return math.log((k + 2.0) / (k + 1.0)) / math.log(count + 1.0)


@helper
def _tried(p, wanted, tries):
    """Return how often a class of probability p is expected among so many different ones."""
    # This is 1 - (1 - p)^tries: for a rare class (1 - p) rounds to 1, and its logarithm is wanted later on.
    return p * wanted if tries == wanted else -math.expm1(tries * math.log1p(-p))


@kernel
def draw_different(out: PtrI64, wanted: Int, count: Int, seed: Int, step: PtrI64, fixed_: Int):
    """out = so many different classes, and behind them the number of draws."""
    at = 0 if fixed_ else step[0]
    for _ in range(1):
        found = 0
        tries = 0
        # Each draw is refused by those before it, so that a single thread makes all of them.
        while found < wanted:
            k = int(math.exp(uniform(seed, at, tries) * math.log(count + 1.0))) - 1
            # Rounding may lead exp out of [1, count + 1), by one class at most.
            k = min(max(k, 0), count - 1)
            tries += 1
            new = 1
            for i in range(found):
                if out[i] == k:
                    new = 0
            if new:
                out[found] = k
                found += 1
        out[wanted] = tries


@kernel
def take_logits(
    x: Ptr, label: PtrI64, drawn: PtrI64, given: PtrI64, shares: Ptr, out: Ptr, samples: PtrI64, rows: Int, classes_: Int, truths: Int,
    wanted: Int, own: Int, removes: Int, status: Status,
):  # fmt: skip
    """out[r] = x[r] at its labels and the drawn classes, less the logarithm of how often these are expected."""
    width = truths + wanted
    for r in range(rows):
        for j in range(width):
            i = r * width + j
            k = given[i] if own else (label[r * truths + j] if j < truths else drawn[j - truths])
            if k < 0 or k >= classes_:
                report(status, r, k, classes_)
                k = 0
            samples[i] = k
            value = x[r * classes_ + k]
            if removes and j >= truths:
                for t in range(truths):
                    if label[r * truths + t] == k:
                        # So much less that softmax gives it nothing.
                        value -= T(1e20)
                        break
            often = shares[i] * 1.0 if own else _tried(_unlikely(k, classes_), wanted, drawn[wanted])
            out[i] = value - T(math.log(often))


@kernel
def take_logits_back(g: Ptr, samples: PtrI64, dx: Ptr, rows: Int, classes_: Int, width: Int):
    """dx = 0, and the gradients at the places that were taken."""
    for r in range(rows):
        for c in range(classes_):
            dx[r * classes_ + c] = T(0)
        for j in range(width):
            # Added, as a class may stand twice in a row: as a label and as a drawn one.
            dx[r * classes_ + samples[r * width + j]] += g[r * width + j]


_OWN = {
    "Logits": (3, 6), "Labels": fixed([[1], [0], [5]]), "CustomizedSamples": fixed([[1, 2, 3], [0, 4, 2], [5, 1, 1]]),
    "CustomizedProbabilities": lambda rng: rng.uniform(0.1, 0.5, (3, 3)),
}  # fmt: skip


@op(
    "sample_logits",
    traits=[ReportsData(), Random()],
    inputs="Logits Labels CustomizedSamples? CustomizedProbabilities?",
    outputs="SampledLogits Samples",
    attrs={
        "num_samples": Attr(1, "different classes that are drawn, the same for all rows"),
        "remove_accidental_hits": Attr(True, "a drawn class that is a label counts nothing"),
        "seed": Attr(0, "own seed, the same classes at every step; 0 takes the program's, with new ones at every step"),
    },
    differentiable="Logits",
    samples=[
        Sample({"Logits": (3, 6), "Labels": classes(0, 6, 3, 2)}, {"num_samples": 4, "remove_accidental_hits": False}, "drawn"),
        Sample(_OWN, {"num_samples": 2}, "given"),
    ],
)
def sample_logits(
    x: TensorType, label: TensorType, given: TensorType | None, shares: TensorType | None, *, num_samples: int,
    remove_accidental_hits: bool, seed: int,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Take the logits of the labels and of some classes that are drawn, less the logarithm of how often each is expected.

    Class k is drawn with ln((k + 2) / (k + 1)) / ln(classes + 1) until there are num_samples different ones. With t draws a class of
    probability p is expected 1 - (1 - p)^t times, p num_samples times where no draw was in vain.

    Args:
        Logits: [batch, classes] float32 or float64.
        Labels: [batch, labels] int64.
        CustomizedSamples: [batch, labels + num_samples] int64; the labels and the classes instead of drawn ones.
        CustomizedProbabilities: of the same sizes, element type of Logits; how often each is expected.
        num_samples, remove_accidental_hits, seed: see the attributes.

    Returns:
        SampledLogits: [batch, labels + num_samples] element type of Logits.
        Samples: of the same sizes; int64 classes.

    Raises:
        PeError: types that do not fit, or more samples than classes; while running, a class out of range.

    Source:
        fluid.layers.sampled_softmax_with_cross_entropy; Jean et al. 2015.
    """
    del remove_accidental_hits, seed
    if len(x.shape) != 2 or x.dtype not in FLOATS or label.dtype != "int64" or len(label.shape) != 2:
        raise PeError(f"sample_logits needs Logits [batch, classes] and int64 Labels [batch, labels], got {x} and {label}")
    if not 1 <= num_samples <= x.shape[1]:
        raise PeError(f"sample_logits: {num_samples} of {x.shape[1]} classes cannot be drawn", hint="fewer")
    width = label.shape[1] + num_samples
    for slot, kind, dtype in (("CustomizedSamples", given, "int64"), ("CustomizedProbabilities", shares, x.dtype)):
        if (kind is None) != (given is None):
            raise PeError("sample_logits needs both CustomizedSamples and CustomizedProbabilities, or neither")
        if kind is not None and (len(kind.shape) != 2 or kind.shape[1] != width or kind.dtype != dtype):
            raise PeError(f"sample_logits: {slot} is {kind}, but should be {dtype} [batch, {width}]")
    return x.with_shape(x.shape[0], width), TensorType((x.shape[0], width), "int64")


@sample_logits.lower("cpu")
def sample_logits_cpu(o: Lowering) -> None:
    """Draw, then row by row."""
    x, label, out, wanted = o.input("Logits"), o.input("Labels"), o.output("SampledLogits"), o.attrs["num_samples"]
    samples = o.output_or_scratch("Samples", out.size, "int64")
    own, seed = o.has("CustomizedSamples"), int(o.attrs["seed"])
    drawn = o.scratch(wanted + 1, "int64")
    if not own:
        # Draws have the digits of float64 whatever type the logits are, and so the same classes.
        o.call(draw_different, drawn, wanted, x.shape[1], seed or o.seed, STEP, int(seed != 0), dtype="float64")
    given, shares = (o.input("CustomizedSamples"), o.input("CustomizedProbabilities")) if own else (label, x)
    o.call(
        take_logits, x, label, drawn, given, shares, out, samples, *x.shape, label.shape[1], wanted, int(own),
        int(o.attrs["remove_accidental_hits"]), STATUS,
    )  # fmt: skip


@sample_logits.grad(uses="Samples").lower("cpu")
def sample_logits_grad_cpu(o: Lowering) -> None:
    """Row by row."""
    samples, dx = o.input("Samples"), o.output("Logits@GRAD")
    o.call(take_logits_back, o.input("SampledLogits@GRAD"), samples, dx, *dx.shape, samples.shape[1])


deal(draw_different, take_logits, take_logits_back)
also_on_cuda(sample_logits)
not_in_onnx(SAMPLES, "sample_logits")
