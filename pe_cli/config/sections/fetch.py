"""`fetches`: what is kept of variables."""

import re
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from pe_cli.config.period import Period, PeriodField
from pe_cli.config.sections.section import Section

#: What a file of fetched values may be called.
#: No slash of either kind and no leading dot: on any system the file stays in its folder, and is not hidden.
_FETCHED = re.compile(r"[^/\\\x00-\x1f.][^/\\\x00-\x1f]{0,199}\.(npz|csv|jsonl)")


def _fetched(value: object) -> str:
    if isinstance(value, str) and _FETCHED.fullmatch(value):
        return value
    raise ValueError(
        "must be a file name that ends in .npz, .csv or .jsonl", "for example values.npz: it goes to the run's fetches folder"
    )


FetchedFile = Annotated[
    str, PlainValidator(_fetched), WithJsonSchema({"type": "string", "pattern": f"^{_FETCHED.pattern}$"})
]


class FetchSection(Section):
    """What is kept of a variable."""

    every: PeriodField = Field(default=Period(1, "epoch"), description="how often")
    merge: Literal["mean", "sum", "concat", "list"] | None = Field(
        default=None,
        description="how the devices' values are joined; mean for scalars and concat for the rest when absent",
    )
    to: FetchedFile | None = Field(
        default=None,
        description="file in the run's fetches folder: .npz, .csv or .jsonl; NAME.npz when absent; numbers go to metrics.jsonl instead",
    )
