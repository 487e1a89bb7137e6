"""Blocks: samples of equal length that a long text is cut into."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from pe_cli.core.encoding import Lane, Source
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.data.column import ColumnType, Context, State, column
from pe_cli.data.columns.text import FileOptions, LearnedTokens, TokenOptions, fit_tokens
from pe_cli.data.fields import Field as FieldOf
from pe_cli.data.fields import Rows
from pe_cli.data.token_blocks import BlockTable

#: The column of a text that is cut into pieces.
TEXT = "text"


class BlocksOptions(TokenOptions):
    """Options of block columns."""

    tokens: Literal["words", "characters", "bpe"] | FileOptions = Field(
        "characters",
        description="what a token is; `{file: tokenizer.json}` takes the tokenizer of a file (pip install 'pe-cli[text]')",
    )
    of: str | None = Field(None, description="column of blocks whose tokens these are, too")
    shift: Annotated[int, Field(strict=True, ge=0, le=1)] = Field(
        0, description="0: the tokens of a block; 1: the token behind each of them, which the model is to predict"
    )

    @model_validator(mode="after")
    def _one_tokenizer(self) -> BlocksOptions:
        given = [name for name in ("tokens", "size", "min_count", "lower") if name in self.model_fields_set]
        # Two columns of one text must be cut alike, or a block and its next tokens would not fit.
        if self.of is not None and given:
            raise ValueError(f"{given[0]} is said by the column '{self.of}': leave it out here")
        return self


class BlocksState(BaseModel):
    """What a column of blocks has learned: its tokens, which are absent where those of another column are its own."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)

    length: Annotated[int, Field(ge=1)]
    tokens: LearnedTokens | None = None


@column
class Blocks(ColumnType[BlocksOptions]):
    """Tokens of a block of a long text, int64 [blocks], for a language model; for the reader `text` with `blocks`.

    The reader declares `tokens`, and `next` with the token behind each of them; the config may say how tokens are learned.
    """

    name = "blocks"
    options = BlocksOptions
    learned = BlocksState

    def sources(self, name: str, options: BlocksOptions) -> tuple[str, ...]:
        """Return the column of the table that it reads."""
        return (TEXT,)

    def fit(self, options: BlocksOptions, context: Context, rows: Rows | None) -> State:
        """Learn the tokens.

        Raises:
            PeError: the rows are no blocks; with the column's place.
        """
        from pe_cli.data.readers.text import PieceTable

        if not isinstance(context.table, PieceTable):
            raise PeError(
                f"column '{context.name}': only the reader text cuts a text into blocks",
                at=context.at,
                hint="source: {reader: text, files: FILE, blocks: 64}, or type: text for one text per row",
            )
        learned = {} if options.of else {"tokens": fit_tokens(options, context, [TEXT], rows)}
        return {"length": context.table.length, **learned}

    def encode(self, options: BlocksOptions, state: State, context: Context) -> FieldOf:
        """Return the blocks."""
        table = context.table
        assert isinstance(table, BlockTable), "blocks are made of a table by its regroup"
        return table.blocks(options.shift)

    def lanes(self, name: str, options: BlocksOptions, state: State, array: TensorType | None) -> tuple[Lane, ...]:
        """Return the ids as they are: what makes them is in `tokenizer`; see `ColumnType.lanes`."""
        which = "the token behind each token of a block" if options.shift else "the tokens of a block"
        said = f"ids of {which}, as the tokenizer makes them"
        return (Lane(Source(name, TensorType((int(state["length"]),), "int64"), said, raw=False)),)

    def tokenizer(self, options: BlocksOptions, state: State) -> object:
        """Return the tokenizer as the values of a `tokenizer.json`; see `ColumnType.tokenizer`."""
        from pe_cli.data.tokens.tokenizer_kinds import open_tokens

        return open_tokens(state["tokens"]).exported() if state.get("tokens") else None
