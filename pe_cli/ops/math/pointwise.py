"""Pointwise ops: a scalar function and a scalar gradient become an op with shape inference, kernels, gradient op and in-place rules.

    @pointwise("tanh", uses="Out")
    def tanh(x):
        '''Squash into (-1, 1). ...'''
        return vector_tanh(x)

    @tanh.back
    def tanh_back(g, out):
        return g * (T(1) - out * out)

`f(x, *attributes)` and `back(g, value, *attributes)` are helpers of the kernel language, so that other kernels (fused ones, recurrent
cells) call them too: `tanh.f`, `tanh.f_back`. Attributes arrive as numbers, in the order of their declaration. The value that `back`
sees is X or Out, as `uses` says; Out lets the input be overwritten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.types import FLOATS, NUMBERS, TensorType, check_kind
from pe_cli.kernels.cuda.language import on_cuda
from pe_cli.kernels.language import Helper, Kernel, address, helper, kernel_code, make_kernel
from pe_cli.ops.define.addto import in_pieces
from pe_cli.ops.define.faces import Face, Functional
from pe_cli.ops.define.lowering import Lowering, Offset
from pe_cli.ops.define.registry import Attr, OpDef, Sample, op
from pe_cli.ops.define.second_gradients import Again, second
from pe_cli.ops.define.traits import InPlace, Layout, Scalar, Trait
from pe_cli.ops.define.traits import Pointwise as PointwiseTrait
from pe_cli.ops.math.pointwise_sum import SumKernels
from pe_cli.ops.math.scalar_ops import as_ops

#: Every pointwise op by name, for passes that fuse them.
POINTWISE: dict[str, Pointwise] = {}

Attrs = Mapping[str, Any]
Choice = Callable[[Attrs], "tuple[Kernel, Kernel | None, Sequence[float]] | None"] | None


#: One text for any number of attributes. Each loop is there twice: where two pointers may overlap, LLVM guards the vector loop by a test
#: that a call in place fails, so such a call gets a loop over one pointer.
_LOOP = """
from __future__ import annotations
def loop({first}: Ptr, {value}out: Ptr, n: Int{params}):
    if address({first}) == address(out):
        for i in range(n):
            out[i] = f(out[i]{at}{args})
    else:
        for i in range(n):
            out[i] = f({first}[i]{at}{args})
"""

#: CUDA deals the loop over its threads; a call in place is nothing special there.
_CUDA_LOOP = """
from __future__ import annotations
def loop({first}: Ptr, {value}out: Ptr, n: Int{params}):
    for i in range(n):
        out[i] = f({first}[i]{at}{args})
