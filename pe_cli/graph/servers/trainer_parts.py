"""Cuts a trainer's program into parts: fetch rows, compute, exchange with servers."""

from __future__ import annotations

from dataclasses import field
from weakref import WeakKeyDictionary

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.graph.servers.blocks import does
from pe_cli.ops.define.traits import Remote
from pe_cli.ops.remote.send import NOBODY
from pe_cli.program.ir import Block, Operator, Program, Role


@dataclass(eq=False)
class Stage:
    """What runs as one program after rows have been fetched for it.

    Args:
        lookups: ops that fetch rows.
        ops: numbers of the ops that compute.
    """

    lookups: list[Operator] = field(default_factory=list)
    ops: list[int] = field(default_factory=list)


@dataclass(eq=False)
class Parts:
    """A trainer's program.

    Args:
        stages: programs that compute, with the lookups before each.
        talk: ops that come after, in their order.
        raw: row-sparse gradients that are sent -> what their values are called in the stages: fetched by its own name, such a
            gradient would be made whole.
    """

    stages: list[tuple[list[Operator], Program]]
    talk: list[Operator]
    raw: dict[str, str]

    @property
    def needed(self) -> list[str]:
        """What lookups and talk read that is computed."""
        later = [*self.talk, *(op for lookups, _ in self.stages for op in lookups)]
        return list(dict.fromkeys(n for op in later for n in op.input_names()))

    @property
    def endpoints(self) -> list[str]:
        """host:port of all servers."""
        found: dict[str, None] = {}
        for op in (*self.talk, *(op for lookups, _ in self.stages for op in lookups)):
            found |= dict.fromkeys(op.attrs.get("endpoints") or op.attrs.get("epmap") or ())
        return sorted(set(found) - {NOBODY})

    @property
    def trainer(self) -> int:
        """Number of the trainer."""
        return max((int(op.attrs["trainer_id"]) for op in self.talk if does(op) != "give" and "trainer_id" in op.attrs), default=0)


_PARTS: WeakKeyDictionary[Program, tuple[int, Parts]] = WeakKeyDictionary()


def parts(program: Program) -> Parts:
    """Return a program in parts; kept until it changes."""
    version = getattr(program, "version", 0)
    if program not in _PARTS or _PARTS[program][0] != version:
        _PARTS[program] = version, _cut(program)
    return _PARTS[program][1]


def _cut(program: Program) -> Parts:
    block = program.main_block
    stages: list[Stage] = [Stage()]
    ready: dict[str, int] = {}
    made: set[str] = set()
    talk = []
    for i, op in enumerate(block.ops):
        if does(op) == "look_up":
            # A lookup whose ids are computed belongs to the stage after the one that makes them.
            at = max((ready.get(n, 0) + (n in made) for n in op.inputs["Ids"]), default=0)
            while len(stages) <= at:
                stages.append(Stage())
            stages[at].lookups.append(op)
            ready |= dict.fromkeys(op.output_names(), at)
        elif op.definition.has(Remote) or _joins(op, block):
            talk.append(op)
        else:
            # An op runs in the first stage in which all it reads is there, so that there are as few programs as possible.
            at = max((ready.get(n, 0) for n in op.input_names()), default=0)
            stages[at].ops.append(i)
            ready |= dict.fromkeys(op.output_names(), at)
            made |= set(op.output_names())
    sparse = [op.inputs["X"][0] for op in talk if op.inputs.get("Rows")]
    # A send with rows takes the raw gradient: the name itself stands for what the user may fetch.
    raw = {name: "raw " + name.replace("@GRAD", "") for name in sparse if name in made}
    return Parts([(s.lookups, _program(program, s.ops, raw)) for s in stages], talk, raw)


def _joins(op: Operator, block: Block) -> bool:
    """Whether an op puts received blocks of a parameter together; parameters that are received whole live on."""
    if op.role not in (Role.DIST, Role.FORWARD) or not op.input_names():
        return False
    received = {n for other in block.ops if does(other) == "take" for n in other.output_names()}
    return all(n in received and not block.vars[n].persistable for n in op.input_names())


def _program(program: Program, ops: list[int], names: dict[str, str]) -> Program:
    """Return some ops of a program as one of their own; what it gives is read from its variables."""
    made = program.clone()
    block = made.main_block
    block.ops = [block.ops[i] for i in ops]
    block.rename_vars(names)
    return made
