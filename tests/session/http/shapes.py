"""Requests that two servers could read in two ways, each with a second request hidden in or behind it; and right ones."""

from __future__ import annotations

HOST = b"Host: a\r\n"
#: What an attacker wants to be taken for a request of its own.
HIDDEN = b"GET /hidden HTTP/1.1\r\n" + HOST + b"\r\n"
_N = str(len(HIDDEN)).encode()
_CHUNK = b"%x\r\n" % len(HIDDEN) + HIDDEN + b"\r\n0\r\n\r\n"
_END = b"0\r\n\r\n" + HIDDEN


def _post(fields: bytes, rest: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\n" + HOST + fields + b"\r\n" + rest


def _get(fields: bytes, rest: bytes = HIDDEN) -> bytes:
    return b"GET / HTTP/1.1\r\n" + HOST + fields + b"\r\n" + rest


#: Name -> bytes that are no request, or not surely one: the answer is one refusal, and the connection ends.
WRONG: dict[str, bytes] = {
    "GET with a body": _get(b"Content-Length: " + _N + b"\r\n"),
    "GET with chunks": _get(b"Transfer-Encoding: chunked\r\n", _CHUNK),
    "HEAD with a body": b"HEAD / HTTP/1.1\r\n" + HOST + b"Content-Length: " + _N + b"\r\n\r\n" + HIDDEN,
    "DELETE with a body": b"DELETE / HTTP/1.1\r\n" + HOST + b"Content-Length: " + _N + b"\r\n\r\n" + HIDDEN,
    "Content-Length, then Transfer-Encoding": _post(b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", _END),
    "Transfer-Encoding, then Content-Length": _post(b"Transfer-Encoding: chunked\r\nContent-Length: " + _N + b"\r\n", _CHUNK),
    "Content-Length 0 beside chunks": _post(b"Content-Length: 0\r\nTransfer-Encoding: chunked\r\n", _CHUNK),
    "two Content-Lengths": _post(b"Content-Length: 0\r\nContent-Length: " + _N + b"\r\n", HIDDEN),
    "the same Content-Length twice": _post(b"Content-Length: 3\r\nContent-Length: 3\r\n", b"abc" + HIDDEN),
    "a list of lengths": _post(b"Content-Length: 3, 3\r\n", b"abc" + HIDDEN),
    "a list of different lengths": _post(b"Content-Length: 0, " + _N + b"\r\n", HIDDEN),
    "a length with a sign": _post(b"Content-Length: +3\r\n", b"abc" + HIDDEN),
    "a negative length": _post(b"Content-Length: -1\r\n", HIDDEN),
    "a length in hexadecimal": _post(b"Content-Length: 0x3\r\n", b"abc" + HIDDEN),
    "a length with an underscore": _post(b"Content-Length: 1_0\r\n", b"0123456789" + HIDDEN),
    "a length with a fraction": _post(b"Content-Length: 3.0\r\n", b"abc" + HIDDEN),
    "a length of blanks": _post(b"Content-Length:  \r\n", HIDDEN),
    "a length of another alphabet": _post("Content-Length: \u0663\r\n".encode(), b"abc" + HIDDEN),
    "a length beyond 64 bits": _post(b"Content-Length: 18446744073709551619\r\n", b"abc" + HIDDEN),
    "a blank before the colon": _post(b"Content-Length : " + _N + b"\r\n", HIDDEN),
    "a tab before the colon": _post(b"Transfer-Encoding\t: chunked\r\n", _CHUNK),
    "a blank before a field": _get(b" Content-Length: " + _N + b"\r\n"),
    "a continued field": _post(b"Content-Length: 3\r\n\t4\r\n", b"abc" + HIDDEN),
    "a continued Transfer-Encoding": _post(b"Transfer-Encoding:\r\n chunked\r\n", _CHUNK),
    "a field without a colon": _get(b"Content-Length\r\n"),
    "a field without a name": _get(b": x\r\n"),
    "a name with a blank": _get(b"Content Length: 5\r\n"),
    "a name with a NUL": _get(b"Content-Length\0: 5\r\n"),
    "a value with a NUL": _get(b"X: a\0b\r\n"),
    "a value with a CR": _get(b"X: a\rContent-Length: 5\r\n"),
    "a value with a vertical tab": _post(b"Transfer-Encoding: \x0bchunked\r\n", _CHUNK),
    "a line that ends in LF": _get(b"X: a\nContent-Length: 5\r\n"),
    "all lines end in LF": b"GET / HTTP/1.1\nHost: a\n\n" + HIDDEN,
    "a head that ends in LF LF": b"GET / HTTP/1.1\r\nHost: a\r\n\n" + HIDDEN,
    "a line that ends in CR CR LF": _get(b"X: a\r\r\n"),
    "Transfer-Encoding: identity": _post(b"Transfer-Encoding: identity\r\n", HIDDEN),
    "Transfer-Encoding: gzip": _post(b"Transfer-Encoding: gzip\r\n", HIDDEN),
    "Transfer-Encoding: chunked, identity": _post(b"Transfer-Encoding: chunked, identity\r\n", _CHUNK),
    "Transfer-Encoding: identity, chunked": _post(b"Transfer-Encoding: identity, chunked\r\n", _CHUNK),
    "Transfer-Encoding: xchunked": _post(b"Transfer-Encoding: xchunked\r\n", _CHUNK),
    "Transfer-Encoding in quotes": _post(b'Transfer-Encoding: "chunked"\r\n', _CHUNK),
    "Transfer-Encoding twice": _post(b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", _CHUNK),
    "Transfer-Encoding without a value": _post(b"Transfer-Encoding:\r\n", _CHUNK),
    "chunks in HTTP/1.0": b"POST / HTTP/1.0\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + _CHUNK,
    "a chunk of a negative size": _post(b"Transfer-Encoding: chunked\r\n", b"-1\r\n" + HIDDEN),
    "a chunk of size 0x3": _post(b"Transfer-Encoding: chunked\r\n", b"0x3\r\nabc\r\n" + _END),
    "a chunk beyond 32 bits": _post(b"Transfer-Encoding: chunked\r\n", b"100000000\r\nabc\r\n" + _END),
    "a chunk without a size": _post(b"Transfer-Encoding: chunked\r\n", b"\r\nabc\r\n" + _END),
    "a chunk's size ends in LF": _post(b"Transfer-Encoding: chunked\r\n", b"3\nabc\r\n" + _END),
    "a chunk's extension with a CR": _post(b"Transfer-Encoding: chunked\r\n", b"3;a\rb\r\nabc\r\n" + _END),
    "a chunk's extension with an LF": _post(b"Transfer-Encoding: chunked\r\n", b"3;a\nb\r\nabc\r\n" + _END),
    "a blank behind a chunk's size": _post(b"Transfer-Encoding: chunked\r\n", b"3 \r\nabc\r\n" + _END),
    "a chunk that is longer than it says": _post(b"Transfer-Encoding: chunked\r\n", b"3\r\nabcd\r\n" + _END),
    "a chunk that ends in LF": _post(b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\n" + _END),
    "a trailer that ends in LF": _post(b"Transfer-Encoding: chunked\r\n", b"0\r\nX: a\n\r\n" + HIDDEN),
    "a trailer that frames": _post(b"Transfer-Encoding: chunked\r\n", b"0\r\nContent-Length: 5\r\n\r\n" + HIDDEN),
    "a trailer without a colon": _post(b"Transfer-Encoding: chunked\r\n", b"0\r\nGET /hidden HTTP/1.1\r\n\r\n" + HIDDEN),
    "no Host": b"GET / HTTP/1.1\r\n\r\n" + HIDDEN,
    "two Hosts": _get(b"Host: b\r\n"),
    "a Host with a path": b"GET / HTTP/1.1\r\nHost: a/b\r\n\r\n" + HIDDEN,
    "an empty Host": b"GET / HTTP/1.1\r\nHost:\r\n\r\n" + HIDDEN,
    "another host in the target": b"GET http://b/ HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a target with a blank": b"GET / HTTP/1.1 HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a target without a slash": b"GET x HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a target with bytes above 127": b"GET /\xe9 HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a star": b"GET * HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "CONNECT": b"CONNECT a:80 HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "two empty lines before": b"\r\n\r\n" + HIDDEN,
    "CONNECT of a path": b"CONNECT / HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "two blanks in the first line": b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "a tab in the first line": b"GET\t/ HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "no version": b"GET /\r\n\r\n" + HIDDEN,
    "HTTP/2.0": b"GET / HTTP/2.0\r\n" + HOST + b"\r\n" + HIDDEN,
    "HTTP/1.10": b"GET / HTTP/1.10\r\n" + HOST + b"\r\n" + HIDDEN,
    "http/1.1": b"GET / http/1.1\r\n" + HOST + b"\r\n" + HIDDEN,
    "the preface of HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "the greeting of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
    "Expect: something": _post(b"Expect: 200-ok\r\nContent-Length: 3\r\n", b"abc" + HIDDEN),
    "a head without an end": b"GET / HTTP/1.1\r\n" + HOST + b"X: " + b"a" * 20_000,
    "very many fields": _get(b"A: b\r\n" * 200),
}
#: Name -> bytes, and how many requests they are.
RIGHT: dict[str, tuple[bytes, int]] = {
    "GET": (_get(b"", b""), 1),
    "two requests at once": (_get(b""), 2),
    "GET with Content-Length: 0": (_get(b"Content-Length: 0\r\n"), 2),
    "POST with a body": (_post(b"Content-Length: " + _N + b"\r\n", HIDDEN), 1),
    "POST without a body": (_post(b"", b""), 1),
    "chunks": (_post(b"Transfer-Encoding: chunked\r\n", _CHUNK), 1),
    "chunks, in capitals": (_post(b"TRANSFER-ENCODING: Chunked\r\n", _CHUNK + HIDDEN), 2),
    "chunks with extensions and a trailer": (
        _post(b"Transfer-Encoding: chunked\r\n", b"03;a=b\r\nabc\r\n000;c\r\nX-Sum: 5\r\n\r\n" + HIDDEN), 2,
    ),
    "a blank around a length": (_post(b"content-length:\t3 \r\n", b"abc" + HIDDEN), 2),
    "a whole address": (b"GET http://a/hidden?x HTTP/1.1\r\n" + HOST + b"\r\n" + HIDDEN, 2),
    "an empty line before": (b"\r\n" + HIDDEN, 1),
    "a wish to go on in another protocol": (_get(b"Connection: upgrade\r\nUpgrade: h2c\r\n"), 2),
    "OPTIONS of all": (b"OPTIONS * HTTP/1.1\r\n" + HOST + b"\r\n", 1),
    "a value in Latin letters": (_get("X: \u00e9\r\n".encode("latin-1")), 2),
    "HTTP/1.0": (b"GET / HTTP/1.0\r\n\r\n", 1),
}  # fmt: skip
