"""The part of pe check that compiles a config's kernels for CUDA, with no GPU."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pe_cli.cli.terminal_text import echo

if TYPE_CHECKING:
    from pe_cli.cli.common import Source
    from pe_cli.kernels.cuda.compiler import Capability
    from pe_cli.kernels.cuda.language import Built


def capabilities(names: Sequence[str]) -> tuple[Capability, ...]:
    """Return the capabilities of names; where there is none that of the device here, else the usual ones.

    Raises:
        PeError: a name that is none.
    """
    from pe_cli.devices.cuda_driver import device_count, only_driver
    from pe_cli.kernels.cuda.compiler import USUAL, capability_of

    if names:
        return tuple(dict.fromkeys(map(capability_of, names)))
    return (only_driver().capability,) if device_count() else USUAL


def show_kernels(source: Source, wanted: Sequence[Capability]) -> None:
    """Compile every kernel of training and evaluation, and print what each takes.

    Args:
        source: a config whose place is cuda.
        wanted: capabilities.

    Raises:
        PeError: an op has no form for CUDA, or a kernel cannot be compiled (exit code 5).
    """
    from pe_cli.cli.text_columns import columns
    from pe_cli.kernels.cuda.compiler import arch, cubin, is_kept
    from pe_cli.kernels.cuda.worker_processes import compile_ahead

    phases = {"training": False, "evaluation": True} if source.built.train is not None else {"evaluation": True}
    steps = {phase: _step(source, evaluation) for phase, evaluation in phases.items()}
    launches = {phase: Counter(launched) for phase, (launched, *_) in steps.items()}
    around: set[Built] = set().union(*(needed for *_, needed in steps.values()))
    kernels: list[Built] = sorted(around.union(*launches.values()), key=lambda b: (b.kernel.name, b.dtype, b.second, sorted(b.halves)))
    names = " ".join(map(arch, wanted))
    said = ", ".join(f"{sum(found.values())} launches a step of {phase}" for phase, found in launches.items())
    for capability in wanted:
        # In several processes; `cubin` finds them in the cache below.
        compile_ahead([built for built in kernels if not is_kept(built, capability)], capability)
    rows: list[tuple[object, ...]] = [("kernel", "types", *launches, "registers", "spills", "local", "shared", "code")]
    for built in kernels:
        used = [cubin(built, capability).usage for capability in wanted]
        counts = [found[built] for found in launches.values()]
        rows.append(
            (
                _shown(built.kernel.name),
                built.type_names,
                *counts,
                *(_each([getattr(u, what) for u in used]) for what in ("registers", "spills", "local", "shared", "instructions")),
            )
        )
    echo(f"CUDA kernels for {names}: {len(kernels)}, {said}")
    echo(columns(rows, right=range(2, len(rows[0])), indent="  "))
    echo("  registers of a thread, bytes that it spills and has of local memory, bytes of shared memory of a block, instructions")
    echo(f"libraries: {_libraries(source, {phase: offered for phase, (_, offered, _) in steps.items()})}")


def _libraries(source: Source, offered: dict[str, Counter[str]]) -> str:
    """Return what libraries a run has, and what they may do on a card."""
    from pe_cli.devices.cuda_libraries.loaded_libraries import told

    said = told(source.run.executor.libraries if source.run else "none")
    may = [f"{n} of {library} a step of {phase}" for phase, found in offered.items() for library, n in sorted(found.items())]
    return f"{said}; may be calls of theirs, where a card finds them faster: {', '.join(may)}" if may else said


def _shown(name: str) -> str:
    """Return a kernel's name for the table; of several in one, the functions alone."""
    parts = re.split(r"([+|])", name.removeprefix("pe_cli."))
    return "".join(part.rpartition(":")[2] for part in parts) if len(parts) > 1 else parts[0]


def _each(values: Sequence[int]) -> str:
    """Return one number where all capabilities take the same, else the number of each."""
    return str(values[0]) if len(set(values)) == 1 else "/".join(map(str, values))


def _step(source: Source, evaluation: bool) -> tuple[list[Built], Counter[str], set[Built]]:
    """Return the kernels that a step launches, in order, how many calls are offered to each library, and kernels that go with these."""
    from pe_cli.cli.common import numerics_of
    from pe_cli.core.types import Place
    from pe_cli.devices.cuda_dry_run import launches_of
    from pe_cli.devices.cuda_kernel_launches import built_of
    from pe_cli.execute.diagnostics.estimate import step_on_paper
    from pe_cli.kernels.cuda.library_calls import LibraryKernel

    fetches = list(dict.fromkeys(source.built.fetches.values()))
    build = source.run.build_strategy if source.run else None
    program = source.program(evaluation)
    read = {name for op in program.top_ops for name in (*op.input_names(), *op.output_names())}
    # A fetch may be of the other phase's program alone.
    kept = [f for f in fetches if f in read]
    cuda = [Place("cuda", 0)]
    how = numerics_of(source, "cuda")
    works, places = step_on_paper(program, cuda, source.batch_size, build=build, fetches=kept, numerics=how)
    offered = [call.kernel for work in works for call in work.calls if isinstance(call.kernel, LibraryKernel)]
    needed = {built_of(call) for kernel in offered for call in (*kernel.before, *kernel.after)}
    return launches_of(works, places), Counter(kernel.what.library for kernel in offered), needed
