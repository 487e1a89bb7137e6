"""Checks which settings of a run file go together with `executor.processes: auto`."""

from __future__ import annotations

from collections.abc import Iterator

from pe_cli.config.error_collector import Mistake
from pe_cli.config.sections.distributed import DistributedSection
from pe_cli.config.sections.executor import ExecutorSection
from pe_cli.config.sections.output import OutputSection
from pe_cli.config.sections.strategies import BuildSection, ExecSection
from pe_cli.config.sections.train import TrainSection
from pe_cli.core.errors import Span

#: What processes do that wait for nobody: servers have the parameters that their threads have in common.
_SERVERS = "set distributed: {mode: parameter_server, servers: 1, sync: async}: servers then have the parameters of all threads"
#: Keys of `distributed` that say something of servers.
_OF_SERVERS = ("servers", "sync", "min_block_size", "slice_var_up", "split_method", "endpoints", "secret")


def process_mistakes(
    executor: ExecutorSection, build: BuildSection, output: OutputSection, *, servers: bool = False
) -> Iterator[Mistake]:
    """Yield (message, place, remedy) for every wish that cannot be acted on; servers: whether some processes are parameter servers."""
    if executor.processes == 1:
        return
    if servers:
        scale, sums = build.gradient_scale_strategy, build.reduce_strategy  # servers take the mean over trainers
        yield from (
            (f"{what}: not with parameter servers", at, f"{hint}, or distributed.mode: collective")
            for wrong, what, at, hint in (
                (sums != "AllReduce", f"reduce_strategy: {sums}", build.at_of("reduce_strategy"), "AllReduce"),
                (scale != "CoeffNumDevice", f"gradient_scale_strategy: {scale}", build.at_of("gradient_scale_strategy"), "CoeffNumDevice"),
                (build.sync_batch_norm, "sync_batch_norm", build.at_of("sync_batch_norm"), "sync_batch_norm: false"),
                (build.fp16_allreduce, "fp16_allreduce", build.at_of("fp16_allreduce"), "fp16_allreduce: false"),
                (executor.precision == "bf16", "precision: bf16", executor.at_of("precision"), "precision: float32"),
                (output.trace > 0, "output.trace", output.at_of("trace"), "trace: 0"),
            )
            if wrong
        )
    if executor.type == "async" and not servers:
        what = "type: async: processes have no memory in common, and so no parameters that their threads could share"
        yield what, executor.at_of("type"), _SERVERS
    if executor.place != "cpu" and servers:
        yield f"place: {executor.place}: not with parameter servers", executor.at_of("place"), "place: cpu, or distributed.mode: collective"


def distributed_mistakes(
    section: DistributedSection,
    executor: ExecutorSection,
    train: TrainSection | None,
    output: OutputSection,
    schedule: ExecSection,
) -> Iterator[Mistake]:
    """Yield (message, place, remedy) for what does not go with the section `distributed`."""
    if "processes" in executor.model_fields_set and executor.processes == 1:
        hint = "leave one of them out: -o distributed=null"
        yield "distributed is for several processes, and executor.processes says 1", executor.at_of("processes"), hint
    if section.mode == "collective":
        for key in _OF_SERVERS:
            if key in section.model_fields_set and getattr(section, key) is not None:
                yield f"distributed.{key} is for mode: parameter_server", section.at_of(key), "set distributed.mode, or leave it out"
        return
    yield from _server_mistakes(section)
    if executor.type == "async" and section.sync is True:
        what = "distributed.sync: true: servers wait for one gradient of every trainer, and threads of type: async wait for nobody"
        yield what, section.at_of("sync") or section.at, "sync: async, half_async, or {geo: 100}; or executor.type: parallel"
    for wrong, what, at, hint in _served(executor, train, output, schedule):
        if wrong:
            yield f"{what}: not with parameter servers", at, hint
    if train is not None and train.ema is not None and section.sync is not True:
        what = "train.ema: with parameter servers only where they wait for all trainers"
        yield what, train.at_of("ema"), "distributed.sync: true, or leave ema out"


def _server_mistakes(section: DistributedSection) -> Iterator[Mistake]:
    """Yield what the number of servers and their places do not agree about."""
    count = len(section.endpoints or ())
    if section.servers is None:
        if count:
            yield f"distributed.endpoints has {count}, and distributed.servers is absent", section.at_of("endpoints"), f"servers: {count}"
        else:
            hint = "servers: 2, for example; mpiexec -n 4 then has two servers and two trainers"
            yield "distributed.mode: parameter_server needs servers, and there are none", section.at_of("mode"), hint
    elif count and count != section.servers:
        yield f"distributed.endpoints has {count} servers, and servers says {section.servers}", section.at_of("endpoints"), "one for each"
    elif len(set(section.endpoints or ())) < count:
        yield "distributed.endpoints names a server twice", section.at_of("endpoints"), "one host:port for each"


def _served(
    executor: ExecutorSection, train: TrainSection | None, output: OutputSection, schedule: ExecSection
) -> Iterator[tuple[bool, str, Span | None, str]]:
    """Yield (whether it is so, what, where, remedy) for what trainers with servers cannot do."""
    many = executor.devices not in ("auto", 1)
    yield many, f"executor.devices: {executor.devices}", executor.at_of("devices"), "devices: 1, and more processes"
    times = schedule.num_iteration_per_run
    at = schedule.at_of("num_iteration_per_run")
    yield times > 1, f"exec_strategy.num_iteration_per_run: {times}", at, "leave it out"
    yield output.gradient_norms, "output.gradient_norms", output.at_of("gradient_norms"), "leave it out"
    if train is not None:
        yield train.accumulate > 1, "train.accumulate", train.at_of("accumulate"), "a larger batch_size"
        yield bool(train.phases), "train.phases", train.at_of("phases"), "leave it out"
