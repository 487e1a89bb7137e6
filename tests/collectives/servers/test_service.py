"""A server's end: strangers are sent away, the slow are waited for, and the last one to leave ends it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import numpy as np
import pytest

from pe_cli.collectives.protocol import Failure, PeerError, ends_all, speaks
from pe_cli.collectives.servers import frames
from pe_cli.collectives.servers.client import Servers, reach, wait_for_servers
from pe_cli.collectives.servers.frames import Message
from pe_cli.collectives.servers.handshake import GREETING, NONCE, PROOF
from pe_cli.collectives.servers.service import Service, listen
from pe_cli.collectives.servers.trainer_exchange import Hub, HubPeers
from pe_cli.core.errors import ExitCode, PeError

KEY, OTHER = b"k" * 32, b"o" * 32


def port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return f"127.0.0.1:{found.getsockname()[1]}"


class Running:
    """A service in a thread; `answer` is called with requests."""

    def __init__(self, trainers=1, seconds=5.0, answer=None, agrees=None, key=KEY):
        self.endpoint, self.error = port(), None
        self.service = Service(self.endpoint, trainers, seconds, 1 << 16, agrees=agrees, key=key)
        self.thread = threading.Thread(target=self._run, args=(answer or self.echo,), daemon=True)
        self.thread.start()

    @staticmethod
    def echo(request):
        request.reply(Message("values", request.message.facts, request.message.arrays))

    def _run(self, answer):
        try:
            self.service.run(answer, lambda: None)
        except PeError as error:
            self.error = error

    def join(self):
        self.thread.join(15)
        assert not self.thread.is_alive()


def stranger(running):
    """Return a connection that knows no secret."""
    host, _, number = running.endpoint.rpartition(":")
    return socket.create_connection((host, int(number)))


def test_strangers_do_no_harm():
    running = Running()
    for sent in (b"", b"GET / HTTP/1.1\r\n\r\n", b"\x00" * 64):
        with stranger(running) as one:
            one.sendall(sent)
    with stranger(running) as one:
        frames.write(one, Message("hello", {"trainer": 0}))
    servers = Servers([running.endpoint], 0, 5.0, 1 << 16, key=KEY)
    answer = servers.ask({running.endpoint: Message("pull", {"n": 1})}, "asks")[running.endpoint]
    assert (answer.kind, answer.facts) == ("values", {"n": 1})
    servers.leave()
    running.join()
    assert running.error is None


def test_the_slow_are_waited_for():
    def slow(request):
        threading.Timer(3.0, request.reply, [Message("done")]).start()

    running = Running(seconds=1.5, answer=slow)
    servers = Servers([running.endpoint], 0, 1.5, 0, key=KEY)
    begun = time.monotonic()
    servers.ask({running.endpoint: Message("barrier")}, "waits")
    assert time.monotonic() - begun > 2.5
    servers.leave()
    servers.leave()
    running.join()
    assert running.error is None


def test_an_error_of_a_server_reaches_its_trainers():
    def fails(request):
        raise PeError("the update is no good", code=ExitCode.DIVERGED)

    running = Running(answer=fails)
    servers = Servers([running.endpoint], 0, 5.0, 0, key=KEY)
    with pytest.raises(PeerError, match="the update is no good") as caught:
        servers.ask({running.endpoint: Message("barrier")}, "waits")
    assert caught.value.code is ExitCode.DIVERGED
    running.join()
    with pytest.raises(PeerError, match="is lost"):
        servers.leave()


def fails(request):
    if request.message.kind == "fail":
        Hub.fail(request)
    request.reply(Message("done"))


@pytest.mark.parametrize("local", [False, True])
def test_of_several_trainers_with_errors_the_first_one_to_tell_speaks_for_all(local: bool):
    running = Running(trainers=3, answer=fails)
    trainers = [HubPeers(Servers([running.endpoint], i, 5.0, 0, key=KEY), running.endpoint, i, 3) for i in range(3)]
    mine = [Failure(f"the loss of {i} is nan", ExitCode.DEVICE if local else ExitCode.DIVERGED, local=local) for i in range(3)]
    for i in (1, 0):
        trainers[i].fail(mine[i])
    with pytest.raises(PeerError, match="process 1 has ended: the loss of 1 is nan") as heard:
        trainers[2].total(np.zeros(1))
    trainers[2].fail(Failure.of(heard.value))
    failures = [{i: mine[i], **trainers[i].failures()} for i in range(3)]
    assert [speaks(i, failures[i]) for i in range(3)] == [False, True, False]
    code = ExitCode.PEER_LOST if local else ExitCode.DIVERGED
    assert [ends_all(each, 3) for each in failures] == [code] * 3
    running.join()
    assert running.error.told == mine[1]


def test_a_trainer_with_an_error_speaks_where_no_server_answers():
    running = Running(answer=fails)
    trainer = HubPeers(Servers([running.endpoint], 0, 0.5, 0, key=KEY), running.endpoint, 0, 1)
    running.service._close()
    trainer.fail(Failure("the loss is nan", ExitCode.DIVERGED))
    assert trainer.failures() == {}


def test_a_trainer_that_says_nothing_is_lost():
    running = Running(seconds=1.0)
    silent = reach(running.endpoint, time.monotonic() + 5, key=KEY)
    frames.write(silent, Message("hello", {"trainer": 0}))
    assert frames.read(silent, 0).kind == "done"
    running.join()
    assert "trainer 0" in running.error.message
    silent.close()


def test_a_message_larger_than_agreed_ends_the_server():
    running = Running()
    servers = Servers([running.endpoint], 0, 5.0, 0, key=KEY)
    large = Message("push", {}, {"a": np.zeros(1 << 20, "uint8")})
    with pytest.raises(PeerError, match=r"is lost|larger than"):
        servers.ask({running.endpoint: large}, "sends")
    running.join()
    assert "larger than" in running.error.message


def test_hosts_that_are_not_known():
    with pytest.raises(PeError, match="host is not known"):
        wait_for_servers(["no-such-host.invalid:80"], 1.0)


def test_a_server_on_a_host_that_is_not_known():
    with pytest.raises(PeError, match="host is not known") as caught:
        listen("no-such-host.invalid:80")
    assert caught.value.code is ExitCode.USAGE


def test_a_name_that_is_not_known_yet_is_waited_for(monkeypatch):
    """A pod's name is known when the pod has begun."""
    running, asked, real = Running(), [], socket.getaddrinfo

    def late(host, port, *more, **facts):
        asked.append(host)
        if host == "pod-1.pods" and len(asked) < 3:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return real("127.0.0.1" if host == "pod-1.pods" else host, port, *more, **facts)

    monkeypatch.setattr(socket, "getaddrinfo", late)
    port = running.endpoint.rpartition(":")[2]
    reach(f"pod-1.pods:{port}", time.monotonic() + 10).close()
    assert asked.count("pod-1.pods") >= 3
    Servers([running.endpoint], 0, 5.0, 0, key=KEY).leave()
    running.join()


