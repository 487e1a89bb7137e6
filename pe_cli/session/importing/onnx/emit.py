"""Makes layers of a model file, and appends them to a program at the same time, which says their shapes and what does not fit."""

from __future__ import annotations

import inspect
import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from pe_cli.config.block_expansion import MAX_LAYERS
from pe_cli.config.substitute import escaped
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.layers.define.registry import find
from pe_cli.program.defaults import program_guard
from pe_cli.program.initializer import INITIALIZERS
from pe_cli.program.ir import Program, Variable
from pe_cli.program.param_attr import PARAM_ATTRS
from pe_cli.session.importing.onnx.file import MOST_AXES, MOST_ELEMENTS
from pe_cli.session.importing.onnx.values import Array, Size, Symbol, Unimportable, Value

#: Layers whose output has other sizes than their inputs beyond the first axis.
_MOVES = frozenset({
    "reshape", "transpose", "squeeze", "unsqueeze", "stack", "gather", "slice", "strided_slice", "expand", "tile", "conv2d", "conv3d",
    "conv2d_transpose", "conv3d_transpose", "pool2d", "pool3d", "pad", "pad2d", "image_resize", "resize_nearest", "concat",
})  # fmt: skip
#: Characters of a name.
_LONGEST = 200
#: The largest float32.
_LARGEST = float(np.finfo(np.float32).max)
#: A name that files of values keep for themselves.
_METADATA = "__metadata__"


