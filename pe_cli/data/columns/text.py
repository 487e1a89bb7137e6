"""Texts: a cell is cut into tokens, and becomes a sequence of their ids."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from pe_cli.config.sections.value_types import Count
from pe_cli.core.encoding import Lane, Source
from pe_cli.core.errors import ExitCode, PeError, did_you_mean
from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnOptions, ColumnType, Context, State, column
from pe_cli.data.fields import ArrayField, Rows, SequenceField
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.raw_cells import Strings
from pe_cli.data.reader_context import Origin
from pe_cli.data.spill_storage import room

#: Ids of words and pairs where nothing is said, and training texts that a token must occur in.
SIZES: dict[str, int | None] = {"words": 10_000, "bpe": 4096, "characters": None}
MIN_COUNT = {"words": 2, "bpe": 2, "characters": 1}
#: Fewest ids of byte pairs: padding and all bytes.
BYTES = 257
#: Rows whose ids are written at a time.
STEP = 1 << 16


class FileOptions(BaseModel):
    """Options of a tokenizer that is read from a file."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    file: Annotated[str, Field(strict=True, min_length=1)]


class TokenOptions(ColumnOptions):
    """How texts are cut into tokens."""

    tokens: Literal["words", "characters", "bpe"] | FileOptions = Field(
        "words", description="what a token is; `{file: tokenizer.json}` takes the tokenizer of a file (pip install 'pe-cli[text]')"
    )
    size: Annotated[int, Field(strict=True, ge=3)] | None = Field(
        None,
        description="ids at most, padding and unknown included, so that it is the size of an embedding; "
        "10000 words, 4096 for bpe, all characters when absent",
    )
    min_count: Count | None = Field(
        None,
        description="how often a word or character, or a pair of bpe, must occur in the training texts; 2, 1 for characters, when absent",
    )
    lower: Annotated[bool, Field(strict=True)] = Field(False, description="make texts lower case before, character by character")

    @model_validator(mode="after")
    def _fits(self) -> TokenOptions:
        if self.tokens == "bpe" and self.size is not None and self.size < BYTES:
            raise ValueError(f"size: {self.size} is too small for bpe, which has {BYTES} ids before the first pair")
        # A file has its own size and its own way with letters.
        if isinstance(self.tokens, FileOptions):
            given = [name for name in ("size", "min_count", "lower") if name in self.model_fields_set]
            if given:
                raise ValueError(f"{given[0]} is for tokens that are learned, and a file says it itself")
        return self


class TextOptions(TokenOptions):
    """Options of text columns."""

    of: str | None = Field(None, description="column of the table; the one of the same name when absent")
    vocabulary: list[Annotated[str, Field(strict=True)]] | None = Field(
        None,
        min_length=1,
        description="columns whose training texts tokens are learned from, so that the same word has the same id in all of them; "
        "the column itself when absent",
    )
    max_length: Count | None = Field(None, description="keep so many tokens of a text, its first ones")
    length: Count | None = Field(
        None, description="make every text so many tokens, cut or filled up by padding: a plain field instead of sequences"
    )
    unknown: Literal["error", "index"] = Field(
        "index", description="a word or character that training never saw: an error, or the id 1"
    )

    @model_validator(mode="after")
    def _one_length(self) -> TextOptions:
        if self.max_length is not None and self.length is not None:
            raise ValueError("length cuts texts by itself: leave max_length out")
        return self


class LearnedTokens(BaseModel):
    """A tokenizer as JSON: words or characters in the order of their ids from 2 on, merges of byte pairs, or the lines of a file."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    kind: Literal["words", "characters", "bpe", "file"]
    lower: bool = False
    words: list[str] | None = None
    characters: list[Annotated[str, Field(min_length=1, max_length=1)]] | None = None
    merges: list[str] | None = None
    lines: list[str] | None = None
    seen: int = 0
    unknown: int = 0

    @model_validator(mode="after")
    def _whole(self) -> LearnedTokens:
        name = {"bpe": "merges", "file": "lines"}.get(self.kind, self.kind)
        if getattr(self, name) is None:
            raise ValueError(f"tokens of kind {self.kind} have {name}")
        return self


class TextState(BaseModel):
    """What a text column has learned."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    tokens: LearnedTokens


