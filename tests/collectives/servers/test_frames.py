"""Messages over a socket: what is sent arrives, and what is none of ours is refused before memory is taken for it."""

from __future__ import annotations

import json
import socket
import struct

import numpy as np
import pytest

from pe_cli.collectives.servers import frames
from pe_cli.collectives.servers.frames import FrameError, Message


@pytest.fixture
def pair():
    """Give two ends of a connection."""
    a, b = socket.socketpair()
    b.settimeout(5)
    yield a, b
    a.close()
    b.close()


def framed(header, payload=b"", magic=b"PEPS", length=None, size=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<4sIQ", magic, len(text) if length is None else length, len(payload) if size is None else size) + text + payload


@pytest.mark.parametrize("dtype", sorted(frames.TYPES))
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 0, 4), (5, 7)])
def test_arrays_arrive_as_they_were(pair, dtype, shape):
    values = (np.random.default_rng(0).random(shape) * 100).astype(dtype)
    frames.write(pair[0], Message("push", {"step": 3, "name": "é"}, {"w@GRAD.block0": values, "turned": values.T}))
    found = frames.read(pair[1], 1 << 20)
    assert (found.kind, found.number("step"), found.text("name")) == ("push", 3, "é")
    for name, expected in (("w@GRAD.block0", values), ("turned", values.T)):
        np.testing.assert_array_equal(found.arrays[name], expected)
        assert found.arrays[name].dtype == expected.dtype
        assert found.arrays[name].shape == expected.shape


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: here\r\n\r\n", "no message", id="another protocol"),
        pytest.param(framed(["push", {}, []], length=1 << 30), "larger than", id="a header too long"),
        pytest.param(framed(["push", {}, []], size=1 << 60), "larger than", id="arrays too large"),
        pytest.param(framed(b"\xff{"), "no JSON", id="no text"),
        pytest.param(framed(b"[" * 100000), "no JSON", id="deep JSON"),
        pytest.param(framed({"kind": "push"}), "no JSON of three parts", id="another form"),
        pytest.param(framed(["exec", {}, []]), "unknown kind 'exec'", id="another kind"),
        pytest.param(framed([["push"], {}, []]), "unknown kind", id="a kind that is no text"),
        pytest.param(framed(["push", [], []]), "other types", id="facts that are none"),
        pytest.param(framed(["push", {}, [["a", "object", [1]]]], b"12345678"), "no known type", id="objects"),
        pytest.param(framed(["push", {}, [["a", "float32", [-1]]]]), "no shape", id="a negative size"),
        pytest.param(framed(["push", {}, [["a", "float32", [True]]]]), "no shape", id="a size that is no number"),
        pytest.param(framed(["push", {}, [["a", "float32", [1 << 50]]]]), "no shape", id="a size that no memory has"),
        pytest.param(framed(["push", {}, [["a", "float32", [1] * 17]]], b"1234"), "no shape", id="too many axes"),
        pytest.param(framed(["push", {}, [["a", "float32", [3]]]], b"1234"), "not as large", id="fewer bytes than said"),
        pytest.param(framed(["push", {}, [["a", "uint8", [1]]] * 2], b"12"), "two arrays of one name", id="a name twice"),
        pytest.param(framed(["push", {}, [["a" * 2000, "uint8", [1]]]], b"1"), "no name", id="a long name"),
        pytest.param(framed(["push", {}, [3]]), "no name", id="an array that is none"),
        pytest.param(framed(["hello", {}, [["a", "float32", [0, 1 << 39, 1 << 39]]]]), "no shape", id="no element, and huge axes"),
        pytest.param(framed(["push", {}, [["a", "uint8", [0, *[1 << 39] * 15]]]]), "no shape", id="no element, and axes that overflow"),
        pytest.param(framed(["push", {}, [["a", "uint8", [0, 10**4000]]]]), "no shape", id="a size with thousands of digits"),
        pytest.param(framed(b'["push",{},[["a","uint8",[' + b"9" * 5000 + b"]]]]"), "no JSON", id="more digits than Python reads"),
        pytest.param(framed(["push", {}, [["a", "uint8", [1.0]]]], b"1"), "no shape", id="a size that is no whole number"),
        pytest.param(framed(["push", {}, [["a", "uint8", 1]]], b"1"), "no shape", id="a shape that is a number"),
        pytest.param(framed(["push", {}, [["a", ["uint8"], [1]]]], b"1"), "no known type", id="a type that is no text"),
        pytest.param(framed(b'["push",{},[' + b"[" * 900 + b"]" * 900 + b"]]"), "no name", id="an array that is nested deeply"),
        pytest.param(framed(b"[" + b"[" * 900 + b"]" * 900 + b",{},[]]"), "unknown kind", id="a kind that is nested deeply"),
        pytest.param(framed(b'["push",{"n":' + b"[" * 900 + b"]" * 900 + b"},[]]"), "something else than", id="a fact nested deeply"),
        pytest.param(framed(b'["push",{"n":' + b"[" * 100000 + b"},[]]"), "no JSON", id="a fact that is nested too deeply"),
        pytest.param(framed(["push", {"n": 1 << 63}, []]), "something else than", id="a number of more than 64 bits"),
        pytest.param(framed(b'["push",{"n":NaN},[]]'), "something else than", id="a fact that is not a number"),
        pytest.param(framed(b'["push",{"n":-Infinity},[]]'), "something else than", id="a fact that is infinite"),
        pytest.param(framed(["push", {"n": 1.5}, []]), "something else than", id="a fact that is a fraction"),
        pytest.param(framed(["push", {"n": True}, []]), "something else than", id="a fact that is true"),
        pytest.param(framed(["push", {"n": [{"m": None}]}, []]), "something else than", id="nothing within a fact"),
        pytest.param(framed(["push", {}, [], []]), "no JSON of three parts", id="four parts"),
        pytest.param(framed(b'"push"'), "no JSON of three parts|unknown kind", id="a text"),
    ],
)
def test_what_is_no_message_is_refused(pair, sent, message):
    pair[0].sendall(sent)
    with pytest.raises(FrameError, match=message):
        frames.read(pair[1], 1 << 20)


