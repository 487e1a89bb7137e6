"""What an op can do besides computing its outputs. Passes, plans and pages ask for a trait, never for the name of an op.

A trait is declared with the op, `op(..., traits=[InPlace({"Out": "X"})])`, or by one of its decorators; all are verified once all ops are
there.
"""

from __future__ import annotations

from pe_cli.ops.define.traits.effects import Random, Replayed, ReportsData
from pe_cli.ops.define.traits.elements import Absorbed, Folds, Narrow, Pointwise, SameNumbers, Scalar
from pe_cli.ops.define.traits.memory import AlongChannels, FedSizes, InPlace, Layout, Lists, OnHost, Remote, View
from pe_cli.ops.define.traits.regions import HasRegions, NamesOnly, Runs, Sequenced
from pe_cli.ops.define.traits.results import (
    Best,
    Bounded,
    Compares,
    FindsBoxes,
    Judges,
    Says,
    Spells,
    TagsRows,
    ToProbabilities,
    Weight,
)
from pe_cli.ops.define.traits.rows import (
    ByRows,
    ByValue,
    MergesRows,
    OwnRows,
    RowsApart,
    RowWise,
    SumsRows,
    Table,
    UpdatesTable,
)
from pe_cli.ops.define.traits.sharing import (
    AddsAll,
    AddsUp,
    BatchStatistics,
    Counted,
    Decays,
    Descends,
    Divisible,
    PassesGradient,
    ReadsAllDevices,
    Spreads,
    SumsOverDevices,
    UpdatesMany,
)
from pe_cli.ops.define.traits.trait import Named, Trait

__all__ = [
    "Absorbed",
    "AddsAll",
    "AddsUp",
    "AlongChannels",
    "BatchStatistics",
    "Best",
    "Bounded",
    "ByRows",
    "ByValue",
    "Compares",
    "Counted",
    "Decays",
    "Descends",
    "Divisible",
    "FedSizes",
    "FindsBoxes",
    "Folds",
    "HasRegions",
    "InPlace",
    "Judges",
    "Layout",
    "Lists",
    "MergesRows",
    "Named",
    "NamesOnly",
    "Narrow",
    "OnHost",
    "OwnRows",
    "PassesGradient",
    "Pointwise",
    "Random",
    "ReadsAllDevices",
    "Remote",
    "Replayed",
    "ReportsData",
    "RowWise",
    "RowsApart",
    "Runs",
    "SameNumbers",
    "Says",
    "Scalar",
    "Sequenced",
    "Spells",
    "Spreads",
    "SumsOverDevices",
    "SumsRows",
    "Table",
    "TagsRows",
    "ToProbabilities",
    "Trait",
    "UpdatesMany",
    "UpdatesTable",
    "View",
    "Weight",
]
