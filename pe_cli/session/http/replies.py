"""Answers to requests, as bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from http import HTTPStatus

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.io import strict_json

#: What keeps answers from being kept, framed, guessed at, or read by other sites.
_GUARDS = (
    b"Server: pe\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    b"Cross-Origin-Resource-Policy: same-origin\r\nContent-Security-Policy: frame-ancestors 'none'\r\n"
)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(frozen=True)
class Reply:
    """An answer.

    Args:
        status: of HTTP.
        body: all of it.
        kind: of the body.
        fields: that belong to it.
        closes: whether the connection ends with it.
    """

    status: int
    body: bytes = b""
    kind: str = "application/json"
    fields: Mapping[str, str] = field(default_factory=dict)
    closes: bool = False

    def head(self, keeps: bool, *, endless: bool = False) -> bytes:
        """Return the first line and the fields; of an endless answer the end of the connection is the end."""
        lines = [f"HTTP/1.1 {self.status} {_phrase(self.status)}", f"Content-Type: {self.kind}"]
        lines += [f"{name}: {value}" for name, value in self.fields.items()]
        lines += [] if endless else [f"Content-Length: {len(self.body)}"]
        lines += [] if keeps else ["Connection: close"]
        return "\r\n".join(lines).encode("latin-1") + b"\r\n" + _GUARDS + b"\r\n"


class Refusal(Exception):
    """A request that is refused: status, sentence, and fields that belong to it."""

    def __init__(self, status: int, message: str, **fields: str) -> None:
        super().__init__(message)
        self.status, self.fields = status, {name.replace("_", "-"): value for name, value in fields.items()}

    def reply(self, closes: bool = False) -> Reply:
        """Return the answer that says so."""
        return json_reply({"error": str(self)}, self.status, self.fields, closes)


def json_reply(value: object, status: int = 200, fields: Mapping[str, str] | None = None, closes: bool = False) -> Reply:
    """Return an answer of JSON."""
    return Reply(status, strict_json.dumps(value).encode(), fields=fields or {}, closes=closes)


def _phrase(status: int) -> str:
    return HTTPStatus(status).phrase
