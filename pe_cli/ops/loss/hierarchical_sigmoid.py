"""hierarchical_sigmoid: the cost of a class as a path of yes-or-no questions through a tree of classes."""

from __future__ import annotations

from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrI64, Status, T, helper, kernel
from pe_cli.kernels.math.vector_math import absolute, exp, log1p
from pe_cli.kernels.status_codes import OUT_OF_RANGE
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.lowering import STATUS, Lowering
from pe_cli.ops.define.onnx import LOSS, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData

#: Answers are cut to this range, as in the original: beyond it the cost is a straight line anyway.
LIMIT = 40.0


@helper
def _node(label, table, code, row, depth, j, own):
    """Return (node, bit) of step j of a path; node -1 after its end."""
    if own:
        return table[row * depth + j], code[row * depth + j]
    # The leading binary 1 is no answer: the path ends where only it is left.
    if (label >> (j + 1)) == 0:
        return -1, 0
    return (label >> (j + 1)) - 1, (label >> j) & 1


@helper
def _cut(value):
    return min(max(value, T(-LIMIT)), T(LIMIT))


@kernel
def path_costs(
    x: Ptr, w: Ptr, bias: Ptr, labels: PtrI64, table: PtrI64, code: PtrI64, pre: Ptr, out: Ptr, rows: Int, width: Int,
    depth: Int, classes: Int, nodes: Int, own: Int, biased: Int, status: Status,
):  # fmt: skip
    """out[r] = sum over the path of ln(1 + exp(p)) - bit p, with p = w[node] . x[r] + bias[node]."""
    for r in range(rows):
        label = labels[r]
        if not own and (label < 0 or label >= classes):
            status[0], status[1], status[2], status[3] = OUT_OF_RANGE, r, label, classes
            return
        total = T(0)
        for j in range(depth):
            node, bit = _node(label + classes, table, code, r, depth, j, own)
            # PreOut is a full block: steps behind the end of a path are written, too.
            pre[r * depth + j] = T(0)
            # Given paths are data of the step, and may name a node that there is not.
            if node >= nodes:
                status[0], status[1], status[2], status[3] = OUT_OF_RANGE, r, node, nodes
                return
            if node >= 0:
                p = bias[node] if biased else T(0)
                for i in range(width):
                    p += w[node * width + i] * x[r * width + i]
                p = _cut(p)
                pre[r * depth + j] = p
                # This is ln(1 + exp(p)) with the digits of both tails: where exp(p) is tiny, 1 + exp(p) would round it away.
                total += max(p, T(0)) + log1p(exp(-absolute(p))) - T(bit) * p
        out[r] = total


@kernel
def path_costs_back(  # noqa: C901, PLR0912 (one pass over paths that share nodes)
    x: Ptr, w: Ptr, labels: PtrI64, table: PtrI64, code: PtrI64, pre: Ptr, g: Ptr, dx: Ptr, dw: Ptr, db: Ptr, rows: Int,
    width: Int, depth: Int, classes: Int, nodes: Int, own: Int, wanted: Int,
):  # fmt: skip
    """Add (sigmoid(p) - bit) g along every path; wanted: 1 dx, 2 dw, 4 db."""
    if wanted & 2:
        for i in range(nodes * width):
            dw[i] = T(0)
    if wanted & 4:
        for i in range(nodes):
            db[i] = T(0)
    for r in range(rows):
        if wanted & 1:
            for i in range(width):
                dx[r * width + i] = T(0)
        for j in range(depth):
            node, bit = _node(labels[r] + classes, table, code, r, depth, j, own)
            p = pre[r * depth + j]
            # A cut answer no longer depends on anything.
            if node < 0 or absolute(p) >= T(LIMIT):
                continue
            slope = (T(1) / (T(1) + exp(-p)) - T(bit)) * g[r]
            if wanted & 1:
                for i in range(width):
                    dx[r * width + i] += slope * w[node * width + i]
            if wanted & 2:
                for i in range(width):
                    dw[node * width + i] += slope * x[r * width + i]
            if wanted & 4:
                db[node] += slope


def _labels(rng):
    return rng.integers(0, 6, (5, 1))


