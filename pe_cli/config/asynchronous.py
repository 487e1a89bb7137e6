"""What a run file may ask for together with `executor.type: async`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pe_cli.config.sections import ExecutorSection, OutputSection, TrainSection
from pe_cli.config.spec import DataSpec
from pe_cli.core.errors import Span
from pe_cli.core.strategy import ExecutionStrategy

Mistake = tuple[str, Span | None, str]
READER = "multi_slot"


def async_mistakes(
    executor: ExecutorSection,
    train: TrainSection | None,
    execution: ExecutionStrategy,
    data: Mapping[str, DataSpec],
    output: OutputSection,
) -> Iterator[Mistake]:
    """Yield (message, place, remedy) for every wish that cannot be acted on."""
    given = executor.model_fields_set
    if executor.type != "async":
        for key in ("files", "threads"):
            if getattr(executor, key) is not None:
                yield f"executor.{key} is for asynchronous training", executor.at_of(key), "set executor.type: async"
        return
    if executor.place != "cpu":
        yield "asynchronous training runs on the CPU only", executor.at_of("place"), "place: cpu"
    if executor.devices not in ("auto", 1):
        yield "asynchronous training has threads, not devices", executor.at_of("devices"), "set threads instead"
    for key, why in (
        ("deterministic", "threads share parameters without locks, so no two runs are alike"),
        ("uneven_batch", "every thread has its own batches, which are not split"),
    ):
        if key in given:
            yield f"executor.{key} cannot hold with type: async: {why}", executor.at_of(key), f"leave {key} out"
    if execution.num_threads > 1:
        yield "a step of asynchronous training runs on its own thread", executor.at_of("num_threads"), "num_threads: 1"
    if train is not None and train.eval_every.unit == "step":
        yield "asynchronous training evaluates between epochs", train.at_of("eval_every"), "eval_every: 1 epoch"
    saving = output.checkpoint
    if saving is not None and saving.every.unit == "step":
        yield "asynchronous training saves between epochs", saving.at_of("every"), "every: 1 epoch"
    source = data.get("train")
    if source is not None and source.reader != READER:
        text = f"asynchronous training reads files of reader {READER}, data.train has {source.reader}"
        yield text, source.reader_at, f"reader: {READER}"