@pytest.mark.parametrize("shape", [(0, 1 << 30), (1 << 20, 0, 1 << 20), (0,) * 16])
def test_arrays_without_elements_may_have_long_axes(pair, shape):
    frames.write(pair[0], Message("values", {"rows": {"w": ["w", 0, 4]}}, {"a": np.empty(shape, "float32")}))
    found = frames.read(pair[1], 0)
    assert found.arrays["a"].shape == shape
    assert found.facts == {"rows": {"w": ["w", 0, 4]}}


def test_a_path_holds_no_nul(pair):
    assert str(Message("run", {"folder": "/a/\udcff"}).folder("folder")) == "/a/\udcff"
    for wrong in ("/a\0b", 3):
        with pytest.raises(FrameError, match=r"holds a NUL|must be a text"):
            Message("run", {"folder": wrong}).folder("folder")


@pytest.mark.parametrize("count", [0, 3, 15, 16, 20, 40])
def test_an_end_inside_a_message_is_an_end(pair, count):
    pair[0].sendall(framed(["push", {}, [["a", "uint8", [8]]]], b"12345678")[:count])
    pair[0].close()
    with pytest.raises(EOFError):
        frames.read(pair[1], 1 << 20)


def test_random_bytes_are_refused(pair):
    good = bytearray(framed(["push", {"n": 1}, [["a", "int64", [2]]]], bytes(16)))
    rng = np.random.default_rng(0)
    for _ in range(500):
        a, b = socket.socketpair()
        b.settimeout(5)
        bad = bytearray(good)
        for at in rng.integers(0, len(bad), rng.integers(1, 4)):
            bad[at] = rng.integers(0, 256)
        a.sendall(bad)
        a.close()
        try:
            found = frames.read(b, 64)
            assert sum(v.nbytes for v in found.arrays.values()) <= 64
        except (FrameError, EOFError):
            pass
        b.close()


@pytest.mark.parametrize(
    ("facts", "method"), [({"n": True}, "number"), ({}, "text"), ({"n": ["a", 1]}, "names"), ({"n": "1"}, "number")]
)
def test_facts_are_of_their_types(facts, method):
    with pytest.raises(FrameError, match="message hello: n must be"):
        getattr(Message("hello", facts), method)("n")
