"""Makes a scan of a model file, with the block that it runs, of a loop over the steps of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.io.fluid.operator_reader import LayerCall
from pe_cli.io.fluid.reading import Loaded
from pe_cli.program.ir import Block, Operator, Program, Variable
from pe_cli.program.region import Region
from pe_cli.session.importing.paddle.emit import Emitter

HINT = "--partial imports what comes before it; a script that pe run runs may load the model by fluid.io.load_inference_model"


class _Inside(Emitter):
    """The layers of one step.

    Args:
        outer: of what is around the loop.
        op: the loop.
        calls: layers that were called for operators of a step.
    """

    def __init__(self, outer: Emitter, op: Operator, calls: Sequence[LayerCall]) -> None:
        region: Region = op.attrs["body"]
        loaded = Loaded(_of_step(outer.block, op, region), calls=list(calls), inside=outer.inside)
        super().__init__(loaded, region.results, partial=False, loop=append_scan)
        self.outer = outer
        self.parameters, self.arrays, self.blocks = outer.parameters, outer.arrays, outer.blocks
        self.taken = outer.taken
        for arg, around in _captured(op, region).items():
            if not outer.block.vars[around].persistable:
                self.call(arg, outer.ref(around))

    def run(self) -> None:
        """Make the layers."""
        at = 0
        while at < len(self.block.ops):
            at = self._next(at)

    def parameter(self, v: Variable) -> None:
        """Make a layer that gives a parameter, outside of the loop."""
        if self.outer.reference(v.name) is None:
            self.outer.parameter(v)
        self.call(v.name, self.outer.ref(v.name))

    def keep(self, wanted: str, layer: Mapping[str, Any]) -> str:
        """Add a layer, that of a parameter outside of the loop."""
        return self.outer.keep(wanted, layer) if layer.get("type") == "create_parameter" else super().keep(wanted, layer)

    def layer_of(self, name: str) -> str:
        """Return what a result is called, a layer of the block."""
        found = self.ref(name)
        return found if found.partition(".")[0] in self.layers else self.keep(f"{name}.kept", {"type": "assign", "input": found})


def _captured(op: Operator, region: Region) -> dict[str, str]:
    names = op.inputs.get("Captured", [])
    return dict(zip(region.args[len(region.args) - len(names) :], names, strict=True))


def _of_step(outer: Block, op: Operator, region: Region) -> Program:
    """Return a program of a step, whose parameters are those of the program around it."""
    program = Program("step")
    block = program.main_block
    block.ops = list(region.block.ops)
    captured = _captured(op, region)
    block.vars = {name: outer.vars.get(captured.get(name, ""), v) for name, v in region.block.vars.items()}
    return program


def append_scan(outer: Emitter, op: Operator) -> None:
    """Add a scan and its block.

    Args:
        outer: gets them.
        op: the loop.

    Raises:
        PeError: DATA; an operator of a step has no layer, or inputs or results that no one tensor can hold side by side.
    """
    body: Region = op.attrs["body"]
    xs, inits, outs = op.inputs["X"], op.inputs.get("Init", []), op.outputs.get("Out", [])
    name = outer.key("step")
    inside = _Inside(outer, op, outer.inside.get(outs[0], ()))
    steps = [body.block.vars[arg] for arg in body.args[: len(xs)]]
    given = _joined(outer, [outer.block.vars[x] for x in xs], 2)
    _apart(inside, "input", steps, 1)
    args = [outer.key("state") for _ in inits]
    for arg, word in zip(body.args[len(xs) :], args, strict=False):
        inside.call(arg, word)
    inside.run()
    results = [body.block.vars[result] for result in body.results[len(inits) :]]
    after = [inside.layer_of(result) for result in body.results[: len(inits)]]
    output = _joined(inside, results, 1) if len(results) > 1 else inside.layer_of(results[0].name)
    outer.blocks[name] = {
        "args": dict.fromkeys(["input", *args]), "layers": inside.layers, "output": output, "next": dict(zip(args, after, strict=True)),
    }  # fmt: skip
    outer.comments.update({f"{name}/{layer}": text for layer, text in inside.comments.items()})
    start = {word: outer.ref(init) for word, init in zip(args, inits, strict=True)}
    layer = {"scan": name, "input": given, **({"start": start} if start else {}), "time_major": True}
    key = outer.keep(outs[0], {**layer, **({"backwards": True} if op.attrs["backwards"] else {})})
    for i, final in enumerate(op.outputs.get("Final", [])):
        outer.call(final, f"{key}.{i + 1}")
    _apart(outer, f"{key}.0", [outer.block.vars[out] for out in outs], 2)


def _joined(emitter: Emitter, variables: Sequence[Variable], axis: int) -> str:
    """Return what one tensor is called that holds several side by side.

    Args:
        emitter: gets the layers.
        variables: rows of numbers, or one number in each row.
        axis: of the numbers of a row.

    Raises:
        PeError: DATA; one has other axes, another type of elements, or a width that is not known.
    """
    if len(variables) == 1:
        return emitter.ref(variables[0].name)
    kinds = {v.dtype for v in variables}
    if len(kinds) > 1 or any(len(v.shape) not in (axis, axis + 1) or v.shape[axis:] == (-1,) for v in variables):
        listed = ", ".join(f"'{v.name}' {v.type}" for v in variables[:4])
        text = f"a scan goes through one tensor and gives one, and these do not fit side by side: {listed}"
        raise PeError(text, hint=HINT, code=ExitCode.DATA)
    parts = []
    for v in variables:
        found = emitter.ref(v.name)
        column = {"type": "unsqueeze", "input": found, "axes": [axis]}
        parts.append(found if len(v.shape) > axis else emitter.keep(f"{v.name}.column", column))
    return emitter.keep("together", {"type": "concat", "input": parts, "axis": axis})


def _apart(emitter: Emitter, joined: str, variables: Sequence[Variable], axis: int) -> None:
    """Let variables be the parts of a tensor that holds them side by side; see `_joined`."""
    if len(variables) == 1:
        emitter.call(variables[0].name, joined)
        return
    widths = [v.shape[axis] if len(v.shape) > axis else 1 for v in variables]
    key = emitter.keep("apart", {"type": "split", "input": joined, "num_or_sections": widths, "dim": axis})
    for i, v in enumerate(variables):
        found = f"{key}.{i}"
        column = {"type": "squeeze", "input": found, "axes": [axis]}
        emitter.call(v.name, found if len(v.shape) > axis else emitter.keep(f"{v.name}.row", column))
