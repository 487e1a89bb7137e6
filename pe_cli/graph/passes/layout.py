"""layout: run image operators with channels last inside, whatever the model says.

Kernels read channels-last images (NHWC) contiguously. The pass gives every image that an NCHW operator reads or writes a twin in NHWC,
switches the operator, and puts a transpose only where another operator (or a fetch) needs the written order. Values stay the same.
"""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.core.types import TensorType
from pe_cli.ops.define.registry import GRAD, forward_name
from pe_cli.ops.define.traits import AlongChannels, Layout
from pe_cli.program.ir import EMPTY, Block, Operator, Program

TO_LAST = [0, 2, 3, 1]
TO_FIRST = [0, 3, 1, 2]


def run(program: Program, fetches: Collection[str]) -> tuple[Program, str]:
    """Return the program with channels last inside, and a sentence on what was done."""
    block = program.main_block
    aware = [op for op in block.ops if _data_format(op) == "NCHW" and _images(block, op)]
    if not aware:
        return program, "layout: no operator on images in NCHW"
    made = program.clone()
    made.is_test = program.is_test
    walk = _Walk(made.main_block, fetches)
    walk.run()
    return made, f"layout: {walk.switched} operators run channels-last, {walk.transposes} transposes"


def _data_format(op: Operator) -> str | None:
    layout = op.definition.get(Layout)
    return op.attrs.get(layout.attr) if layout and layout.attr else None


def _slots(op: Operator) -> set[str]:
    layout = op.definition.get(Layout)
    names = set(layout.slots) if layout else set()
    return names | {s + GRAD for s in names}


def _images(block: Block, op: Operator) -> list[str]:
    """Return the 4-D variables in an operator's image slots."""
    wanted = _slots(op)
    found = []
    for slots in (op.inputs, op.outputs):
        for slot, names in slots.items():
            if slot in wanted:
                found += [n for n in names if n != EMPTY]
    return found if all(len(block.var(n).shape) == 4 for n in found) else []


def twin(name: str) -> str:
    """Return the name of a variable's channels-last twin: `x@GRAD` -> `x@NHWC@GRAD`."""
    base = forward_name(name)
    return f"{base}@NHWC{name[len(base) :]}"


def _moved(kind: TensorType, order: list[int]) -> TensorType:
    return kind.with_shape(*(kind.shape[i] for i in order))


