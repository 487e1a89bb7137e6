"""Numbers that are drawn, in ONNX: other draws of the same distributions."""

from __future__ import annotations

from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.ops.define.onnx import Writer, element_type, in_onnx, not_in_onnx
from pe_cli.ops.tensor.fill import sizes_like


def _seed(o: Writer) -> dict[str, Any]:
    # ONNX has seeds as float32: a large one loses digits, which changes nothing but the draws.
    return {"seed": float(o.attrs["seed"])} if o.attrs["seed"] else {}


def _drawn(o: Writer, kind: str, **limits: float) -> None:
    seed = _seed(o)
    # A shape that a run knows needs a tensor to be like.
    if o.has("ShapeTensor"):
        sizes = o.node("Cast", [o.x("ShapeTensor")], to_=7)
        o.node(f"{kind}Like", [o.node("Expand", [o.const(0, dtype=o.attrs["dtype"]), sizes])], to="Out", **limits, **seed)
    else:
        o.node(kind, [], to="Out", dtype=element_type(o.attrs["dtype"]), shape=o.attrs["shape"], **limits, **seed)


def _drawn_like(o: Writer, kind: str, **limits: float) -> None:
    like = o.node("Expand", [o.const(0.0, dtype=o.attrs["dtype"]), sizes_like(o)])
    o.node(kind, [like], to="Out", **limits, **_seed(o))


@in_onnx("uniform_random")
def uniform_random_onnx(o: Writer) -> None:
    """ONNX's own."""
    _drawn(o, "RandomUniform", low=o.attrs["min"], high=o.attrs["max"])


@in_onnx("gaussian_random")
def gaussian_random_onnx(o: Writer) -> None:
    """ONNX's own."""
    _drawn(o, "RandomNormal", mean=o.attrs["mean"], scale=o.attrs["std"])


@in_onnx("uniform_random_batch_size_like")
def uniform_random_batch_size_like_onnx(o: Writer) -> None:
    """ONNX's own."""
    _drawn_like(o, "RandomUniformLike", low=o.attrs["min"], high=o.attrs["max"])


@in_onnx("gaussian_random_batch_size_like")
def gaussian_random_batch_size_like_onnx(o: Writer) -> None:
    """ONNX's own."""
    _drawn_like(o, "RandomNormalLike", mean=o.attrs["mean"], scale=o.attrs["std"])


not_in_onnx("ONNX draws no such numbers; uniform and gaussian ones are exported", "truncated_gaussian_random")


@in_onnx("randperm")
def randperm_onnx(o: Writer) -> None:
    """The order of numbers that are drawn."""
    n = o.attrs["n"]
    drawn, order, values = o.node("RandomUniform", [], dtype=11, shape=[n], **_seed(o)), o.fresh(), o.fresh()
    # Sorting random numbers gives every order with equal probability.
    o.nodes("TopK", [drawn, o.const([n])], [values, order])
    o.node("Cast", [order], to="Out", to_=element_type(o.attrs["dtype"]))


@in_onnx("sampling_id")
def sampling_id_onnx(o: Writer) -> None:
    """The first column whose sum passes a number that is drawn; the last one where none does."""
    column = o.node("Slice", [o.x(), o.const([0]), o.const([1]), o.const([1])])
    drawn = o.node("RandomUniformLike", [column], low=o.attrs["min"], high=o.attrs["max"], **_seed(o))
    passed = o.node("LessOrEqual", [o.node("CumSum", [o.x(), o.const(1)]), drawn])
    count = o.node("ReduceSum", [o.node("Cast", [passed], to_=7), o.const([1])], keepdims=0)
    o.node("Min", [count, o.const(o.type().shape[1] - 1)], to="Out")


# ONNX has no crop at a random place; at evaluation the op takes the middle.
@in_onnx("random_crop")
def random_crop_onnx(o: Writer) -> None:
    """The middle, as in every evaluation.

    Raises:
        PeError: the op is for training, or a size is not known.
    """
    if not o.attrs["is_test"]:
        raise PeError("random_crop has an ONNX form for evaluation alone", hint="set is_test: true")
    shape = o.attrs["shape"]
    inner = o.type().shape[-len(shape) :]
    if -1 in inner:
        raise PeError(f"random_crop has an ONNX form for known sizes alone, got {o.type()}", hint="give the feed's shape")
    begins = [(size - box) // 2 for size, box in zip(inner, shape, strict=True)]
    ends = [begin + box for begin, box in zip(begins, shape, strict=True)]
    o.node("Slice", [o.x(), o.const(begins), o.const(ends), o.const(list(range(-len(shape), 0)))], to="Out")
