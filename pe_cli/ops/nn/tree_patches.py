"""tree_patches: for every node of a tree, sums over the nodes below it; a product with weights makes tree_conv of them."""

from __future__ import annotations

import numpy as np

from pe_cli.core.errors import PeError
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.kernels.cuda.language import deal, on_cuda
from pe_cli.kernels.language import Int, Ptr, PtrI64, PtrU, Status, T, helper, kernel
from pe_cli.kernels.status_codes import NOT_A_TREE
from pe_cli.ops.define.cuda import also_on_cuda
from pe_cli.ops.define.label_checks import report
from pe_cli.ops.define.lod import fixed
from pe_cli.ops.define.lowering import STATUS, Buffer, Lowering
from pe_cli.ops.define.onnx import not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op
from pe_cli.ops.define.traits import ReportsData


@helper
def no_tree(status, row, node):
    """Report a node that has two parents or is its own ancestor, the code last."""
    status[1] = row
    status[2] = node
    status[0] = NOT_A_TREE


@kernel
def link_nodes(
    edges: PtrU, parents: PtrI64, places: PtrI64, kids: PtrI64, known: PtrI64, batch: Int, nodes: Int, count: Int, status: Status
):  # fmt: skip
    """Say of every node its parent (-1 for none), its place among that one's children and how many it has; known: nodes of a tree."""
    for s in range(batch):
        at = s * nodes
        for v in range(nodes):
            parents[at + v] = -1
            places[at + v] = 0
            kids[at + v] = 0
        real = 0
        # A row with a 0 ends the list of edges, but the original counts nodes by all rows without 0.
        for e in range(s * count, (s + 1) * count):
            real += 1 if edges[2 * e] != 0 and edges[2 * e + 1] != 0 else 0
        real += 1
        known[s] = min(real, nodes)
        goes_on = 1
        for e in range(s * count, (s + 1) * count):
            u = edges[2 * e] * 1
            v = edges[2 * e + 1] * 1
            if u == 0 or v == 0:
                goes_on = 0
            # Edges behind the first row with a 0 are padding.
            if goes_on == 1:
                highest = max(u, v)
                lowest = min(u, v)
                if lowest < 0 or highest > known[s]:
                    report(status, s, lowest if lowest < 0 else highest, known[s] + 1)
                elif parents[at + v - 1] >= 0:
                    no_tree(status, s, v)
                else:
                    parents[at + v - 1] = u - 1
                    # Children are numbered in the order of their edges, which is from left to right.
                    places[at + v - 1] = kids[at + u - 1]
                    kids[at + u - 1] += 1


@kernel
def find_rings(parents: PtrI64, batch: Int, nodes: Int, depth: Int, status: Status):
    """Report the nodes that are up to `depth` edges below themselves."""
    for s in range(batch):
        at = s * nodes
        # Following parents more than `depth` edges up is what the sums would do: longer rings do not matter to them and cost nothing here.
        for v in range(nodes):
            above = parents[at + v]
            for _ in range(depth):
                if above == v:
                    no_tree(status, s, v + 1)
                above = parents[at + above] if above >= 0 and above != v else -1


@helper
def _top(d, depth):
    """Return the share of the weights for the top at d edges below it."""
    return (T(depth) - T(d)) / T(depth)


@helper
def _left(parents, places, kids, at, v, d, depth):
    """Return the share of the weights for the left of node v at d edges below the top."""
    above = parents[at + v]
    many = kids[at + above] if above >= 0 else 1
    # An only child stands in the middle.
    along = T(0.5) if many < 2 else T(places[at + v]) / T(many - 1)
    return (T(1) - _top(d, depth)) * along


@kernel
def add_patches(
    x: Ptr, parents: PtrI64, places: PtrI64, kids: PtrI64, known: PtrI64, out: Ptr, batch: Int, nodes: Int, width: Int, depth: Int
):
    """out[s, u, f] = the sums of x[s, v, f] over the nodes v up to depth - 1 edges below u, by left, right and top."""
    for s in range(batch):
        at = s * nodes
        for j in range(at * width * 3, (at + nodes) * width * 3):
            out[j] = T(0)
        # From every node up, not from every node down: parents are one number for each node, children a list.
        for v in range(known[s]):
            u = v
            for d in range(depth):
                if u >= 0:
                    top = _top(d, depth)
                    left = _left(parents, places, kids, at, v, d, depth)
                    right = (T(1) - top) * (T(1) - left)
                    to = (at + u) * width * 3
                    for f in range(width):
                        value = x[(at + v) * width + f]
                        out[to + 3 * f] += left * value
                        out[to + 3 * f + 1] += right * value
                        out[to + 3 * f + 2] += top * value
                    u = parents[at + u]


@on_cuda(add_patches)
def add_patches_by_column(
    x: Ptr, parents: PtrI64, places: PtrI64, kids: PtrI64, known: PtrI64, out: Ptr, batch: Int, nodes: Int, width: Int, depth: Int
):
    """The same sums in the same order, a thread for each column of a sample."""
    # Nodes of one tree add to the same ancestors, so a thread has a column of all of them, and goes in the CPU's order.
    for i in range(batch * width):
        s = i // width
        f = i - s * width
        at = s * nodes
        for v in range(nodes):
            to = ((at + v) * width + f) * 3
            out[to] = T(0)
            out[to + 1] = T(0)
            out[to + 2] = T(0)
        for v in range(known[s]):
            u = v
            value = x[(at + v) * width + f]
            for d in range(depth):
                if u >= 0:
                    top = _top(d, depth)
                    left = _left(parents, places, kids, at, v, d, depth)
                    to = ((at + u) * width + f) * 3
                    out[to] += left * value
                    out[to + 1] += (T(1) - top) * (T(1) - left) * value
                    out[to + 2] += top * value
                    u = parents[at + u]


