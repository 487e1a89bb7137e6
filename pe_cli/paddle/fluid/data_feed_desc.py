"""DataFeedDesc: what a file of training data holds, written as protobuf text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Any

from pe_cli.core.errors import did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.paddle.errors import FluidTypeError, FluidValueError

#: Fields of a message in the order of their numbers: name -> type, or the fields of the message inside.
_SLOT: dict[str, Any] = {"name": str, "type": str, "is_dense": bool, "is_used": bool, "shape": [int]}
_FEED: dict[str, Any] = {
    "name": str,
    "batch_size": int,
    "multi_slot_desc": {"slots": [_SLOT], "uid_slot": str},
    "pipe_command": str,
    "thread_num": int,
    "rank_offset": str,
    "pv_batch_size": int,
    "input_type": int,
}
_TOKEN = re.compile(
    r'\s+|#[^\n]*|(?P<text>"(?:[^"\\\n]|\\.)*")|(?P<word>[A-Za-z_]\w*)|(?P<number>-?\d+)|(?P<sign>[{}:,;])'
)
_TYPES = ("uint64", "float")


@dataclass
class Slot:
    """One slot of an instance.

    Args:
        name: of the variable that it feeds.
        type: uint64 (ids) or float.
        is_dense: a plain tensor; otherwise a LoDTensor [total, 1].
        is_used: fed; otherwise skipped.
        shape: of a dense slot's sample.
    """

    name: str
    type: str
    is_dense: bool = False
    is_used: bool = False
    shape: list[int] = field(default_factory=list)


class DataFeedDesc:
    """A description read from a file.

    Args:
        proto_file: its path.

    Raises:
        FluidValueError: the file is not there, or says nothing that is understood; a ValueError with its line.
    """

    def __init__(self, proto_file: Any) -> None:
        try:
            text = Path(proto_file).read_text(encoding="utf-8")
        except OSError as error:
            raise FluidValueError(f"{proto_file}: {error.strerror}") from None
        except ValueError:
            raise FluidValueError(f"{proto_file} is no text in UTF-8") from None
        self._message = _message(_Tokens(str(proto_file), text), _FEED, "")
        self._message.setdefault("pipe_command", "cat")
        # Names are keys of feeds; two slots of one name would overwrite each other without a word.
        names = [slot.name for slot in self.slots]
        if len(set(names)) != len(names):
            raise FluidValueError(f"{proto_file}: two slots have one name: {', '.join(names)}")

    @property
    def slots(self) -> list[Slot]:
        """Every slot, used or not, in order.

        Raises:
            FluidValueError: a slot has no name, or a type that is neither uint64 nor float.
        """
        found = self._message.get("multi_slot_desc", {}).get("slots", [])
        for number, slot in enumerate(found):
            if not slot.get("name"):
                raise FluidValueError(f"slot {number} has no name", hint='name: "NAME" inside slots { ... }')
            if slot.get("type") not in _TYPES:
                raise FluidValueError(
                    f"slot '{slot.get('name')}' has type {slot.get('type')!r}", hint="uint64 or float"
                )
        return [Slot(**slot) for slot in found]

    @property
    def batch_size(self) -> int:
        """Instances of a batch."""
        return int(self._message.get("batch_size", 32))

    def set_batch_size(self, batch_size: int) -> None:
        """Set the instances of a batch.

        Raises:
            FluidValueError: below 1; a ValueError.
        """
        if not isinstance(batch_size, int) or batch_size < 1:
            raise FluidValueError(f"batch_size must be at least 1, got {batch_size!r}")
        self._message["batch_size"] = batch_size

    def set_dense_slots(self, dense_slots_name: Any) -> None:
        """Make slots dense, so that they feed plain tensors.

        Raises:
            FluidValueError: there is no such slot, or the description has no slots; a ValueError.
        """
        self._mark(dense_slots_name, "is_dense")

    def set_use_slots(self, use_slots_name: Any) -> None:
        """Choose the slots that are fed.

        Raises:
            FluidValueError: there is no such slot, or the description has no slots; a ValueError.
        """
        self._mark(use_slots_name, "is_used")

    def _mark(self, names: Any, fact: str) -> None:
        # As the original checks it, though slots of other feeds could be marked as well.
        if self._message.get("name") != "MultiSlotDataFeed":
            raise FluidValueError(f"slots need a MultiSlotDataFeed, this is {self._message.get('name')!r}")
        by_name = {s["name"]: s for s in self._message.get("multi_slot_desc", {}).get("slots", [])}
        for name in [names] if isinstance(names, str) else list(names):
            if name not in by_name:
                hint = did_you_mean(str(name), by_name) or f"one of {', '.join(by_name)}"
                raise FluidValueError(f"there is no slot '{name}'", hint=hint)
            by_name[name][fact] = True

    def desc(self) -> str:
        """Return the description as protobuf text."""
        return written(self._message)


def written(message: dict[str, Any]) -> str:
    """Return a description, field -> value, as protobuf text."""
    return "".join(f"{line}\n" for line in _lines(message, _FEED, ""))


class _Tokens:
    """Words of protobuf text with their lines."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        self.found: list[tuple[str, str, int]] = []
        position = 0
        while position < len(text):
            match = _TOKEN.match(text, position)
            line = text.count("\n", 0, position) + 1
            if not match:
                raise FluidValueError(f"{file}:{line}: '{text[position]}' is not understood")
            if match.lastgroup:
                self.found.append((match.lastgroup, match.group(), line))
            position = match.end()
        self.at = 0

    def peek(self) -> tuple[str, str, int]:
        """Return the next one: kind, text, line."""
        last = self.found[-1][2] if self.found else 1
        return self.found[self.at] if self.at < len(self.found) else ("end", "the end", last)

    def take(self) -> tuple[str, str, int]:
        """Return the next one and go on."""
        found = self.peek()
        self.at += 1
        return found

    def error(self, message: str, line: int) -> FluidTypeError | FluidValueError:
        """Return an error at a line."""
        return FluidValueError(f"{self.file}:{line}: {message}")


