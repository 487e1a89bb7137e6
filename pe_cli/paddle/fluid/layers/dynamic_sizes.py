"""Layers whose sizes only a step knows: they come from variables, or from how many rows a mask chooses.

A program with such a layer is cut there and run in parts, each with a plan for the sizes that it meets.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.nn.unfold import rows_of_windows
from pe_cli.paddle.errors import FluidTypeError, FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid.constant_sizes import known_or_fed, open_sizes, sizes_of
from pe_cli.paddle.fluid.framework import as_dtype, ensure_defaults
from pe_cli.paddle.fluid.layers.composed import call
from pe_cli.paddle.fluid.layers.original_counts import DEFAULT_CASE
from pe_cli.paddle.fluid.naming import apart, use
from pe_cli.program.ir import Variable

#: An end beyond every axis.
LAST = 2**31 - 1


def topk(input: Variable, k: Any, name: str | None = None) -> tuple[Variable, Variable]:
    """Find the k largest elements of every row, and their places; k is a number or an integer variable."""
    ensure_defaults()
    number, fed = known_or_fed("topk", "k", k, single=True)
    inputs, attrs = {"X": input, "K": fed}, {"k": -1 if fed is not None else number}
    values, places = LayerHelper("topk", name).op("top_k", inputs, attrs, ("Out", "Indices"))
    return values, places


def gaussian_random(shape: Any, mean: float = 0.0, std: float = 1.0, seed: int = 0, dtype: Any = "float32") -> Variable:
    """Draw normal numbers; shape is numbers, integer variables, or one variable [axes].

    Raises:
        FluidValueError: shape is a variable whose length is not known.
    """
    ensure_defaults()
    sizes, fed = known_or_fed("gaussian_random", "shape", shape)
    attrs = {
        "shape": sizes if fed is None else open_sizes("gaussian_random", "shape", shape, fed),
        "mean": float(mean),
        "std": float(std),
        "seed": seed,
        "dtype": as_dtype(dtype),
    }
    with raised_as(FluidValueError):
        return LayerHelper("gaussian_random").one("gaussian_random", {"ShapeTensor": fed}, attrs)


def uniform_random(shape: Any, dtype: Any = "float32", min: float = -1.0, max: float = 1.0, seed: int = 0) -> Variable:
    """Draw numbers from [min, max); shape is numbers, integer variables, or one variable [axes]."""
    ensure_defaults()
    sizes, fed = known_or_fed("uniform_random", "shape", shape)
    attrs = {"shape": list(sizes) if fed is None else open_sizes("uniform_random", "shape", shape, fed), "dtype": as_dtype(dtype)}
    with raised_as(FluidValueError):
        more = {"min": float(min), "max": float(max), "seed": seed}
        return LayerHelper("uniform_random").one("uniform_random", {"ShapeTensor": fed}, {**attrs, **more})


def length_of(layer: str, fed: Variable) -> int:
    """Return how many numbers a variable holds.

    Raises:
        FluidValueError: that is not known; a ValueError.
    """
    if fed.type.known is False or len(fed.shape) != 1:
        raise FluidValueError(f"{layer}: the sizes are {fed}, whose length is not known", hint="declare its length")
    return fed.shape[0]


def expand(x: Variable, expand_times: Any, name: str | None = None) -> Any:
    """Repeat a tensor along its axes; expand_times is numbers, integer variables, or one variable [axes]."""
    ensure_defaults()
    times, fed = known_or_fed("expand", "expand_times", expand_times)
    if fed is None:
        return call("expand", x, list(times), name)
    attrs = {"expand_times": open_sizes("expand", "expand_times", expand_times, fed)}
    return LayerHelper("expand", name).one("expand", {"X": x, "ExpandTimes": fed}, attrs)


def slice_(input: Variable, axes: Any, starts: Any, ends: Any) -> Any:
    """Cut a box out of a tensor; starts and ends are numbers, integer variables, or one variable [axes that are cut] each."""
    ensure_defaults()
    first, fed_first = known_or_fed("slice", "starts", starts)
    last, fed_last = known_or_fed("slice", "ends", ends)
    if fed_first is None and fed_last is None:
        return call("slice", input, list(axes), list(first), list(last))
    # Axes whose bounds are numbers are cut first, so that their sizes stay known.
    known = _numbered(starts, ends)
    if known and len(known) < len(axes):
        rest = [i for i in range(len(axes)) if i not in known]
        chosen, others = ([[v[i] for i in at] for v in (axes, starts, ends)] for at in (known, rest))
        with raised_as(FluidValueError):
            return slice_(call("slice", input, *chosen), *others)
    inputs = {"Input": input, "Starts": fed_first, "Ends": fed_last}
    with raised_as(FluidValueError):
        attrs = {"axes": list(axes), "starts": list(first or []), "ends": list(last or [])}
        return LayerHelper("slice").one("slice", inputs, attrs)


def _numbered(*bounds: Any) -> list[int]:
    """Return the places at which all lists have numbers."""
    if not all(isinstance(v, (list, tuple)) for v in bounds):
        return []
    return [i for i, each in enumerate(zip(*bounds, strict=False)) if not any(isinstance(n, Variable) for n in each)]


def strided_slice(input: Variable, axes: Any, starts: Any, ends: Any, strides: Any) -> Any:
    """Take every few elements of ranges of axes; what is given is numbers, integer variables, or one variable [axes that are cut] each."""
    ensure_defaults()
    found = {name: known_or_fed("strided_slice", name, v) for name, v in (("starts", starts), ("ends", ends), ("strides", strides))}
    if all(fed is None for _, fed in found.values()):
        return call("strided_slice", input, list(axes), *(list(numbers) for numbers, _ in found.values()))
    known = _numbered(starts, ends, strides)
    if known and len(known) < len(axes):
        rest = [i for i in range(len(axes)) if i not in known]
        chosen, others = ([[v[i] for i in at] for v in (axes, starts, ends, strides)] for at in (known, rest))
        with raised_as(FluidValueError):
            return strided_slice(call("strided_slice", input, *chosen), *others)
    inputs = {"Input": input, **{name.capitalize(): fed for name, (_, fed) in found.items() if fed is not None}}
    with raised_as(FluidValueError):
        attrs = {"axes": list(axes), **{name: list(numbers or []) for name, (numbers, _) in found.items()}}
        return LayerHelper("strided_slice").one("strided_slice", inputs, attrs)


def sequence_mask(x: Variable, maxlen: Any = None, dtype: Any = "int64", name: str | None = None) -> Any:
    """Mark the steps that sequences of given lengths have; maxlen is a number or an integer variable, by default the largest length."""
    ensure_defaults()
    steps, fed = (None, None) if maxlen is None else known_or_fed("sequence_mask", "maxlen", maxlen, single=True)
    if fed is None:
        return call("sequence_mask", x, steps, as_dtype(dtype), name)
    # Comparisons with lengths are in int64.
    lengths = x if x.dtype == "int64" else call("cast", x, "int64")
    with raised_as(FluidValueError):
        return LayerHelper("sequence_mask", name).one("sequence_mask", {"X": lengths, "Maxlen": fed}, {"out_dtype": as_dtype(dtype)}, "Y")


def one_hot(input: Variable, depth: Any, allow_out_of_range: bool = False) -> Any:
    """Turn class numbers into rows with a single one; depth is a number or an integer variable."""
    ensure_defaults()
    number, fed = known_or_fed("one_hot", "depth", depth, single=True)
    ids = input if input.dtype == "int64" else call("cast", input, "int64")
    if fed is None:
        return call("one_hot", ids, number, allow_out_of_range)
    with raised_as(FluidValueError):
        return LayerHelper("one_hot").one("one_hot", {"X": ids, "Depth": fed}, {"allow_out_of_range": allow_out_of_range})


def unsqueeze(input: Variable, axes: Any, name: str | None = None) -> Any:
    """Insert axes of size 1; axes is numbers, integer variables, or one variable [new axes]."""
    ensure_defaults()
    places, fed = known_or_fed("unsqueeze", "axes", [axes] if isinstance(axes, int) else axes)
    if fed is None:
        return call("unsqueeze", input, list(places), name)
    length_of("unsqueeze", fed)
    with raised_as(FluidValueError):
        return LayerHelper("unsqueeze", name).one("unsqueeze", {"X": input, "Axes": fed}, {})


def concat(input: Any, axis: Any = 0, name: str | None = None) -> Any:
    """Join tensors along an axis, which is a number or an integer variable."""
    ensure_defaults()
    number, fed = known_or_fed("concat", "axis", axis, single=True)
    if fed is None:
        return call("concat", input, number, name)
    with raised_as(FluidValueError):
        return LayerHelper("concat", name).one("concat", {"X": input, "Axis": fed}, {})


def split(input: Variable, num_or_sections: Any, dim: Any = -1, name: str | None = None) -> Any:
    """Cut a tensor along an axis; dim is a number or an integer variable, and so are the sizes of the parts."""
    ensure_defaults()
    axis, fed_axis = known_or_fed("split", "dim", dim, single=True)
    parts, fed = known_or_fed("split", "num_or_sections", num_or_sections)
    if fed_axis is None and fed is None:
        return call("split", input, parts, axis, name)
    count = len(num_or_sections) if isinstance(num_or_sections, (list, tuple)) else length_of("split", fed) if fed is not None else parts
    sizes = [-1] * count if fed is not None else list(parts) if isinstance(parts, (list, tuple)) else []
    # Sizes of parts that come from variables are not known before a step: -1 stands for each.
    attrs = {"num": 0 if sizes else count, "sections": sizes, "axis": 0 if fed_axis is not None else axis}
    helper = LayerHelper("split", name)
    names = [helper.program.unique(f"{helper.name}.tmp") for _ in range(count)]
    with raised_as(FluidValueError):
        helper.op("split", {"X": input, "Axis": fed_axis, "Sections": fed}, attrs, (), {"Out": names})
    return [helper.block.var(n) for n in names]


def im2sequence(
    input: Variable,
    filter_size: Any = 1,
    stride: Any = 1,
    padding: Any = 0,
    input_image_size: Any = None,
    out_stride: Any = 1,
    name: str | None = None,
) -> Any:
    """Lay the windows of images out as rows, a sequence for each image; see the core's layer.

    Raises:
        NotThereYet: images of sizes that are fed, as input_image_size says.
    """
    if input_image_size is not None:
        hint = "pad the images to one size, and leave input_image_size and out_stride out"
        raise NotThereYet("im2sequence: input_image_size is not there: all images of a batch have one size", hint=hint)
    ensure_defaults()
    sizes = [list(v) if isinstance(v, (list, tuple)) else v for v in (filter_size, stride, padding)]
    helper = LayerHelper("im2sequence", name)
    with raised_as(FluidValueError):
        rows, count = rows_of_windows(helper, input, *sizes)
        return helper.one("even_sequences", {"X": rows}, {"rows": count})


def crop_tensor(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Any:
    """Cut a box of a shape out of a tensor, from offsets on; both are numbers, integer variables, or one variable [axes]. -1 takes all."""
    ensure_defaults()
    sizes, fed = (None, None) if shape is None else known_or_fed("crop_tensor", "shape", shape)
    begins, fed_begins = (None, None) if offsets is None else known_or_fed("crop_tensor", "offsets", offsets)
    if fed is None and fed_begins is None:
        return call("crop_tensor", x, sizes, begins, name)
    axes = list(range(len(x.shape)))
    start = fed_begins if fed_begins is not None else _numbers(begins or [0] * len(axes))
    # -1 keeps an axis whole, which a sum of offset and size cannot say: an end beyond every axis does.
    if isinstance(shape, (list, tuple)):  # a -1 among the sizes takes all
        wide = [size if isinstance(size, Variable) else _numbers([LAST if size == -1 else int(size)]) for size in shape]
        fed = call("concat", [call("cast", v, "int64") for v in wide], 0)
    size = _numbers(sizes or []) if fed is None else call("cast", fed, "int64")
    ends = call("elementwise_add", call("cast", start, "int64"), size)
    made = slice_(x, axes, begins if fed_begins is None and begins else start, ends)
    # Sizes that are numbers are known, wherever the box begins; 0 leaves the others as they are.
    listed = shape if isinstance(shape, (list, tuple)) else ()
    sized = [0 if isinstance(n, Variable) or n < 0 else int(n) for n in listed]
    return call("reshape", made, sized) if any(sized) else made


def crop(x: Variable, shape: Any = None, offsets: Any = None, name: str | None = None) -> Any:
    """Cut out a box from offsets on; its sizes are numbers, or those of a variable, whose values do not count."""
    sizes = list(shape.shape) if isinstance(shape, Variable) else None if shape is None else sizes_of("crop", "shape", shape)
    begins, fed = (None, None) if offsets is None else known_or_fed("crop", "offsets", offsets)
    return call("crop", x, sizes, begins, name) if fed is None else crop_tensor(x, sizes, offsets, name)


def _numbers(values: Any) -> Any:
    return call("concat", [call("fill_constant", [1], "int64", float(v)) for v in values], 0)


def affine_grid(theta: Variable, out_shape: Any, name: str | None = None) -> Variable:
    """Compute the place that every pixel of an image is taken from; out_shape is four numbers or an integer variable [4]."""
    ensure_defaults()
    sizes, fed = known_or_fed("affine_grid", "out_shape", out_shape)
    attrs = {"output_shape": list(sizes) if fed is None else open_sizes("affine_grid", "out_shape", out_shape, fed)}
    return LayerHelper("affine_grid", name).one("affine_grid", {"Theta": theta, "OutputShape": fed}, attrs, "Output")


def where(condition: Variable) -> Variable:
    """Find the places where a condition holds, or where numbers are not 0: int64 [places, axes]."""
    ensure_defaults()
    condition = condition if condition.dtype == "bool" else call("cast", condition, "bool")
    return LayerHelper("where").one("where_index", {"Condition": condition})


def unique_with_counts(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable, Variable]:
    """Find the different values of a vector, the place of each element among them, and how often each comes."""
    ensure_defaults()
    with raised_as(FluidValueError):
        outs = ("Out", "Index", "Count")
        made = LayerHelper("unique").op("unique_with_counts", {"X": x}, {"dtype": as_dtype(dtype)}, outs)
    return made[0], made[1], made[2]


def unique(x: Variable, dtype: Any = "int32") -> tuple[Variable, Variable]:
    """Find the different values of a vector, and the place of each element among them."""
    return unique_with_counts(x, dtype)[:2]


class IfElse:
    """Two branches over rows: `with ie.true_block()` sees those where a condition holds, `with ie.false_block()` the others.

    Args:
        cond: bool [rows, 1].
        name: without effect.

    Raises:
        FluidTypeError: cond is no variable; a TypeError.
    """

    def __init__(self, cond: Variable, name: str | None = None) -> None:
        if not isinstance(cond, Variable):
            raise FluidTypeError(f"IfElse needs a bool variable, got {cond!r:.60}")
        self.cond = cond
        self._parted: dict[str, list[Variable]] = {}
        self._outputs: dict[bool, list[Variable]] = {}
        self._branch: bool | None = None
        self._prefix = LayerHelper("ifelse", name).name

    @contextlib.contextmanager
    def _in(self, branch: bool) -> Iterator[None]:
        if self._branch is not None:
            raise FluidValueError("IfElse: a block inside a block of the same IfElse", hint="end the first one before")
        self._branch = branch
        use(DEFAULT_CASE)
        try:
            yield
        finally:
            self._branch = None

    def true_block(self) -> Any:
        """Compute inside with the rows where the condition holds."""
        return self._in(True)

    def false_block(self) -> Any:
        """Compute inside with the other rows."""
        return self._in(False)

    def input(self, x: Variable) -> Variable:
        """Return the rows of a variable that this block sees.

        Raises:
            FluidValueError: outside of a block; a ValueError.
        """
        if self._branch is None:
            raise FluidValueError("IfElse: input is for inside a block", hint="with ie.true_block(): ...")
        use({f"ifelse_input{self._prefix}": 1})
        # Rows are split once per variable, however often both blocks ask for them.
        if x.name not in self._parted:
            with raised_as(FluidValueError), apart("ifelse"):
                inputs = {"X": x, "Mask": self.cond}
                self._parted[x.name] = LayerHelper("ifelse_input").op("split_rows", inputs, {}, ("OutTrue", "OutFalse"))
        return self._parted[x.name][0 if self._branch else 1]

    def output(self, *outs: Variable) -> None:
        """Say what this block gives: one row for every row of `input`.

        Raises:
            FluidValueError: outside of a block, or twice; a ValueError.
        """
        if self._branch is None or self._branch in self._outputs or not outs:
            raise FluidValueError("IfElse: output is for once in each block, with a variable or more")
        use({"assign": len(outs), f"{self._prefix}_output": len(outs)})
        self._outputs[self._branch] = list(outs)

    def __call__(self) -> list[Variable]:
        """Return the outputs of both blocks, row by row.

        Raises:
            FluidValueError: a block without outputs, or not as many as in the other; a ValueError.
        """
        yes, no = self._outputs.get(True, []), self._outputs.get(False, [])
        if not yes or len(yes) != len(no):
            counts = f"{len(yes)} and {len(no)}"
            raise FluidValueError(f"IfElse: the blocks have {counts} outputs", hint="call ie.output in both, with as many")
        with raised_as(FluidValueError):
            pairs = zip(yes, no, strict=True)
            return [LayerHelper("merge_lod_tensor").one("merge_rows", {"InTrue": a, "InFalse": b, "Mask": self.cond}) for a, b in pairs]


__all__ = [
    "IfElse", "affine_grid", "concat", "crop", "crop_tensor", "expand", "gaussian_random", "im2sequence", "one_hot", "sequence_mask",
    "slice_", "split", "strided_slice", "topk", "uniform_random", "unique", "unique_with_counts", "unsqueeze", "where",
]  # fmt: skip
