"""Reads XML that strangers have written: elements, attributes and texts alone, of bounded number and depth."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from xml.parsers import expat

from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.data.annotations.things import content
from pe_cli.data.reader_context import Origin

#: Elements of a file, and elements inside elements, at most.
MOST, DEEPEST = 5_000_000, 64


@dataclass
class Element:
    """An element of XML."""

    name: str
    values: dict[str, str]
    inside: list[Element] = field(default_factory=list)
    text: str = ""

    def each(self, name: str) -> Iterator[Element]:
        """Yield the elements of a name that lie in it."""
        return (one for one in self.inside if one.name == name)

    def find(self, *names: str) -> Element | None:
        """Return the element that lies under these names, one in the other; None where there is none."""
        found: Element | None = self
        for name in names:
            found = next(found.each(name), None) if found is not None else None
        return found

    def said(self, *names: str) -> str:
        """Return the text under these names; empty where there is none."""
        found = self.find(*names)
        return found.text.strip() if found is not None else ""


class _Refused(Exception):
    """What a file may not have; `args[0]` says it."""


def read_xml(path: Path, origin: Origin) -> Element:
    """Return the outermost element of a file.

    A document type is refused, and with it every entity, whether it is expanded into more text or names another file.

    Raises:
        PeError: DATA; it is no XML, or has a document type, or too many elements.
    """
    top = Element("", {})
    stack, count = [top], 0

    def start(name: str, values: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if count > MOST or len(stack) > DEEPEST:
            raise _Refused(f"has more than {MOST:,} elements" if count > MOST else f"has elements more than {DEEPEST} deep")
        made = Element(name, values)
        stack[-1].inside.append(made)
        stack.append(made)

    def end(name: str) -> None:
        del name
        stack.pop()

    def text(data: str) -> None:
        stack[-1].text += data

    def document_type(*_: object) -> None:
        raise _Refused("has a document type (<!DOCTYPE ...>), which may stand for any amount of text")

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, text
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = document_type
    try:
        parser.Parse(content(path, origin), True)
    except expat.ExpatError as error:
        raise _error(path, f"is no XML: {error}", origin) from None
    except (_Refused, ValueError, LookupError) as error:
        raise _error(path, str(error), origin) from None
    return top.inside[0]


def _error(path: Path, what: str, origin: Origin) -> PeError:
    return origin.error(f"{path} {what}", "export the annotations again, or take the file out")
