"""Losses of a few drawn classes: sample_classes, nce_cost and sample_logits."""

from __future__ import annotations

import math

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType, check_dtype
from pe_cli.kernels.cuda import deal
from pe_cli.kernels.lang import Int, Ptr, PtrF64, PtrI64, Status, T, helper, kernel
from pe_cli.kernels.random import uniform
from pe_cli.kernels.vecmath import exp, log1p
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.labels import classes, report
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.lowering import STATUS, STEP, Lowering, Numbers
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import Random, ReportsData

SAMPLERS = ("uniform", "log_uniform", "custom_dist")


@helper
def _expected(k, classes_, kind, sums, negatives):
    """Return how often class k is drawn among the negatives."""
    if kind == 0:
        return negatives / (classes_ * 1.0)
    if kind == 1:
        return negatives * math.log((k + 2.0) / (k + 1.0)) / math.log(classes_ * 1.0)
    return (sums[k] - (sums[k - 1] if k > 0 else 0.0)) * negatives


@kernel
def add_up(shares: Ptr, sums: PtrF64, count: Int):
    """sums[k] = the shares of all classes up to k."""
    for _ in range(1):
        total = 0.0
        for k in range(count):
            total += shares[k]
            sums[k] = total


@helper
def _drawn(u, sums, count, kind):
    """Return the class that a number of [0, 1) stands for."""
    if kind == 0:
        return min(int(u * count), count - 1)
    if kind == 1:
        return max(0, min(int(math.exp(u * math.log(count * 1.0))) - 1, count - 2))
    low, high = 0, count - 1  # the first class whose sum is above u times the sum of all
    while low < high:
        middle = (low + high) // 2
        if sums[middle] > u * sums[count - 1]:
            high = middle
        else:
            low = middle + 1
    return low


@kernel
def draw_classes(
    label: PtrI64, sums: PtrF64, given: PtrI64, out: PtrI64, expected: Ptr, rows: Int, truths: Int, negatives: Int, count: Int,
    kind: Int, own: Int, first: Int, seed: Int, step: PtrI64, fixed_: Int, status: Status,
):  # fmt: skip
    """out[r] = the labels of r and classes that are drawn, with how often each of them is expected."""
    at = 0 if fixed_ else step[0]
    width = truths + negatives
    for r in range(rows):
        for j in range(width):
            k = 0
            if j < truths:
                k = label[r * truths + j]
            elif own:
                k = given[j - truths]
            else:
                k = _drawn(uniform(seed, at, (first + r) * negatives + j - truths) * 1.0, sums, count, kind)
            if k < 0 or k >= count:
                report(status, r, k, count)
                k = 0
            out[r * width + j] = k
            expected[r * width + j] = T(_expected(k, count, kind, sums, negatives))


