"""Files of web servers, read with Python's own client: time, redirects and length of an answer are bounded here."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from email.utils import parsedate_to_datetime
from typing import IO, Any
from urllib.parse import quote, urlsplit

from pe_cli.data.remote.stores import Content, RemoteError

#: Bytes that are read at a time.
CHUNK = 1 << 18
#: Seconds without a byte after which a connection counts as dead.
SILENCE = 30.0
#: Seconds that are looked at together, and bytes per second that come in them at least.
STRETCH, SLOWEST = 60.0, 1024
#: Seconds that a server may ask to wait for.
LONGEST_WAIT = 60.0
_SAFE = "/%:=&?~#+!$,;'@()*[]"
#: Answers after which the same question may be answered better.
_AGAIN = (408, 425, 429, 500, 502, 503, 504)
_HINTS = {
    401: "the server asks for credentials: use an address that is signed, or fetch the file first",
    403: "you may not read it: an address that is signed may have expired",
    404: "check the address",
    410: "check the address",
}


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects to http and https, at most 5, and never from https to http."""

    max_redirections = 5

    def redirect_request(self, req: Any, fp: IO[bytes], code: int, msg: str, headers: Any, newurl: str) -> Any:
        # A signed address must not be sent on without encryption.
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise RemoteError(f"leads from https to {urlsplit(newurl).scheme or 'nowhere'}", "name the address that it leads to")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class HttpStore:
    """Files at `http://` and `https://`; see `pe_cli.data.remote.stores.Store`."""

    def __init__(self) -> None:
        opener = urllib.request.OpenerDirector()  # no file://, no ftp://
        for handler in (
            urllib.request.ProxyHandler(), urllib.request.HTTPHandler(), urllib.request.HTTPSHandler(), _Redirects(),
            urllib.request.HTTPDefaultErrorHandler(), urllib.request.HTTPErrorProcessor(), urllib.request.UnknownHandler(),
        ):  # fmt: skip
            opener.add_handler(handler)
        self._open = opener.open

    def open(self, url: str, start: int = 0, tag: str = "", known: str = "") -> Content | None:
        """Ask for a file; see `Store.open`.

        Raises:
            RemoteError: there is no answer, or one that is no file.
        """
        headers = {"User-Agent": "pe", "Accept-Encoding": "identity"}
        if start and tag:
            # The rest of a file only if it is the same file still.
            headers |= {"Range": f"bytes={start}-", "If-Range": tag}
        if known:
            headers["If-None-Match" if _is_etag(known) else "If-Modified-Since"] = known
        try:
            request = urllib.request.Request(quote(url, safe=_SAFE), headers=headers)
            answer = self._open(request, timeout=SILENCE)
        except urllib.error.HTTPError as error:
            with error:
                if error.code == 304 and known:
                    return None
                raise _refused(error.code, error.headers) from None
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise _unreachable(error) from None
        return _content(answer, start)

    def match(self, pattern: str) -> list[str]:
        """Say that web servers do not list their files.

        Raises:
            RemoteError: always.
        """
        raise RemoteError("is a pattern, and web servers do not list their files", "list the addresses one by one under files")


def _is_etag(tag: str) -> bool:
    return tag.startswith(('"', 'W/"'))


def _refused(status: int, headers: Any) -> RemoteError:
    """Return the error of an answer that is no file."""
    reason = http.client.responses.get(status, "")
    hint = _HINTS.get(status, "the server is too busy or broken: try again later" if status in _AGAIN else "check the address")
    return RemoteError(f"the server answers {status} {reason}".rstrip(), hint, again=status in _AGAIN, wait=_wait(headers))


def _wait(headers: Any) -> float:
    """Return the seconds that `Retry-After` asks for, within bounds."""
    said = (headers.get("Retry-After") or "").strip()
    if said.isdecimal():
        return min(float(said[:6]), LONGEST_WAIT)
    try:
        return min(max(0.0, parsedate_to_datetime(said).timestamp() - time.time()), LONGEST_WAIT)
    except (ValueError, TypeError, OverflowError):
        return 0.0


def _unreachable(error: BaseException) -> RemoteError:
    """Return the error of a server that gives no answer, or none that can be read."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        said = f"the server's certificate is not trusted: {inner.verify_message}"
        return RemoteError(said, "set SSL_CERT_FILE where it is one of your own")
    if isinstance(inner, socket.gaierror):
        return RemoteError("the name of the server is not known", "check the address and the network", again=True)
    if isinstance(inner, TimeoutError):
        return RemoteError(f"the server said nothing for {SILENCE:g} seconds", "try again later", again=True)
    said = (getattr(inner, "strerror", None) or str(inner) or type(inner).__name__).lower()
    return RemoteError(f"the server cannot be read: {said}", "check the address and the network", again=not isinstance(inner, ValueError))


def _content(answer: Any, start: int) -> Content:
    """Return what an answer holds."""
    headers = answer.headers
    tag = headers.get("ETag") or headers.get("Last-Modified") or ""
    length = headers.get("Content-Length", "")
    # Without its length nobody can tell whether a file came whole.
    if not length.isdecimal() or len(length) > 18:
        answer.close()
        raise RemoteError("the server does not say how long it is", "nobody could tell whether the file is whole: fetch it first")
    size, first = int(length), 0
    if answer.status == 206:
        said = headers.get("Content-Range", "")
        # A server may ignore the range, or send another.
        if said != f"bytes {start}-{start + size - 1}/{start + size}":
            answer.close()
            raise RemoteError(f"the server gives other bytes than it was asked for: '{said[:80]}'", "fetch the file first")
        size, first = start + size, start
    return Content(tag, size, first, _read(answer, size - first), answer.close)


def _read(answer: Any, size: int) -> Iterator[bytes]:
    """Yield the bytes of an answer, which are `size` bytes that do not come too slowly."""
    begun, since, left = time.monotonic(), 0, size
    while left:
        try:
            data = answer.read1(min(CHUNK, left))
        except (OSError, http.client.HTTPException) as error:
            raise _unreachable(error) from None
        if not data:
            raise RemoteError(f"the server ends {left:,} bytes before the end", "try again later", again=True)
        left -= len(data)
        since += len(data)
        yield data
        if (took := time.monotonic() - begun) > STRETCH:
            # A trickle of bytes never times out, and would hold a training for days.
            if left and since < SLOWEST * took:
                said = f"the server gives {since / took:.0f} bytes a second, and {SLOWEST:,} are the least"
                raise RemoteError(said, "try again later", again=True)
            begun, since = time.monotonic(), 0
