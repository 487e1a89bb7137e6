"""`model.head`: gives the layer that makes scores another number of classes, before layers are put in."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import Entry, MapNode, Node, ScalarNode
from pe_cli.config.sections.model import HeadSection
from pe_cli.core.errors import did_you_mean

#: Arguments of layers that say how many numbers they give for a row or a pixel.
WIDTHS = ("size", "num_filters")
_CONSTANT = re.compile(r"\$\{([A-Za-z_]\w*)\}")


def with_head(layers: MapNode, values: dict[str, Node], given: Mapping[str, Node], head: HeadSection, mistakes: Mistakes) -> MapNode:
    """Return layers of which one has the number of classes that is asked for; as they are while the data has still to say it.

    Args:
        layers: of the model file, before blocks and `${...}` are put in.
        values: constants of the model; where the layer's size is one of them, that one is set.
        given: those that the config gives.
        head: what is asked for.
        mistakes: where errors go.
    """
    entry = layers.entries.get(head.replace)
    if entry is None:
        names = list(layers.entries)
        hint = did_you_mean(head.replace, names) or f"the last layers are {', '.join(names[-5:])}; those of blocks cannot be replaced"
        mistakes.say(f"the model has no layer '{head.replace}'", head.at_of("replace"), hint)
        return layers
    found = next(((key, node) for key in WIDTHS if isinstance(node := _part(entry.value, key), ScalarNode)), None)
    if found is None:
        text = f"layer '{head.replace}' has no number of outputs that could be one of classes"
        notes = ((entry.at, "the layer is here"),)
        mistakes.say(text, head.at_of("replace"), f"name one with {' or '.join(WIDTHS)}, such as an fc or a conv2d", notes)
        return layers
    if isinstance(head.classes, str):
        return layers
    key, node = found
    number = ScalarNode(head.classes, head.at_of("classes") or node.at, str(head.classes))
    constant = _CONSTANT.fullmatch(str(node.value))
    if constant is None:
        assert isinstance(entry.value, MapNode)
        changed = entry.value.with_entry(Entry(key, entry.value.entries[key].at, number))
        return layers.with_entry(Entry(entry.key, entry.at, changed))
    name = constant[1]
    if name in given and getattr(given[name], "value", None) != head.classes:
        text = f"model.args.{name} and model.head both say how many classes there are"
        mistakes.say(text, given[name].at, f"leave args.{name} out")
    # What else has this size, such as a table of the classes, has to follow.
    values[name] = number
    return layers


def _part(node: Node, key: str) -> Node | None:
    return node.get(key) if isinstance(node, MapNode) else None
