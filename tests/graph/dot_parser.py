"""A strict reader of the part of the DOT language that pe writes, for machines without Graphviz.

Source: "DOT Language" (graphviz.org/doc/info/lang.html): statements end with `;`, an ID is a name, a number or a quoted
string in which only `\\"` is an escape, keywords are not IDs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import pairwise

TOKEN = re.compile(
    r"""\s*(?:(?P<quoted>"(?:[^"\\]|\\.)*")|(?P<name>[A-Za-z_][A-Za-z_0-9]*)|(?P<number>-?(?:\.\d+|\d+(?:\.\d*)?))"""
    r"""|(?P<sign>->|[{}\[\];,=]))""",
    re.S,
)
KEYWORDS = {"node", "edge", "graph", "digraph", "subgraph", "strict"}


@dataclass
class Dot:
    """What was read."""

    nodes: dict[str, dict[str, str]] = field(default_factory=dict)
    edges: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)
    clusters: list[str] = field(default_factory=list)


class Reader:
    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        text = text.rstrip()
        while at < len(text):
            found = TOKEN.match(text, at)
            assert found, f"no token at {text[at : at + 40]!r}"
            kind = str(found.lastgroup)
            self.tokens.append((kind, found[kind]))
            at = found.end()
        self.at = 0
        self.dot = Dot()

    def next(self, *wanted: str) -> str:
        assert self.at < len(self.tokens), f"the text ends where {wanted} should be"
        value = self.tokens[self.at][1]
        assert not wanted or value in wanted, f"{value!r} where {wanted} should be"
        self.at += 1
        return value

    def peek(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    def id(self) -> str:
        kind, value = self.tokens[self.at]
        assert kind != "sign", f"{value!r} is no ID"
        assert kind != "name" or value.lower() not in KEYWORDS, f"{value} is a keyword"
        self.at += 1
        return value[1:-1].replace('\\"', '"') if kind == "quoted" else value

    def attributes(self) -> dict[str, str]:
        out: dict[str, str] = {}
        if self.peek() != "[":
            return out
        self.next("[")
        while self.peek() != "]":
            name = self.id()
            self.next("=")
            out[name] = self.id()
            if self.peek() in (",", ";"):
                self.next()
        self.next("]")
        return out

    def read(self) -> Dot:
        self.next("digraph")
        if self.peek() != "{":
            self.id()
        self.block()
        assert self.at == len(self.tokens), "text after the graph"
        return self.dot

    def block(self) -> None:
        self.next("{")
        while self.peek() != "}":
            self.statement()
        self.next("}")

    def statement(self) -> None:
        if self.peek() in ("graph", "node", "edge"):
            self.next()
            self.attributes()
        elif self.peek() == "subgraph":
            self.next()
            self.dot.clusters.append(self.id())
            self.block()
            return
        else:
            self.element()
        self.next(";")

    def element(self) -> None:
        ids = [self.id()]
        if self.peek() == "=":
            self.next()
            self.id()
            return
        while self.peek() == "->":
            self.next()
            ids.append(self.id())
        found = self.attributes()
        if len(ids) == 1:
            assert ids[0] not in self.dot.nodes, f"{ids[0]!r} is declared twice"
            self.dot.nodes[ids[0]] = found
        self.dot.edges += [(a, b, found) for a, b in pairwise(ids)]


def parse_dot(text: str) -> Dot:
    """Read dot text; every edge must join nodes that are declared."""
    found = Reader(text).read()
    for a, b, _ in found.edges:
        assert a in found.nodes, f"edge from {a!r}, which is no node"
        assert b in found.nodes, f"edge to {b!r}, which is no node"
    return found