@column
class Text(ColumnType[TextOptions]):
    """A text per row, as a sequence of the ids of its tokens, int64 [1] each, for a feed with lod_level: 1.

    Id 0 is padding and 1 an unknown word or character; a text without a token is the sequence of id 0 alone. With `length` a row is
    int64 [length].
    """

    name = "text"
    options = TextOptions
    learned = TextState

    def sources(self, name: str, options: TextOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (options.of or name,)

    def fit(self, options: TextOptions, context: Context, rows: Rows | None) -> State:
        """Learn the tokens."""
        return {"tokens": fit_tokens(options, context, options.vocabulary or [options.of or context.name], rows)}

    def encode(self, options: TextOptions, state: State, context: Context) -> FieldOf:
        """Return the ids of the tokens of every row.

        Raises:
            PeError: a text that the tokenizer cannot take; with its place.
        """
        from pe_cli.data.tokens.text_chunks import BadTextError
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        source = options.of or context.name
        strings = context.table.cells(source).strings()
        tokens = open_tokens(state["tokens"])
        # The row is known where the chunk was encoded, and told with its place in the file.
        try:
            found = tokens.encode_many(strings, most=options.length or options.max_length, filled=1)
        except BadTextError as error:
            raise context.error(error.row, error.message, error.hint, source) from None
        if found.unknown:
            self._unknown(options, context, strings, found.ids, found.offsets, tokens.unknown)
        # Without a length, texts are sequences; filled up they are rows of one size.
        if options.length is None:
            return SequenceField(found.ids[:, None], found.offsets, "int64")
        return ArrayField(_padded(found.ids, found.offsets, options.length, tokens.padding, context.name), "int64")

    def decode(self, options: TextOptions, state: State, values: NDArray[Any]) -> NDArray[Any]:
        """Return the texts of ids: [batch, tokens] whole numbers become [batch] texts; padding is left out."""
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        if values.dtype.kind != "i" or values.ndim != 2:
            return values
        tokens = open_tokens(state["tokens"])
        found = np.empty(len(values), object)
        found[:] = [tokens.decode(row) for row in values.tolist()]
        return found

    def lanes(self, name: str, options: TextOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return the ids as they are: what makes them is in `tokenizer`; see `ColumnType.lanes`."""
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        padding = open_tokens(state["tokens"]).padding
        if options.length is not None:
            said = f"ids of a text's first {options.length} tokens, as the tokenizer makes them, filled up by {padding}"
        else:
            first = f", the first {options.max_length} of each" if options.max_length else ""
            said = f"ids of all texts' tokens{first}, one below the other, as the tokenizer makes them; {padding} for a text without one"
        kind = TensorType((options.length or 1,), "int64")
        return (Lane(Source(options.of or name, kind, said, raw=False)),)

    def tokenizer(self, options: TextOptions, state: State) -> object:
        """Return the tokenizer as the values of a `tokenizer.json`; see `ColumnType.tokenizer`."""
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        return open_tokens(state["tokens"]).exported()

    def _unknown(
        self,
        options: TextOptions,
        context: Context,
        strings: Strings,
        ids: NDArray[np.int32],
        offsets: NDArray[np.int64],
        unknown: int | None,
    ) -> None:
        """Say how many tokens are unknown.

        Raises:
            PeError: DATA; the column takes none.
        """
        places = np.flatnonzero(ids == unknown)
        row = int(np.searchsorted(offsets, places[0], side="right")) - 1
        shown = strings[row][:40]
        if options.unknown == "error":
            raise context.error(
                row,
                f"token {int(places[0] - offsets[row]) + 1} of '{shown}' is none that training saw",
                "unknown: index on the column gives such tokens an id",
                options.of or context.name,
            )
        share = 100 * len(places) / len(ids)
        context.notes.append(
            f"{len(places):,} token{'s' if len(places) > 1 else ''} of column '{context.name}' ({share:.3g}%) with the id of unknown "
            f"ones, the first in row {row + 1}, '{shown}'"
        )


def fit_tokens(options: TokenOptions, context: Context, sources: Sequence[str], rows: Rows | None) -> dict[str, Any]:
    """Learn tokens from columns, or read them from a file.

    Args:
        options: what tokens are.
        context: of the column.
        sources: columns of the table.
        rows: that train; all when None.

    Raises:
        PeError: DATA; there is no such column, a text is none, there is no token, or the file is no tokenizer.
    """
    from pe_cli.data.tokens.base import Wanted
    from pe_cli.data.tokens.text_chunks import BadTextError
    from pe_cli.data.tokens.tokenizer_kinds import learn

    if isinstance(options.tokens, FileOptions):
        from pe_cli.data.tokens.tokenizer_json import read

        origin = Origin(context.base, context.at)
        return read(origin.find(options.tokens.file), origin.error)
    kind = options.tokens
    size = SIZES[kind] if options.size is None else options.size
    least = MIN_COUNT[kind] if options.min_count is None else options.min_count
    absent = next((name for name in sources if name not in context.table.names), None)
    if absent is not None:
        hint = did_you_mean(absent, context.table.names) or "vocabulary names columns of the table"
        raise PeError(f"column '{context.name}': the data has no column '{absent}'", at=context.at, hint=hint, code=ExitCode.DATA)
    strings, count = _together([context.table.cells(name).strings() for name in sources]), len(context.table)
    chosen = rows if rows is None or len(sources) == 1 else np.concatenate([rows + i * count for i in range(len(sources))])
    try:
        state = learn(Wanted(kind, size, least, options.lower), strings, chosen)
    except BadTextError as error:
        raise context.error(error.row % count, error.message, error.hint, sources[error.row // count]) from None
    if not state["seen"]:
        raise PeError(
            f"column '{context.name}': no training text has a token", at=context.at, hint="all texts are empty", code=ExitCode.DATA
        )
    if kind != "bpe" and not state[kind]:
        raise PeError(
            f"column '{context.name}': no {kind[:-1]} occurs {least} times in the training texts",
            at=context.at,
            hint="set min_count: 1",
            code=ExitCode.DATA,
        )
    return state


def _together(found: Sequence[Strings]) -> Strings:
    """Return columns of texts one behind the other."""
    if len(found) == 1:
        return found[0]
    starts = np.cumsum([0, *(len(one.bytes) for one in found)])
    offsets = [one.offsets[:-1] + start for one, start in zip(found, starts, strict=False)]
    return Strings(np.concatenate([one.bytes for one in found]), np.concatenate([*offsets, starts[-1:]]).astype(np.int64))


def _padded(ids: NDArray[np.int32], offsets: NDArray[np.int64], length: int, padding: int, name: str) -> NDArray[Any]:
    """Return texts as rows of equal length."""
    out = room((len(offsets) - 1, length), "int32", f"column '{name}'")
    for start in range(0, len(out), STEP):
        stop = min(start + STEP, len(out))
        sizes = np.diff(offsets[start : stop + 1])
        part = out[start:stop]
        part[:] = padding
        part[np.arange(length) < sizes[:, None]] = ids[offsets[start] : offsets[stop]]
    return out
