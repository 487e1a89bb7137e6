"""The pipeline of program passes: which passes a strategy asks for, and in which order they run.

The order is fixed: what need not be computed goes first; then the layout of images, so that patterns are matched once images are
channels-last; then fusions, those that take the most operators first (`FUSIONS`; each says with its operator what it takes the place of);
gradients that are added in place, by whatever operators make them now; then updates, first those that gradients do themselves, and
the pointwise operators that are left; then, with precision bf16, which values are stored as bfloat16, whatever operators make and read
them by now; then statistics over all devices, whose halves no other pass knows; and last what is computed again for the backward pass,
by the operators that are there by then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.strategy import BuildStrategy
from pe_cli.core.types import Place
from pe_cli.devices.protocol import device
from pe_cli.graph.passes import (
    addto,
    auto_fusion,
    autocast,
    common_subexpressions,
    dead_code,
    fold_constants,
    fuse_grad_update,
    fuse_optimizer,
    fusions,
    layout,
    recompute,
    sync_batch_norm,
)
from pe_cli.program.ir import Operator, Program
from pe_cli.program.region import Region, changed, regions_of

#: Switches of the fusions that ops declare, in the order in which they are applied.
FUSIONS = (
    "fuse_bn_add_act_ops", "fuse_bn_act_ops", "fuse_relu_depthwise_conv", "fuse_elewise_add_act_ops", "fuse_gemm_epilogue",
    "fuse_conv_bn", "fuse_bn_statistics", "fuse_bn_conv",
)  # fmt: skip

Pass = Callable[[Program, Sequence[str]], tuple[Program, str]]


@dataclass(frozen=True)
class Target:
    """Hardware facts that passes may rely on. For unknown hardware, no hardware-specific pass runs.

    Args:
        caches: all devices keep what fused ops hand on in caches, block by block.
        alone: gradients may be used up as they are made: one such device runs the whole program, so that none has to be summed.
        several: each device sees a part of the batch alone.
        narrow: values between products are stored as bfloat16.
        launches: devices launch kernels, of which one does many small things as fast as one.
    """

    caches: bool = False
    alone: bool = False
    several: bool = False
    narrow: bool = False
    launches: bool = False

    @classmethod
    def of(cls, places: Sequence[Place], processes: int = 1, *, checked: bool = False, precision: str = "float32") -> Target:
        """Return the target of a run.

        Args:
            places: devices.
            processes: that share every batch.
            checked: `check_nan_inf` looks for the first variable with a NaN, so that all have to be there.
            precision: float32, tf32 or bf16, see `Lowering` too.
        """
        caches = all(device(place.kind).caches_blocks for place in places)
        several = len(places) * processes > 1
        launches = not any(device(place.kind).is_host for place in places)
        alone = caches and not several and not checked
        # A step taken inside of a gradient's kernel leaves no gradient to sum, to check or to fetch from another device.
        return cls(caches, alone=alone, several=several, narrow=precision == "bf16", launches=launches)


UNKNOWN_HARDWARE = Target()


def passes(strategy: BuildStrategy, target: Target = UNKNOWN_HARDWARE) -> list[Pass]:
    """Return the passes of a strategy, in order; see `apply_passes`."""
    known: list[tuple[bool, Pass]] = [
        (strategy.simplify, fold_constants.run),
        (strategy.simplify, common_subexpressions.run),
        (strategy.simplify, dead_code.run),
        (strategy.data_layout == "auto", layout.run),
        *(_fusion(switch, strategy, target) for switch in FUSIONS),
        (strategy.enable_addto, addto.run),
        (strategy.fuse_grad_update and target.alone, fuse_grad_update.run),
        (strategy.fuse_all_optimizer_ops and strategy.reduce_strategy != "Reduce", fuse_optimizer.run),
        # Updates that are fused already are left out of groups: they have kernels of their own over lists.
        (strategy.enable_auto_fusion, auto_fusion.run),
        (target.narrow, partial(autocast.run, together=target.launches)),
        (strategy.sync_batch_norm and target.several, sync_batch_norm.run),
    ]
    return [run for wanted, run in known if wanted]


def _fusion(switch: str, strategy: BuildStrategy, target: Target) -> tuple[bool, Pass]:
    """Return whether a fusion is wanted, and its pass: one that leaves batch_norm alone where sync_batch_norm is going to replace it."""
    run = fusions.fusion_pass(switch)
    if not getattr(strategy, switch):
        return False, run
    found = fusions.fusions()[switch]
    wanted = all(getattr(target, fact) for fact in found.on)
    if not (found.unless_synchronised and strategy.sync_batch_norm):
        return wanted, run
    # The statistics that a fusion would take are those of one device, and sync_batch_norm needs those of all.
    return wanted, lambda program, fetches: (program, f"{switch}: nothing fused: sync_batch_norm takes the batch_norm ops")


def apply_passes(
    program: Program,
    strategy: BuildStrategy,
    fetches: Sequence[str],
    report: list[str] | None = None,
    target: Target = UNKNOWN_HARDWARE,
) -> Program:
    """Return the program after every pass of the strategy.

    Args:
        program: not changed.
        strategy: the user's wishes.
        fetches: variables whose values must stay what the program says.
        report: gets a sentence per pass.
        target: where it runs.
    """
    # Asked before passes run: they hand on segments, but a pass may leave no op in one.
    in_segments = any(op.segment for op in program.top_ops)
    runs = passes(strategy, target)
    if any(op.varies for op in program.top_ops):
        # Other passes take attributes for those of all devices. Batches that devices do not divide are rare: one per epoch.
        runs = [run for run in runs if getattr(run, "func", run) in (autocast.run, sync_batch_norm.run)]
    for run in (*runs, *([recompute.run] if in_segments else [])):
        program, sentence = run(program, fetches)
        if report is not None:
            report.append(sentence)
    if any(regions_of(op) for op in program.top_ops):
        program = program.clone()
        block = program.main_block
        block.ops = [_inside(op, strategy, target, report) for op in block.ops]
    return program


def _inside(op: Operator, strategy: BuildStrategy, target: Target, report: list[str] | None) -> Operator:
    """Return an op with the passes done in its regions, which one device runs alone."""
    # Inside of a region one device works alone, without sums and without an own store of gradients.
    inner = Target(caches=target.caches)

    def change(region: Region) -> Region:
        said: list[str] = []
        program = apply_passes(region.program, strategy, region.results, said, inner)
        if report is not None:
            report.extend(f"in {op.type}{f' of {op.scope.rstrip(chr(47))}' if op.scope else ''}: {text}" for text in said)
        return replace(region, program=program)

    return changed(op, change)
