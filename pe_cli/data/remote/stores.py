"""The interface of stores of remote files, and how their errors are reported."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Protocol
from urllib.parse import urlsplit

from pe_cli.core.lazy_dataclass import dataclass

#: Beginnings of the addresses that are read.
SCHEMES = ("https", "http", "s3", "gs")
_PATTERN = re.compile(r"[*?\[]")


class RemoteError(Exception):
    """A store does not give a file.

    Args:
        message: what is wrong, to stand behind the file's address.
        hint: what to do.
        again: whether another try may help.
        wait: seconds that the store asks to wait for before.
    """

    def __init__(self, message: str, hint: str, *, again: bool = False, wait: float = 0.0) -> None:
        super().__init__(message)
        self.message, self.hint, self.again, self.wait = message, hint, again, wait


@dataclass(frozen=True)
class Content:
    """A file that a store gives.

    Args:
        tag: another one for every content (ETag, or the time of the last change); empty where the store says none.
        size: bytes of the whole file.
        start: byte that `chunks` begin with.
        chunks: the bytes from there on; it raises `RemoteError`.
        close: ends the connection.
    """

    tag: str
    size: int
    start: int
    chunks: Iterator[bytes]
    close: Callable[[], None] = lambda: None


class Store(Protocol):
    """A kind of store."""

    def open(self, url: str, start: int = 0, tag: str = "", known: str = "") -> Content | None:
        """Ask for a file.

        Args:
            url: its address.
            start: byte from which on it is wanted.
            tag: of the content whose first bytes are there already; of another content all is given.
            known: tag of the content that is there as a whole.

        Returns:
            The file; None where it is still the one of the tag `known`.

        Raises:
            RemoteError: it is not given.
        """

    def match(self, pattern: str) -> list[str]:
        """Return the addresses of the files that a pattern matches, in order.

        Raises:
            RemoteError: the store does not list its files.
        """


def is_pattern(url: str) -> bool:
    """Return whether an address stands for several files; a `?` of http begins a query."""
    # A query of an HTTP address may have question marks and brackets.
    rest = urlsplit(url).path if url.lower().startswith("http") else url
    return _PATTERN.search(rest) is not None


def shown(url: str) -> str:
    """Return an address for messages: without a query, which may hold a key.

    >>> shown("https://host/a.csv?signature=abc")
    'https://host/a.csv?...'
    """
    head, mark, _ = url.partition("?")
    # A signed address holds its secret behind the question mark.
    return f"{head}?..." if mark and url.lower().startswith("http") else url


def scheme_of(url: str) -> str:
    """Return the scheme of an address.

    Raises:
        RemoteError: it is none that is read, or the address holds a password.
    """
    scheme = url.partition("://")[0].lower()
    if scheme not in SCHEMES:
        raise RemoteError(f"is no address that is read: {scheme}://", f"use {', '.join(f'{name}://' for name in SCHEMES)} or a path")
    try:
        parts = urlsplit(url)
        if "@" in parts.netloc:
            raise RemoteError("holds a user or a password", "runs keep their config: let the environment hold credentials")
        if not parts.hostname:
            raise RemoteError("names no host or bucket", f"write {scheme}://NAME/PATH")
    except ValueError as error:
        raise RemoteError(f"is no address: {error}", f"write {scheme}://NAME/PATH") from None
    return scheme
