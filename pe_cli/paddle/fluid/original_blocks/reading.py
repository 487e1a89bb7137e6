"""Reads programs of the original whose operators run other blocks: each block is appended by the classes that scripts write loops with."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io.fluid.operator_reader import HINT, Reader
from pe_cli.io.fluid.program_desc import LOD_TENSOR, BlockDesc, OpDesc, VarDesc
from pe_cli.io.fluid.reading import Loaded, columns, declare, reader_of
from pe_cli.paddle.fluid import unique_name
from pe_cli.paddle.fluid.framework import Program, program_guard
from pe_cli.program.ir import EMPTY, Variable
from pe_cli.program.outline import copied

#: Type of operator -> what appends its block, or what it does with arrays.
READERS: dict[str, Callable[[Inner], None]] = {}
#: Type of operator -> slots of variables that say its sizes, and what reads the operator where one of them is given.
SIZED: dict[str, tuple[tuple[str, ...], Callable[[Inner], None]]] = {}
#: Operators that write by their blocks, or whose results were named when a block was read.
RUNS = {"while", "recurrent", "conditional_block", "conditional_block_infer", "select_input"}


class Placed(PeError):
    """An error that says which operator of which block it is about."""


@dataclass
class Inner(Reader):
    """One operator of one block.

    Attributes:
        blocks: what is read.
        index: number of the operator's block.
    """

    blocks: Blocks = field(kw_only=True)
    index: int = field(kw_only=True)

    def sub_block(self) -> int:
        """Return the number of the block that the operator runs.

        Raises:
            PeError: there is no such block.
        """
        found = self.op.attrs.get("sub_block")
        if not isinstance(found, int) or not 0 < found < len(self.blocks.descs):
            raise PeError(f"it runs block {found!r:.20}, and there are {len(self.blocks.descs)}")
        return found

    def raw(self, slot: str, *, outputs: bool = False) -> str:
        """Return the name of a slot as the file has it, as arrays and tables have no other.

        Raises:
            PeError: it has none, or several.
        """
        found = self.names(slot, outputs=outputs)
        if len(found) != 1:
            raise PeError(f"slot {slot} has {len(found)} variables, and one is needed")
        return found[0]

    def variables(self, slot: str) -> list[Variable]:
        """Return the variables of an input slot."""
        return [self.block.var(name) for name in self.names(slot)]


@dataclass
class Blocks:
    """A program that is being read.

    Attributes:
        descs: blocks of the file.
        made: what is made of them.
        names: name in the file -> name of what was written last.
        arrays: name in the file -> array of tensors, or what a DynamicRNN goes through or has collected.
        tables: name in the file -> table of sequences by their lengths.
        waiting: what one of two branches gives -> its operator, until the other one is read.
        chosen: operators that take results of branches which were read.
        outer: variables from outside of the loops and branches that are being read, which these write in place.
        begun: blocks that were read.
    """

    descs: Sequence[BlockDesc]
    made: Loaded
    names: dict[str, str] = field(default_factory=dict)
    arrays: dict[str, Any] = field(default_factory=dict)
    tables: dict[str, Any] = field(default_factory=dict)
    waiting: dict[str, Inner] = field(default_factory=dict)
    chosen: set[int] = field(default_factory=set)
    outer: set[str] = field(default_factory=set)
    begun: set[int] = field(default_factory=set)

    def described(self, name: str) -> VarDesc | None:
        """Return what the file says of a variable."""
        return next((v for desc in self.descs for v in desc.vars if v.name == name), None)

    def now(self, name: str) -> Variable:
        """Return the variable that a name of the file stands for at this place."""
        return self.made.program.main_block.var(self.names.get(name, name))

    @contextlib.contextmanager
    def inside(self) -> Iterator[None]:
        """What is read inside belongs to a loop or branch: it writes variables from outside in place, and its own are not known behind."""
        names, outer = dict(self.names), self.outer
        self.outer = outer | set(self.made.program.main_block.vars)
        try:
            yield
        finally:
            self.names, self.outer = names, outer

    def read(self, index: int, other: Callable[[Inner], bool] | None = None) -> None:
        """Append the operators of a block.

        Args:
            index: of the block.
            other: reads an operator in another way, and says whether it did.

        Raises:
            PeError: operators that are not read, or a block that two operators run.
        """
        # A file in which blocks run each other again and again would have no end, or more operators than memory.
        if index in self.begun:
            raise PeError(f"block {index} is run by two operators", hint=HINT, code=ExitCode.DATA)
        self.begun.add(index)
        block = self.made.program.main_block
        for number, op in enumerate(self.descs[index].ops):
            if op.type in ("feed", "fetch"):
                continue
            fresh = self._once(op)
            o = Inner(fresh, block, number, len(block.ops), self.made.calls, blocks=self, index=index)
            with self._at(o):
                if other is None or not other(o):
                    self._append(o)

    def _append(self, o: Inner) -> None:
        op = o.op
        found = READERS.get(op.type)
        if found is None:
            for name in (n for names in op.inputs.values() for n in names if n != EMPTY and n not in o.block.vars):
                known = self.described(name)
                if known is not None and known.kind == LOD_TENSOR:
                    raise PeError(f"'{name}' is neither fed nor saved, and no operator before makes it")
            slots, sized = SIZED.get(op.type, ((), None))
            found = sized if any(o.names(slot) for slot in slots) else reader_of(op.type)
        if found is None:
            raise PeError("it is not read")
        found(o)

    def _once(self, op: OpDesc) -> OpDesc:
        """Return an operator by the names here; outputs are variables from outside, or such that nothing else writes."""
        block = self.made.program.main_block
        inputs = {slot: [self.names.get(name, name) for name in names] for slot, names in op.inputs.items()}
        outputs = {slot: list(names) for slot, names in op.outputs.items()}
        for names in outputs.values():
            for i, name in enumerate(names):
                current = self.names.get(name, name)
                known = block.vars.get(current)
                if current in self.outer or op.type in RUNS or (known is not None and known.persistable):
                    names[i] = current
                elif known is not None:
                    self.names[name] = names[i] = block.program.unique(f"{name}.written")
                else:
                    self.names.pop(name, None)
        return OpDesc(op.type, inputs, outputs, op.attrs)

    @contextlib.contextmanager
    def _at(self, o: Inner) -> Iterator[None]:
        """Let errors say which operator they are about.

        Raises:
            Placed: with the operator, its block and what it makes (exit code 3).
        """
        made = " ".join(n for names in o.op.outputs.values() for n in names[:1])[:80]
        what = f"operator {o.number} of block {o.index}, {o.op.type}, which makes {made}"
        try:
            yield
        except Placed:
            raise
        except PeError as error:
            raise Placed(f"{what}: {error.message}", hint=error.hint or HINT, code=ExitCode.DATA) from None
        except (TypeError, ValueError, ArithmeticError, LookupError, AttributeError) as error:  # attributes of other types
            raise Placed(f"{what}, is described wrongly: {error}", hint=HINT, code=ExitCode.DATA) from None


def program_of(blocks: Sequence[BlockDesc]) -> Loaded:
    """Return the program of a description.

    Raises:
        PeError: operators that are not read (exit code 3).
    """
    made = Loaded(Program("imported"))
    main = blocks[0]
    made.feeds, made.fetches = columns(main, "feed"), columns(main, "fetch")
    declare(main, made.program.main_block, made.feeds, blocks[1:])
    whole = Blocks(blocks, made)
    # Names that are made here begin in a way of their own, so that none is one of the file's, which may have been read before.
    names = {v.name for desc in blocks for v in desc.vars}
    begin = next(begin for begin in _beginnings() if not any(name.startswith(begin) for name in names))
    with program_guard(made.program, Program("startup")), unique_name.guard(begin):
        for name in [v.name for v in made.program.main_block.vars.values() if v.is_data]:
            _copy_if_written(whole, name)
        whole.read(0)
    _named_as_in_the_file(whole)
    made.fetches = [whole.names.get(name, name) for name in made.fetches]
    for name in made.fetches:
        if name not in made.program.main_block.vars:
            raise PeError(f"'{name}' is fetched, and no operator makes it", hint=HINT, code=ExitCode.DATA)
    return made


def _beginnings() -> Iterator[str]:
    yield "read/"
    for number in itertools.count(2):
        yield f"read{number}/"


def _copy_if_written(whole: Blocks, name: str) -> None:
    """Let a loop that writes what is fed write a copy."""
    block = whole.made.program.main_block
    written = any(name in names for desc in whole.descs[1:] for op in desc.ops for names in op.outputs.values())
    if written and name in block.vars:
        whole.names[name] = copied(block, name)


def _named_as_in_the_file(whole: Blocks) -> None:
    """Let variables of the file's first block have their names again, by which a program may be asked for them."""
    block = whole.made.program.main_block
    file = {v.name for v in whole.descs[0].vars}
    found: dict[str, str] = {}
    for name, current in whole.names.items():
        if name in file and name not in block.vars and current in block.vars and current not in file and current not in found:
            found[current] = name
            whole.names[name] = name
    block.rename_vars(found)


def name_of(blocks: Blocks, name: str, v: Variable) -> None:
    """Let a name of the file stand for a variable; one from outside is written."""
    block = blocks.made.program.main_block
    current = blocks.names.get(name, name)
    if current in blocks.outer:
        block.append_op("assign", {"X": v.name}, {"Out": current}, {})
    else:
        blocks.names[name] = v.name


def reads_block(*types: str) -> Callable[[Callable[[Inner], None]], Callable[[Inner], None]]:
    """Register what reads operators of these types; a decorator."""

    def keep(fn: Callable[[Inner], None]) -> Callable[[Inner], None]:
        for type_ in types:
            assert type_ not in READERS, f"{type_} has two readers"
            READERS[type_] = fn
        return fn

    return keep


def reads_sized(type_: str, *slots: str) -> Callable[[Callable[[Inner], None]], Callable[[Inner], None]]:
    """Register what reads operators of a type where variables say their sizes; a decorator."""

    def keep(fn: Callable[[Inner], None]) -> Callable[[Inner], None]:
        assert type_ not in SIZED, f"{type_} has two readers"
        SIZED[type_] = slots, fn
        return fn

    return keep
