"""Programs of PaddlePaddle 1.x as programs here: each operator becomes one of the same name, or what `readers` says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import field

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import DTYPES, FLOATS, TensorType
from pe_cli.io.fluid import readers, sequence_readers
from pe_cli.io.fluid.operator_reader import HINT, READERS, LayerCall, Reader
from pe_cli.io.fluid.program_desc import LOD_TENSOR, SELECTED_ROWS, BlockDesc, OpDesc, VarDesc
from pe_cli.io.fluid.recurrent_reader import Recurrent
from pe_cli.ops.define.registry import discover
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import EMPTY, Block, Program


def reader_of(type_: str) -> Callable[[Reader], None] | None:
    """Return what reads operators of a type; None where nothing does."""
    assert readers
    assert sequence_readers
    if type_ in READERS:
        return READERS[type_]
    definition = discover().get(type_)
    wholly_other = definition is None or definition.is_grad_of is not None or type_ in OTHERWISE
    return None if wholly_other else Reader.same


#: Operators that have the name of one here, and blocks or sides that are described otherwise.
OTHERWISE = {"while", "py_func", "listen_and_serv", "send", "recv", "distributed_lookup_table", "fake_init"}


@dataclass
class Loaded:
    """A program that was read.

    Attributes:
        program: with one block.
        feeds, fetches: names of what is fed and of what is computed, in the file's order.
        calls: layers that were called for operators, in order.
        inside: first result of a loop -> layers that were called for the operators of a step.
        lost: why operators were left out, where that was asked for.
        frontier: what such operators read.
    """

    program: Program
    feeds: list[str] = field(default_factory=list)
    fetches: list[str] = field(default_factory=list)
    calls: list[LayerCall] = field(default_factory=list)
    inside: dict[str, list[LayerCall]] = field(default_factory=dict)
    lost: list[PeError] = field(default_factory=list)
    frontier: dict[str, None] = field(default_factory=dict)


def program_of(blocks: Sequence[BlockDesc], *, partial: bool = False) -> Loaded:
    """Return the program of a description.

    Args:
        blocks: of the description.
        partial: operators that cannot be read are left out, and those that read what they make.

    Raises:
        PeError: operators that are not known here, all of them in one error, or one that says what is not known (exit code 3).
    """
    main = blocks[0]
    if not partial:
        check_types(blocks, {"recurrent", "rnn_memory_helper"})
    made = Loaded(Program("imported"))
    block = made.program.main_block
    described = {v.name: v for v in main.vars}
    made.feeds, made.fetches = columns(main, "feed"), columns(main, "fetch")
    loops = any(op.type == "recurrent" for op in main.ops)
    declare(main, block, made.feeds, blocks[1:] if loops else ())
    newest: dict[str, str] = {}
    missing: set[str] = set()
    own: dict[str, Callable[[Reader], None]] = {}
    recurrent = Recurrent(blocks, newest, _once, lambda inner: _append(inner, described, own), made.inside)
    own["recurrent"] = recurrent.read
    with program_guard(made.program, Program("startup")):
        for number, op in enumerate(main.ops):
            if op.type in ("feed", "fetch"):
                continue
            fresh = _once(op, block, newest)
            reader = Reader(fresh, block, number, len(block.ops), made.calls)
            if partial:
                _append_or_lose(reader, described, missing, made, own)
            else:
                _append(reader, described, own)
    made.program.around = ""
    made.fetches = [newest.get(name, name) for name in made.fetches if newest.get(name, name) not in missing]
    for name in made.fetches:
        if name not in block.vars:
            raise PeError(f"'{name}' is fetched, and no operator makes it", code=ExitCode.DATA)
    return made


def _once(op: OpDesc, block: Block, newest: dict[str, str]) -> OpDesc:
    """Return an operator whose outputs nothing else writes: in the file one in place may change a variable's sizes.

    Args:
        op: as the file has it.
        block: of the program that is made.
        newest: name in the file -> name of what was written last, which is brought up to date.
    """
    inputs = {slot: [newest.get(name, name) for name in names] for slot, names in op.inputs.items()}
    outputs = {slot: list(names) for slot, names in op.outputs.items()}
    for names in outputs.values():
        for i, name in enumerate(names):
            known = block.vars.get(name)
            if known is not None and not known.persistable:
                newest[name] = names[i] = block.program.unique(f"{name}.written")
            else:
                newest.pop(name, None)
    return OpDesc(op.type, inputs, outputs, op.attrs)


#: Type of operator -> what reads it in one program alone.
_Own = Mapping[str, Callable[[Reader], None]]


def _append_or_lose(reader: Reader, described: dict[str, VarDesc], missing: set[str], made: Loaded, own: _Own) -> None:
    """Append an operator, or keep why not."""
    inputs, outputs = ([n for names in slots.values() for n in names if n != EMPTY] for slots in (reader.op.inputs, reader.op.outputs))
    if missing.isdisjoint(inputs):
        try:
            _append(reader, described, own)
        except PeError as error:
            made.lost.append(error)
            del made.calls[next((i for i, call in enumerate(made.calls) if call.begin >= reader.begin), len(made.calls)) :]
        else:
            return
    made.frontier.update(dict.fromkeys(name for name in inputs if name not in missing and name in reader.block.vars))
    missing.update(outputs)


def _append(reader: Reader, described: dict[str, VarDesc], own: _Own) -> None:
    op = reader.op
    for name in (n for names in op.inputs.values() for n in names if n != EMPTY):
        if name not in reader.block.vars and name in described and described[name].kind == LOD_TENSOR:
            raise PeError(
                f"operator {reader.number}, {op.type}: '{name}' is neither fed nor saved, and no operator before makes it",
                hint="save the model with what it is fed", code=ExitCode.DATA,
            )  # fmt: skip
    found = own.get(op.type) or reader_of(op.type)
    if found is None:
        raise PeError(f"operator {reader.number}, {op.type}, is not read", hint=HINT, code=ExitCode.DATA)
    reader.block.program.around = f"operator_{reader.number}"
    try:
        found(reader)
    except PeError as error:
        made = " ".join(n for names in op.outputs.values() for n in names[:1])[:80]
        what = f"operator {reader.number}, {op.type}, which makes {made}"
        raise PeError(f"{what}: {error.message}", hint=error.hint or HINT, code=ExitCode.DATA) from None
    except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:  # attributes of other types
        what = f"operator {reader.number}, {op.type}, is described wrongly"
        raise PeError(f"{what}: {error}", hint=HINT, code=ExitCode.DATA) from None


#: Operators that run other blocks of a program.
CONTROL = {"while", "conditional_block", "conditional_block_infer", "recurrent"}
FOR_CONTROL = (
    "a model file has no such loops and branches: --partial ends the model before them, and a script that pe run runs may load the model "
    "by fluid.io.load_inference_model"
)


def check_types(blocks: Sequence[BlockDesc], further: Collection[str] = ()) -> None:
    """Check that all operators are known.

    Args:
        blocks: of the program.
        further: types that are known beside those that are read here.

    Raises:
        PeError: some are not; each with how many there are, and the number of the first one and of its block (exit code 3).
    """
    places = [(op.type, number, index) for index, block in enumerate(blocks) for number, op in enumerate(block.ops)]
    lost = Counter(t for t, _, _ in places if t not in ("feed", "fetch", *further) and reader_of(t) is None)
    if not lost:
        return
    first = {t: f"operator {number} of block {index}" for t, number, index in reversed(places)}
    listed = ", ".join(f"{t} ({n}, {first[t]})" for t, n in sorted(lost.items())[:20])
    hint = HINT if CONTROL.isdisjoint(lost) else FOR_CONTROL
    raise PeError(f"the model has operators that are not read: {listed}", hint=hint, code=ExitCode.DATA)


def columns(main: BlockDesc, type_: str) -> list[str]:
    """Return what the model's operators feed, or fetch, by their columns."""
    found: list[tuple[int, str]] = []
    for op in main.ops:
        if op.type == type_:
            names = (op.outputs.get("Out") if type_ == "feed" else op.inputs.get("X")) or [""]
            column = op.attrs.get("col", len(found))
            found.append((column if isinstance(column, int) else 0, names[0]))
    return [name for _, name in sorted(found)]


