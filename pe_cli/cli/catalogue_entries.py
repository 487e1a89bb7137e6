"""Text about the kinds of objects that configs name beside layers: regions, optimizers, initializers, readers, columns, metrics."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.yaml_inline import flow

if TYPE_CHECKING:
    from pydantic import BaseModel


@dataclass(frozen=True)
class Thing:
    """An entry of a catalogue beside layers and ops.

    Args:
        kind: what one of these is called: optimizer, reader.
        name: as a config writes it.
        where: key of the config that takes it.
        doc: what it is.
        keys: rows of key, default and meaning.
    """

    kind: str
    name: str
    where: str
    doc: str
    keys: tuple[tuple[str, str, str], ...]

    def page(self) -> str:
        """Return the page of this thing as Markdown: what it does, and its keys."""
        rows = [("key", "default", "meaning"), ("---", "---", "---"), *self.keys]
        table = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
        parts = [f"# {self.name}", f"## {self.kind.capitalize()}", f"Written as `{self.where}`.", self.doc]
        return "\n\n".join([*parts, *([table] if self.keys else [])]) + "\n"


_START = ("start", "{}", "state -> what it is at first: a variable, or {shape, value, dtype}; the block's next says how it goes on")
#: Key of a layer that names a block which a step runs -> what it does, and the other keys.
_BLOCKS = {
    "scan": (
        "Run a block once for each step of its input, [batch, time, ...]; its outputs are those of all steps, and the last states.",
        (("input", "the layer before", "what the loop goes through"), _START, ("backwards", "false", "begin with the last step"),
         ("time_major", "false", "the input is [time, batch, ...]")),
    ),
    "while": (
        "Run a block as long as another one gives true; its outputs are the last states.",
        (("condition", "required", "a block that gives one bool"), _START, ("bound", "0", "rounds at most; needed for gradients")),
    ),
    "if": (
        "Run one of two blocks, by one bool; its output is that of the block that ran.",
        (("then", "required", "the block where it is true"), ("else", "required", "the block where it is not")),
    ),
    "beam": (
        "Search for the most probable sequences of tokens; outputs: the best one of each sample, all of them, and their scores.",
        (("start", "required", _START[2]), ("start_token", "required", "what every sequence begins behind"),
         ("end_token", "required", "what ends one"), ("beam_size", "required", "sequences of every sample that go on"),
         ("max_step_num", "required", "tokens of a sequence at most")),
    ),
}  # fmt: skip


def things() -> Iterator[Thing]:
    """Yield every entry, kind by kind."""
    from pe_cli.build import typed_objects
    from pe_cli.data import discover as readers
    from pe_cli.data.augment.registry import discover as augmentations
    from pe_cli.data.column import discover as columns
    from pe_cli.metrics.define import discover as metrics
    from pe_cli.session.observers.define import discover as observers

    for name, (doc, keys) in _BLOCKS.items():
        yield Thing("layer that runs blocks", name, f"LAYER: {{{name}: BLOCK}}", doc, keys)
    for table, kind, where in (
        (typed_objects.OPTIMIZER, "optimizer", "train.optimizer: {type: NAME}"),
        (typed_objects.SCHEDULE, "learning-rate schedule", "learning_rate: {type: NAME}"),
        (typed_objects.REGULARIZER, "regularizer", "regularization: {type: NAME}"),
        (typed_objects.CLIP, "gradient clip", "grad_clip: {type: NAME}"),
        (typed_objects.INITIALIZER, "initializer", "param_attr: {initializer: {type: NAME}}"),
    ):
        for name in table.names():
            maker = table.makers[name]
            # What follows there names the arguments, which have a table of their own.
            doc = (inspect.getdoc(maker) or "").partition("; argu")[0]
            yield Thing(kind, name, where.replace("NAME", name), doc.rstrip("."), tuple(_arguments(maker)))
    for kind, where, found in (
        ("reader", "data.train: {reader: NAME}", readers()),
        ("column type", "data.columns: {COLUMN: NAME}", columns()),
        ("augmentation", "data.augment: [NAME]", augmentations()),
        ("metric", "metrics: {M: {type: NAME}}", metrics()),
        ("observer", "output.observers: {NAME: {}}", observers()),
    ):
        for name, entry in found.items():
            doc = getattr(entry, "doc", "") or inspect.getdoc(getattr(entry, "make", entry)) or ""
            yield Thing(kind, name, where.replace("NAME", name), inspect.cleandoc(doc), tuple(_options(entry.options)))


def _arguments(maker: Any) -> Iterator[tuple[str, str, str]]:
    for parameter in inspect.signature(maker).parameters.values():
        if parameter.name not in ("name", "parameter_list", "self"):
            default = "required" if parameter.default is parameter.empty else flow(parameter.default)
            yield parameter.name, default, ""


def _options(options: type[BaseModel]) -> Iterator[tuple[str, str, str]]:
    for name, field in options.model_fields.items():
        default = "required" if field.is_required() else flow(field.get_default(call_default_factory=True))
        yield field.alias or name, default, field.description or ""


