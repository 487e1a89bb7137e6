"""A starter for series: lags, what was read and what is known ahead make a forecast with an interval, beside naive ones."""

from __future__ import annotations

from typing import Any

from pe_cli.config.substitute import escaped
from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.session.starters.files import (
    Lines,
    Settings,
    Starter,
    aligned,
    column_row,
    data_section,
    head,
    optimizer,
    text,
    training,
)
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.series import SPLIT, Inspected
from pe_cli.session.starters.training_plan import Plan, table_plan

#: Quantiles that an interval has, besides the middle.
LOW, HIGH = 0.1, 0.9
_TAKEN = (
    "past", "before", "ahead", "earlier", "next", "key", "which", "seen", "all", "drop", "hidden", "change", "lags", "last", "period",
    "effect", "forecast", "low", "high", "below", "above", "loss", "error", "naive", "seasonal", "mase", "covered", "level", "moves",
    "others",
)  # fmt: skip
# Layers that begin with 0 let training begin at the naive forecast.
_ZERO = {"initializer": {"type": "Constant"}}


def starter(inspected: Inspected, settings: Settings) -> Starter:
    """Return a starter for series."""
    return Starter(_config(inspected, settings), _Model(inspected).text(settings), _notes(inspected))


def _config(inspected: Inspected, settings: Settings) -> str:
    found, target = inspected.found, inspected.target
    shape = found.shape
    many = f" of every '{said(found.key)}'" if found.key else ""
    what = f"Forecasts '{said(target.name)}'{many} for {_count(shape.horizon, found.pace)}, from {_count(shape.length, found.pace)} before."
    comments = ["By time: the latest 15% of the rows test, the 15% before evaluate. Training never sees what comes later."]
    columns = [column_row(g.name, g.written, g.why) for g in [*inspected.inputs, *inspected.static]]
    feeds: Lines = []
    windows: list[tuple[str, dict[str, Any], str]] = [
        ("past", {"of": [g.name for g in inspected.inputs]}, "rows that are known, the oldest first"),
        ("before", {"of": target.name}, "the same rows of what is forecast, alone"),
        ("next", {"of": target.name, "part": "horizon"}, "the rows to forecast"),
    ]
    if inspected.ahead:
        ahead = [g.name for g in inspected.ahead]
        windows += [
            ("ahead", {"of": ahead, "part": "horizon"}, "what is known of the rows to forecast"),
            ("earlier", {"of": ahead}, "the same of the rows before"),
        ]
        comments.append(f"observed: where '{said(target.name)}' is empty, rows are yet to come; the others are filled there.")
    for feed, options, comment in windows:
        name = _free(feed, inspected)
        columns.append(column_row(name, {"type": "window", **options}, comment))
        feeds.append((f"{feed}:", quoted(escaped(name)), ""))
    if found.key:
        columns.append(column_row(found.key, {"type": "category"}, "which series"))
        feeds.append(("key:", quoted(escaped(found.key)), ""))
    feeds += [(f"{feed}:", quoted(escaped(name)), "") for name, feed in _static(inspected).items()]
    out = [f"  # Left out: '{said(g.name)}': {said(g.why, 200)}" for g in inspected.others]
    made = table_plan(inspected.windows)
    # The loss also counts both ends of the interval, which become too narrow while the middle still gets better.
    lines = [
        *head(what),
        *data_section({"source": inspected.source}, SPLIT, comments, columns, out),
        "",
        "# Inputs of the model.",
        "feeds:",
        *aligned(feeds, "  "),
        *training(made, inspected.windows, best="eval/loss", mode="min", rest=optimizer(made), metrics=("loss", *_measured(inspected))),
    ]
    return text(lines)


def _static(inspected: Inspected) -> dict[str, str]:
    """Return the feeds of categories that are the same in all rows of a series."""
    found: dict[str, str] = {}
    for one in inspected.static:
        feed = safe(one.name, [*_TAKEN, *found.values(), *(f"{feed}_row" for feed in found.values())])
        found[one.name] = feed
    return found


def _measured(inspected: Inspected) -> list[str]:
    return ["error", "naive", *(["seasonal"] if inspected.season else []), "mase", "covered"]


def _free(name: str, inspected: Inspected) -> str:
    """Return a name that no column of the table has."""
    while name in inspected.table.names:
        name += "_rows"
    return name


