"""From a program to the graph that runs: the one place that knows the order of the stages.

Whoever runs, checks, estimates, draws or explains a program asks here, so that all of them mean the same graph.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place, TensorType
from pe_cli.graph.final import absorb_sums, check_finite, copy_aliases, share_updates
from pe_cli.graph.lod_resolution import Sequences, resolve
from pe_cli.graph.passes import customized_gradient
from pe_cli.graph.pipeline import Target, apply_passes
from pe_cli.graph.replicate import replicate, shared_variables
from pe_cli.graph.sharded_parameters import Sharding, frozen_rows, group_bytes, shard, sharded_parameters
from pe_cli.graph.sharded_updates import Rows, own_rows, own_type
from pe_cli.graph.ssa import Graph
from pe_cli.program.ir import Program
from pe_cli.program.sparse import rows_of


@dataclass(frozen=True)
class Purpose:
    """What a program is compiled for.

    Args:
        places: devices of this process.
        strategy: of the graph.
        processes: that share every batch, each with as many devices.
        checked: results are looked at for NaN and infinity, so that all of them have to be there.
        levels: feed -> levels of its sequences; as the program declares when None.
        threads: native threads of a step, of all devices together.
        rank: of this process.
        precision: float32, tf32 or bf16; with bf16, values between products are stored as bfloat16.
        sharded: parameter -> rows of each process, of those that are sharded; None for those whose updates the program has.
    """

    places: Sequence[Place]
    strategy: BuildStrategy = field(default_factory=BuildStrategy)
    processes: int = 1
    checked: bool = False
    levels: Mapping[str, int] | None = None
    threads: int = 1
    rank: int = 0
    precision: str = "float32"
    sharded: Mapping[str, Rows] | None = None


class Stages:
    """What becomes of a program, stage by stage. Each is made when it is first asked for, and no stage changes the one before.

    Args:
        sequences: the program, its sequence ops with their arrays.
        purpose: what for.
        fetches: variables whose values must stay what the program says.
        state: variables that live between steps of which this process has its own rows alone.
        said: of what was done before any pass.
        sharding: of parameters, which is done after all passes.

    Raises:
        PeError: a fetch is divided among processes, none of which has it whole.
    """

    def __init__(
        self,
        sequences: Sequences,
        purpose: Purpose,
        fetches: Sequence[str],
        state: Collection[str] = (),
        said: Sequence[str] = (),
        sharding: Sharding | None = None,
    ) -> None:
        self.sequences, self.purpose, self.fetches = sequences, purpose, tuple(fetches)
        self._state, self._said, self._sharding = state, tuple(said), sharding
        divided = [name for name in self.fetches if name in state]
        if divided:
            parts = "the optimizer's state" if sharding is None else "parameters and the optimizer's state"
            strategy = "Reduce" if sharding is None else "Shard"
            what = f"no process has all rows of '{divided[0]}', as reduce_strategy: {strategy} divides {parts} among processes"
            raise PeError(what, hint="fetch something else, or use AllReduce")
        # By the devices that have samples: a last, smaller batch leaves some without, and its graph has no nodes there.
        self._graphs: dict[tuple[int, ...] | None, Graph] = {}
        self._executed: dict[tuple[int, ...] | None, Graph] = {}

    @property
    def program(self) -> Program:
        """The program before any pass."""
        return self.sequences.program

    @property
    def fused(self) -> Program:
        """The program after all passes."""
        return self._passed[0]

    @property
    def reports(self) -> tuple[str, ...]:
        """What every pass did, one sentence each."""
        return (*self._said, *self._passed[1])

    @cached_property
    def _passed(self) -> tuple[Program, tuple[str, ...]]:
        # Passes see the hardware as facts of a target and never as a device, so that a picture without devices is made by the same passes.
        said: list[str] = []
        at = self.purpose
        target = Target.of(at.places, at.processes, checked=at.checked, precision=at.precision)
        made = apply_passes(self.program, self.purpose.strategy, self.fetches, said, target)
        if self._sharding is not None:
            made, sentence = shard(made, self._sharding)
            said.append(sentence)
        return made, tuple(said)

    @cached_property
    def shared(self) -> set[str]:
        """Variables of which all devices use one copy."""
        # Of the program before passes: what devices share is a matter of the scope, which outlives every graph.
        return shared_variables(self.program, self.purpose.places, self.purpose.strategy)

    def graph(self, active: Sequence[int] | None = None) -> Graph:
        """Return the graph over all devices.

        Args:
            active: devices with samples; all when None.

        Raises:
            PeError: see `replicate`.
        """
        key = self._key(active)
        if key not in self._graphs:
            at = self.purpose
            self._graphs[key] = replicate(
                self.fused, at.places, at.strategy, active=key, processes=at.processes, fetches=self.fetches
            )
        return self._graphs[key]

    def executed(self, active: Sequence[int] | None = None) -> Graph:
        """Return the graph that is lowered: after the passes over graphs of all devices; arguments as for `graph`."""
        graph, at = self.graph(active), self.purpose
        key = self._key(active)
        if key not in self._executed:
            # The rows of a row-sparse gradient that is fetched are read with it, to make it dense.
            fetched = {*self.fetches, *filter(None, (rows_of(graph.program.main_block, n) for n in self.fetches))}
            # what devices keep of their own they keep where a pass has left out the op that writes it, as in an evaluation
            own = {v.name for v in self.program.persistables()} - self.shared
            made = share_updates.run(graph, shared_variables(graph.program, at.places, at.strategy) - own, fetched)
            # Absorbed sums run inside of the update: with more threads than devices they would keep a thread from work beside them.
            if at.strategy.fuse_all_reduce_ops and at.threads <= len(at.places):
                made = absorb_sums.run(made)
            made = copy_aliases.run(made)
            self._executed[key] = check_finite.run(made, fetched) if at.checked else made
        return self._executed[key]

    def _key(self, active: Sequence[int] | None) -> tuple[int, ...] | None:
        return None if active is None or len(active) == len(self.purpose.places) else tuple(active)

    def stage(self, name: str) -> Graph:
        """Return a stage as a graph.

        Args:
            name: program or ssa, before any pass, and fused, after all of them, on the first device; multi_device, on all, as the
                strategy says; executed, as it is lowered.
        """
        if name in ("multi_device", "executed"):
            return self.graph() if name == "multi_device" else self.executed()
        return replicate(self.fused if name == "fused" else self.program, self.purpose.places[:1], self.purpose.strategy)

    def fetching(self, fetches: Sequence[str]) -> Stages:
        """Return the stages of the same program for other fetches."""
        return Stages(self.sequences, self.purpose, fetches, self._state, self._said, self._sharding)

    @cached_property
    def kept(self) -> dict[str, TensorType]:
        """What lives between steps, with the type that it has in this process."""
        rows = self._sharding.rows if self._sharding is not None else {}
        found = {v.name: v.type for v in self.program.persistables()}
        return {n: own_type(t, rows[n], self.purpose.rank) if n in rows else t for n, t in found.items()}


def compile_program(program: Program, purpose: Purpose, fetches: Sequence[str] = ()) -> Stages:
    """Return the stages of a program.

    Args:
        program: training or evaluation; not changed.
        purpose: devices, strategy and what else decides.
        fetches: variables that are read after a step.

    Raises:
        PeError: an op lacks sequences, or the strategy does not go with the program; with the op's place.
    """
    # Before anything else, because the fed gradient takes part in the resolution of sequences like any feed.
    if purpose.strategy.gradient_scale_strategy == "Customized":
        program, _ = customized_gradient.run(program, ())
    wanted = purpose.strategy.reduce_strategy
    if wanted == "Shard" or (wanted == "Reduce" and purpose.processes > 1):
        # Of the devices of each process; those that share memory have one copy of a parameter anyway.
        purpose = replace(purpose, strategy=replace(purpose.strategy, reduce_strategy="AllReduce"))
    if purpose.processes == 1 or wanted == "AllReduce":
        return Stages(resolve(program, purpose.levels), purpose, fetches)
    owned = own_rows(program, purpose.rank, purpose.processes)
    resolved = resolve(owned.program, purpose.levels)
    if wanted == "Reduce":
        return Stages(resolved, purpose, fetches, owned.state, [owned.sentence])
    rows = purpose.sharded
    if rows is None:
        rows = {**frozen_rows([program], purpose.processes), **sharded_parameters(owned.program, owned.rows)}
    rows = {n: r for n, r in rows.items() if n in program.vars}
    group = group_bytes(purpose.strategy.fuse_all_reduce_bytes, sum(program.vars[n].type.nbytes for n in rows))
    purpose = replace(purpose, strategy=replace(purpose.strategy, fuse_all_reduce_bytes=group))
    sharding = Sharding(rows, purpose.rank, group)
    return Stages(resolved, purpose, fetches, {*owned.state, *rows}, [owned.sentence], sharding)
