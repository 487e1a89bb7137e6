"""Frames the requests of a connection: bytes that can be read in two ways are refused before h11 parses the rest."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping

import h11

from pe_cli.core.lazy_dataclass import dataclass

#: Bytes of a request's first line and its fields, and fields, at most.
MOST_HEAD, MOST_FIELDS = 16 << 10, 100
#: Bytes up to which a head is remembered.
KNOWN = 1 << 10
#: Bytes of the line that begins a chunk, and chunks of a body beyond one for each `CHUNK` bytes of it: each costs time.
MOST_LINE, MOST_CHUNKS, CHUNK = 256, 256, 1024

_TOKEN = rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_FIELDS = re.compile(rb"(?:" + _TOKEN + rb":[\t\x20-\x7e\x80-\xff]*\r\n)*\r\n")
_FIRST = re.compile(rb"(" + _TOKEN + rb") ([!-~]+) HTTP/([0-9])\.([0-9])\r\n")
#: A line that ends without CR, a CR that ends none, and what has no place in a head.
_WRONG = re.compile(rb"(?<!\r)\n|\r[^\n]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_LENGTH = re.compile(rb"\r\ncontent-length:[\t ]*[0-9]{1,15}[\t ]*\r\n")
_SIZE = re.compile(rb"([0-9A-Fa-f]{1,8})(?:;[\t\x20-\x7e\x80-\xff]*)?\r\n")
_HOST = re.compile(r"(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?")
_ABSOLUTE = re.compile(r"https?://([^/?#]*)([/?].*)?", re.IGNORECASE)
#: Fields that a chunked body may not bring behind it: they say where a message ends, or whom it is for.
_NO_TRAILERS = {b"content-length", b"transfer-encoding", b"host", b"connection", b"trailer", b"te", b"upgrade", b"expect"}
#: Methods that have a body here.
WITH_BODY = ("POST", "PUT", "PATCH")


class FramingError(Exception):
    """Bytes that are no request of HTTP/1.1, or not surely one: the connection cannot go on.

    Attributes:
        status: of the answer.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True)
class Head:
    """A request's first line and fields.

    Args:
        method: as written; it counts how letters are written.
        path: without the part behind a question mark.
        host: of the field Host; empty in HTTP/1.0 without one.
        fields: name in small letters -> value; values of a field that is there several times are joined by commas.
        length: bytes of the body; None of one in chunks.
        waits: whether the client waits for "100 Continue" before it sends the body.
        keeps: whether the client may send another request.
    """

    method: str
    path: str
    host: str
    fields: Mapping[str, str]
    length: int | None
    waits: bool
    keeps: bool


