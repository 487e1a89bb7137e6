"""Checks which settings of a run file go together with `executor.type: async`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pe_cli.config.error_collector import Mistake
from pe_cli.config.sections.executor import ExecutorSection
from pe_cli.config.sections.output import OutputSection
from pe_cli.config.sections.train import TrainSection
from pe_cli.config.spec import DataSpec
from pe_cli.core.strategy import ExecutionStrategy

READER = "multi_slot"
#: Keys of the executor that only hold for devices that share every batch.
_NEVER = {
    "deterministic": "threads share parameters without locks, so no two runs are alike",
    "uneven_batch": "every thread has its own batches, which are not split",
}


def async_mistakes(
    executor: ExecutorSection,
    train: TrainSection | None,
    execution: ExecutionStrategy,
    data: Mapping[str, DataSpec],
    output: OutputSection,
) -> Iterator[Mistake]:
    """Yield (message, place, remedy) for every wish that cannot be acted on."""
    if executor.type != "async":
        for key in ("files", "threads"):
            if getattr(executor, key) is not None:
                yield f"executor.{key} is for asynchronous training", executor.at_of(key), "set executor.type: async"
        return
    for key, why in _NEVER.items():
        if key in executor.model_fields_set:
            yield f"executor.{key} cannot hold with type: async: {why}", executor.at_of(key), f"leave {key} out"
    saving, source = output.checkpoint, data.get("train")
    checks = [
        (executor.place != "cpu", "runs on the CPU only", executor.at_of("place"), "place: cpu"),
        (
            executor.devices not in ("auto", 1),
            "has threads, not devices",
            executor.at_of("devices"),
            "set threads instead",
        ),
        (execution.num_threads > 1, "runs each step on one thread", executor.at_of("num_threads"), "num_threads: 1"),
    ]
    if train is not None:
        parts = train.accumulate > 1
        checks.append((parts, "has no parts of batches", train.at_of("accumulate"), "leave accumulate out"))
        by_step = train.eval_every.unit == "step"
        checks.append((by_step, "evaluates between epochs", train.at_of("eval_every"), "eval_every: 1 epoch"))
    if saving is not None:
        checks.append((saving.every.unit != "epoch", "saves between epochs", saving.at_of("every"), "every: 1 epoch"))
    if source is not None:
        what = f"reads files of reader {READER}, data.train has {source.reader}"
        checks.append((source.reader != READER, what, source.reader_at, f"reader: {READER}"))
        checks.append((source.split, "takes whole files, not rows of a split source", source.at, "name train: and eval: apart"))
    yield from ((f"asynchronous training {what}", at, hint) for wrong, what, at, hint in checks if wrong)
