"""Noise-contrastive estimation, which distinguishes labels from a few drawn classes: sample_classes and nce_cost."""

from __future__ import annotations

import math

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType, check_dtype
from pe_cli.kernels.cuda.language import deal
from pe_cli.kernels.cuda.math import quotient
from pe_cli.kernels.language import Int, Ptr, PtrF64, PtrI64, Status, T, helper, kernel
from pe_cli.kernels.math.random import uniform
from pe_cli.kernels.math.vector_math import exp, log, log1p
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import classes, report
from pe_cli.ops.define.lowering import STATUS, STEP, Lowering, Numbers
from pe_cli.ops.define.onnx import SAMPLES, not_in_onnx
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
    # One round, and so one thread on CUDA, which adds in order.
    for _ in range(1):
        total = 0.0
        for k in range(count):
            total += shares[k]
            sums[k] = total


@helper
def _drawn(u, sums, count, kind):
    """Return the class that a number of [0, 1) stands for."""
    if kind == 0:
        # u is below 1, but its product with count may be rounded up to count.
        return min(int(u * count), count - 1)
    # Log-uniform (Zipf) by inverting its distribution: exp of a uniform number times ln of the classes.
    if kind == 1:
        # The original gives its log-uniform sampler classes - 1 as the range, hence no draw of the last class.
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
                # Counted from the first row of the whole batch: draws do not depend on how many devices share it.
                k = _drawn(uniform(seed, at, (first + r) * negatives + j - truths) * 1.0, sums, count, kind)
            if k < 0 or k >= count:
                # The code is reported and class 0 is written, so that no later kernel reads outside its table.
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
    """Return ln(1 + b / sigmoid(z)) = ln(1 + b + b exp(-z))."""
    share = b * exp(-z)
    # A small cost has all its digits in the first form. The second is for what overflows there; it subtracts, but from a large cost.
    large = log(b + (T(1) + b) * exp(z)) - z
    return (log1p(b + share) if share <= T(1e30) else large) if b > T(0) else T(0)


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
        # 1 - p, written so that it keeps its digits where p is almost 1; exp that overflows gives the limit 0.
        q = T(1) / (T(1) + exp(z[i]))
        # With b = 0 the cost of a label is 0 whatever its logit, and p + b may be 0, too.
        told = -b * q / (p + b) if b > T(0) else T(0)
        row = quotient(i, width)
        share = told if i - row * width < truths else p * q / (p + b)
        dz[i] = g[row] * share


def _often(rng):
    return rng.uniform(0.1, 2.0, (4, 5))


@op(
    "nce_cost",
    inputs="Logits Expected",
    floats="Logits Expected",
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


deal(add_up, draw_classes, nce_costs, nce_costs_back)
also_on_cuda(sample_classes, nce_cost)
not_in_onnx(SAMPLES, "nce_cost", "sample_classes")