def _paths(rng):
    return [[0, 1, -1], [0, 2, 3], [0, 2, -1], [0, 1, -1]]


@op(
    "hierarchical_sigmoid",
    traits=[ReportsData()],
    inputs="X W Label PathTable? PathCode? Bias?",
    floats="X W",
    outputs="Out PreOut",
    attrs={"num_classes": Attr(2, "classes of the complete tree; without effect where the paths are given")},
    differentiable="X W Bias",
    samples=[
        Sample({"X": (5, 3), "W": (5, 3), "Label": _labels, "Bias": (5, 1)}, {"num_classes": 6}, "a complete tree"),
        Sample({"X": (5, 3), "W": (5, 3), "Label": _labels}, {"num_classes": 6}, "no bias"),
        Sample(
            {"X": (4, 2), "W": (4, 2), "Label": lambda rng: [[0], [3], [2], [0]], "PathTable": _paths,
             "PathCode": lambda rng: [[0, 1, 0], [1, 0, 1], [1, 1, 0], [0, 1, 0]], "Bias": (4, 1)},
            name="paths of one's own",
        ),
        Sample({"X": (0, 3), "W": (1, 3), "Label": lambda rng: rng.integers(0, 2, (0, 1))}, name="an empty batch"),
    ],
)  # fmt: skip
def hierarchical_sigmoid(
    x: TensorType,
    w: TensorType,
    label: TensorType,
    table: TensorType | None,
    code: TensorType | None,
    bias: TensorType | None,
    *,
    num_classes: int,
) -> tuple[TensorType, TensorType]:
    """Measure classes by the questions on the way to them in a binary tree: as many as ln2(classes), not classes.

    Out = sum over the path of ln(1 + exp(p)) - bit p,  p = W[node] . X + Bias[node], cut to [-40, 40]

    In the complete tree the path of a class is read off the binary digits of class + num_classes: node (c >> (j + 1)) - 1 has the
    bit (c >> j) & 1. The original adds ln 2 for every step that a path is shorter than the longest one; that is left out here.

    Args:
        X: [batch, width] float32 or float64.
        W: [nodes, width] element type of X; num_classes - 1 nodes in the complete tree.
        Label: [batch, 1] int64, from 0.
        PathTable: [batch, depth] int64: nodes from the root on, -1 after the end.
        PathCode: [batch, depth] int64: their bits.
        Bias: [nodes, 1] element type of X.

    Returns:
        Out: [batch, 1] element type of X, in nats.
        PreOut: [batch, depth] the p of every step.

    Raises:
        PeError: types that do not fit; while running, a label or node out of range.

    Source:
        fluid.layers.hsigmoid; Morin and Bengio 2005, "Hierarchical Probabilistic Neural Network Language Model".
    """
    if len(x.shape) != 2 or len(w.shape) != 2 or w.shape[1] != x.shape[1] or w.dtype != x.dtype:
        raise PeError(f"hierarchical_sigmoid needs X [batch, width] and W [nodes, width], got {x} and {w}")
    if (table is None) != (code is None) or (table is not None and table != code):
        raise PeError(f"hierarchical_sigmoid needs PathTable and PathCode of one type, or neither, got {table} and {code}")
    if table is None and (num_classes < 2 or w.shape[0] != num_classes - 1):
        raise PeError(f"hierarchical_sigmoid with {num_classes} classes needs W of {num_classes - 1} nodes, got {w}")
    for name, given in (("Label", label), ("PathTable", table)):
        if given is not None and given.dtype != "int64":
            raise PeError(f"hierarchical_sigmoid needs {name} of type int64, got {given}", hint="cast it")
    if bias is not None and bias.size != w.shape[0]:
        raise PeError(f"hierarchical_sigmoid needs Bias [{w.shape[0]}, 1], got {bias}")
    depth = (num_classes - 1).bit_length() if table is None else table.shape[1]
    return x.with_shape(x.shape[0], 1), x.with_shape(x.shape[0], depth)


