"""Checks for settings of a sweep that contradict each other, or that the rest of the config cannot fulfil."""

from __future__ import annotations

from collections.abc import Iterator

from pe_cli.config.error_collector import Mistake
from pe_cli.config.nodes import Entry, MapNode
from pe_cli.config.sections.output import OutputSection
from pe_cli.config.sections.run_file import RunFile
from pe_cli.config.sections.sweep import SweepSection
from pe_cli.config.sections.train import TrainSection
from pe_cli.config.sweep_domain import Range
from pe_cli.core.errors import Span, did_you_mean

#: Keys that a sweep sets itself, by what it sets them for.
_OWN = {"output.dir": "the folder of a trial", "output.name": "the name of a trial"}
#: Keys whose values are chance and no choice: trials that differ by nothing else are compared by their mean.
REPEATS = ("data.split.fold", "data.split.seed", "executor.seed")


def sweep_mistakes(section: SweepSection, train: TrainSection | None, output: OutputSection, written: MapNode) -> Iterator[Mistake]:
    """Yield what is wrong with a sweep, with its place and what to do.

    Args:
        section: checked by itself.
        train, output: the other sections that it rests on.
        written: the section as it is in the file.
    """
    over = written.get("over")
    entries = over.entries if isinstance(over, MapNode) else {}
    for key, entry in entries.items():
        yield from _key_mistakes(key, entry, section, list(entries))
    if section.method != "grid" and section.trials is None:
        yield f"sweep: method {section.method} needs trials, how many", section.at_of("method"), "add trials: 20"
    for key in ("trials", "seed") if section.method == "grid" else ():
        if key in section.model_fields_set and getattr(section, key) is not None:
            yield f"sweep.{key} says nothing with method grid, which tries everything once", section.at_of(key), f"leave {key} out"
    if "together" in section.model_fields_set and section.method != "tpe":
        text = f"sweep.together says nothing with method {section.method}, whose draws do not go by results"
        yield text, section.at_of("together"), "leave together out"
    if train is None:
        yield "sweep needs something to train, and the config has no train section", section.at, "add train: {...}"
    elif section.halving is not None:
        yield from _halving_mistakes(section, train, output)


def _key_mistakes(key: str, entry: Entry, section: SweepSection, keys: list[str]) -> Iterator[Mistake]:
    yield from _path_mistakes(key, entry.at)
    for other in keys:
        if other != key and key.startswith(f"{other}."):
            yield f"sweep.over sets {other}, which {key} is a part of", entry.at, "keep one of them"
    for own, what in _OWN.items():
        if own == key or own.startswith(f"{key}."):
            yield f"sweep.over.{key}: {own} is {what}, which the sweep chooses", entry.at, f"leave {key} out"
    if section.halving is not None and key in ("train", "train.epochs", "train.steps"):
        yield f"sweep.over.{key}: halving says how long a trial is trained", entry.at, f"leave {key} out, or halving"
    domain = section.over[key]
    if key in REPEATS and isinstance(domain, Range) and domain.scale != "int":
        yield f"sweep.over.{key} is averaged over, and a range of numbers has no mean", entry.value.at, "list values: [1, 2, 3]"
    elif section.method == "grid" and isinstance(domain, Range) and domain.scale != "int":
        text = f"sweep.over.{key} is a range of numbers without steps, and method grid tries all values"
        yield text, entry.value.at, "list values, or write method: random"


def _path_mistakes(key: str, at: Span) -> Iterator[Mistake]:
    parts = key.split(".")
    top = parts[0]
    known = [name for name in RunFile.model_fields if name != "sweep"]
    if "=" in key or any(part != part.strip() or not part for part in parts):
        yield f"'{key}' is no path of keys", at, "write names with dots between them: train.optimizer.learning_rate"
    elif key == "args":
        yield "'args' names all constants at once", at, "name one of them: args.width"
    elif top == "sweep":
        yield "a sweep cannot change itself", at, "name a key of another section"
    elif top not in known:
        yield f"a config has no section '{top}'", at, did_you_mean(top, known) or f"one of {', '.join(known)}"


def _halving_mistakes(section: SweepSection, train: TrainSection, output: OutputSection) -> Iterator[Mistake]:
    assert section.halving is not None
    first, at = section.halving.first, section.halving.at_of("first")
    unit = f"{first.unit}s"
    whole = train.epochs if first.unit == "epoch" else train.steps
    if whole is None:
        other = "steps" if unit == "epochs" else "epochs"
        yield f"sweep.halving.first counts {unit}, and train says how many {other} at most", at, f"write first: N {other}"
    elif first.count >= whole:
        yield f"sweep.halving.first is {first}, and train.{unit} is {whole}: nothing is left to stop early", at, "write less"
    if output.checkpoint is None:
        yield "sweep.halving goes on with trials, and output.checkpoint is null", section.halving.at, "leave output.checkpoint out"
