"""The process of one observer: reads what happens from standard input, a JSON object per line, and tells the observer.

An error ends this process, and the last line of standard error says why; the training goes on. Once the training is over, this process has
`LIMIT` seconds to write what it has, though nobody may wait for it any more.
"""

from __future__ import annotations

import json
import signal
import sys
from typing import Any

from pe_cli.config.plugins import load_plugin
from pe_cli.session.observer import Observer, Start
from pe_cli.session.observers.define import About, discover

#: Seconds.
LIMIT = 300


def main() -> int:
    """Tell the observer of every line; return the exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the training is asked, and says how it ends
    observer: Observer | None = None
    ended = False
    try:
        for line in sys.stdin:
            what, told = json.loads(line)
            if observer is None:
                observer = _made(told)
            else:
                _tell(observer, what, told)
                ended = ended or what == "ended"
        if observer is not None and not ended:
            signal.alarm(LIMIT)
            observer.ended("failed")  # the training is no more
    except Exception as error:  # noqa: BLE001 - the code of others may raise anything
        said = " ".join(str(error).split())
        sys.stderr.write(f"\n{type(error).__name__}: {said}\n")
        return 1
    return 0


def _made(told: dict[str, Any]) -> Observer:
    for package in told["plugins"]:
        load_plugin(package, None)
    kind = discover()[told["name"]]
    return kind.make(kind.options.model_validate(told["options"]), About(**told["about"]))


def _tell(observer: Observer, what: str, told: Any) -> None:
    if what == "started":
        observer.started(Start(**told))
    elif what == "recorded":
        step, epoch, values = told
        observer.recorded(step, epoch, {name: float(value) for name, value in values.items()})
    elif what == "ended":
        signal.alarm(LIMIT)
        observer.ended(told)


if __name__ == "__main__":
    sys.exit(main())