@op(
    "sample_classes",
    traits=[ReportsData(), Random()],
    inputs="Label CustomDistProbs?",
    outputs="Samples Expected",
    attrs={
        "num_total_classes": Attr(2, "classes that there are"),
        "num_neg_samples": Attr(10, "classes that are drawn for each row"),
        "sampler": Attr("uniform", "how they are drawn", SAMPLERS),
        "custom_neg_classes": Attr([], "the classes instead of drawn ones, the same for every row"),
        "seed": Attr(0, "own seed, the same classes at every step; 0 takes the program's, with new ones at every step"),
        "dtype": Attr("float32", "element type of Expected", FLOATS),
    },
    differentiable="",
    samples=[
        Sample({"Label": classes(0, 6, 4, 1)}, {"num_total_classes": 6, "num_neg_samples": 3}, "all alike"),
        Sample({"Label": classes(0, 6, 4, 2)}, {"num_total_classes": 6, "sampler": "log_uniform", "seed": 3}, "small ones more often"),
        Sample(
            {"Label": classes(0, 3, 4, 1), "CustomDistProbs": lambda rng: np.array([0.5, 0.0, 0.5])},
            {"num_total_classes": 3, "sampler": "custom_dist", "dtype": "float64"}, "as given",
        ),
    ],
)  # fmt: skip
def sample_classes(
    label: TensorType, shares: TensorType | None, *, num_total_classes: int, num_neg_samples: int, sampler: str,
    custom_neg_classes: list[int], seed: int, dtype: str,
) -> tuple[TensorType, TensorType]:  # fmt: skip
    """Put classes that are drawn behind the labels of every row, and say how often each of them is expected.

    uniform: every class alike. log_uniform: class k with ln((k + 2) / (k + 1)) / ln(classes), never the last one.
    custom_dist: class k with CustomDistProbs[k]. A class may be drawn more than once, and may be a label.

    Args:
        Label: [batch, labels] int64.
        CustomDistProbs: [classes] float32 or float64; with custom_dist.
        num_total_classes, num_neg_samples, sampler, custom_neg_classes, seed, dtype: see the attributes.

    Returns:
        Samples: [batch, labels + num_neg_samples] int64.
        Expected: of the same sizes; num_neg_samples times the probability of each.

    Raises:
        PeError: types or numbers that do not fit; while running, a label out of range.

    Source:
        fluid.layers.nce; Gutmann and Hyvarinen 2010.
    """
    del seed
    if label.dtype != "int64" or len(label.shape) != 2:
        raise PeError(f"sample_classes needs int64 labels [batch, labels], got {label}", hint="cast or reshape them")
    if num_total_classes < 2 or num_neg_samples < 1:
        raise PeError(f"sample_classes needs 2 classes and 1 sample, got {num_total_classes} and {num_neg_samples}")
    wrong = shares is not None and (shares.size != num_total_classes or shares.dtype not in FLOATS)
    if (sampler == "custom_dist") != (shares is not None) or wrong:
        what = f"sample_classes: the sampler is {sampler}, and CustomDistProbs {shares}"
        raise PeError(what, hint="custom_dist needs one for each class")
    fits = len(custom_neg_classes) == num_neg_samples and all(0 <= k < num_total_classes for k in custom_neg_classes)
    if custom_neg_classes and not fits:
        raise PeError(f"sample_classes: custom_neg_classes are {custom_neg_classes}", hint=f"{num_neg_samples} of the classes")
    shape = (label.shape[0], label.shape[1] + num_neg_samples)
    return TensorType(shape, "int64"), TensorType(shape, check_dtype(dtype))


@sample_classes.lower("cpu")
def sample_classes_cpu(o: Lowering) -> None:
    """Row by row."""
    label, expected, a = o.input("Label"), o.output("Expected"), o.attrs
    given = tuple(a["custom_neg_classes"])
    own, classes_ = int(a["seed"]), a["num_total_classes"]
    sums = o.scratch(classes_ if o.has("CustomDistProbs") else 1, "float64")
    if label.size:
        if o.has("CustomDistProbs"):
            o.call(add_up, o.input("CustomDistProbs"), sums, classes_)
        o.call(
            draw_classes, label, sums, Numbers(given or (0,)), o.output("Samples"), expected, *label.shape, a["num_neg_samples"],
            classes_, SAMPLERS.index(a["sampler"]), int(bool(given)), o.sample_offset, own or o.seed, STEP, int(own != 0),
            STATUS, dtype=expected.dtype,
        )  # fmt: skip


# --- nce_cost ---------------------------------------------------------------------------------------------------------


@helper
def _true_cost(z, b):
    """Return ln(1 + b / sigmoid(z))."""
    return log1p(b + b * exp(-z)) if z >= T(0) else log1p(b + (T(1) + b) * exp(z) - T(1)) - z if b > T(0) else T(0)


@kernel
def nce_costs(z: Ptr, expected: Ptr, out: Ptr, rows: Int, width: Int, truths: Int):
    """out[r] = the cost of all classes of row r."""
    for r in range(rows):
        total = T(0)
        for j in range(width):
            b = expected[r * width + j]
            x = z[r * width + j]
            total += _true_cost(x, b) if j < truths else log1p(T(1) / ((T(1) + exp(-x)) * b))
        out[r] = total