def test_a_trainer_of_another_group_is_named():
    running = Running(agrees={"number of processes": "2"})
    with pytest.raises(PeError, match=r"trainer 0 has another number of processes than server .*: 3, not 2"):
        Servers([running.endpoint], 0, 5.0, 0, agrees={"number of processes": "3"}, key=KEY)
    running.join()
    assert running.error.code is ExitCode.USAGE


def test_a_server_learns_from_the_first_one_whether_it_is_of_its_group():
    running = Running()
    reach(running.endpoint, time.monotonic() + 5, key=KEY).close()
    with pytest.raises(PeError, match=f"server {running.endpoint}: it serves another group of processes, or has another secret") as caught:
        reach(running.endpoint, time.monotonic() + 5, key=OTHER)
    assert caught.value.code == ExitCode.USAGE
    Servers([running.endpoint], 0, 5.0, 0, key=KEY).leave()
    running.join()
    assert running.error is None
    with pytest.raises(PeerError, match="does not listen"):
        reach(running.endpoint, time.monotonic() + 0.2, key=KEY)


def test_a_server_is_waited_for_however_often_it_refuses(monkeypatch):
    monkeypatch.setattr("pe_cli.collectives.servers.client.AGAIN", 0.0002)
    with socket.socket() as held:  # bound, so that nobody else listens there meanwhile
        held.bind(("127.0.0.1", 0))
        tried = []
        connects = socket.create_connection
        monkeypatch.setattr("socket.create_connection", lambda *where: tried.append(where) or connects(*where))
        with pytest.raises(PeerError, match=r"does not listen after 1 s: .*refused"):
            reach(f"127.0.0.1:{held.getsockname()[1]}", time.monotonic() + 1, key=KEY)
    assert len(tried) > 50
    assert max(seconds for _, seconds in tried) == 0.1, "who refuses at once is asked in short attempts"


