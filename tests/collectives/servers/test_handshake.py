"""The first words of a connection: who knows the secret is let in, and nobody else, whatever it has heard of others."""

from __future__ import annotations

import hashlib
import hmac
import socket
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pe_cli.collectives.servers.frames import FrameError
from pe_cli.collectives.servers.handshake import GREETING, NONCE, PROOF, Handshake, introduce

KEY, OTHER, HERE = b"k" * 32, b"o" * 32, "127.0.0.1:6174"


def through(key=KEY, endpoint=HERE, server_key=KEY, server_endpoint=HERE):
    """Let a trainer and a server meet; return what each said, and what the trainer ended with."""
    mine, theirs = socket.socketpair()
    ends: list[BaseException | None] = []

    def trainer() -> None:
        try:
            introduce(mine, key, endpoint, time.monotonic() + 5)
            ends.append(None)
        except (FrameError, EOFError, OSError) as error:
            ends.append(error)
        mine.close()

    thread = threading.Thread(target=trainer)
    thread.start()
    handshake, words = Handshake(server_key, server_endpoint), []
    theirs.settimeout(5)
    while not handshake.proved and (data := theirs.recv(handshake.missing)):
        answer = handshake.take(data)
        words += [data, answer]
        theirs.sendall(answer)
    thread.join()
    theirs.close()
    return handshake, words, ends[0]


def test_a_proof_is_the_hmac_of_both_nonces():
    handshake, (greeting, answer, proof, welcome), error = through()
    assert handshake.proved
    assert error is None
    assert (greeting[:4], answer[:4], welcome) == (b"PEH1", b"PEH1", b"PEIN")
    nonces = greeting[4:] + answer[4:36]
    assert answer[36:] == hmac.new(KEY, b"PEH1\0server\0" + HERE.encode() + b"\0" + nonces, hashlib.sha256).digest()
    assert proof == hmac.new(KEY, b"PEH1\0trainer\0" + HERE.encode() + b"\0" + nonces, hashlib.sha256).digest()


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param({"key": OTHER}, id="a trainer with another secret"),
        pytest.param({"server_key": OTHER}, id="a server with another secret"),
        pytest.param({"server_endpoint": "127.0.0.1:6175"}, id="a server that is passed off as another one of the group"),
    ],
)
def test_a_trainer_says_nothing_to_who_does_not_know_the_secret(wrong):
    handshake, words, error = through(**wrong)
    assert not handshake.proved
    assert len(words) == 2, "the trainer has not shown that it knows its secret"
    assert isinstance(error, FrameError)
    assert "another group of processes, or has another secret" in error.message


def test_words_of_another_connection_are_worth_nothing():
    _, (greeting, answer, proof, _), _ = through()
    again = Handshake(KEY, HERE)
    assert again.take(greeting)[: len(GREETING)] == GREETING
    with pytest.raises(FrameError, match="does not know the secret"):
        again.take(proof)
    mirror = Handshake(KEY, HERE)
    said = mirror.take(greeting)
    with pytest.raises(FrameError, match="does not know the secret"):
        mirror.take(said[-PROOF:])  # the server's own proof
    assert answer[4:36] != said[4:36], "a server's nonce is new in every connection"


def test_no_group_is_without_a_secret():
    with pytest.raises(AssertionError, match="without a secret"):
        Handshake(b"", HERE).take(GREETING + bytes(NONCE))


@given(st.lists(st.binary(min_size=1, max_size=80), max_size=6), st.booleans())
def test_no_bytes_are_let_in(pieces, greets):
    handshake, most = Handshake(KEY, HERE), len(GREETING) + NONCE + PROOF
    given_ = [GREETING, *pieces] if greets else pieces
    taken = 0
    try:
        for piece in given_:
            while piece:
                part, piece = piece[: handshake.missing], piece[handshake.missing :]
                taken += len(part)
                assert len(handshake.take(part)) in (0, most)
                assert 0 < handshake.missing <= len(GREETING) + NONCE
    except FrameError:
        pass
    assert not handshake.proved
    assert taken <= most