@kernel
def nce_costs_back(z: Ptr, expected: Ptr, g: Ptr, dz: Ptr, rows: Int, width: Int, truths: Int):
    """dz = g times the slope of every class's cost."""
    for i in range(rows * width):
        b = expected[i]
        p = T(1) / (T(1) + exp(-z[i]))
        q = T(1) / (T(1) + exp(z[i]))
        told = -b * q / (p + b) if b > T(0) else T(0)
        share = told if i % width < truths else p * q / (p + b)
        dz[i] = g[i // width] * share


def _often(rng):
    return rng.uniform(0.1, 2.0, (4, 5))


@op(
    "nce_cost",
    inputs="Logits Expected",
    outputs="Cost",
    attrs={"num_true_classes": Attr(1, "how many of a row are labels; they come first")},
    differentiable="Logits",
    samples=[
        Sample({"Logits": (4, 5), "Expected": _often}, {"num_true_classes": 2}, "two labels and three others"),
        Sample({"Logits": (0, 5), "Expected": (0, 5)}, name="an empty batch"),
    ],
)
def nce_cost(z: TensorType, expected: TensorType, *, num_true_classes: int) -> TensorType:
    """Measure how badly labels are told from classes that were drawn.

    Cost = sum over labels of -ln(o / (o + b)) + sum over the others of -ln(b / (o + b)),  o = sigmoid(Logits), b = Expected

    Args:
        Logits: [batch, labels + drawn] float32 or float64.
        Expected: type of Logits; how often a class is drawn.
        num_true_classes: labels.

    Returns:
        Cost: [batch, 1], in nats.

    Raises:
        PeError: types that do not fit.

    Source:
        fluid.layers.nce; Gutmann and Hyvarinen 2010, with sigmoid in the place of exp, as the original has it.
    """
    if len(z.shape) != 2 or z != expected or not 0 < num_true_classes <= z.shape[1]:
        raise PeError(f"nce_cost needs Logits and Expected [batch, classes], of which {num_true_classes} labels, got {z} and {expected}")
    return z.with_shape(z.shape[0], 1)


@nce_cost.lower("cpu")
def nce_cost_cpu(o: Lowering) -> None:
    """Row by row."""
    z = o.input("Logits")
    o.call(nce_costs, z, o.input("Expected"), o.output("Cost"), *z.shape, o.attrs["num_true_classes"])


@nce_cost.grad(uses="Logits Expected").lower("cpu")
def nce_cost_grad_cpu(o: Lowering) -> None:
    """One loop."""
    z = o.input("Logits")
    o.call(nce_costs_back, z, o.input("Expected"), o.input("Cost@GRAD"), o.output("Logits@GRAD"), *z.shape, o.attrs["num_true_classes"])


# --- sample_logits ----------------------------------------------------------------------------------------------------


@helper
def _unlikely(k, count):
    """Return the probability that a draw is class k, where small classes are drawn more often."""
    return math.log((k + 2.0) / (k + 1.0)) / math.log(count + 1.0)


@helper
def _tried(p, wanted, tries):
    """Return how often a class of probability p is expected among so many different ones."""
    return p * wanted if tries == wanted else -math.expm1(tries * math.log1p(-p))


@kernel
def draw_different(out: PtrI64, wanted: Int, count: Int, seed: Int, step: PtrI64, fixed_: Int):
    """out = so many different classes, and behind them the number of draws."""
    at = 0 if fixed_ else step[0]
    for _ in range(1):
        found = 0
        tries = 0
        while found < wanted:
            k = int(math.exp(uniform(seed, at, tries) * math.log(count + 1.0))) - 1
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
    samples = o.output("Samples") if o.has("Samples") else o.scratch(out.size, "int64")
    own, seed = o.has("CustomizedSamples"), int(o.attrs["seed"])
    drawn = o.scratch(wanted + 1, "int64")
    if not own:
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


deal(add_up, draw_classes, nce_costs, nce_costs_back, draw_different, take_logits, take_logits_back)
also_on_cuda(sample_classes, nce_cost, sample_logits)
