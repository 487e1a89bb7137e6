"""A DynamicRNN as the original has it: a `while` over the steps of sequences, the longest first, without those that have ended."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.fluid.array_writers import number
from pe_cli.io.fluid.block_writer import GROUPS, Writer, enter, number_of, skip, write_region
from pe_cli.io.fluid.operator_writer import NotWritten, Written, writes
from pe_cli.io.fluid.program_desc import RANK_TABLE, STEP_SCOPES, TENSOR_ARRAY
from pe_cli.program.ir import Operator
from pe_cli.program.region import Region


@writes("reorder_by_rank")
def _reorder(made: Written, op: Operator) -> None:
    if op.attrs["inverse"]:
        raise NotWritten("reorder_by_rank back to the order outside")
    table = table_of(made, op.inputs["RankTable"][0], op.attrs["level"])
    made.emit("reorder_lod_tensor_by_rank", {"X": op.inputs["X"], "RankTable": [table]}, op.outputs)


def table_of(made: Written, name: str, level: int) -> str:
    """Return the name of the table of a variable's sequences by their lengths, which is made where there is none."""
    key = made.name(name), level
    if key not in made.tables:
        made.tables[key] = made.beside(f"{name}.table", kind=RANK_TABLE)
        made.emit("lod_rank_table", {"X": [name]}, {"Out": [made.tables[key]]}, {"level": level})
    return made.tables[key]


@dataclass
class Rounds:
    """A `while` over the steps of sequences.

    Attributes:
        of: variable with the sequences whose lengths count, and level of these.
        arrays: what is gone through, or collected -> array in the file.
        counter, zero, condition, longest: names in the file, once it is begun.
    """

    of: tuple[str, int]
    arrays: dict[str, str] = field(default_factory=dict)
    counter: str = ""
    zero: str = ""
    condition: str = ""
    longest: str = ""

    def begin(self, made: Written) -> None:
        """Append what counts the steps."""
        self.counter, self.zero = number(made, 0), number(made, 0)
        table = table_of(made, *self.of)
        self.longest = made.beside("sequence.longest", "int64", (1,))
        self.condition = made.beside("sequence.condition", "bool", (1,))
        made.emit("max_sequence_len", {"RankTable": [table]}, {"Out": [self.longest]})
        self._compare(made)

    def _compare(self, made: Written) -> None:
        given = {"X": [self.counter], "Y": [self.longest]}
        made.emit("less_than", given, {"Out": [self.condition]}, {"axis": -1, "force_cpu": True})

    def steps_of(self, made: Written, name: str, of: str) -> None:
        """Append what makes the steps of a variable, to be found under a name."""
        v = made.block.var(of)
        self.arrays[name] = made.beside(f"{of}.steps", v.dtype, tuple(v.shape), TENSOR_ARRAY)
        made.emit("lod_tensor_to_array", {"X": [of], "RankTable": [table_of(made, *self.of)]}, {"Out": [self.arrays[name]]})

    def shrink(self, made: Written, inner: Written, x: str, out: str) -> None:
        """Append what leaves out the rows of sequences that have ended."""
        given = {"X": [x], "RankTable": [table_of(made, *self.of)], "I": [self.counter]}
        inner.emit("shrink_rnn_memory", given, {"Out": [out]})

    def collect(self, made: Written, inner: Written, name: str, result: str) -> None:
        """Append what collects a variable of every step, to be found under a name."""
        v = inner.block.var(result)
        self.arrays[name] = made.beside(f"{name}.array", v.dtype, tuple(v.shape), TENSOR_ARRAY)
        inner.emit("write_to_array", {"X": [result], "I": [self.counter]}, {"Out": [self.arrays[name]]})

    def collected(self, made: Written, name: str, out: str) -> None:
        """Append what makes sequences of what was collected."""
        given = {"X": [self.arrays[name]], "RankTable": [table_of(made, *self.of)]}
        made.emit("array_to_lod_tensor", given, {"Out": [out]})

    def close(self, made: Written, inner: Written, memories: Sequence[tuple[str, str]] = ()) -> None:
        """Append the loop.

        Args:
            made: gets it.
            inner: its block, but for what counts on.
            memories: result and array of what is kept from step to step.
        """
        inner.emit("increment", {"X": [self.counter]}, {"Out": [self.counter]}, {"step": 1.0})
        for result, array in memories:
            inner.emit("write_to_array", {"X": [result], "I": [self.counter]}, {"Out": [array]})
        self._compare(inner)
        scopes = made.beside(f"{self.condition}.scopes", kind=STEP_SCOPES)
        attrs = {"sub_block": number_of(made, inner), "is_test": made.whole.is_test, "skip_eager_deletion_vars": []}
        read = [n for n in inner.reads() if n != self.condition]
        made.emit("while", {"X": read, "Condition": [self.condition]}, {"Out": inner.writes(), "StepScopes": [scopes]}, attrs)