class Emitter:
    """The layers of a model while it is read.

    Args:
        name: of the model.
        from_torch: PyTorch's exporter has written the file.
        training: what the file does as in training is so in training alone.

    Attributes:
        feeds, layers: as a model file has them.
        arrays: values of parameters.
        notes: remarks for users, in order, each once.
        fixed: values that the file says to be no parameters, though layers have them as such.
        constants: those of them that stand in nodes, where PyTorch keeps no parameters; as the keys of a mapping, in order.
    """

    def __init__(self, name: str, from_torch: bool = False, training: bool = False) -> None:
        self.name, self.from_torch, self._training = name, from_torch, training
        self.program, self._startup = Program("main"), Program("startup")
        self.block = self.program.main_block
        self.feeds: dict[str, dict[str, Any]] = {}
        self.layers: dict[str, dict[str, Any]] = {}
        self.arrays: dict[str, Array] = {}
        self.notes: dict[str, None] = {}
        self.fixed: set[str] = set()
        self.constants: dict[str, None] = {}
        self.dims: dict[str, tuple[Size, ...]] = {}
        self._parameters: dict[tuple[str, str], Value] = {}
        self._made: dict[str, Variable] = {}
        self._taken: set[str] = set()

    # --- names --------------------------------------------------------------------------------------------------------

    def key(self, wanted: str) -> str:
        """Return a name for a layer or feed that is like a wanted one, and that nothing else has."""
        text = re.sub(r"[^A-Za-z0-9_-]+", "_", wanted[:_LONGEST]).strip("_-") or "value"
        text = text if text[0].isalpha() else f"v_{text}"
        names = itertools.chain([text], (f"{text}_{i}" for i in itertools.count(2)))
        found = next(name for name in names if name not in self._taken and name not in self.block.vars)
        self._taken.add(found)
        return found

    def rename(self, value: Value, key: str) -> Value:
        """Give the layer that computes a variable another name, which was kept for it; nothing has read it yet."""
        old = str(value.variable)
        self.layers[key] = self.layers.pop(old)
        self._made[key], self.dims[key] = self._made[old], self.dims[old]
        return Value(value.dtype, variable=key, dims=value.dims, scalar=value.scalar)

    def move(self, value: Value, wanted: str) -> Value:
        """Give the layer that computes a variable, which no layer reads, another name; the old one is kept for the next layer."""
        old, new = str(value.variable), self.key(wanted)
        self.layers = {new if name == old else name: layer for name, layer in self.layers.items()}
        if self._made[old].name == old:  # a layer that another has been merged with has its variable under the first name
            self.block.rename_var(old, new)
        self._made[new], self.dims[new] = self._made.pop(old), self.dims.pop(old)
        return Value(value.dtype, variable=new, dims=value.dims, scalar=value.scalar)

    def known(self) -> Iterable[Value]:
        """Return what is fed, and then what layers have made, as variables."""
        names = [*self.feeds, *(name for name in self.dims if name not in self.feeds)]
        return (Value(self._made[name].dtype, variable=name, dims=self.dims[name]) for name in names)

    def note(self, text: str) -> None:
        """Keep a remark for users."""
        self.notes.setdefault(text)

    def check_training(self, why: str) -> None:
        """Refuse a node that the file has in the form of training, where users have not said what that means.

        Raises:
            Unimportable: they have not.
        """
        if not self._training:
            raise Unimportable(f"training_mode: {why}", "--training makes it a layer that does so in training alone")
        self.note("--training: batch norms and dropout do as the file says in training, and in evaluation as networks are used")

    # --- feeds, parameters and constants ------------------------------------------------------------------------------

    def feed(self, wanted: str, dims: Sequence[Size], dtype: str, batch: bool) -> Value:
        """Declare an input; with `batch` its first axis is that of the batch."""
        name = self.key(wanted)
        sizes = [size if isinstance(size, int) else -1 for size in dims]
        declared: dict[str, Any] = {"shape": sizes[1:] if batch else sizes, "dtype": dtype}
        self.feeds[name] = declared if batch else {**declared, "replicate": True}
        kind = TensorType((-1, *sizes[1:]) if batch else tuple(sizes), dtype)
        self._made[name] = self.block.create_var(name, kind, is_data=True, stop_gradient=True)
        self.dims[name] = tuple(dims)
        return Value(dtype, variable=name, dims=tuple(dims))

    def parameter(self, value: Array, wanted: str) -> str:
        """Keep the value of a parameter; return its name, as wanted where that is free or holds the same value."""
        wanted = f"{wanted[:_LONGEST]}_" if len(wanted) > _LONGEST or wanted in ("", _METADATA) else wanted
        names = itertools.chain([wanted], (f"{wanted}_{i}" for i in itertools.count(2)))
        name = next(n for n in names if (_same(self.arrays[n], value) if n in self.arrays else n not in self.block.vars))
        if name != wanted:
            self.note(f"'{wanted}' is used in several ways: '{name}' is a copy of it, which is trained apart")
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            self.note(f"'{wanted}' has values that are NaN or infinite")
        if wanted in self.fixed:
            self.fixed.add(name)
        self.arrays[name] = np.ascontiguousarray(value).reshape(value.shape)
        return name

    def normalised(self, directions: Array, lengths: Array, wanted: str) -> str:
        """Keep the directions and lengths of a weight; return its name, as wanted where that is free or holds the same ones."""
        names = itertools.chain([wanted], (f"{wanted}_{i}" for i in itertools.count(2)))
        pairs = ((name, ((f"{name}_v", directions), (f"{name}_g", lengths))) for name in names)
        free = ((name, pair) for name, pair in pairs if name not in self.arrays)
        name, pair = next(
            (name, pair)
            for name, pair in free
            if all(_same(self.arrays[part], value) if part in self.arrays else part not in self.block.vars for part, value in pair)
        )
        for part, value in pair:
            self.parameter(value, part)
        return name

    def variable(self, value: Value, wanted: str) -> Value:
        """Return a value as a variable; a constant becomes a layer that makes it.

        Raises:
            Unimportable: the value consists of sizes that only a step knows, or is a sequence.
        """
        if value.items is not None:
            raise Unimportable(f"a sequence of {len(value.items)} values is read as one, and no layer has lists")
        if value.sizes is not None:
            if value.later is None:
                raise Unimportable("sizes that are known only in a step are computed with")
            return value.later()
        if value.constant is None:
            return value
        if value.later is not None:
            return self.variable(value.later(), wanted)
        return self._constant(value.constant, value.initializer, wanted, value.trained)

    def _constant(self, array: Array, initializer: str | None, wanted: str, trained: bool) -> Value:
        scalar, dtype = array.ndim == 0, array.dtype.name
        shape = [1] if scalar else list(array.shape)
        first = array.reshape(-1)[0] if array.size else dtype == "bool"
        # fill_constant has its number as float64, which knows whole numbers up to 2^53.
        plain = bool((array == first).all()) and math.isfinite(float(first)) and abs(float(first)) < 2**53
        # A name that is kept for a layer is none for a parameter.
        free = (name for name in itertools.chain([wanted], (f"{wanted}_{i}" for i in itertools.count(2))) if name not in self._taken)
        name = initializer or next(free)
        if plain and not trained:
            held = self.layer("fill_constant", f"{name}_value", {"shape": shape, "dtype": dtype, "value": float(first)})
            return Value(dtype, variable=held.variable, dims=held.dims, scalar=scalar)
        key = (name, f"{dtype}{shape}{hash(array.tobytes())}")
        if key in self._parameters:
            return self._parameters[key]
        attr: dict[str, Any] = {"name": self.parameter(array.reshape(shape), name)}
        if not trained:
            attr |= {"trainable": False, "initializer": {"type": "Constant", "value": 0.0}}
        made = self.layer("create_parameter", f"{name}_table", {"shape": shape, "dtype": dtype, "attr": attr})
        self._parameters[key] = Value(dtype, variable=made.variable, dims=made.dims, scalar=scalar)
        return self._parameters[key]

    # --- layers -------------------------------------------------------------------------------------------------------

    def layer(
        self, type: str, wanted: str, args: Mapping[str, Any], dims: Sequence[Size] | None = None, own: bool = False
    ) -> Value:
        """Append a layer; return its first output; see `outputs_of`."""
        return self.outputs_of(type, wanted, args, dims, own)[0]

    def outputs_of(
        self, type: str, wanted: str, args: Mapping[str, Any], dims: Sequence[Size] | None = None, own: bool = False
    ) -> list[Value]:
        """Append a layer.

        Args:
            type: of the layer.
            wanted: its name, where that is free.
            args: with `Value` for variables.
            dims: sizes of its output, where symbols in it are known.
            own: the name is kept for this layer; see `reserve`.

        Returns:
            Its outputs.

        Raises:
            PeError: what it is given does not fit.
        """
        if len(self.layers) >= MAX_LAYERS:
            raise Unimportable(f"the model has more than {MAX_LAYERS:,} layers")
        definition = find(type)
        key = wanted if own and wanted not in self.layers else self.key(wanted)
        declared = definition.args
        wide = "float64" in (args.get("dtype"), *(value.dtype for value in _values_in(args)))
        written = {name: _written(value if wide else shortened(value)) for name, value in args.items()}
        called = {name: self._given(declared[name].kind, value) for name, value in args.items()}
        named = {"name": key} if "name" in inspect.signature(definition.fn).parameters else {}
        count, first = len(self.block.vars), len(self.block.ops)
        try:
            with program_guard(self.program, self._startup):
                result = _flat(definition.fn(**called, **named))
        except PeError:
            # What is tried instead may take the name.
            if not own:
                self._taken.discard(key)
            raise
        fresh = set(itertools.islice(reversed(self.block.vars), len(self.block.vars) - count))
        found = []
        inputs = _values_in(args)
        for i, output in enumerate(result):
            name = key if len(result) == 1 else f"{key}.{i}"
            if output.name in fresh and not output.persistable and output.name != name:
                self.block.rename_var(output.name, name, first)
            self._made[name] = output
            if len(output.shape) > MOST_AXES or math.prod(size for size in output.shape if size > 0) > MOST_ELEMENTS:
                raise Unimportable(f"it would make {[*output.shape[:MOST_AXES]]}, and a value has {MOST_ELEMENTS:,} elements at most")
            self.dims[name] = tuple(dims) if dims is not None and i == 0 else self._dims(type, output, name, inputs)
            found.append(Value(output.dtype, variable=name, dims=self.dims[name]))
        self.layers[key] = {"type": type, **{name: self.attr(value) for name, value in written.items()}}
        return found

    def attr(self, value: Any) -> Any:
        """Return an argument in which a value that is no parameter is not trained."""
        fixed = isinstance(value, Mapping) and value.get("name") in self.fixed
        return {**value, "trainable": False} if fixed else value

    def _dims(self, type: str, output: Variable, name: str, inputs: Sequence[Value]) -> tuple[Size, ...]:
        """Return the sizes of an output, with those symbols of an input that stand at the same axis."""
        made: list[Size] = []
        for axis, size in enumerate(output.shape):
            like = [v.dims[axis] for v in inputs if len(v.dims) == len(output.shape)] if type not in _MOVES else []
            like += [v.dims[0] for v in inputs if axis == 0 and v.dims]
            symbol = next((one for one in like if isinstance(one, Symbol)), Symbol(f"{name}:{axis}"))
            made.append(size if size >= 0 else symbol)
        return tuple(made)

    def _given(self, kind: str, value: Any) -> Any:
        """Return an argument as a layer's function takes it."""
        if isinstance(value, Value):
            return self._made[str(value.variable)]
        if kind == "variables":
            return [self._made[str(one.variable)] for one in (value if isinstance(value, list) else [value])]
        if kind == "param_attr" and isinstance(value, Mapping):
            facts = dict(value)
            made, start = PARAM_ATTRS[facts.pop("type", "plain")], facts.pop("initializer", None)
            if start is not None:
                start = dict(start)
                facts["initializer"] = INITIALIZERS[start.pop("type")](**start)
            return made(**facts)
        return value


