"""From a program to a graph over devices: replicas, the scale of the loss gradient, and the collectives of a strategy."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from pe_cli.core.errors import PeError
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.devices.protocol import device
from pe_cli.graph.ssa import (
    AllReduce,
    Compute,
    Gather,
    GatherProcesses,
    Graph,
    GraphBuilder,
    Reduce,
    ScaleLossGrad,
    Slots,
    StartGather,
    StartScatter,
    StartSum,
    Sync,
    Wait,
    WaitGather,
    WaitScatter,
    WaitSum,
)
from pe_cli.ops.define.registry import GRAD
from pe_cli.ops.define.traits import Folds, MergesRows, OwnRows, ReadsAllDevices
from pe_cli.program.ir import Operator, Parameter, Program, Role, Variable
from pe_cli.program.operator import UPDATES

#: Bytes of gradients that are not worth a bucket of their own.
SMALL_BUCKET = 1 << 16


def replicate(
    program: Program,
    places: Sequence[Place],
    strategy: BuildStrategy,
    *,
    active: Collection[int] | None = None,
    processes: int = 1,
    fetches: Collection[str] = (),
) -> Graph:
    """Copy forward and backward ops to every device, join the gradients, and place the updates.

    Args:
        program: after passes.
        places: devices.
        strategy: how to join.
        active: devices that have samples; default all. The others take part in updates only.
        processes: that have such a graph each; sums of gradients go on over them. What each updates the program says
            (`graph.sharded_updates`),
            and not the strategy.
        fetches: variables that are read after the step, so that processes need them whole.

    Returns:
        A graph. With one device it is the program's own order without collectives.

    Raises:
        PeError: several devices while no op of the program carries a parameter's gradient role, though it has optimizer ops.
    """
    if processes > 1:
        assert strategy.reduce_strategy != "Reduce", "owners are found before"
        if any(op.definition.has(ReadsAllDevices) for op in program.top_ops):
            program = program.clone()  # it gets variables of what processes tell each other
    return _Replication(program, places, strategy, active, processes, fetches).run()


def shared_variables(program: Program, places: Sequence[Place], strategy: BuildStrategy) -> set[str]:
    """Return the variables that all devices use one copy of: parameters and what updates write, on devices that share memory.

    Running statistics are parameters, too, but every device's forward ops write them: each keeps its own.
    """
    if len(places) < 2 or (strategy.reduce_strategy != "Reduce" and not all(device(p.kind).shares_memory for p in places)):
        return set()
    updated = {n for op in program.top_ops if op.role in UPDATES for n in op.output_names()}
    own = {n for op in program.top_ops if op.role not in UPDATES for n in op.output_names()} - updated
    found = (v for v in program.vars.values() if v.persistable and v.name not in own)
    return {v.name for v in found if isinstance(v, Parameter) or v.name in updated}


class _Bucket:
    """Variables that are summed or handed out together, in order, and their bytes."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.nbytes = 0

    def add(self, variable: Variable) -> None:
        self.names.append(variable.name)
        self.nbytes += variable.type.nbytes