def test_a_connection_to_itself_is_no_server(monkeypatch):
    """The system may give a connection the port that it is to reach, where nobody listens on that."""
    connects, tried = socket.create_connection, []

    def itself(where, seconds):
        tried.append(connects(where, seconds, source_address=where))
        return tried[-1]

    monkeypatch.setattr("socket.create_connection", itself)
    with pytest.raises(PeerError, match=r"lets nobody in|does not listen"):
        reach(port(), time.monotonic() + 0.5, key=KEY)
    assert tried
    assert all(each.fileno() < 0 for each in tried), "closed at once, so that the server can have its port"


@pytest.mark.parametrize(
    ("says", "message", "code"),
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", "no message of a trainer or server", ExitCode.USAGE, id="another program"),
        pytest.param(b"", "listens, and lets nobody in after 1 s: it closes the connection", ExitCode.PEER_LOST, id="nothing"),
        pytest.param(GREETING, "lets nobody in after 1 s: it closes the connection", ExitCode.PEER_LOST, id="half an answer"),
        pytest.param(GREETING + bytes(NONCE + PROOF), "serves another group of processes", ExitCode.USAGE, id="a proof of nothing"),
        pytest.param(b"PEPS" + bytes(100), "no message of a trainer or server", ExitCode.USAGE, id="a server without secrets"),
    ],
)
def test_what_is_no_server_lets_no_trainer_in(says: bytes, message: str, code: ExitCode):
    with socket.create_server(("127.0.0.1", 0)) as other:

        def answers():
            with contextlib.suppress(OSError):
                while True:
                    with other.accept()[0] as made:
                        made.recv(4096)
                        made.sendall(says)

        threading.Thread(target=answers, daemon=True).start()
        with pytest.raises(PeerError, match=message) as caught:
            reach(f"127.0.0.1:{other.getsockname()[1]}", time.monotonic() + 0.6, key=KEY)
        assert caught.value.code == code
        other.shutdown(socket.SHUT_RDWR)


def test_another_group_on_the_same_port_is_sent_away_and_does_no_harm():
    running = Running(agrees={"config": "a"})
    with pytest.raises(PeError, match=f"server {running.endpoint}: it serves another group of processes") as caught:
        Servers([running.endpoint], 0, 5.0, 0, agrees={"config": "a"}, key=OTHER)
    assert caught.value.code == ExitCode.USAGE
    Servers([running.endpoint], 0, 5.0, 0, agrees={"config": "a"}, key=KEY).leave()
    running.join()
    assert running.error is None


def test_who_comes_when_all_have_come_and_has_another_config_ends_nobody():
    running = Running(agrees={"config": "a"})
    servers = Servers([running.endpoint], 0, 5.0, 0, agrees={"config": "a"}, key=KEY)
    with pytest.raises(PeError, match="trainer 0 has another config") as caught:
        Servers([running.endpoint], 0, 5.0, 0, agrees={"config": "b"}, key=KEY)
    assert caught.value.code == ExitCode.USAGE
    servers.leave()
    running.join()
    assert running.error is None