class _Model:
    """Writes the model's file."""

    def __init__(self, inspected: Inspected) -> None:
        self._looked, self._shape = inspected, inspected.found.shape
        self._plan: Plan = table_plan(inspected.windows)
        self._feeds: Lines = []
        self._layers: Lines = []

    def text(self, settings: Settings) -> str:
        """Return the file."""
        self._inputs()
        self._forecast()
        self._measures()
        lines = [
            f"# What is computed for {said(settings.config.name)}. `pe ops` lists every type of layer, `pe ops fc` explains one of them.",
            f"name: {quoted(safe(settings.config.stem, [], 'starter'))}",
            "",
            "# Inputs, each with the shape of one sample.",
            "feeds:",
            *aligned(self._feeds, "  "),
            "",
            "# Layers in order: the key names the output; a layer that names no input takes the output of the layer before it.",
            "layers:",
            *aligned(self._layers, "  "),
            "",
            "# What is measured and predicted; single numbers become metrics.",
            f"fetches: {flow(['loss', *_measured(self._looked), 'forecast', 'low', 'high'])}",
        ]
        return text(lines)

    def _add(self, layer: str, kind: str, comment: str = "", **options: Any) -> str:
        self._layers.append((f"{layer}:", flow({"type": kind, **options}), comment))
        return layer

    def _inputs(self) -> None:
        inspected, shape, name = self._looked, self._shape, said(self._looked.target.name)
        width = sum(inspected.widths[g.name] for g in inspected.inputs)
        self._feeds += [
            ("past:", flow({"shape": [shape.length, width]}), f"{shape.length} rows of {width} numbers"),
            ("before:", flow({"shape": [shape.length]}), f"'{name}' of these rows"),
            ("next:", flow({"shape": [shape.horizon]}), f"'{name}' of the rows that follow"),
        ]
        if inspected.ahead:
            wide = sum(inspected.widths[g.name] for g in inspected.ahead)
            self._feeds += [
                ("ahead:", flow({"shape": [shape.horizon, wide]}), "what is known of the rows that follow"),
                ("earlier:", flow({"shape": [shape.length, wide]}), "the same of the rows before"),
            ]
        categories = {**({inspected.found.key: "key"} if inspected.found.key else {}), **_static(inspected)}
        seen = self._add("seen", "fc", input=self._moves(width), size=self._plan.hidden, act="relu")
        # Where there are several series, most levels that one comes to are those of others, and effects are in proportion to them.
        parts = [seen, *(["level"] if inspected.found.key else [])]
        for column, feed in categories.items():
            self._feeds.append((f"{feed}:", "{shape: [1], dtype: int64}", f"index of the class of '{said(column)}'"))
            row = "which" if feed == "key" else f"{feed}_row"
            parts.append(self._add(row, "embedding", "2 more than there are: unknown, missing", input=feed,
                                   size=[inspected.indices[column], 4]))  # fmt: skip
        if len(parts) > 1:
            self._add("all", "concat", input=parts, axis=1)
        self._add("drop", "dropout", "in training only", dropout_prob=0.1)
        self._add("hidden", "fc", size=self._plan.hidden, act="relu")

    def _moves(self, width: int) -> str:
        """Add what the rows before are apart from their mean, as levels of later rows are often those of no training row.

        Source:
            Kim, Kim, Tae, Park, Choi, Choo 2022, Reversible Instance Normalization (RevIN), of which this takes the means.
        """
        length, name = self._shape.length, said(self._looked.target.name)
        self._add("level", "reduce_mean", f"the mean of '{name}' of the rows before", input="before", dim=[1], keep_dim=True)
        self._add("level_rows", "expand", x="level", expand_times=[1, length])
        self._add("moves", "elementwise_sub", "how far they are from it: a level that is new changes nothing", x="before", y="level_rows")
        made = self._add("moves_rows", "reshape", x="moves", shape=[-1, length, 1])
        if width == 1:
            return made
        self._add("others", "slice", f"what is read beside '{name}'", input="past", axes=[2], starts=[1], ends=[width])
        return self._add("past_moves", "concat", input=[made, "others"], axis=2)

    def _forecast(self) -> None:
        inspected, horizon, length = self._looked, self._shape.horizon, self._shape.length
        self._add("last", "slice", "the last one that is known", input="before", axes=[1], starts=[-1], ends=[length])
        self._add("last_rows", "expand", x="last", expand_times=[1, horizon])
        first = "last_rows"
        if inspected.season:
            end = length - inspected.season + horizon
            first = self._add("period", "slice", f"those of {inspected.season} rows before, as a first guess", input="before", axes=[1],
                              starts=[-inspected.season], ends=[end])  # fmt: skip
        self._add("lags", "fc", "a linear model of the rows before; begins with 0", input="moves", size=horizon, param_attr=_ZERO)
        self._add("change", "fc", input="hidden", size=horizon, param_attr=_ZERO)
        parts = [first, "lags", "change"]
        if inspected.ahead:
            parts.append(self._effect(first))
        self._add("forecast", "sum", f"the middle; pe predict gives it in the unit of '{said(inspected.target.name)}'", x=parts)
        for layer, side in (("low", "below"), ("high", "above")):
            self._add(f"{side}_raw", "fc", input="hidden", size=horizon)
            # A distance that is never negative keeps the quantiles in order.
            self._add(side, "softplus", x=f"{side}_raw")
            kind = "elementwise_sub" if layer == "low" else "elementwise_add"
            quantile = LOW if layer == "low" else HIGH
            self._add(layer, kind, f"{100 * quantile:g}% of the numbers are below", x="forecast", y=side)

    def _effect(self, first: str) -> str:
        """Add what known columns do to each row of the horizon: one small network for all of them."""
        horizon, length = self._shape.horizon, self._shape.length
        back = self._looked.season or horizon
        self._add("then", "slice", "what was known where the first guess comes from", input="earlier", axes=[1], starts=[-back],
                  ends=[length - back + horizon])  # fmt: skip
        self._add("first_row", "reshape", x=first, shape=[-1, horizon, 1])
        self._add("hidden_row", "reshape", x="hidden", shape=[-1, 1, self._plan.hidden])
        self._add("hidden_rows", "expand", x="hidden_row", expand_times=[1, horizon, 1])
        self._add("rows", "concat", "a row for each that is forecast", input=["ahead", "then", "first_row", "hidden_rows"], axis=2)
        self._add("rows_hidden", "fc", "the same weights for every row", size=self._plan.hidden, num_flatten_dims=2, act="relu")
        self._add("rows_effect", "fc", input=["rows_hidden", "ahead", "then"], size=1, num_flatten_dims=2, param_attr=_ZERO)
        return self._add("effect", "reshape", shape=[-1, horizon])

    def _measures(self) -> None:
        inspected, unit = self._looked, f"in the unit of '{said(self._looked.target.name)}'"
        for layer, quantile in (("forecast", 0.5), ("low", LOW), ("high", HIGH)):
            self._add(f"{layer}_cost", "quantile_loss", input=layer, label="next", quantile=quantile)
            self._add(f"{layer}_loss", "mean", x=f"{layer}_cost")
        self._add("loss", "sum", x=["forecast_loss", "low_loss", "high_loss"])
        guesses = {"error": ("forecast", f"mean absolute error {unit}"), "naive": ("last_rows", "the same, of the last row repeated")}
        if inspected.season:
            guesses["seasonal"] = ("period", f"the same, of {inspected.season} rows before")
        deviation = float(f"{inspected.deviation:.9g}")
        for layer, (guess, comment) in guesses.items():
            self._add(f"{layer}_gap", "elementwise_sub", x=guess, y="next")
            self._add(f"{layer}_distance", "abs", x=f"{layer}_gap")
            self._add(f"{layer}_mean", "mean", x=f"{layer}_distance")
            self._add(layer, "scale", comment, x=f"{layer}_mean", scale=deviation)
        lag = f"{inspected.season} rows" if inspected.season else "the row"
        self._add("mase", "scale", f"error over the distance to {lag} before in the training rows: below 1 is better than that", x="error",
                  scale=float(f"{1 / inspected.usual:.9g}"))  # fmt: skip
        self._add("from_low", "elementwise_sub", x="next", y="low")
        self._add("to_high", "elementwise_sub", x="high", y="next")
        self._add("nearer", "elementwise_min", x="from_low", y="to_high")
        # The sign is 1 inside and -1 outside of the interval; half of its mean and a half more is the share inside.
        self._add("inside_sign", "sign", x="nearer")
        self._add("inside_mean", "mean", x="inside_sign")
        self._add("covered", "scale", f"share between low and high, {100 * (HIGH - LOW):g}% of them where the interval is right",
                  x="inside_mean", scale=0.5, bias=0.5)  # fmt: skip