@dataclass
class _Dynamic(Rounds):
    """A scan over padded sequences, and operators around it that are written with it.

    Attributes:
        steps: what is gone through, as rows for each step -> variable with its sequences.
        results: what the loop collects -> variable with its sequences.
    """

    steps: dict[str, str] = field(default_factory=dict)
    results: dict[str, str] = field(default_factory=dict)

    def step(self, made: Written, op: Operator) -> None:
        """Append what makes the steps of one variable, in place of the rows of all sequences for each step."""
        skip(made, op)
        if not self.arrays:
            self.begin(made)
        rows = op.outputs["Out"][0]
        self.steps_of(made, rows, self.steps[rows])

    def like(self, made: Written, op: Operator) -> None:
        """Append what begins a memory, with a row for each sequence of the first step."""
        array = self.arrays[op.inputs["Input"][0]]
        first = made.beside(f"{array}.first", made.vars[array].dtype, made.vars[array].shape)
        made.emit("read_from_array", {"X": [array], "I": [self.zero]}, {"Out": [first]})
        made.emit(op.type, {"Input": [first]}, op.outputs, {**op.attrs, "input_dim_idx": 0})

    def result(self, made: Written, op: Operator) -> None:
        """Append what makes sequences of what the loop has collected."""
        out = op.outputs["Out"][0]
        self.collected(made, next(name for name, found in self.results.items() if found == out), out)

    def run(self, made: Written, op: Operator) -> None:
        """Append the loop."""
        body: Region = op.attrs["body"]
        xs, inits, captured = (op.inputs.get(slot, []) for slot in ("X", "Init", "Captured"))
        finals = op.outputs.get("Final", [])
        kept = [init for init, final in zip(inits, finals, strict=True) if init == final]
        memories = [init for init in inits if init not in kept]
        arrays = [self._memory(made, init) for init in memories]
        shared = [made.name(n) for n in (*kept, *captured)]
        inner = enter(made, body, dict(zip(body.args[len(xs) + len(memories) :], shared, strict=True)))
        for arg, x in zip(body.args, xs, strict=False):
            inner.declare(body.block.vars[arg])
            inner.emit("read_from_array", {"X": [self.arrays[x]], "I": [self.counter]}, {"Out": [arg]})
        for arg, array in zip(body.args[len(xs) :], arrays, strict=False):
            v = body.block.vars[arg]
            inner.declare(v)
            before = inner.beside(f"{arg}.before", v.dtype, tuple(v.shape))
            inner.emit("read_from_array", {"X": [array], "I": [self.counter]}, {"Out": [before]})
            self.shrink(made, inner, before, arg)
        self._going(made, inner, dict(zip(body.args[len(xs) + len(inits) :], captured, strict=True)))
        results = zip(body.results[len(memories) :], kept, body.args[len(xs) + len(memories) :], strict=False)
        write_region(inner, body, [(result, made.name(name), arg) for result, name, arg in results])
        for name, result in zip(op.outputs.get("Out", []), body.results[len(inits) :], strict=True):
            if name in self.results:
                self.collect(made, inner, name, result)
        self.close(made, inner, list(zip(body.results, arrays, strict=False)))
        for name in (*finals, *op.outputs.get("Out", [])):
            if name not in kept:
                made.vars.pop(made.name(name), None)

    def _memory(self, made: Written, init: str) -> str:
        v = made.block.var(init)
        array = made.beside(f"{init}.memory", v.dtype, tuple(v.shape), TENSOR_ARRAY)
        made.emit("write_to_array", {"X": [init], "I": [self.zero]}, {"Out": [array]})
        return array

    def _going(self, made: Written, inner: Written, captured: Mapping[str, str]) -> None:
        """Append what leaves ended sequences out of what is the same in every step and in the order of the sequences."""
        ordered = {name for o in made.block.ops if _is_reorder(o, self.of) for name in o.output_names()}
        for arg, name in captured.items():
            if name in ordered:
                v = inner.block.vars[arg]
                going = inner.beside(f"{arg}.going", v.dtype, tuple(v.shape))
                inner.names.pop(arg)
                self.shrink(made, inner, made.name(name), going)
                inner.names[arg] = going


def _is_reorder(op: Operator, of: tuple[str, int]) -> bool:
    return op.type == "reorder_by_rank" and not op.attrs["inverse"] and (op.inputs["RankTable"][0], op.attrs["level"]) == of


# --- finding them ---------------------------------------------------------------------------------------------------


