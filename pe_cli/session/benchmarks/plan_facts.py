"""The memory and the timeline of a step that ran, for the report's page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.devices.protocol import Timeline
from pe_cli.execute.executor import Executor
from pe_cli.execute.plan.plan import Plan

if TYPE_CHECKING:
    from pe_cli.execute.memory.usage import Usage
    from pe_cli.io.view.model_facts import MemoryFacts


@dataclass(frozen=True)
class Planned:
    """A step that was run, or an update of one of its phases.

    Args:
        executor: that ran it.
        plan: of it.
        line: when its kernels ran; None where nobody looked.
        step: its number, from 0.
        phase: that it is of; empty where there is only one.
    """

    executor: Executor
    plan: Plan
    line: Timeline | None
    step: int
    phase: str = ""

    def memory(self) -> tuple[MemoryFacts, ...]:
        """Return the memory of every device."""
        return memory_of(self.executor, self.plan, self.phase)

    def timeline(self, name: str) -> Mapping[str, Any] | None:
        """Return the step as a page draws it, under a model's name; None where nobody looked."""
        if self.line is None:
            return None
        from pe_cli.execute.diagnostics.profile import Profile
        from pe_cli.execute.diagnostics.trace import trace
        from pe_cli.io.view.timeline import timeline

        found = timeline(trace(Profile(self.plan, (self.line,), ()), name))
        # a trace counts the steps in it
        called = f"{self.phase}: step {self.step + 1}" if self.phase else f"step {self.step + 1}"
        return {**found, "names": [called if n == "step 0" else n for n in found["names"]]}


def step_timeline(found: Sequence[Planned], name: str) -> Mapping[str, Any] | None:
    """Return a step of several phases as a page draws it: one after the other, under a model's name; None where nobody looked."""
    from pe_cli.io.view.timeline import one_after_another

    lines = [line for one in found if (line := one.timeline(name)) is not None]
    return one_after_another(lines) if lines else None


def memory_of(executor: Executor, plan: Plan, phase: str = "") -> tuple[MemoryFacts, ...]:
    """Return the memory of every device of a plan, as a page shows it; that of a phase with its name."""
    from pe_cli.execute.memory.usage import usage

    found = (_device(found) for found in usage(executor, plan))
    return tuple(replace(one, place=f"{phase} on {one.place}") if phase else one for one in found)


def _device(found: Usage) -> MemoryFacts:
    from pe_cli.io.view.model_facts import MemoryFacts, MemoryRow

    rows = tuple(
        MemoryRow(kind, found.kept.get(kind, 0), found.at_peak.get(kind, 0), found.whole.get(kind, 0))
        for kind in dict.fromkeys([*found.kept, *found.whole])
    )
    total = sum(found.kept.values()) + found.arena
    return MemoryFacts(str(found.place), rows, total, found.arena, found.at)
