"""Checks a model's sizes against its data: rows of embeddings for the indices of columns, scores for classes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pe_cli.config.sections.feed import FeedSection
from pe_cli.core.errors import PeError, Span, as_one
from pe_cli.data.column_usage import ColumnUsage
from pe_cli.data.feed import INTEGERS
from pe_cli.data.fitted_columns import FittedColumn
from pe_cli.ops.define.traits import Compares, SameNumbers, Table
from pe_cli.program.ir import Block, Operator, Program
from pe_cli.program.region import blocks_of, given, regions_of


def check_sizes(
    program: Program, sources: Mapping[str, ColumnUsage], feeds: Mapping[str, FeedSection], columns: dict[str, FittedColumn]
) -> None:
    """Compare the indices that columns have learned with what reads them.

    Args:
        program: that will read them.
        sources: feed -> the fields that it is made of.
        feeds: feed -> how it is made of them, where the run file says so.
        columns: that are fitted, by name.

    Raises:
        PeError: USAGE; the model has too few rows or logits, all such places in one.
    """
    errors: list[PeError] = []
    for feed, want in sources.items():
        variable, section = program.find_var(feed), feeds.get(feed)
        column = columns.get(want.names[0]) if len(want.names) == 1 else None
        # What is scaled or shifted is no index any more.
        if variable is None or column is None or (section is not None and (section.scale != 1 or section.shift != 0)):
            continue
        count = indices(column, columns)
        if not count:
            continue
        if section is not None and section.one_hot is not None:
            if section.one_hot < count:
                said = f"feed '{feed}' has one_hot: {section.one_hot}, and column '{column.name}' has {_count(column, count)}"
                errors.append(
                    PeError(said, at=section.at, hint=f"set one_hot: {count}, which is the model's feed, too")
                )
        elif variable.dtype in INTEGERS:
            errors += _readers(program, feed, column, count)
    if errors:
        raise as_one(errors)


def indices(column: FittedColumn, columns: dict[str, FittedColumn]) -> int:
    """Return the number of indices that a column's field may hold; 0 for a column without."""
    if column.type in ("text", "blocks"):
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        owner = columns.get(str(column.options.get("of")), column) if "tokens" not in column.state else column
        return open_tokens(owner.state["tokens"]).size if "tokens" in owner.state else 0
    encode = getattr(column.checked, "encode", "index")
    return len(column.classes) if encode in ("index", "ids") else 0


def _readers(program: Program, feed: str, column: FittedColumn, count: int) -> Iterator[PeError]:
    """Yield what is too small for a feed's indices, inside of loops and conditions, too."""
    # Names of the same indices: the feed, and what casts and reshapes make of it, inside of regions, too.
    same = {feed}
    for block, op in ((inside, op) for inside in blocks_of(program) for op in inside.ops):
        for region in regions_of(op).values():
            same |= {arg for arg, name in given(op, region).items() if name in same}
        if op.definition.has(SameNumbers) and same.intersection(op.input_names()):
            same.update(op.output_names())
        elif (lookup := op.definition.get(Table)) is not None and same.intersection(op.inputs.get(lookup.ids, ())):
            table = block.var(op.inputs[lookup.table][0])
            if 0 <= table.shape[0] < count:
                hint = f"set size: [{count}, {table.shape[1]}]"
                yield _small(f"the embedding has {table.shape[0]:,} rows", column, count, _at(block, op), hint)
        elif (
            (loss := op.definition.get(Compares)) is not None
            and loss.several
            and same.intersection(op.inputs.get(loss.labels, ()))
            and not op.attrs.get("soft_label")
        ):
            logits = block.var(op.inputs[loss.scores][0])
            if 0 <= logits.shape[-1] < count:
                yield _small(
                    f"{op.type} tells {logits.shape[-1]:,} classes apart", column, count, _at(block, op),
                    f"set size: {count} on the layer that makes its logits",
                )  # fmt: skip


def _at(block: Block, op: Operator) -> Span | None:
    return op.at or block.var(op.output_names()[0]).at


def _small(what: str, column: FittedColumn, count: int, at: Span | None, hint: str) -> PeError:
    return PeError(f"{what}, and column '{column.name}' has {_count(column, count)}", at=at, hint=hint)


def _count(column: FittedColumn, count: int) -> str:
    """Return how many indices a column has, and of what."""
    if column.type in ("text", "blocks"):
        return f"{count:,} tokens"
    apart = [word for word in ("unknown", "missing") if column.state.get(word)]
    classes = count - len(apart)
    said = f"{classes:,} class{'es' * (classes != 1)} of the training rows"
    return f"{count:,} indices: {said}, and {' and '.join(apart)} values" if apart else said