"""


def _loop(template: str, f: Helper, first: str, value: str, attributes: int) -> tuple[Any, str]:
    names = [f"a{k}" for k in range(attributes)]
    text = template.format(
        first=first,
        value=f"{value}: Ptr, " if value else "",
        at=f", {value}[i]" if value else "",
        params="".join(f", {name}: Real" for name in names),
        args="".join(f", {name}" for name in names),
    )
    space: dict[str, Any] = {"f": f, "address": address}
    exec(kernel_code(text), space)  # our own text: nothing in it comes from outside
    return space["loop"], text


def _kernel(fn: Any, first: str, value: str) -> tuple[Helper, Kernel]:
    f = helper(fn, inline=True)
    attributes = fn.__code__.co_argcount - (2 if value else 1)
    made = make_kernel(_loop(_LOOP, f, first, value, attributes)[0], f"{fn.__module__}:{fn.__qualname__}", each=f)
    loop, text = _loop(_CUDA_LOOP, f, first, value, attributes)
    on_cuda(made, text=text)(loop)
    return f, made


def forward_kernel(fn: Any) -> tuple[Helper, Kernel]:
    """Return `fn(x, *attributes)` as a helper, and the kernel `(x, out, n, *attributes)` that maps it over an array, in place too."""
    return _kernel(fn, "x", "")


def backward_kernel(fn: Any) -> tuple[Helper, Kernel]:
    """Return `fn(g, value, *attributes)` as a helper, and the kernel `(g, value, out, n, *attributes)`; out may be g."""
    return _kernel(fn, "g", "value")


class Pointwise:
    """A pointwise op.

    Attributes:
        op: its entry in the catalogue.
        f, kernel: the scalar function, and its loop `(x, out, n, *attributes)`.
        f_back, back_kernel: the scalar gradient `(g, value, *attributes)` and its loop `(g, value, out, n, *attributes)`; None without.
        uses: what value is, `X` or `Out`.
        with_sum: kernels of the function of a sum; None without a gradient.
        values: attributes -> the numbers that the functions take.
        instead: attributes -> other kernels and their numbers where those are better, else None.
    """

    def __init__(
        self, definition: OpDef, fn: Any, uses: str, values: Callable[[Attrs], Sequence[float]], instead: Choice
    ) -> None:
        self.op = definition
        self.uses = uses
        self.values = values
        self.instead = instead
        self.f, self.kernel = forward_kernel(fn)
        self.f_back: Helper | None = None
        self.back_kernel: Kernel | None = None
        self.with_sum: SumKernels | None = None
        definition.lower("cpu")(self._forward)
        definition.lower("cuda")(self._forward)
        definition.give(PointwiseTrait(self._forward_scalars))

    def back(self, fn: Any) -> Any:
        """Declare the gradient by decorating `(g, value, *attributes) -> gradient of X`."""
        self.f_back, self.back_kernel = backward_kernel(fn)
        self.with_sum = SumKernels(f"{fn.__module__}:{self.op.name}", self.f, self.f_back)
        gradient = self.op.grad(uses=self.uses, traits=[InPlace({"X@GRAD": "Out@GRAD"})], adds="X@GRAD")
        gradient.lower("cpu")(self._backward)
        gradient.lower("cuda")(self._backward)
        gradient.give(PointwiseTrait(self._backward_scalars))
        second(self.op.name)(self._again)
        return fn

    def chosen(self, attrs: Attrs) -> tuple[Kernel, Kernel | None, Sequence[float]]:
        """Return the forward kernel, the backward kernel and their numbers for these attributes."""
        other = self.instead(attrs) if self.instead else None
        return other or (self.kernel, self.back_kernel, self.values(attrs))

    def _forward(self, o: Lowering) -> None:
        x, out = o.input("X"), o.output("Out")
        kernel, _, values = self.chosen(o.attrs)
        if out.size:
            o.call(kernel, x, out, out.size, *values)

    def _forward_scalars(self, attrs: Attrs, inputs: Mapping[str, Sequence[Any]]) -> list[Scalar]:
        kernel, _, values = self.chosen(attrs)
        return [Scalar("Out", kernel, ("X",), tuple(values))]

    def _backward_scalars(self, attrs: Attrs, inputs: Mapping[str, Sequence[Any]]) -> list[Scalar]:
        _, kernel, values = self.chosen(attrs)
        return [Scalar("X@GRAD", kernel, ("Out@GRAD", self.uses), tuple(values))]

    def _again(self, r: Again) -> None:
        """Say the gradient with ops, from the text of its function."""
        _, kernel, values = self.chosen(r.attrs)
        assert kernel is not None
        assert kernel.each is not None
        assert kernel.each.fn is not None
        g = r.input("Out@GRAD")
        r.instead[r.op.outputs["X@GRAD"][0]] = as_ops(r, kernel.each.fn, [g, r.input(self.uses), *values], g)

    def _backward(self, o: Lowering) -> None:
        out = o.output("X@GRAD")
        _, kernel, values = self.chosen(o.attrs)
        assert kernel is not None
        if not out.size:
            return

        def write(to: Any, begin: int, end: int) -> None:
            g, value = (Offset(b, begin) if begin else b for b in (o.input("Out@GRAD"), o.input(self.uses)))
            o.call(kernel, g, value, to, end - begin, *values)

        in_pieces(o, "X@GRAD", write)


def shapes(
    make: Callable[[np.random.Generator, tuple[int, ...]], Any] | None = None, **attrs: Any
) -> tuple[Sample, ...]:
    """Return the samples of a pointwise op: a matrix, an odd shape, one element, an empty batch.

    Args:
        make: `(rng, shape) -> array`, where normal numbers are not in the op's domain.
        attrs: attributes of a further sample, where an op has some.
    """

    def of(shape: tuple[int, ...]) -> Any:
        return shape if make is None else lambda rng: np.asarray(make(rng, shape))

    found = [
        Sample({"X": of((3, 4))}, name="a matrix"),
        Sample({"X": of((5, 7, 3))}, name="an odd shape"),
        Sample({"X": of((1,))}, name="one element"),
        Sample({"X": of((0, 3))}, name="an empty batch"),
    ]
    if attrs:
        found.append(Sample({"X": of((4, 17))}, attrs, "other attributes"))
    return tuple(found)


def away_from(*points: float) -> Callable[[Mapping[str, list[Any]]], dict[str, list[Any]]]:
    """Return a `kinks` function: moves values of X closer than 0.001 to a point away from it."""

    def move(arrays: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
        x = np.array(arrays["X"][0])
        for point in points:
            x = np.where(np.abs(x - point) < 1e-3, point + 2e-3, x)
        return {**arrays, "X": [x]}

    return move


def pointwise(
    name: str,
    *,
    uses: str = "X",
    attrs: Mapping[str, Attr] | None = None,
    values: Callable[[Attrs], Sequence[float]] | None = None,
    instead: Choice = None,
    check: Callable[[Attrs], None] | None = None,
    samples: Sequence[Sample] | None = None,
    kinks: Any = None,
    integers: bool = False,
    traits: Sequence[Trait] = (),
    faces: Sequence[Face | Functional] = (),
) -> Callable[[Any], Pointwise]:
    """Declare a pointwise op by decorating its scalar function, whose docstring is the op's.

    Args:
        name: fluid's name.
        uses: what the gradient reads, `X` or `Out`.
        attrs: attributes; each becomes a number argument of the functions, in this order, unless `values` says otherwise.
        values: attributes -> number arguments.
        instead: attributes -> other kernels, see `Pointwise`.
        check: raises PeError for attributes that make no sense together.
        samples: for the generated tests; default `shapes()`.
        kinks: see `OpDef`.
        integers: whether int32 and int64 are taken too.
        traits: what else it can do; it is pointwise, in place and of any layout anyway.
        faces: see `op`.

    Raises:
        PeError: when the op is inferred: an element type that it does not take, or what `check` raises.
    """
    declared = dict(attrs or {})
    allowed = NUMBERS if integers else FLOATS

    def infer(x: TensorType, **given: Any) -> TensorType:
        check_kind(name, x, allowed)
        if check:
            check(given)
        return x

    def make(fn: Any) -> Pointwise:
        infer.__doc__, infer.__module__ = fn.__doc__, fn.__module__
        definition = op(
            name,
            inputs="X",
            attrs=declared,
            traits=[InPlace({"Out": "X"}), Layout(), *traits],
            samples=shapes() if samples is None else samples,
            kinks=kinks,
            faces=faces,
        )(infer)
        numbers = values or (lambda given: [float(given[key]) for key in declared])
        made = Pointwise(definition, fn, uses, numbers, instead)
        POINTWISE[name] = made
        return made

    return make
