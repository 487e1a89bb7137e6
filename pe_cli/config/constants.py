"""`args` of a run file: constants that stand for `${name}` anywhere in it."""

from __future__ import annotations

from collections.abc import Collection

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import MapNode, Node, describe, is_null
from pe_cli.config.substitute import Substitution, names_in


def fill(tree: MapNode, used: Collection[str], mistakes: Mistakes) -> MapNode | None:
    """Return a run file's tree with `${name}` put in, and without `args`.

    Args:
        tree: with the values of the command line.
        used: names that its files use, also in what others of them replace.
        mistakes: where names that are unknown, unused or without a value go.

    Returns:
        None after mistakes: with names in the place of values, more would be found that are none.

    Raises:
        TooLargeError: the result would be too large.
    """
    entry, rest = tree.entries.get("args"), tree.without("args")
    declared = MapNode({}, tree.at) if entry is None or is_null(entry.value) else entry.value
    if not isinstance(declared, MapNode):
        mistakes.say(f"args must be a mapping, got {describe(declared)}", declared.at, "for example args: {width: 64}")
        return None
    before = mistakes.total
    substitution = Substitution(mistakes, "config")
    values: dict[str, Node] = {}
    # Names in every file that takes part count: a file that is extended may use what this one sets.
    everywhere = {*used, *names_in(tree)}
    for key, one in declared.entries.items():
        if key not in everywhere:
            hint = f'write "${{{key}}}" where it belongs, or remove it'
            if one.at.file.startswith("-o "):
                hint = f"no file has ${{{key}}}; a constant of the model is set with -o model.args.{key}=..."
            mistakes.say(f"the argument '{key}' is not used", one.at, hint)
            continue
        value = substitution.apply(one.value, values)
        if is_null(value):
            mistakes.say(f"the argument '{key}' has no value", one.at, f"give it one here, or with -o args.{key}=...")
            # Who uses it must not be told that it is missing.
            substitution.missing.add(key)
            continue
        values[key] = value
    made = substitution.apply(rest, values)
    assert isinstance(made, MapNode)
    return made if mistakes.total == before else None