@hierarchical_sigmoid.lower("cpu")
def hierarchical_sigmoid_cpu(o: Lowering) -> None:
    """Row by row along the path."""
    x, w, label, pre = o.input("X"), o.input("W"), o.input("Label"), o.output("PreOut")
    own, biased = o.has("PathTable"), o.has("Bias")
    paths = (o.input("PathTable"), o.input("PathCode")) if own else (label, label)
    # A kernel takes all of its arguments: w stands for a bias that is not there, and is not read.
    bias = o.input("Bias") if biased else w
    o.call(
        path_costs, x, w, bias, label, *paths, pre, o.output("Out"), *x.shape, pre.shape[1], o.attrs["num_classes"], w.shape[0],
        int(own), int(biased), STATUS,
    )  # fmt: skip


@hierarchical_sigmoid.grad(uses="X W Label PathTable PathCode PreOut").lower("cpu")
def hierarchical_sigmoid_grad_cpu(o: Lowering) -> None:
    """Row by row along the path, in order: nodes are shared."""
    x, w, label, pre, g = o.input("X"), o.input("W"), o.input("Label"), o.input("PreOut"), o.input("Out@GRAD")
    own = bool(o.inputs("PathTable"))
    paths = (o.input("PathTable"), o.input("PathCode")) if own else (label, label)
    wanted = [o.has(f"{slot}@GRAD") for slot in ("X", "W", "Bias")]
    # Likewise g stands for a gradient that nobody wants, and is not written.
    outs = [o.output(f"{slot}@GRAD") if there else g for slot, there in zip(("X", "W", "Bias"), wanted, strict=True)]
    bits = sum(1 << i for i, there in enumerate(wanted) if there)
    o.call(
        path_costs_back, x, w, label, *paths, pre, g, *outs, *x.shape, pre.shape[1], o.attrs["num_classes"], w.shape[0],
        int(own), bits,
    )  # fmt: skip


# --- CUDA -------------------------------------------------------------------------------------------------------------


@helper
def _slope(r, node, bit, depth, j, pre, g):
    """Return (sigmoid(p) - bit) g, or 0 behind a path's end and where p was cut."""
    p = pre[r * depth + j]
    if node < 0 or absolute(p) >= T(LIMIT):
        return T(0)
    return (T(1) / (T(1) + exp(-p)) - T(bit)) * g[r]


@on_cuda(path_costs_back)
def path_costs_to_rows(
    x: Ptr, w: Ptr, labels: PtrI64, table: PtrI64, code: PtrI64, pre: Ptr, g: Ptr, dx: Ptr, dw: Ptr, db: Ptr, rows: Int,
    width: Int, depth: Int, classes: Int, nodes: Int, own: Int, wanted: Int,
):  # fmt: skip
    """One thread per number of a row."""
    if wanted & 1:
        for e in range(rows * width):
            r, total = e // width, T(0)
            for j in range(depth):
                node, bit = _node(labels[r] + classes, table, code, r, depth, j, own)
                if node >= 0:
                    total += _slope(r, node, bit, depth, j, pre, g) * w[node * width + e % width]
            dx[e] = total


@on_cuda(path_costs_back)
def path_costs_to_nodes(
    x: Ptr, w: Ptr, labels: PtrI64, table: PtrI64, code: PtrI64, pre: Ptr, g: Ptr, dx: Ptr, dw: Ptr, db: Ptr, rows: Int,
    width: Int, depth: Int, classes: Int, nodes: Int, own: Int, wanted: Int,
):  # fmt: skip
    """One thread per column of all nodes, and one for their biases; each goes through the rows in order."""
    for i in range(width + 1):
        if wanted & (2 if i < width else 4):
            for node in range(nodes):
                if i < width:
                    dw[node * width + i] = T(0)
                else:
                    db[node] = T(0)
            for r in range(rows):
                for j in range(depth):
                    node, bit = _node(labels[r] + classes, table, code, r, depth, j, own)
                    slope = _slope(r, node, bit, depth, j, pre, g)
                    if node >= 0 and i < width:
                        dw[node * width + i] += slope * x[r * width + i]
                    elif node >= 0:
                        db[node] += slope


deal(path_costs)
also_on_cuda(hierarchical_sigmoid)
not_in_onnx(LOSS, "hierarchical_sigmoid")