class _Uses:
    """Who makes and who reads the variables of a block."""

    def __init__(self, ops: Sequence[Operator], wanted: Collection[str]) -> None:
        self.maker = {name: op for op in ops for name in op.output_names()}
        self.readers: dict[str, list[Operator | None]] = {name: [None] for name in wanted}
        for op in ops:
            for name in op.input_names():
                self.readers.setdefault(name, []).append(op)

    def only(self, name: str, *types: str) -> Operator | None:
        """Return the one operator that reads a variable; None where several do, or one of another type."""
        found = self.readers.get(name, [])
        return found[0] if len(found) == 1 and found[0] is not None and found[0].type in types else None


def _dynamic(made: Written, ops: Sequence[Operator], wanted: Collection[str]) -> Mapping[int, Writer]:
    """Return loops over padded sequences, with what pads these and what makes sequences of results."""
    uses, found = _Uses(ops, wanted), dict[int, Writer]()
    for op in ops:
        if op.type == "scan":
            found |= _of_scan(op, uses)
    return found


def _of_scan(loop: Operator, uses: _Uses) -> dict[int, Writer]:
    """Return what is written with one loop; nothing where it is none over sequences."""
    xs = loop.inputs.get("X", [])
    chains = [_padded(x, loop, uses) for x in xs]
    if not xs or any(chain is None for chain in chains):
        return {}
    rows = [chain for chain in chains if chain is not None]
    reorders = [chain[0] for chain in rows]
    of = reorders[0].inputs["RankTable"][0], reorders[0].attrs["level"]
    lengths = rows[0][1].outputs["Length"][0]
    outs = {out: _unpadded(out, of, lengths, uses) for out in loop.outputs.get("Out", []) if uses.readers.get(out)}
    finals = [f for f, i in zip(loop.outputs.get("Final", []), loop.inputs.get("Init", []), strict=True) if f != i and uses.readers.get(f)]
    if finals or any(chain is None for chain in outs.values()) or not all(_is_reorder(op, of) for op in reorders):
        return {}
    ends = [chain for chain in outs.values() if chain is not None]
    unpads = {id(chain[1]) for chain in ends}
    if any(id(op) not in unpads for chain in rows for op in uses.readers.get(chain[1].outputs["Length"][0], [])):
        return {}
    steps = {x: chain[0].inputs["X"][0] for x, chain in zip(xs, rows, strict=True)}
    dynamic = _Dynamic(of, steps=steps, results={out: chain[-1].outputs["Out"][0] for out, chain in outs.items() if chain})
    found: dict[int, Writer] = {id(loop): dynamic.run}
    for chain in rows:
        found |= {id(op): skip for op in chain[:-1]} | {id(chain[-1]): dynamic.step}
        found |= {id(op): dynamic.like for op in uses.readers[chain[-1].outputs["Out"][0]] if op is not None and op is not loop}
        pad = chain[1].inputs["PadValue"][0]
        if uses.only(pad, "sequence_pad") is not None and pad in uses.maker:
            found[id(uses.maker[pad])] = skip
    for chain in ends:
        found |= {id(op): skip for op in chain[:-1]} | {id(chain[-1]): dynamic.result}
    return found


def _padded(x: str, loop: Operator, uses: _Uses) -> tuple[Operator, Operator, Operator] | None:
    """Return what puts sequences in order, pads them and puts their steps first; None where that is not what makes a variable."""
    turn = uses.maker.get(x)
    readers = uses.readers.get(x, [])
    plain = all(op is loop or (op is not None and op.type == "fill_constant_batch_size_like") for op in readers)
    if turn is None or turn.type != "transpose" or list(turn.attrs["axis"][:2]) != [1, 0] or not plain:
        return None
    pad = uses.maker.get(turn.inputs["X"][0])
    if pad is None or pad.type != "sequence_pad" or uses.only(pad.outputs["Out"][0], "transpose") is None:
        return None
    order = uses.maker.get(pad.inputs["X"][0])
    if order is None or order.type != "reorder_by_rank" or uses.only(order.outputs["Out"][0], "sequence_pad") is None:
        return None
    return order, pad, turn


def _unpadded(out: str, of: tuple[str, int], lengths: str, uses: _Uses) -> tuple[Operator, Operator, Operator] | None:
    """Return what makes sequences of a result of a loop, in the order outside; None where something else reads it."""
    turn = uses.only(out, "transpose")
    unpad = uses.only(turn.outputs["Out"][0], "sequence_unpad") if turn is not None else None
    order = uses.only(unpad.outputs["Out"][0], "reorder_by_rank") if unpad is not None else None
    if turn is None or unpad is None or order is None or unpad.inputs["Length"] != [lengths]:
        return None
    back = order.attrs["inverse"] and (order.inputs["RankTable"][0], order.attrs["level"]) == of
    return (turn, unpad, order) if back else None


GROUPS.append(_dynamic)
