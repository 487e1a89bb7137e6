"""What reads one operator of PaddlePaddle 1.x, and the registry of those that are read in a way of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.fluid import program_desc
from pe_cli.io.fluid.program_desc import ELEMENTS, OpDesc
from pe_cli.layers.define.registry import find as find_layer
from pe_cli.ops.define.registry import OpDef, discover
from pe_cli.program.ir import EMPTY, Block, Variable
from pe_cli.program.param_attr import ParamAttr

#: Attributes that say how an operator is computed, not what, and those of operators on several machines.
NO_MATTER = {
    "use_cudnn", "use_mkldnn", "use_quantizer", "workspace_size_MB", "exhaustive_search", "op_role", "op_role_var", "op_namescope",
    "op_callstack", "op_device", "force_cpu", "min_row_size_to_use_multithread", "is_test", "trainer_id", "remote_prefetch",
    "grad_inplace", "x_data_format", "y_data_format", "fix_seed", "infer_flags", "use_calc_stream", "mkldnn_data_type",
    "trainable_statistics", "str_value", "in_dtype", "infer_shape", "Scale_weights", "Scale_in", "Scale_out", "Scale_in_eltwise",
    "Scale_x", "Scale_y", "scale_x", "scale_y", "scale_out", "head_number", "fuse_brelu_threshold", "fuse_alpha", "fuse_beta",
    "padding_algorithm", "out_dtype",
}  # fmt: skip
#: Values of further attributes with which an operator does what it does without them.
_PLAIN: tuple[Any, ...] = (None, False, 0, 0.0, 1.0, "", [], "AnyLayout", "NCHW", "EXPLICIT", "float32")
HINT = "export the model with its operators written in others, or run it with PaddlePaddle"


@dataclass(frozen=True)
class LayerCall:
    """A layer that was called for an operator.

    Attributes:
        layer: its name.
        given: its arguments by name, with variables.
        begin, end: numbers of the operators that it has appended, without the last.
        result: what it returned.
    """

    layer: str
    given: Mapping[str, Any]
    begin: int
    end: int
    result: Any


@dataclass
class Reader:
    """One operator that is read: its description, and the block that operators are appended to.

    Attributes:
        op: as the file has it.
        block: of the program that is made.
        number: of the operator, from 0.
        begin: number of the first operator that is appended for it.
        calls: layers that were called for it.
    """

    op: OpDesc
    block: Block
    number: int
    begin: int = 0
    calls: list[LayerCall] = field(default_factory=list)

    def names(self, slot: str, *, outputs: bool = False) -> list[str]:
        """Return the names of a slot, without those that name nothing."""
        found = (self.op.outputs if outputs else self.op.inputs).get(slot, [])
        return [name for name in found if name != EMPTY]

    def one(self, slot: str) -> Variable:
        """Return the variable of an input slot.

        Raises:
            PeError: there is none.
        """
        names = self.names(slot)
        if len(names) != 1:
            raise PeError(f"slot {slot} has {len(names)} variables, and one is needed")
        return self.block.var(names[0])

    def out(self, slot: str = "Out") -> str:
        """Return the name of an output slot, one that nobody reads where it has none."""
        names = self.names(slot, outputs=True)
        return names[0] if names else self.block.program.unique(f"operator_{self.number}.{slot}")

    def attr(self, name: str, default: Any) -> Any:
        """Return an attribute of the type of its default.

        Raises:
            PeError: it is of another type.
        """
        value = self.op.attrs.get(name, default)
        # Protobuf keeps whole numbers apart from floats, and writers of models put either.
        if isinstance(default, float) and type(value) in (int, program_desc.Long):
            value = float(value)
        if not isinstance(value, type(default)) or isinstance(default, bool) != isinstance(value, bool):
            raise PeError(f"attribute {name} is {value!r:.60}, which is no {type(default).__name__}")
        return value

    def unless(self, **plain: Any) -> None:
        """Refuse attributes that are not as given.

        Raises:
            PeError: one of them says something else.
        """
        for name, value in plain.items():
            if self.op.attrs.get(name, value) != value:
                raise PeError(f"{name} is {self.op.attrs[name]!r:.60}; only {value!r} is read")

    def element(self, name: str, default: int = 5) -> str:
        """Return the element type that an attribute numbers.

        Raises:
            PeError: there is no such type.
        """
        number = self.attr(name, default)
        if number not in ELEMENTS:
            raise PeError(f"{name} is the element type {number}")
        return ELEMENTS[number]

    def emit(self, type: str, inputs: dict[str, Any], outputs: dict[str, Any], attrs: dict[str, Any] | None = None) -> None:
        """Append an operator."""
        self.block.append_op(type, inputs, outputs, attrs or {})

    def made(self, type: str, inputs: dict[str, Any], attrs: dict[str, Any] | None = None, out: str = "Out") -> Variable:
        """Append an operator whose output is a variable without a name of the file's, and return that."""
        name = self.block.program.unique(f"operator_{self.number}.at")
        self.emit(type, inputs, {out: name}, attrs)
        return self.block.var(name)

    def give(self, slot: str, value: Variable) -> None:
        """Let an output of the file be a variable that was made for it."""
        name, given = self.out(slot), {n for names in self.op.inputs.values() for n in names}
        # A value that is an input, or a name that is taken, cannot be renamed: it is copied.
        if value.name in given or name in self.block.vars:
            self.emit("assign", {"X": value}, {"Out": name})
        else:
            self.block.rename_var(value.name, name, self.begin)

    def layer(self, name: str, *given: Any, **more: Any) -> Any:
        """Append a layer of the catalogue, and return what it returns."""
        fn, begin = find_layer(name).fn, len(self.block.ops)
        result = fn(*given, **more)
        arguments = inspect.signature(fn).bind(*given, **more).arguments
        self.calls.append(LayerCall(name, arguments, begin, len(self.block.ops), result))
        return result

    def named(self, slot: str) -> ParamAttr | bool:
        """Return what makes a layer use the variable of a slot as its parameter; False where there is none."""
        names = self.names(slot)
        return ParamAttr(name=names[0]) if names else False

    def same(self, type: str | None = None, *, leave: Sequence[str] = (), slots: dict[str, str] | None = None, **attrs: Any) -> None:
        """Append the operator of the same name, or of another one.

        Args:
            type: name of the operator here.
            leave: attributes and slots of the file without an effect here.
            slots: slot of the file -> slot here, where they differ.
            attrs: attributes that are given instead of those of the file.

        Raises:
            PeError: it has a slot or an attribute that says something that the operator here cannot do.
        """
        definition, known = discover()[type or self.op.type], slots or {}
        inputs = self._slots(definition.slot_names(outputs=False), self.op.inputs, known, leave, strict=True)
        outputs = self._slots(definition.slot_names(outputs=True), self.op.outputs, known, leave, strict=False)
        for slot in definition.outputs:
            # Outputs that the file leaves out are made all the same: kernels write all they have.
            if slot.name not in outputs and not slot.optional and not slot.variadic:
                outputs[slot.name] = [self.block.program.unique(f"operator_{self.number}.{slot.name}")]
        self.emit(definition.name, inputs, outputs, {**self._attrs(definition, leave), **attrs})

    def _slots(
        self, ours: list[str], theirs: dict[str, list[str]], known: dict[str, str], leave: Sequence[str], *, strict: bool
    ) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for slot, given in theirs.items():
            names = [name for name in given if name != EMPTY]
            name = known.get(slot, slot)
            if name in ours and names:
                found[name] = names
            # An input that is not understood changes what the operator does: refused rather than dropped.
            elif names and strict and slot not in leave:
                raise PeError(f"its input {slot} is not read")
        return found

    def _attrs(self, definition: OpDef, leave: Sequence[str]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, value in self.op.attrs.items():
            if name in definition.attrs:
                default = definition.attrs[name].default
                # Element types are numbers in the file and names here.
                numbered = isinstance(default, str) and isinstance(value, int) and name.endswith("dtype")
                if numbered and value == -1:  # no element type is said: that of the default
                    continue
                value = ELEMENTS.get(value, "") if numbered else value
                found[name] = _plain(value)
            elif name not in NO_MATTER and name not in leave and not _says_nothing(value) and not name.startswith("@"):
                raise PeError(f"its attribute {name} is {value!r:.60}, which is not read")
        return found


def _says_nothing(value: Any) -> bool:
    # By types, too: True and 1 are equal to 1.0, and they do say something.
    plain = _plain(value)
    return any(type(plain) is type(known) and plain == known for known in _PLAIN)


def _plain(value: Any) -> Any:
    """Return a whole number of the file as a plain one."""
    if isinstance(value, list):
        return [_plain(v) for v in value]
    return int(value) if isinstance(value, int) and not isinstance(value, bool) else value


#: Type of operator in the file -> what appends the operators that do the same.
READERS: dict[str, Callable[[Reader], None]] = {}


def reads(*types: str) -> Callable[[Callable[[Reader], None]], Callable[[Reader], None]]:
    """Register what reads operators of these types; a decorator."""

    def keep(fn: Callable[[Reader], None]) -> Callable[[Reader], None]:
        for type_ in types:
            assert type_ not in READERS, f"{type_} has two readers"
            READERS[type_] = fn
        return fn

    return keep