class _Replication:
    """One walk over a program."""

    def __init__(
        self,
        program: Program,
        places: Sequence[Place],
        strategy: BuildStrategy,
        active: Collection[int] | None,
        processes: int = 1,
        fetches: Collection[str] = (),
    ) -> None:
        self.program = program
        self.strategy = strategy
        self.ops = program.top_ops
        self.devices = range(len(places))
        self.running = sorted(self.devices if active is None else active)
        self.graph = Graph(program, tuple(places), tuple(self.running))
        self.build = GraphBuilder(self.graph)
        self.processes = processes
        self.several = len(places) * processes > 1
        self.reduce = self.several and strategy.reduce_strategy == "Reduce"
        # with AllReduce, the graph shows every device's update; that CPUs share its work and result is the lowering's affair
        # With Reduce the owner's copy is read by all, and without shared memory there would be nothing to read.
        self.shared = shared_variables(program, places, strategy) if self.reduce else set()
        self.gradients = _gradients(self.ops) if self.several else {}
        self.owner: dict[str, int] = {}
        self.load = [0] * len(places)
        self.where: dict[str, int] = {}
        self.bucket = _Bucket()
        self.limit = strategy.fuse_all_reduce_bytes
        if processes > 1:
            # Few small buckets cost more in messages than they hide: the size follows the model's gradients.
            variables = program.vars
            self.limit = bucket_bytes(self.limit, sum(variables[n].type.nbytes for n in self.gradients))
        self.begun: list[tuple[type[Wait], list[str]]] = []  # buckets that processes exchange, and nobody has waited for
        self.scattered = self._scattered(fetches) if processes > 1 else set[str]()
        self.updated = _Bucket()  # parameters whose rows processes have still to give each other

    def _updates_by(self, op: Operator) -> bool:
        """Whether an op updates by a gradient that this program makes itself; one that is fed is summed already."""
        reads = (self.program.var(n) for n in op.input_names() if GRAD in n)
        return op.role is Role.OPTIMIZE and any(not v.is_data for v in reads)

    def run(self) -> Graph:
        if self.several and not self.gradients and any(self._updates_by(op) for op in self.ops):
            raise PeError(
                "the program updates parameters but no op carries their gradients' roles", hint="name the loss"
            )
        self._check_readers()
        # A gradient that is written several times is complete at its last writer; a sum before would miss a part.
        last = {n: i for i, op in enumerate(self.ops) for n in op.output_names() if n in self.gradients}
        for i, op in enumerate(self.ops):
            if op.role in UPDATES:
                # What was gathered into a bucket has to be summed before an update reads it.
                self._flush()
            if op.role is Role.DIST:
                self._move(op, more=i + 1 < len(self.ops) and self.ops[i + 1].role is Role.DIST)
                continue
            if self.begun or self.updated.names:
                # Waits stand right before the first reader, so that as much as possible runs beside the exchange.
                self._wait((*op.input_names(), *op.output_names()))
            if op.role in UPDATES:
                self._update(op)
                continue
            merged = op.definition.get(MergesRows)
            if merged is not None and op.outputs[merged.out][0] in self.gradients:
                self._gather(op)
                continue
            self._compute(op)
            for name in dict.fromkeys(op.output_names()):
                if last.get(name) == i:
                    self._join(name)
        self._flush()
        self._hand_out()
        # Also what nobody reads: a sum that is still under way when the step ends would write into the next one.
        self._wait([n for _, names in self.begun for n in names])
        return self.graph

    def _check_readers(self) -> None:
        """Refuse programs in which every device computes with what only the one that updates a parameter has."""
        if not self.reduce:
            return
        variables = self.program.vars
        made = {n for op in self.ops if op.role in UPDATES for n in op.output_names() if not variables[n].persistable}
        for op in (op for op in self.ops if op.role not in UPDATES and not made.isdisjoint(op.input_names())):
            why = "does not go with an optimizer that computes a gradient twice in a step on several devices of one process, such as SAM"
            raise PeError(f"reduce_strategy Reduce {why}", at=op.at, hint="use AllReduce, or a process for each device")

    # --- forward and backward -----------------------------------------------------------------------------------------

    # The plain value 1 of the loss's gradient: each device puts its own share there, which makes the sum the mean over samples.
    def _compute(self, op: Operator) -> None:
        of: type[Compute] = Compute
        first = op.definition.get(Folds) if self.several and op.role is Role.LOSS else None
        if first is not None and first.alone and self.strategy.gradient_scale_strategy != "One":
            of = ScaleLossGrad
        everywhere = op.definition.get(ReadsAllDevices)
        told = {n: self._tell(n) for n in op.inputs[everywhere.slot]} if everywhere and self.processes > 1 else {}
        for d in self.running:
            ins = self._slots(op.inputs, d)
            if everywhere is not None:
                slot = everywhere.slot
                of, ins[slot] = Sync, [(n, other) for other in self.running for n in op.inputs[slot]]
                # Processes have no access to each other's memory: what they tell is one variable, on the first device.
                ins[slot] = [(told[n], 0) for n in op.inputs[slot]] if told else ins[slot]
            self.build.append(of(op=op, device=d, ins=ins, outs=self._slots(op.outputs, d)))

    def _tell(self, name: str) -> str:
        """Gather a variable from all devices of all processes; return the new variable, which has one row per device."""
        block = self.program.main_block
        whole, kind = f"{name}@PROCESSES", block.vars[name].type
        if whole not in block.vars:
            rows = len(self.devices) * self.processes
            # Made once per program: the same name in two graphs of it is the same variable.
            block.create_var(whole, TensorType((rows, kind.size), kind.dtype), stop_gradient=True)
        self.build.append(GatherProcesses(device=0, ins={"X": [(name, d) for d in self.running]}, outs={"Out": [(whole, 0)]}))
        return whole

    def _slots(self, slots: dict[str, list[str]], device: int) -> dict[str, list[tuple[str, int]]]:
        return {s: [(n, self._at(n, device)) for n in names] for s, names in slots.items()}

    def _at(self, name: str, device: int) -> int:
        """Return the device whose memory holds a variable for ops of a device."""
        return self.graph.homes.get(name, 0 if name in self.shared else device)

    # --- gradients ----------------------------------------------------------------------------------------------------

    def _join(self, name: str) -> None:
        """Sum a gradient that has just got its last part."""
        if self.reduce:
            self._reduce(name)
            return
        variables = self.program.vars
        # A gradient that lives between steps has its own place in the scope, and a bucket is one stretch of the arena.
        apart = self.processes > 1 and variables[name].persistable  # it does not lie beside the others
        if self.bucket.names and (apart or self._differ(self.bucket.names[0], name)):
            self._flush()
        self.bucket.add(variables[name])
        if apart or not self.strategy.fuse_all_reduce_ops or self.bucket.nbytes >= self.limit:
            self._flush()

    def _flush(self) -> None:
        if not self.bucket.names:
            return
        names, nbytes = self.bucket.names, self.bucket.nbytes
        self.bucket = _Bucket()
        first = [(n, 0) for n in names]
        outs = {"Out": [(n, d) for n in names for d in self.devices] if self.processes == 1 else first}
        if len(self.devices) > 1 and self.running:
            # The sum is made in the memory of the first device with samples; where that is not device 0, it is a buffer that is
            # overwritten.
            if self.processes > 1 and self.running[0] != 0:
                outs["Through"] = [(n, self.running[0]) for n in names]
            self.build.append(AllReduce(device=0, ins={"X": [(n, d) for n in names for d in self.running]}, outs=outs))
        if self.processes > 1:
            ins: Slots = {"X": first} if self.running else {}
            # Halving is only for float32: of float64 it would lose most of what that is used for.
            halved = self.strategy.fp16_allreduce and self.program.vars[names[0]].dtype == "float32"
            pieces = max(1, -(-nbytes // self.limit))
            start, wait = (StartScatter, WaitScatter) if names[0] in self.scattered else (StartSum, WaitSum)
            self.build.append(start(device=0, ins=ins, outs={"Out": first}, pieces=pieces, halved=halved))
            self.begun.append((wait, names))

    def _wait(self, wanted: Iterable[str]) -> None:
        """Wait for what processes exchange of some variables, as far as that has been begun."""
        needed = set(wanted)
        if not needed.isdisjoint(self.updated.names):
            self._hand_out()
        # A bucket is waited for whole, because processes hand it over whole.
        for found in [(wait, names) for wait, names in self.begun if not needed.isdisjoint(names)]:
            self.begun.remove(found)
            wait, names = found
            everywhere = [(n, d) for n in names for d in self.devices]
            self.build.append(wait(device=0, ins={"X": [(n, 0) for n in names]}, outs={"Out": everywhere}))

    # --- rows that are a process's own --------------------------------------------------------------------------------

    def _scattered(self, fetches: Collection[str]) -> set[str]:
        """Return the gradients that are reduce-scattered: each process needs only its own rows."""
        whole = {*fetches}
        for op in self.ops:
            own = op.definition.get(OwnRows)
            whole |= set(op.input_names()) if own is None or own.gives else set()
        variables = self.program.vars
        # Only where every reader takes its own rows may the others stay undefined.
        return {n for n in self.gradients if n not in whole and not variables[n].persistable}

    def _differ(self, first: str, second: str) -> bool:
        """Whether two variables cannot be in one bucket."""
        variables = self.program.vars
        return variables[first].dtype != variables[second].dtype or (first in self.scattered) != (second in self.scattered)

    def _give(self, name: str) -> None:
        """Append an all-gather of a parameter's rows over processes, in a bucket with others."""
        variables = self.program.vars
        if self.updated.names and self._differ(self.updated.names[0], name):
            self._hand_out()
        self.updated.add(variables[name])
        if self.updated.nbytes >= self.limit:
            self._hand_out()

    def _hand_out(self) -> None:
        if not self.updated.names:
            # Gradients and parameters go in separate buckets: they are ready at different times.
            return
        names, nbytes = self.updated.names, self.updated.nbytes
        self.updated = _Bucket()
        first = [(n, 0) for n in names]
        pieces = max(1, -(-nbytes // self.limit))
        self.build.append(StartGather(device=0, ins={"X": first}, outs={"Out": first}, pieces=pieces))
        self.begun.append((WaitGather, names))

    def _move(self, op: Operator, *, more: bool) -> None:
        """Place an op between forward and backward ops that takes or gives this process's own rows, also where no device has samples.

        Args:
            op: of `sharded_parameters`.
            more: the next op is one, too, so that what they give can go together.
        """
        if not set(self.bucket.names).isdisjoint(op.input_names()):
            self._flush()
        self._wait(op.input_names())
        own = op.definition.get(OwnRows)
        assert own is not None, "no other op joins processes"
        # What comes from other processes comes to the first device, and from there to the others.
        for d in self.devices[:1] if own.gives else self.devices:
            self.build.append(Compute(op=op, device=d, ins=self._slots(op.inputs, d), outs=self._slots(op.outputs, d)))
        if own.gives:
            self._give(op.outputs[own.slot][0])
        if not more:
            self._hand_out()

    def _reduce(self, name: str) -> None:
        """Sum a gradient on the device that updates its parameter."""
        owner = self._own(self.gradients[name])
        self.where[name] = owner
        outs = {"Out": [(name, owner)]}
        if self.running[0] != owner:
            outs["Through"] = [(name, self.running[0])]
        self.build.append(Reduce(device=owner, ins={"X": [(name, d) for d in self.running]}, outs=outs))

    def _own(self, parameter: str) -> int:
        """Return the device that updates a parameter: the one with the fewest bytes so far."""
        # Bytes stand for the time of an update; ties go to the lower device, which every process decides alike.
        owner = min(self.devices, key=lambda d: (self.load[d], d))
        self.load[owner] += self.program.vars[parameter].type.nbytes
        self.owner[parameter] = owner
        return owner

    def _gather(self, op: Operator) -> None:
        """Merge the rows of all devices, in their order; every device reads the result, or with Reduce the one that updates."""
        home = self._own(self.gradients[op.outputs["Out"][0]]) if self.reduce else 0
        self.graph.homes.update(dict.fromkeys(op.output_names(), home))
        self.graph.gathered += tuple(op.output_names())
        ins = {s: [(n, d) for n in names for d in self.running] for s, names in op.inputs.items()}
        outs = {s: [(n, home) for n in names] for s, names in op.outputs.items()}
        self.build.append(Gather(op=op, device=home, ins=ins, outs=outs))

    # --- updates ------------------------------------------------------------------------------------------------------

    def _update(self, op: Operator) -> None:
        """Place an update, and let processes give each other what it made of their own rows."""
        self._place_update(op)
        own = op.definition.get(OwnRows)
        # Its rows are new only on this process: others get them before anything reads the parameter again.
        if own is not None and own.gives:
            self._give(op.outputs[own.slot][0])

    def _place_update(self, op: Operator) -> None:
        if not self.reduce:
            for d in self.devices:
                self.build.append(Compute(op=op, device=d, ins=self._slots(op.inputs, d), outs=self._slots(op.outputs, d)))
            return
        # Without role variables the update belongs to no parameter, such as a counter of steps: one device does it.
        owner = self.owner.get(op.role_vars[0], 0) if len(op.role_vars) == 2 else 0
        ins = {s: [(n, self.where.get(n, self._at(n, owner))) for n in names] for s, names in op.inputs.items()}
        outs = {s: [(n, self._at(n, owner)) for n in names] for s, names in op.outputs.items()}
        for pairs in outs.values():
            self.where.update(pairs)
        self.build.append(Compute(op=op, device=owner, ins=ins, outs=outs))


def bucket_bytes(wanted: int, total: int) -> int:
    """Return the bytes from which a bucket of sums over processes is full, and of a piece of what is larger.

    The last bucket has nothing to hide behind, so that there are four at least. Room for the half of one is all that sums over processes
    need: of more than a few gradients an eighth of their bytes at most.

    Args:
        wanted: by the strategy.
        total: of all gradients.
    """
    return max(1, min(wanted, max(SMALL_BUCKET, total // 4)))


def _gradients(ops: Sequence[Operator]) -> dict[str, str]:
    """Return gradient -> parameter from the backward ops' role variables."""
    found = {}
    for op in ops:
        if op.role in (Role.BACKWARD, Role.LOSS):
            found.update(dict(zip(op.role_vars[1::2], op.role_vars[::2], strict=True)))
    return found
