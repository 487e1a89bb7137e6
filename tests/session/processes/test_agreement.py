"""What processes compare before their first step."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.session.processes import agreement
from pe_cli.session.processes.agreement import agree, data_facts, differing, machine_facts
from tests.collectives.simulated import Network

#: Features of a processor whose names are more than is shown.
LONG = " ".join(f"+avx{i}" for i in range(20))
FACTS = {"config": "a: 1\nb: 2\n", "processor": f"zen5 {LONG} +fma +sse", "numpy": "2.0", "data": ["x (1)", "y (2)"]}


def errors(other: dict, code: ExitCode = ExitCode.USAGE) -> list[PeError | None]:
    """Return what each of three processes says of which the second has other facts."""

    def process(peers):
        try:
            agree(peers, FACTS | other if peers.rank == 1 else FACTS, code)
        except PeError as error:
            return error
        return None

    return Network(3).run(process)


def test_who_has_the_same_goes_on() -> None:
    assert errors({}) == [None] * 3


@pytest.mark.parametrize("size", [4, 16, 64])
def test_who_agrees_hears_as_few_and_short_messages_as_there_are_levels(size: int) -> None:
    network = Network(size)
    network.run(lambda peers: agree(peers, {"config": "a" * 100_000}))
    levels = size.bit_length() - 1
    assert {network.messages[rank] for rank in range(size)} == {2 * levels}
    assert {network.nbytes[rank] for rank in range(size)} == {levels * (16 + 1) * 8}


@pytest.mark.parametrize("size", [3, 5])
def test_of_those_that_differ_each_says_what_it_has(size: int) -> None:
    found = Network(size).run(lambda peers: differing(peers, b"other %d" % peers.rank if peers.rank in (1, size - 1) else b"same"))
    assert found == [{0: b"same", 1: b"other 1", size - 1: b"other %d" % (size - 1)}] * size
    assert Network(size).run(lambda peers: differing(peers, b"same")) == [{}] * size


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({"config": "a: 1\nb: 3\n"}, "another config than process 0: b: 3, not b: 2"),
        ({"config": "a: 1\n"}, "another config than process 0: nothing, not b: 2"),
        ({"processor": f"zen5 {LONG} +fma"}, "another processor than process 0: nothing, not +sse"),
        ({"numpy": None}, "another numpy than process 0: nothing, not 2.0"),
        ({"data": ["x (1)"]}, "another data than process 0: nothing, not y (2)"),
        ({"config": "c" * 1000}, f"another config than process 0: {'c' * 77}..., not a: 1"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_all_say_who_has_something_else_and_what(other: dict, said: str) -> None:
    found = errors(other, ExitCode.DATA)
    assert [(str(e.message), e.code) for e in found] == [(f"process 1 has {said}", ExitCode.DATA)] * 3


def test_the_processor_counts_where_kernels_are_made_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    before = machine_facts()
    monkeypatch.setattr(agreement.target, "features", lambda: "+other")
    changed = {key for key, value in machine_facts().items() if value != before[key]}
    assert changed == {"processor"}
    monkeypatch.setattr(agreement.target, "chosen", lambda: "portable")
    assert machine_facts()["processor"] == "portable"


@pytest.mark.parametrize("at", [0, 150_000, 299_999])
def test_a_changed_byte_of_a_file_is_seen(tmp_path: Path, at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    values = np.zeros(300_000, np.uint8)
    (tmp_path / "a").write_bytes(values.tobytes())
    values[at] = 1
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "a").write_bytes(values.tobytes())
    for whole in (agreement.WHOLE, 1000):  # also where some places of it are looked at, which are all here
        monkeypatch.setattr(agreement, "WHOLE", whole)
        monkeypatch.setattr(agreement, "PLACE", 5000)
        assert data_facts([tmp_path / "a"]) != data_facts([tmp_path / "b" / "a"])


def test_a_file_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    assert data_facts([tmp_path / "none"]) == {"data": ["none (no such file or directory)"]}
