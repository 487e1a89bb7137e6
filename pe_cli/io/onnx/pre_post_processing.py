"""Pre- and post-processing in ONNX: nodes from raw columns to feeds, and from outputs to class names and units."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.core.encoding import (
    TEXT,
    Above,
    Affine,
    Around,
    AtLeast,
    Best,
    Both,
    Cast,
    ChannelsFirst,
    Check,
    Clip,
    Column,
    Count,
    Empty,
    Exponential,
    Fed,
    Fill,
    HyperbolicSine,
    Interpolate,
    Logarithm,
    Lookup,
    Names,
    OneHot,
    Reshape,
    Sigmoid,
    SignedLogarithm,
    Softmax,
    Standardise,
    Step,
    Wave,
)
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.io.onnx.writer import Lists, renamed

#: The set of operators that looks texts up.
ML = "ai.onnx.ml"
#: Version of it: what every runtime has that reads opset 18.
ML_OPSET = 3


class DataNodes:
    """Writes the data's side of a model around its nodes.

    Args:
        around: what is written.
        lists: nodes of the model, which grow at both ends.
        types: of all variables of the model.
        rows: feed with sequences -> name of its first axis.

    Raises:
        PeError: an output and a column have the same name.
    """

    def __init__(self, around: Around, lists: Lists, types: Mapping[str, TensorType], rows: Mapping[str, str]) -> None:
        self.around, self._lists, self._types = around, lists, types
        self.inputs: dict[str, tuple[str, list[str | int | None]]] = {}
        self._made = 0
        # One input for each raw column, whatever number of feeds it becomes.
        for feed, fed in around.feeds.items():
            for source in (lane.source for lane in fed.lanes):
                sizes = [f"{source.name}_items" if size < 0 else size for size in source.kind.shape]
                self.inputs[source.name] = (source.kind.dtype, [rows.get(feed, "batch"), *sizes])
        told = {one.name for one in around.outputs if one.steps or one.name != one.variable}
        kept = {one.name for one in around.outputs} - told
        clash = sorted((kept | told) & set(self.inputs))
        if clash:
            raise PeError(f"an output and a column of the data are called '{clash[0]}'", hint="rename the variable, or write --raw")
        #: Name of a variable -> its name in the graph, where raw columns or outputs have taken it.
        self.renamed: dict[str, str] = {
            name: self._inner(name, set(types)) for name in types if name in self.inputs or name in told
        }

    @staticmethod
    def _inner(name: str, taken: set[str]) -> str:
        # Names must differ from all in the graph; an ending that no column has is found by trying.
        inner = f"{name}@model"
        while inner in taken:
            inner += "@"
        return inner

    def inner(self, name: str) -> str:
        """Return what a variable is called in the graph."""
        return self.renamed.get(name, name)

    def write(self) -> None:
        """Put the data's side around the nodes that are there."""
        # The model's nodes are set aside and put back between what prepares their inputs and what decodes their outputs.
        middle = [renamed(node, self.inner) for node in self._lists.nodes]
        self._lists.nodes = []
        for feed, fed in self.around.feeds.items():
            self._feed(feed, fed)
        for feed, value in self.around.constants.items():
            self._add("Identity", [self._lists.constant(np.asarray(value))], to=self.inner(feed))
        self._lists.nodes += middle
        for one in self.around.outputs:
            if one.steps or one.name != one.variable:
                self._add("Identity", [self._steps(self.inner(one.variable), one.steps, self._types[one.variable])], to=one.name)

    def _feed(self, feed: str, fed: Fed) -> None:
        parts = []
        for lane in fed.lanes:
            value = self._steps(lane.source.name, lane.steps, lane.source.kind)
            # Columns of several types are joined only after they have one.
            if lane.kind.dtype != fed.dtype:
                value = self._step(value, Cast(fed.dtype), lane.kind)
            parts.append(value)
        value = parts[0] if len(parts) == 1 else self._add("Concat", parts, axis=-1)
        kind = TensorType(fed.lanes[0].kind.shape, fed.dtype)
        self._add("Identity", [self._steps(value, fed.steps, kind)], to=self.inner(feed))

    def _steps(self, value: str, steps: Sequence[Step], kind: TensorType) -> str:
        for step in steps:
            value = self._step(value, step, kind)
            kind = step.after(kind)
        return value

    def _step(self, value: str, step: Step, kind: TensorType) -> str:
        return _WRITERS[type(step)](self, value, step, kind.dtype)

    def _add(self, kind: str, inputs: list[str], to: str | None = None, **attrs: Any) -> str:
        if to is None:
            self._made += 1
            to = f"data@{self._made}"
        self._lists.add(kind, inputs, [to], attrs)
        return to

    def _const(self, value: Any, dtype: str) -> str:
        return self._lists.constant(np.asarray(value, object if dtype == TEXT else dtype))

    # --- one method for each step: names and values to the name of the result -------------------------------------------

    def _fill(self, x: str, step: Fill, dtype: str) -> str:
        return self._add("Where", [self._add("IsNaN", [x]), self._const(step.value, dtype), x])

    def _empty(self, x: str, step: Empty, dtype: str) -> str:
        for value in step.values:
            x = self._add("Where", [self._add("Equal", [x, self._const(value, dtype)]), self._const(np.nan, dtype), x])
        return x

    def _clip(self, x: str, step: Clip, dtype: str) -> str:
        return self._add("Clip", [x, self._const(step.low, dtype), self._const(step.high, dtype)])

    def _standardise(self, x: str, step: Standardise, dtype: str) -> str:
        away = self._add("Sub", [x, self._const(step.shift, dtype)])
        return self._add("Div", [away, self._const(step.divisor, dtype)])

    def _affine(self, x: str, step: Affine, dtype: str) -> str:
        found = self._add("Mul", [x, self._const(step.factor, dtype)])
        return found if set(step.shift) == {0.0} else self._add("Add", [found, self._const(step.shift, dtype)])

    def _logarithm(self, x: str, step: Logarithm, dtype: str) -> str:
        return self._add("Log", [self._add("Add", [x, self._const(step.added, dtype)]) if step.added else x])

    def _signed_logarithm(self, x: str, step: SignedLogarithm, dtype: str) -> str:
        # Operators Asinh and Sinh have no double in onnxruntime.
        size = self._add("Abs", [x])
        root = self._add("Sqrt", [self._add("Add", [self._add("Mul", [size, size]), self._const(1.0, dtype)])])
        return self._add("Mul", [self._add("Sign", [x]), self._add("Log", [self._add("Add", [size, root])])])

    def _hyperbolic_sine(self, x: str, step: HyperbolicSine, dtype: str) -> str:
        both = self._add("Sub", [self._add("Exp", [x]), self._add("Exp", [self._add("Neg", [x])])])
        return self._add("Div", [both, self._const(2.0, dtype)])

    def _exponential(self, x: str, step: Exponential, dtype: str) -> str:
        found = self._add("Exp", [x])
        return self._add("Sub", [found, self._const(step.added, dtype)]) if step.added else found

    def _check(self, x: str, step: Check, dtype: str) -> str:
        if step.test == "finite":
            bad = self._add("Or", [self._add("IsNaN", [x]), self._add("IsInf", [x])])
        elif step.test == "whole":
            bad = self._add("Not", [self._add("Equal", [x, self._add("Round", [x])])])
        else:
            low = self._add("Less", [x, self._const(0, dtype)])
            bad = self._add("Or", [low, self._add("GreaterOrEqual", [x, self._const(step.limit, dtype)])])
        # ONNX has no way to raise an error.
        # element 1 of one element: a runtime ends with an error that tells the node's name
        zero = self._add("Gather", [self._const([0], dtype), self._add("Cast", [bad], to_=7)], name=step.said)
        return self._add("Add", [x, zero])

    def _lookup(self, x: str, step: Lookup, dtype: str) -> str:
        # An empty cell and the texts that stand for missing all become the same index.
        table = dict.fromkeys(("", *self.around.missing), step.missing) | dict(zip(step.words, step.indices, strict=True))
        return self._add(
            "LabelEncoder", [x], domain=ML, keys_strings=list(table), values_int64s=list(table.values()), default_int64=step.unknown
        )

    def _one_hot(self, x: str, step: OneHot, dtype: str) -> str:
        ids = x if dtype == "int64" else self._add("Cast", [x], to_=7)
        # OneHot adds an axis: a flat list of indices gives one row per sample.
        flat = self._add("Reshape", [ids, self._const([-1], "int64")])
        rows = self._add("OneHot", [flat, self._const([step.width], "int64"), self._const([0, 1], "float32")], axis=-1)
        return rows if step.dtype == "float32" else self._cast(rows, Cast(step.dtype), "float32")

    def _count(self, x: str, step: Count, dtype: str) -> str:
        rows = self._add("OneHot", [x, self._const([step.width], "int64"), self._const([0, 1], "float32")], axis=-1)
        found = self._add("ReduceSum", [rows, self._const([1], "int64")], keepdims=0)
        return self._add("Min", [found, self._const(1, "float32")]) if step.once else found

    def _wave(self, x: str, step: Wave, dtype: str) -> str:
        away = self._add("Sub", [x, self._const(step.first, dtype)])
        angle = self._add("Mul", [away, self._const(2 * np.pi / step.period, dtype)])
        return self._add("Concat", [self._add("Sin", [angle]), self._add("Cos", [angle])], axis=-1)

    def _cast(self, x: str, step: Cast, dtype: str) -> str:
        from pe_cli.ops.define.onnx import element_type

        return x if step.dtype == dtype else self._add("Cast", [x], to_=element_type(step.dtype))

    def _reshape(self, x: str, step: Reshape, dtype: str) -> str:
        return self._add("Reshape", [x, self._const([-1, *step.shape], "int64")])

    def _channels_first(self, x: str, step: ChannelsFirst, dtype: str) -> str:
        return self._add("Transpose", [x], perm=[0, 3, 1, 2])

    def _best(self, x: str, step: Best, dtype: str) -> str:
        return self._add("ArgMax", [x], axis=-1, keepdims=1)

    def _above(self, x: str, step: Above, dtype: str) -> str:
        return self._add("Cast", [self._add("Greater", [x, self._const(step.limit, dtype)])], to_=7)

    def _column(self, x: str, step: Column, dtype: str) -> str:
        return self._add("Gather", [x, self._const([step.index], "int64")], axis=-1)

    def _both(self, x: str, step: Both, dtype: str) -> str:
        return self._add("Concat", [self._add("Sub", [self._const(1, dtype), x]), x], axis=-1)

    def _softmax(self, x: str, step: Softmax, dtype: str) -> str:
        return self._add("Softmax", [x], axis=-1)

    def _sigmoid(self, x: str, step: Sigmoid, dtype: str) -> str:
        return self._add("Sigmoid", [x])

    def _interpolate(self, x: str, step: Interpolate, dtype: str) -> str:
        parts = []
        for i, (at, to) in enumerate(zip(step.at, step.to, strict=True)):
            one = x if len(step.at) == 1 else self._column(x, Column(i), dtype)
            # the way that is gone along each line, times how fast it rises; a line of length 1 stands for none
            lengths, rises = np.diff(at, append=at[-1] + 1.0), np.diff(to, append=to[-1])
            gone = self._add("Max", [self._add("Sub", [one, self._const(at, dtype)]), self._const(0, dtype)])
            gone = self._add("Min", [gone, self._const(lengths, dtype)])
            risen = self._add("MatMul", [gone, self._const((rises / lengths)[:, None], dtype)])
            parts.append(self._add("Add", [risen, self._const(to[0], dtype)]))
        return parts[0] if len(parts) == 1 else self._add("Concat", parts, axis=-1)

    def _at_least(self, x: str, step: AtLeast, dtype: str) -> str:
        return self._add("Cast", [self._add("GreaterOrEqual", [x, self._const(step.limits, dtype)])], to_=7)

    def _names(self, x: str, step: Names, dtype: str) -> str:
        return self._add("Gather", [self._const(list(step.words), TEXT), x])


_WRITERS: dict[type[Step], Callable[..., str]] = {
    Empty: DataNodes._empty, Fill: DataNodes._fill, Clip: DataNodes._clip, Standardise: DataNodes._standardise,
    Affine: DataNodes._affine, Logarithm: DataNodes._logarithm, Exponential: DataNodes._exponential,
    SignedLogarithm: DataNodes._signed_logarithm, HyperbolicSine: DataNodes._hyperbolic_sine,
    Check: DataNodes._check, Lookup: DataNodes._lookup, OneHot: DataNodes._one_hot, Count: DataNodes._count,
    Wave: DataNodes._wave, Cast: DataNodes._cast, Reshape: DataNodes._reshape, ChannelsFirst: DataNodes._channels_first,
    Best: DataNodes._best, Above: DataNodes._above, Names: DataNodes._names, Column: DataNodes._column, Both: DataNodes._both,
    Softmax: DataNodes._softmax, Sigmoid: DataNodes._sigmoid, Interpolate: DataNodes._interpolate, AtLeast: DataNodes._at_least,
}  # fmt: skip