def shortened(value: Any) -> Any:
    """Return an argument with the shortest numbers that are the same float32: ONNX's attributes are float32.

    >>> shortened([9.999999747378752e-06, 0.125, 0.30000000001])
    [1e-05, 0.125, 0.30000000001]
    """
    if isinstance(value, Mapping):
        return {name: shortened(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [shortened(one) for one in value]
    if not isinstance(value, float) or not -_LARGEST <= value <= _LARGEST or float(np.float32(value)) != value:
        return value
    return float(str(np.float32(value)))


def _values_in(args: Mapping[str, Any]) -> list[Value]:
    return [one for value in args.values() for one in (value if isinstance(value, list) else [value]) if isinstance(one, Value)]


def _same(one: Array, other: Array) -> bool:
    return one.shape == other.shape and one.dtype == other.dtype and one.tobytes() == other.tobytes()


def _written(value: Any) -> Any:
    """Return an argument as a model file has it."""
    if isinstance(value, Value):
        return value.variable
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, Mapping):
        return {name: _written(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_written(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise Unimportable(f"a layer is given {value}, which no model file can say")
    return value


def _flat(result: Any) -> list[Variable]:
    return [v for each in result for v in _flat(each)] if isinstance(result, Iterable) and not isinstance(result, Variable) else [result]

