"""Who says why processes end, and with which exit code: the one rule of it, in docs/exit-codes.md in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from pe_cli.collectives.protocol import Failure, PeerError, ends_all, speaks
from pe_cli.core.errors import ExitCode, PeError, is_local, system_error
from pe_cli.io.atomic import write_error

NAN = Failure("the loss is nan", ExitCode.DIVERGED)
WEIGHT = Failure("the parameter is not finite", ExitCode.DIVERGED)
FULL = Failure("no space left", ExitCode.DEVICE, local=True)
OTHER_FULL = Failure("no space left on another disk", ExitCode.DEVICE, local=True)
HEARD = Failure("no space left", ExitCode.DEVICE, met=False, local=True)
HEARD_NAN = Failure("the loss is nan", ExitCode.DIVERGED, met=False)


@pytest.mark.parametrize(
    ("failures", "code", "who"),
    [
        pytest.param({0: NAN, 1: NAN, 2: NAN}, ExitCode.DIVERGED, [0], id="all meet the same"),
        pytest.param({0: HEARD_NAN, 1: NAN, 2: NAN}, ExitCode.DIVERGED, [1], id="the first one hears of it before it meets it"),
        pytest.param({0: WEIGHT, 1: NAN, 2: HEARD_NAN}, ExitCode.DIVERGED, [0], id="one of its kind is enough"),
        pytest.param({1: NAN}, ExitCode.DIVERGED, [1], id="the others say nothing"),
        pytest.param({0: FULL, 1: HEARD, 2: HEARD}, ExitCode.PEER_LOST, [0], id="one disk is full"),
        pytest.param({0: HEARD, 1: HEARD, 2: FULL}, ExitCode.PEER_LOST, [2], id="the last one's disk is full"),
        pytest.param({0: FULL, 1: FULL, 2: FULL}, ExitCode.DEVICE, [0], id="the disk of all is full"),
        pytest.param({0: FULL, 1: OTHER_FULL, 2: HEARD}, ExitCode.PEER_LOST, [0, 1], id="two disks are full"),
        pytest.param({0: FULL, 1: FULL}, ExitCode.PEER_LOST, [0], id="one says nothing, so perhaps not all have met it"),
        pytest.param({0: FULL, 1: NAN, 2: NAN}, ExitCode.DIVERGED, [0, 1], id="what is alike for all comes before what is not"),
    ],
)
def test_all_end_with_one_code_and_one_says_why(failures, code: ExitCode, who: list[int]) -> None:
    assert ends_all(failures, 3) == code
    assert [rank for rank in sorted(failures) if speaks(rank, failures)] == who


def test_what_is_heard_is_passed_on_as_heard() -> None:
    assert Failure.of(PeerError("process 1 has ended: no space left", told=FULL)) == HEARD


def test_who_is_lost_is_an_error_that_was_met() -> None:
    assert Failure.of(PeerError("process 1 of 3 did not answer")) == Failure("process 1 of 3 did not answer", ExitCode.PEER_LOST)


def of_reading(cause: OSError) -> PeError:
    """What a reader says of a file."""
    try:
        raise cause
    except OSError:
        try:
            raise PeError("x cannot be read", code=ExitCode.DATA) from None
        except PeError as error:
            return error


@pytest.mark.parametrize(
    ("error", "local"),
    [
        pytest.param(write_error(OSError(28, "No space left on device"), Path("x")), True, id="a full disk"),
        pytest.param(write_error(PermissionError(13, "Permission denied"), Path("x")), False, id="a folder that may not be written"),
        pytest.param(of_reading(FileNotFoundError(2, "no such file", "x")), True, id="a file that the system does not give"),
        pytest.param(of_reading(OSError("image file is truncated")), False, id="a picture that is cut off, as Pillow says it"),
        pytest.param(PeError("line 3: 'x' is no number", code=ExitCode.DATA), False, id="a cell, whoever reads it"),
        pytest.param(PeError("the loss is nan", code=ExitCode.DIVERGED), False, id="numbers"),
        pytest.param(PeError("epochs must be at least 1"), False, id="a config"),
        pytest.param(system_error(MemoryError()), True, id="memory"),
    ],
)
def test_what_is_of_one_machine(error: PeError, local: bool) -> None:
    assert is_local(error) is local


def test_what_the_system_says_is_explained_and_nothing_else_is() -> None:
    said = system_error(PermissionError(13, "Permission denied", "a.yaml"))
    assert said is not None
    assert (said.message, said.code) == ("a.yaml: permission denied", ExitCode.USAGE)
    assert system_error(OSError("without a file")) is None
    assert system_error(KeyError("x")) is None
