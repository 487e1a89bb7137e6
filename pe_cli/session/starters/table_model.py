"""The model of a table's starter: scaled numbers, their bins, and embeddings, into two hidden layers and straight to the outputs."""

from __future__ import annotations

from collections.abc import Sequence

from pe_cli.core.yaml_inline import flow, quoted
from pe_cli.session.starters.files import Lines, Settings, aligned, text
from pe_cli.session.starters.guesses import Guess
from pe_cli.session.starters.names import safe, said
from pe_cli.session.starters.number_bins import edges_of
from pe_cli.session.starters.pictures import BLOCK, stages
from pe_cli.session.starters.table_columns import Inspected, branches_of, numbers_of, plan_of, sum_of, width_of
from pe_cli.session.starters.table_heads import categories, feed_of, heads
from pe_cli.session.starters.text_pairs import compared
from pe_cli.session.starters.training_plan import Plan, embedding_width

#: Width of an embedding of texts.
TEXT_WIDTH = 32


def model_of(inspected: Inspected, settings: Settings) -> str:
    """Return the text of the model's file: feeds, a branch for every kind of column, two hidden layers, and what is measured."""
    found = plan_of(inspected)
    feeds: Lines = []
    layers: Lines = []
    outputs: list[str] = []
    if numbers_of(inspected):
        total = sum(width_of(inspected, one) for one in numbers_of(inspected))
        feeds.append(("x:", flow({"shape": [total]}), f"{sum_of(inspected)}, as `feeds` of the config says"))
        outputs.append("x")
    for name, feed in branches_of(inspected).items():
        one = next(g for g in inspected.guesses if g.name == name)
        outputs.append(_BRANCHES[str(one.type)](inspected, one, feed, feeds, layers))
    pair = [feed for name, feed in branches_of(inspected).items() if _is_paired(inspected, name)]
    if len(pair) == 2:
        made, compares = compared(pair)
        layers += made
        outputs += compares
    feeds += [feed_of(inspected, goal) for goal in inspected.goals]
    feeds += [("event:", "{shape: [1]}", f"1 where '{said(goal.event.name)}', 0 where the time is censored") for goal in inspected.goals
              if goal.event]  # fmt: skip
    if len(outputs) > 1:
        layers.append(("all:", flow({"type": "concat", "input": outputs, "axis": 1}), "side by side"))
    first = "all" if len(outputs) > 1 else outputs[0]
    edges = edges_of(inspected, settings)
    stacks = {"hidden": [first], **({"binned": [first, "bins"]} if any(edges) else {})}
    rows = {f"{feed}_row" for feed in categories(inspected)}
    straight = [*(name for name in outputs if name not in rows), *(["bins"] if any(edges) else [])]
    last = [line for name, inputs in stacks.items() for line in _hidden(name, inputs, found)]
    last += heads(inspected, straight, [f"{name}2_drop" for name in stacks])
    binned = _bins(inspected, edges) if any(edges) else []
    return _text_of(inspected, settings, feeds, [*aligned(layers, "  "), *binned, *aligned(last, "  ")])


def _text_of(inspected: Inspected, settings: Settings, feeds: Lines, layers: Sequence[str]) -> str:
    lines = [
        f"# What is computed for {said(settings.config.name)}. `pe ops` lists every type of layer, `pe ops fc` explains one of them.",
        "# Sizes come from the data, which pe init looked at: change them with the columns.",
        f"name: {quoted(safe(settings.config.stem, [], 'starter'))}",
        "",
        "# Inputs, each with the shape of one sample.",
        "feeds:",
        *aligned(feeds, "  "),
        "",
        *([*BLOCK, ""] if inspected.used("image") else []),
        "# Layers in order: the key names the output; a layer that names no input takes the output of the layer before it.",
        *(
            ["# An embedding of n indices is 1.6 * n ** 0.56 wide, at most 50."]
            if inspected.used("category", "bag")
            else []
        ),
        "# wide is a linear model, of which a category has a number for each class; deep adds what several columns do together.",
        "layers:",
        *layers,
        "",
        "# What is measured and predicted; single numbers become metrics.",
        f"fetches: {flow(['loss', *(name for goal in inspected.goals for name in goal.fetched)])}",
    ]
    return text(lines)


def _category(inspected: Inspected, one: Guess, feed: str, feeds: Lines, layers: Lines) -> str:
    count = inspected.indices(one.name)
    width = embedding_width(count)
    feeds.append((f"{feed}:", "{shape: [1], dtype: int64}", f"index of the class of '{said(one.name)}'"))
    said_of = f"{count - 2} class{'es' * (count != 3)} of the training rows, unknown and missing"
    layers.append((f"{feed}_row:", flow({"type": "embedding", "input": feed, "size": [count, width]}), said_of))
    return f"{feed}_row"


