"""The doc of a layer that is one op: the op's, with the layer's names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pe_cli.ops.define.faces import Face, Word
from pe_cli.ops.define.registry import OpDef

_SECTION = re.compile(r"\n\n(Args|Returns|Raises|Source):\n")
_WORD = re.compile(r"[A-Za-z]\w*")
_ENTRY = re.compile(r"    (\S[^:\n]*): ")


def _entries(text: str) -> dict[str, str]:
    """Return what a section says of each name; lines that go on belong to the name before them."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in text.split("\n"):
        match = _ENTRY.match(line)
        # Only a line that has nothing but names before its colon begins an entry: a sentence may have a colon, too.
        if match and all(re.fullmatch(r"[\w-]+", name.strip()) for name in match[1].split(",")):
            names = [name.strip() for name in match[1].split(",")]
            found |= dict.fromkeys(names, line[match.end() :])
        else:
            found |= {name: f"{found[name]}\n{line}" for name in names}
    return found


def documented(definition: OpDef, face: Face, arguments: Sequence[Word], returns: Sequence[str]) -> str:
    """Return the doc.

    Args:
        definition: the op.
        face: the layer.
        arguments: in order; their targets are slots or attributes, empty for a name and an activation.
        returns: slots that the layer returns.
    """
    other = {w.target: w.name for w in arguments if w.target and w.target != w.name} | ({returns[0]: "Out"} if len(returns) == 1 else {})
    # An attribute's name may be a word of a sentence, too: it is another one in formulas alone.
    slots = {target: name for target, name in other.items() if target not in definition.attrs}
    head, *rest = _SECTION.split(definition.doc)
    sections = dict(zip(rest[::2], rest[1::2], strict=True))
    first, *formula = head.split("\n\n")
    head = "\n\n".join([face.says or _renamed(first, slots), *(_renamed(text, other) for text in formula)])
    said = _entries(sections.get("Args", ""))
    lines = [f"    {w.name}: {face.docs.get(w.name) or _renamed(_of_argument(definition, said, w), slots)}" for w in arguments]
    results = _entries(sections.get("Returns", ""))
    sections |= {"Args": "\n".join(lines), "Returns": _returned(results, returns) or sections.get("Returns", "")}
    parts = [f"{title}:\n{text if title == 'Args' else _renamed(text, slots)}" for title, text in sections.items() if text]
    return "\n\n".join([head, *parts])


def _renamed(text: str, names: Mapping[str, str]) -> str:
    """Return a text with other names; an index may follow one, as in X_j."""

    def other(match: re.Match[str]) -> str:
        word = match[0]
        name, line, index = word.partition("_")
        return names[word] if word in names else f"{names[name]}{line}{index}" if name in names else word

    return _WORD.sub(other, text)


def _of_argument(definition: OpDef, said: Mapping[str, str], word: Word) -> str:
    if not word.target:
        return "name of an activation, or None." if word.name == "act" else "prefix of the output's name."
    attr = definition.attrs.get(word.target)
    if attr is None or not attr.doc:
        return said.get(word.target, "no unit.")
    default = word.default if word.given else attr.default
    return f"{attr.doc}." if word.required or default is None else f"{attr.doc}; {default!r} by default."


def _returned(results: Mapping[str, str], returns: Sequence[str]) -> str:
    """Return what is said of the slots that are returned; of a single one without its name."""
    known = [slot for slot in returns if slot in results]
    if len(known) == 1 == len(returns):
        text = results[known[0]]
        return f"    {text[:1].upper()}{text[1:]}"
    return "\n".join(f"    {slot}: {results[slot]}" for slot in known)