class _Walk:
    """One walk over a block's operators, rewriting them in place."""

    def __init__(self, block: Block, fetches: Collection[str]) -> None:
        self.block = block
        self.fetches = fetches
        self.last: set[str] = set()  # variables that have a twin with the newest value
        self.first: set[str] = set()  # variables with a twin that also exist in the written order
        self.out: list[Operator] = []
        self.switched = 0
        self.transposes = 0
        self.written: dict[str, int] = {}
        for op in block.ops:
            for name in op.output_names():
                self.written[name] = self.written.get(name, 0) + 1

    def run(self) -> None:
        """Rewrite every operator, then give fetched variables their written order."""
        ops = self.block.ops
        self.block.ops = self.out
        for op in ops:
            # A variable that is written twice, or lives between steps, has one layout for all who use it.
            if _data_format(op) == "NCHW" and _images(self.block, op) and self._single(_images(self.block, op)):
                self._switch(op)
            elif self._is_channel_bias(op):
                self._elementwise(op, {along.attr: -1} if (along := op.definition.get(AlongChannels)) else {})
            elif op.definition.get(Layout) == Layout() and self._same_shape(op):
                self._elementwise(op, {})
            else:
                typed = [forward_name(n) for n in op.output_names()] if op.definition.is_grad_of else []
                for name in (*op.input_names(), *typed):  # gradients are typed after what they are of
                    self._need_first(name, op)
                self.out.append(op)
        for name in self.fetches:
            self._need_first(name, None)

    def _single(self, names: list[str]) -> bool:
        return all(self.written.get(n, 0) <= 1 and not self.block.var(n).persistable for n in names)

    def _same_shape(self, op: Operator) -> bool:
        names = [*op.input_names(), *op.output_names()]
        shapes = {self.block.var(n).shape for n in names}
        return len(shapes) == 1 and len(next(iter(shapes))) == 4 and self._single(names) and self._wants_last(op)

    def _wants_last(self, op: Operator) -> bool:
        """Whether an input has a twin, or the op writes gradients of variables that have; and every gradient can get one."""
        grads = [n for n in op.output_names() if GRAD in n and self._is_image(n)]
        typed = all(twin(forward_name(n)) in self.block.vars for n in grads)
        # Without an image in channels-last order next to it, switching would only add transposes.
        return typed and (bool(grads) or any(n in self.last for n in op.input_names()))

    def _is_channel_bias(self, op: Operator) -> bool:
        """Whether this adds a vector over the channels of an image that has a twin (and the gradient of that)."""
        along = op.definition.get(AlongChannels)
        if along is None or op.attrs[along.attr] != 1:
            return False
        images = [n for n in [*op.input_names(), *op.output_names()] if len(self.block.var(n).shape) == 4]
        others = [n for n in [*op.input_names(), *op.output_names()] if n not in images]
        return (
            bool(images)
            and all(len(self.block.var(n).shape) == 1 for n in others)
            and self._single(images)
            and self._wants_last(op)
        )

    def _switch(self, op: Operator) -> None:
        wanted = _slots(op)
        for slot, names in op.inputs.items():
            if slot in wanted:
                op.inputs[slot] = [self._need_last(n, op) for n in names]
            else:
                for name in names:
                    self._need_first(name, op)
        for slot, names in op.outputs.items():
            if slot in wanted:
                op.outputs[slot] = [self._make_last(n) for n in names]
        layout = op.definition.get(Layout)
        assert layout is not None
        op.attrs = {**op.attrs, layout.attr: "NHWC"}
        self.switched += 1
        self.out.append(op)

    def _elementwise(self, op: Operator, attrs: dict[str, int]) -> None:
        for slot, names in op.inputs.items():
            op.inputs[slot] = [self._need_last(n, op) if self._is_image(n) else n for n in names]
        for slot, names in op.outputs.items():
            op.outputs[slot] = [self._make_last(n) if self._is_image(n) else n for n in names]
        op.attrs = {**op.attrs, **attrs}
        self.switched += 1
        self.out.append(op)

    def _is_image(self, name: str) -> bool:
        return name != EMPTY and len(self.block.var(name).shape) == 4

    def _make_last(self, name: str) -> str:
        if name == EMPTY:
            return name
        made = twin(name)
        v = self.block.var(name)
        if made not in self.block.vars:
            self.block.create_var(made, _moved(v.type, TO_LAST), stop_gradient=v.stop_gradient, at=v.at)
        of = forward_name(name)
        if of != name and twin(of) not in self.block.vars and self._is_image(of):  # which types the gradient, wherever its op is
            self.block.create_var(twin(of), _moved(self.block.var(of).type, TO_LAST), stop_gradient=True, at=v.at)
        self.last.add(name)
        # The written order is stale from here on, until somebody asks for it.
        self.first.discard(name)
        return made

    def _need_last(self, name: str, op: Operator) -> str:
        """Return the twin, transposing into it on first need."""
        if name == EMPTY:
            return name
        if name not in self.last:
            made = self._make_last(name)
            self._transpose(name, made, TO_LAST, op)
            self.first.add(name)
        return twin(name)

    def _need_first(self, name: str, op: Operator | None) -> None:
        """Make a variable exist in the written order."""
        if name in self.last and name not in self.first:
            self._transpose(twin(name), name, TO_FIRST, op)
            self.first.add(name)

    def _transpose(self, source: str, target: str, order: list[int], op: Operator | None) -> None:
        kind = self.block.var(source).type
        moved = _moved(kind, order)
        program = self.block.program
        place = op.at if op else self.block.var(target).at
        role = op.role if op else program.mark.role
        with program.role(role):
            # A transpose that moves only axes of size 1 leaves the bytes as they are.
            wide = [axis for axis in order if kind.shape[axis] != 1]
            if wide == sorted(wide) and moved.shape[1:].count(-1) < 2:
                shape = [0, *moved.shape[1:]]  # only sizes of 1 change places: the bytes are the same
                self.block.append_op("reshape", {"X": source}, {"Out": target}, {"shape": shape}, at=place)
            else:
                self.block.append_op("transpose", {"X": source}, {"Out": target}, {"axis": order}, at=place)
                self.transposes += 1