def _count(rows: int, pace: str) -> str:
    return f"{rows} {pace}s" if rows > 1 else _one(pace)


def _one(pace: str) -> str:
    return f"{'an' if pace == 'hour' else 'a'} {pace}"


def _notes(inspected: Inspected) -> tuple[str, ...]:
    found = inspected.found
    key = f", a series for each of {len(inspected.table.bounds) - 1:,} values of '{said(found.key, 30)}'" if found.key else ""
    apart = f"{_one(found.pace)} apart by '{said(found.time, 30)}'{key}"
    regular = f"{len(inspected.table):,} rows at regular times, {apart}: taken for a series"
    if found.every:
        gaps = f"; {inspected.empty:,} steps have none, and take what was before" if inspected.empty else ""
        regular = f"{inspected.given:,} rows become {len(inspected.table):,}, one for every {found.every} by '{said(found.time, 30)}'{key}"
        regular += f": numbers in it are averaged (combine: sum adds them up){gaps}"
    notes = [
        regular,
        "--task number would predict from the other columns of the same row instead",
        f"{inspected.windows:,} windows for training: {found.shape.length} rows are read, {found.shape.horizon} are forecast",
        f"read: {', '.join(said(g.name, 30) for g in inspected.inputs)}",
    ]
    notes += inspected.table.notes
    if inspected.ahead:
        notes.append(f"known ahead: {', '.join(said(g.name, 30) for g in inspected.ahead)}")
    if inspected.static:
        notes.append(f"the same in all rows of a series: {', '.join(said(g.name, 30) for g in inspected.static)}")
    for name in inspected.suggested:
        notes.append(f"'{said(name, 30)}' is read up to now; if its future is known, too: --known '{said(name, 60)}'")
    notes += [f"left out: '{said(g.name, 30)}': {g.why}" for g in inspected.others]
    return tuple(notes)
