"""A file that says how many processes train, or on which machines, and may change while they do."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from pe_cli.config.files import read_text
from pe_cli.core.errors import PeError
from pe_cli.session.launch.hosts import MOST, read_hosts
from pe_cli.session.launch.plan import Plan, Wanted

#: Seconds between two looks at the file.
LOOK = 0.5
#: Makes a plan of what the user says.
Make = Callable[[Wanted], Plan]


class Elastic:
    """The file of `pe launch --elastic`.

    Args:
        path: of the file: a number of processes, or machines as `--hosts FILE` has them.
        wanted: what else the user says.
        make: returns the plan for it.
        say: takes a line for the user.

    Raises:
        PeError: it can't be read, says neither, or what it says does not fit the config.
    """

    def __init__(self, path: Path, wanted: Wanted, make: Make, say: Callable[[str], None]) -> None:
        self._path, self._wanted, self._make, self._say = path, wanted, make, say
        self._text = self._read()
        self.plan = self._plan()
        self._looked = 0.0

    def changed(self) -> bool:
        """Whether the file asks for other processes than before, whose plan is `plan` then; a mistake in it is said once, and no change."""
        if time.monotonic() - self._looked < LOOK:
            return False
        self._looked = time.monotonic()
        text = self._text
        # A file that is just being replaced may be away for a moment; what is gone for good asks for nothing.
        with contextlib.suppress(PeError):
            text = self._read()
        if text == self._text:
            return False
        self._text = text
        try:
            made = self._plan()
        except PeError as error:
            self._say(f"{self._path} is not followed: {error.message}; hint: {error.hint}")
            return False
        same = (made.count, made.hosts) == (self.plan.count, self.plan.hosts)
        self.plan = made
        return not same

    def _read(self) -> str:
        return read_text(self._path, "elastic").strip()

    def _plan(self) -> Plan:
        """Return the plan for what the file says.

        Raises:
            PeError: see `Elastic`.
        """
        if not re.fullmatch(r"[0-9]{1,9}", self._text):
            return self._make(replace(self._wanted, hosts=read_hosts(self._path)))
        count = int(self._text)
        if not 1 <= count <= MOST:
            raise PeError(f"{self._path}: {count} processes", hint=f"a number from 1 to {MOST}, or a line for each machine")
        return self._make(replace(self._wanted, count=count))