def _message(tokens: _Tokens, fields: dict[str, Any], end: str) -> dict[str, Any]:
    out: dict[str, Any] = {}
    while True:
        kind, name, line = tokens.take()
        if (kind == "end" and not end) or (kind == "sign" and name == end):
            return out
        if kind == "sign" and name in ",;":
            continue
        if kind != "word" or name not in fields:
            hint = did_you_mean(name, fields)
            raise tokens.error(f"there is no field '{name}'" + (f", {hint}" if hint else ""), line)
        wanted = fields[name]
        many = isinstance(wanted, list)
        value = _value(tokens, wanted[0] if many else wanted, name)
        if many:
            out.setdefault(name, []).append(value)
        else:
            out[name] = value


def _value(tokens: _Tokens, wanted: Any, name: str) -> Any:
    if tokens.peek()[1] == ":":
        tokens.take()
    kind, text, line = tokens.take()
    if isinstance(wanted, dict):
        if text != "{":
            raise tokens.error(f"{name} needs {{ ... }}, got {text}", line)
        return _message(tokens, wanted, "}")
    try:
        if wanted is str and kind == "text":
            # Texts are quoted as in JSON, but for escapes that files of this kind do not have.
            return json.loads(text)
        if wanted is int and kind == "number":
            return int(text)
    except ValueError as error:  # an escape that is none, or a number of thousands of digits
        raise tokens.error(f"{name} is not understood: {error}", line) from None
    if wanted is bool and text in ("true", "false"):
        return text == "true"
    raise tokens.error(f"{name} must be {wanted.__name__}, got {text}", line)


def _lines(message: dict[str, Any], fields: dict[str, Any], indent: str) -> Iterator[str]:
    # Written in the order of the fields' numbers, whatever order was read, so that equal descriptions are equal texts.
    for name, kind in fields.items():
        if name not in message:
            continue
        inside = kind[0] if isinstance(kind, list) else kind
        for value in message[name] if isinstance(kind, list) else [message[name]]:
            if isinstance(inside, dict):
                yield f"{indent}{name} {{"
                yield from _lines(value, inside, indent + "  ")
                yield f"{indent}}}"
            else:
                yield f"{indent}{name}: {json.dumps(value, ensure_ascii=False)}"