def declare(main: BlockDesc, block: Block, feeds: Sequence[str], others: Sequence[BlockDesc] = ()) -> None:
    """Make the variables that no operator makes: what is fed, and what lives between steps.

    Args:
        main: the block that has them.
        block: gets them.
        feeds: names of what is fed.
        others: blocks that its operators run.

    Raises:
        PeError: one is declared twice, or with an element type or sizes that it cannot have (exit code 3).
    """
    ops = [op for desc in (main, *others) for op in desc.ops]
    written = {n for op in ops if op.type != "feed" for names in op.outputs.values() for n in names}
    statistics = {n for op in ops for slot in ("Mean", "Variance") for n in op.inputs.get(slot, ())}
    used = {n for op in ops for names in op.inputs.values() for n in names}
    read = set(feeds) or used - written | _read_first(main, others)
    for v in main.vars:
        if v.name not in read and not (v.persistable and (v.name in used or v.name in written)):
            continue
        if v.kind not in (LOD_TENSOR, SELECTED_ROWS):
            continue
        if v.dtype not in DTYPES:
            raise PeError(f"'{v.name}' has elements of {v.dtype}", hint=f"one of {', '.join(DTYPES)}", code=ExitCode.DATA)
        if v.name in block.vars:
            raise PeError(f"'{v.name}' is declared twice", code=ExitCode.DATA)
        _declare_one(v, block, trained=v.name not in written | statistics)


def _read_first(main: BlockDesc, others: Sequence[BlockDesc]) -> set[str]:
    """Return what operators read before any writes it, as a loop does that overwrites what is fed."""
    found: set[str] = set()
    known = {v.name for v in main.vars}
    written: set[str] = set()
    open_: list[Iterator[OpDesc]] = [iter(main.ops)]
    begun: set[int] = set()
    while open_:
        op = next(open_[-1], None)
        if op is None:
            open_.pop()
            continue
        number = op.attrs.get("sub_block")
        if isinstance(number, int) and 0 < number <= len(others) and number not in begun:
            begun.add(number)
            open_.append(iter([*others[number - 1].ops, OpDesc("", {}, op.outputs)]))
            continue
        if op.type != "feed":
            found |= {n for names in op.inputs.values() for n in names if n in known and n not in written}
        written |= {n for names in op.outputs.values() for n in names}
    return found


def _declare_one(v: VarDesc, block: Block, *, trained: bool) -> None:
    kind = TensorType(v.shape, v.dtype)
    if not v.persistable:
        block.create_var(v.name, kind, is_data=True, stop_gradient=True, lod_level=v.lod_level)
    elif not kind.known:
        raise PeError(f"'{v.name}' is saved, and its sizes are {list(v.shape)}", hint="save the model again", code=ExitCode.DATA)
    elif trained and v.dtype in FLOATS:
        block.create_parameter(v.name, kind)
    else:
        block.create_var(v.name, kind, persistable=True, stop_gradient=True)
