"""Checks which settings of a run file go together with `train.phases`."""

from __future__ import annotations

from collections.abc import Iterator

from pe_cli.config.error_collector import Mistake
from pe_cli.config.nodes import MapNode, is_null, key_span
from pe_cli.config.sections.executor import ExecutorSection
from pe_cli.config.sections.train import TrainSection
from pe_cli.core.errors import Span
from pe_cli.core.strategy import ExecutionStrategy


def written_mistakes(train: MapNode, at: Span) -> Iterator[Mistake]:
    """Yield (message, place, remedy) where it is not said what is minimised and how, or said twice.

    Args:
        train: the section as written.
        at: place of its name.
    """
    phased = not is_null(train.get("phases"))
    for key in ("loss", "optimizer"):
        written = train.get(key)
        if not phased and is_null(written):
            yield f"train needs {key}", at, f"add {key}: ...   ({TrainSection.model_fields[key].description})"
        elif phased and written is not None and not is_null(written):
            yield f"every phase has its own {key}, so train.{key} means nothing", key_span(train, (key,)), f"leave {key} out"


def phase_mistakes(
    train: TrainSection | None, executor: ExecutorSection, execution: ExecutionStrategy, tree: MapNode
) -> Iterator[Mistake]:
    """Yield (message, place, remedy) for every wish that does not go with phases; `tree` is the run file."""
    if train is None or not train.phases:
        return
    names = [phase.name for phase in train.phases]
    for number, phase in enumerate(train.phases):
        if phase.name in names[:number]:
            yield f"two phases are called '{phase.name}'", phase.at_of("name"), "give each a name of its own"
    if train.plateau is not None:
        yield "train.plateau lowers one learning rate, and every phase has its own", train.plateau.at, "leave plateau out, or use schedules"
    if executor.type == "async":
        yield "asynchronous training has no steps in common, of which phases are parts", executor.at_of("type"), "type: parallel"
    if execution.num_iteration_per_run > 1:
        text = "exec_strategy.num_iteration_per_run repeats a program, and with phases a step is several"
        yield text, key_span(tree, ("exec_strategy", "num_iteration_per_run")), "write repeat: N in a phase"
