"""Token dropout: some tokens of a text are replaced."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import AugmentOptions, Chance, Column, ColumnKind, augmentation
from pe_cli.data.dataset import Array


class TokenDropoutOptions(AugmentOptions):
    """Options of token_dropout."""

    p: Chance = Field(0.1, description="chance of a token to be replaced")
    replacement: Annotated[int, Field(strict=True, ge=0)] = Field(
        0, description="index that stands in its place; 0 is that of unknown tokens"
    )
    keep: list[Annotated[int, Field(strict=True, ge=0)]] = Field(
        default_factory=list, description="indices that are never replaced, such as that of padding"
    )


@augmentation
class TokenDropout(ColumnKind[TokenDropoutOptions]):
    """Replace tokens, or classes of a sequence or bag, by one index, each with the same chance."""

    name = "token_dropout"
    options = TokenDropoutOptions
    needs = "whole numbers: tokens, or classes in a sequence"

    def fits(self, column: Column) -> bool:
        """Return whether samples are several whole numbers."""
        return column.type.dtype in ("int64", "int32") and (column.sequences or column.type.size > 1)

    def check(self, options: TokenDropoutOptions, column: Column) -> None:
        """Check that the replacement is an index.

        Raises:
            ValueError: the replacement is none of the column's indices; with a remedy.
        """
        if column.classes is not None and options.replacement >= column.classes:
            raise ValueError(f"replacement {options.replacement} is no index: there are {column.classes}", "0 is that of unknown tokens")

    def change(self, options: TokenDropoutOptions, values: Array, offsets: NDArray[np.int64] | None, draws: Draws) -> None:
        """Draw which ones."""
        each = int(np.prod(values.shape[1:]))
        counts = np.full(len(draws), each, np.int64) if offsets is None else np.diff(offsets) * each
        gone = (draws.each("token", counts) < options.p).reshape(values.shape)
        if options.keep:
            gone &= ~np.isin(values, options.keep)
        values[gone] = options.replacement