@kernel
def add_patches_back(
    g: Ptr, parents: PtrI64, places: PtrI64, kids: PtrI64, known: PtrI64, dx: Ptr, rows: Int, nodes: Int, width: Int, depth: Int
):
    """dx[s, v, f] = the gradients of the sums that x[s, v, f] is in: those of v and of the nodes above it."""
    # Here each row is written by itself alone, and the rows are all threads' to share.
    for r in range(rows):
        s = r // nodes
        at = s * nodes
        v = r - at
        for f in range(width):
            dx[r * width + f] = T(0)
        u = v if v < known[s] else -1
        for d in range(depth):
            if u >= 0:
                top = _top(d, depth)
                left = _left(parents, places, kids, at, v, d, depth)
                right = (T(1) - top) * (T(1) - left)
                to = (at + u) * width * 3
                for f in range(width):
                    dx[r * width + f] += left * g[to + 3 * f] + right * g[to + 3 * f + 1] + top * g[to + 3 * f + 2]
                u = parents[at + u]


_EDGES = fixed([[[1, 2], [1, 3], [1, 4], [3, 5], [5, 6]], [[1, 2], [0, 0], [0, 0], [0, 0], [0, 0]]])


@op(
    "tree_patches",
    inputs="NodesVector EdgeSet",
    differentiable="NodesVector",
    traits=[ReportsData()],
    attrs={"max_depth": Attr(2, "levels of nodes that a sum is over, that of its own node among them")},
    samples=[
        Sample({"NodesVector": (2, 7, 3), "EdgeSet": _EDGES}, {"max_depth": 3}, "a tree of six nodes and one of two"),
        Sample({"NodesVector": (2, 6, 1), "EdgeSet": _EDGES}, name="a node and its children"),
        Sample({"NodesVector": (1, 1, 1), "EdgeSet": lambda rng: np.zeros((1, 1, 2), np.int32)}, name="a node alone", keep=("EdgeSet",)),
        Sample({"NodesVector": (0, 3, 2), "EdgeSet": lambda rng: np.zeros((0, 2, 2), np.int64)}, name="an empty batch"),
    ],
)
def tree_patches(nodes: TensorType, edges: TensorType, *, max_depth: int) -> TensorType:
    """Add up the vectors of the nodes below every node of a tree, by how much each of them is left, right or below.

    Out[u, f] = sum over v of (left, right, top) NodesVector[v, f], v the nodes 0 to max_depth - 1 edges below u, where for d edges
    top = (max_depth - d) / max_depth, left = (1 - top) (place - 1) / (children - 1), right = (1 - top) (1 - left). An only child has
    left = (1 - top) / 2.

    Args:
        NodesVector: [batch, nodes, width] float32 or float64; no unit.
        EdgeSet: [batch, edges, 2] int32 or int64; parent and child, nodes counted from 1. An edge with a 0 in it ends the list. A tree
            has as many nodes as edges and one more.
        max_depth: see the attribute.

    Returns:
        Out: [batch, nodes, width, 3] element type of NodesVector; 0 for nodes that the tree does not have.

    Raises:
        PeError: types that do not fit; while running, nodes that the tree does not have, or edges that make no tree.

    Source:
        fluid's operator tree_conv, without its product; Mou et al. 2016, 'Convolutional Neural Networks over Tree Structures'.
    """
    if len(nodes.shape) != 3 or nodes.dtype not in FLOATS:
        raise PeError(f"tree_conv needs vectors [batch, nodes, width], float32 or float64, got {nodes}")
    fits = len(edges.shape) == 3 and edges.shape[2] == 2 and edges.dtype in ("int32", "int64")
    if not fits or (-1 not in (edges.shape[0], nodes.shape[0]) and edges.shape[0] != nodes.shape[0]):
        raise PeError(f"tree_conv needs edges [batch, edges, 2], int32 or int64, got {edges} for {nodes}")
    if max_depth < 1:
        raise PeError(f"tree_conv: max_depth is {max_depth}", hint="at least 1: the node itself")
    return nodes.with_shape(*nodes.shape, 3)


def _links(o: Lowering, nodes: int) -> tuple[Buffer, ...]:
    """Append what reads the edges; return parents, places and kids, [batch, nodes] each, and the number of each tree's nodes."""
    edges = o.input("EdgeSet")
    batch, count = edges.shape[:2]
    made = (*(o.scratch(batch * nodes, "int64") for _ in range(3)), o.scratch(batch, "int64"))
    o.call(link_nodes, edges, *made, batch, nodes, count, STATUS, second=edges.dtype)
    o.call(find_rings, made[0], batch, nodes, o.attrs["max_depth"], STATUS)
    return made


@tree_patches.lower("cpu")
def tree_patches_cpu(o: Lowering) -> None:
    """Read the edges, then add every node to those above it."""
    x = o.input("NodesVector")
    if x.size:
        batch, nodes, width = x.shape
        o.call(add_patches, x, *_links(o, nodes), o.output("Out"), batch, nodes, width, o.attrs["max_depth"])


@tree_patches.grad(uses="EdgeSet").lower("cpu")
def tree_patches_grad_cpu(o: Lowering) -> None:
    """Every node gets the gradients of those above it."""
    dx = o.output("NodesVector@GRAD")
    if dx.size:
        batch, nodes, width = dx.shape
        o.call(add_patches_back, o.input("Out@GRAD"), *_links(o, nodes), dx, batch * nodes, nodes, width, o.attrs["max_depth"])


deal(link_nodes, find_rings, add_patches_back)
also_on_cuda(tree_patches)
not_in_onnx("it walks over trees that a list of edges tells", "tree_patches")