def _bag(inspected: Inspected, one: Guess, feed: str, feeds: Lines, layers: Lines) -> str:
    count = inspected.indices(one.name)
    feeds.append(
        (f"{feed}:", flow({"shape": [count]}), f"1 for every item that '{said(one.name)}' has; {count} indices")
    )
    declared = {"type": "fc", "input": feed, "size": embedding_width(count), "bias_attr": False}
    layers.append((f"{feed}_sum:", flow(declared), "the sum of the items' rows of an embedding"))
    return f"{feed}_sum"


def _text_branch(inspected: Inspected, one: Guess, feed: str, feeds: Lines, layers: Lines) -> str:
    count = inspected.tokens(one.name)
    kind = one.options.get("tokens", "words")
    feeds.append((f"{feed}:", "{shape: [1], dtype: int64, lod_level: 1}", f"ids of the {kind} of '{said(one.name)}'"))
    paired = _is_paired(inspected, one.name)
    # Texts can be compared number by number only where both go through the same parameters.
    named = {"param_attr": {"name": "words_of_both"}} if paired else {}
    table = {"type": "embedding", "input": feed, "size": [count, TEXT_WIDTH], **named}
    patterns = {"param_attr": {"name": "patterns_of_both"}, "bias_attr": {"name": "bias_of_both"}} if paired else {}
    layers += [
        (
            f"{feed}_words:",
            flow(table),
            f"{count} ids: those of the training texts, 0 for padding and 1 for unknown ones",
        ),
        (
            f"{feed}_conv:",
            flow({"type": "sequence_conv", "num_filters": 64, "filter_size": 3, "act": "relu", **patterns}),
            "three neighbours at a time",
        ),
        (f"{feed}_text:", "{type: sequence_pool, pool_type: max}", "the strongest of each of 64 patterns"),
    ]
    if paired:
        mean = flow({"type": "sequence_pool", "input": f"{feed}_words", "pool_type": "average"})
        layers.append((f"{feed}_mean:", mean, "the mean of the words"))
    return f"{feed}_text"


def _is_paired(inspected: Inspected, name: str) -> bool:
    """Whether a column of texts is compared with another one."""
    return any(one.name == name and "vocabulary" in one.options for one in inspected.used("text"))


def _image(inspected: Inspected, one: Guess, feed: str, feeds: Lines, layers: Lines) -> str:
    size = int(one.options["size"][0])
    shape = [1 if one.options.get("mode") == "gray" else 3, size, size]
    feeds.append((f"{feed}:", flow({"shape": shape}), f"the picture of '{said(one.name)}': channels, height, width"))
    found = stages(feed, size, f"{feed}_")
    layers += [*found, (f"{feed}_flat:", flow({"type": "flatten"}), "a number for each filter")]
    return f"{feed}_flat"


_BRANCHES = {"category": _category, "bag": _bag, "text": _text_branch, "image": _image}


def _bins(inspected: Inspected, edges: Sequence[Sequence[float]]) -> list[str]:
    """Return the lines of the layer that writes numbers as their places in bins."""
    names = [one.name for one in numbers_of(inspected) for _ in range(width_of(inspected, one))]
    rows = [f"{flow(row)}{',' * (i + 1 < len(edges))}" for i, row in enumerate(edges)]
    most = min(110, max(len(row) for row in rows))
    return [
        "  bins:  # how much of each bin lies below the number: a sum of such shares is a line with a bend at every edge",
        "    type: piecewise_linear_encoding",
        "    input: x",
        "    edges: [  # quantiles of the scaled training rows; [] where there are two values, or too few rows",
        *(f"      {row:<{most}}  # {said(name, 40)}" for row, name in zip(rows, names, strict=True)),
        "    ]",
    ]


def _hidden(name: str, inputs: list[str], found: Plan) -> Lines:
    """Return two hidden layers. Those that see no bins learn what is smooth; those that see them, what is not."""
    drop = flow({"type": "dropout", "dropout_prob": found.dropout})
    whole = {"type": "fc", "input": inputs if len(inputs) > 1 else inputs[0], "size": found.hidden, "act": "relu"}
    return [
        (f"{name}1:", flow(whole), "sees numbers in bins, too" if "bins" in inputs else ""),
        (f"{name}1_drop:", drop, "in training only"),
        (f"{name}2:", flow({"type": "fc", "size": found.hidden, "act": "relu"}), ""),
        (f"{name}2_drop:", drop, ""),
    ]