class Framing:
    """Takes bytes and gives requests: for each its `Head`, then its body.

    Refused, although other servers take some of it: a body of GET, HEAD, DELETE and the like; Content-Length beside Transfer-Encoding, or
    twice; lines that end in LF alone, continued lines, control characters; a body that does not end as it says.

    Args:
        most: bytes of a body.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._left = bytearray()
        self._seen, self._skipped = 0, False
        self._head: Head | None = None
        self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
        self._body = bytearray()
        self._chunk, self._chunks, self._trailers = 0, 0, False

    @property
    def held(self) -> int:
        """Bytes that are kept."""
        return len(self._left) + len(self._body)

    @property
    def begun(self) -> bool:
        """Whether some of a request is there that is not whole."""
        return bool(self._left) or self._head is not None

    def give(self, data: bytes | memoryview) -> None:
        """Take what the client has sent."""
        self._left += data

    def next(self) -> Head | bytearray | None:
        """Return the next head or, after a head, its body; None while bytes are missing.

        Raises:
            FramingError: the connection has to be closed.
        """
        try:
            if self._head is None:
                return self._read_head()
            return self._read_chunks() if self._head.length is None else self._read_body(self._head.length)
        # The library has its own words for every mistake, and may repeat what the client sent.
        except h11.RemoteProtocolError as error:
            raise FramingError(error.error_status_hint, "this is no request of HTTP/1.1") from None

    # --- heads --------------------------------------------------------------------------------------------------------

    def _read_head(self) -> Head | None:
        left = self._left
        if self._seen == 0 and not self._skipped and left.startswith(b"\r\n"):
            del left[:2]  # some clients end a body with one line too many
            self._skipped = True
        if not left or left == b"\r":
            return None
        # From where the last look ended: who sends a head byte by byte costs no more than who sends it at once.
        end = left.find(b"\r\n\r\n", max(0, self._seen - 3))
        wrong = _WRONG.search(left, max(0, self._seen - 1), len(left) if end < 0 else end + 4)
        if wrong or left[0] <= 0x20:
            # Split lines and control characters are how one request is made to look like two to a proxy.
            raise FramingError(400, "a line of the head does not end in CR LF, or holds a control character")
        if end + 4 > MOST_HEAD or (end < 0 and len(left) > MOST_HEAD):
            raise FramingError(431, f"a head has {MOST_HEAD:,} bytes at most")
        if end < 0:
            self._seen = len(left)
            return None
        text = bytes(left[: end + 4])
        del left[: end + 4]
        self._seen, self._skipped = 0, False
        head = _known(text) if len(text) <= KNOWN else _checked(text)
        # The head is parsed once to be checked, and again where its body comes in chunks, by the connection that will read them.
        if head.length is None:
            self._h11.receive_data(text)
            self._h11.next_event()
        elif head.length > self.most:
            raise FramingError(413, f"a body has {self.most} bytes at most, got {head.length}")
        self._head = head
        return head

    # --- bodies -------------------------------------------------------------------------------------------------------

    def _read_body(self, length: int) -> bytearray | None:
        # A body that stands alone is taken over instead of copied.
        if not self._body and len(self._left) <= length:
            self._body, self._left = self._left, self._body
        else:
            part = self._left[: length - len(self._body)]
            del self._left[: len(part)]
            self._body += part
        return self._ended() if len(self._body) == length else None

    def _read_chunks(self) -> bytearray | None:
        while True:
            if self._chunk:
                part = self._left[: self._chunk]
                del self._left[: len(part)]
                self._chunk -= len(part)
                self._told(part)
                if self._chunk or not part:
                    return None
            elif self._trailers:
                return self._read_trailers()
            elif not self._begin_chunk():
                return None

    def _begin_chunk(self) -> bool:
        """Read the line that begins a chunk; tell whether it was there."""
        end = self._left.find(b"\r\n", 0, MOST_LINE)
        if end < 0:
            if len(self._left) >= MOST_LINE or b"\n" in self._left:
                raise FramingError(400, "a chunk does not begin with its size")
            return False
        line = bytes(self._left[: end + 2])
        # The line and its end are bounded, so that a client cannot make us keep a size without an end.
        size = _SIZE.fullmatch(line)
        if size is None:
            raise FramingError(400, "a chunk does not begin with its size")
        del self._left[: end + 2]
        self._chunk, self._chunks = int(size[1], 16), self._chunks + 1
        # Many tiny chunks cost more to take apart than they carry.
        if len(self._body) + self._chunk > self.most or self._chunks > MOST_CHUNKS + len(self._body) // CHUNK:
            raise FramingError(413, f"a body has {self.most} bytes at most, in chunks of {CHUNK} or more")
        self._told(line)
        self._trailers = self._chunk == 0
        self._chunk += 2 if self._chunk else 0  # with the CR LF behind it
        return True

    def _read_trailers(self) -> bytearray | None:
        end = 0 if self._left.startswith(b"\r\n") else self._left.find(b"\r\n\r\n", 0, MOST_HEAD) + 2
        if end == 1:
            if len(self._left) >= MOST_HEAD or _WRONG.search(self._left):
                raise FramingError(400, "what follows the last chunk is none of HTTP/1.1")
            return None
        # Fields behind a body may not say what the head should have said.
        text = bytes(self._left[: end + 2])
        names = {line.partition(b":")[0].lower() for line in text.split(b"\r\n")}
        if not _FIELDS.fullmatch(text) or names & _NO_TRAILERS:
            raise FramingError(400, "what follows the last chunk is none of HTTP/1.1")
        del self._left[: end + 2]
        return self._told(text)

    def _told(self, part: bytes | bytearray) -> bytearray | None:
        """Feed part of a chunked body to h11; return the body when it is complete."""
        if not part:
            return None
        self._h11.receive_data(bytes(part))
        while True:
            event = self._h11.next_event()
            if isinstance(event, h11.Data):
                self._body += event.data
            elif isinstance(event, h11.EndOfMessage):
                self._h11 = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
                self._chunk, self._chunks, self._trailers = 0, 0, False
                return self._ended()
            else:
                return None

    def _ended(self) -> bytearray:
        """Return the body, and begin with the next request."""
        body, self._head, self._body = self._body, None, bytearray()
        return body


def _checked(text: bytes) -> Head:
    """Return a head whose every line is as RFC 9112 has it.

    Raises:
        FramingError: it is not.
        h11.RemoteProtocolError: so says h11.
    """
    first = _FIRST.match(text)
    if first is None or not _FIELDS.fullmatch(text, first.end()):
        raise FramingError(400, "a line of the head is none of HTTP/1.1")
    if first[3] != b"1" or first[4] not in (b"0", b"1"):
        raise FramingError(505, "this server speaks HTTP/1.1")
    # Two line ends belong to the first line and the last one.
    if text.count(b"\r\n") - 2 > MOST_FIELDS:
        raise FramingError(431, f"a head has {MOST_FIELDS} fields at most")
    small = text.lower()
    lengths = small.count(b"\r\ncontent-length:")
    # A proxy in front may read the other length, and take the rest of the body for a request of somebody else.
    if lengths > 1 or (lengths and not _LENGTH.search(small)):
        raise FramingError(400, "Content-Length is one number of bytes, said once")
    chunked = b"\r\ntransfer-encoding:" in small
    if chunked and (lengths or first[4] == b"0"):
        raise FramingError(400, "Transfer-Encoding stands beside Content-Length, or in HTTP/1.0")
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD)
    connection.receive_data(text)
    request = connection.next_event()
    assert isinstance(request, h11.Request)
    return _described(request, chunked)


#: Clients send the same head again and again, but for its body.
_known = functools.lru_cache(maxsize=256)(_checked)


def _described(request: h11.Request, chunked: bool) -> Head:
    fields: dict[str, str] = {}
    for name, value in ((name.decode(), value.decode("latin-1")) for name, value in request.headers):
        # A field that stands twice is a list.
        fields[name] = f"{fields[name]}, {value}" if name in fields else value
    method, target, host = request.method.decode(), request.target.decode(), fields.get("host", "")
    length = None if chunked else int(fields.get("content-length", "0"))
    if "host" in fields and not _HOST.fullmatch(host):
        raise FramingError(400, "Host is no name of a host")
    if method == "CONNECT":
        raise FramingError(405, "this is no proxy")
    # A body where none is expected would be read as the next request.
    if length != 0 and method not in WITH_BODY:
        raise FramingError(400, f"{method} has no body")
    if fields.get("expect", "100-continue").lower() != "100-continue":
        raise FramingError(417, "Expect is 100-continue, or nothing")
    one = request.http_version == b"1.1"
    keeps = one and "close" not in [part.strip() for part in fields.get("connection", "").lower().split(",")]
    # HTTP/1.0 knows no waiting for 100 Continue.
    return Head(method, _path(method, target, host), host, fields, length, one and "expect" in fields and length != 0, keeps)


def _path(method: str, target: str, host: str) -> str:
    """Return the path of a request's target, which may also be a whole address or, for OPTIONS, a star."""
    if "#" in target or (target == "*" and method != "OPTIONS"):
        raise FramingError(400, "the target of a request is a path")
    if target.startswith("/") or target == "*":
        return target.partition("?")[0]
    # A target may name a host, too: where both names differ, proxies and servers believe different ones.
    absolute = _ABSOLUTE.fullmatch(target)
    if absolute is None:
        raise FramingError(400, "the target of a request is a path")
    if absolute[1].lower() != host.lower():
        raise FramingError(400, "the target of the request is on another host than Host says")
    return (absolute[2] or "/").partition("?")[0] or "/"
