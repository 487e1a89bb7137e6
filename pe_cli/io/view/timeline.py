"""A trace as the report's page draws it: lanes of events, texts once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pe_cli.io import strict_json

#: Bytes of a trace that is read, and events that are drawn.
LIMIT = 64 << 20
MOST_EVENTS = 20_000


def read_timeline(path: Path) -> tuple[dict[str, Any] | None, str]:
    """Return what `timeline` makes of a trace file, and why there is nothing where that is None."""
    if not path.is_file():
        return None, ""
    if path.stat().st_size > LIMIT:
        return None, f"{path.name} has more than {LIMIT} bytes: open it in ui.perfetto.dev"
    try:
        return timeline(strict_json.loads(path.read_bytes())), ""
    except (OSError, ValueError) as error:
        return None, f"{path.name} can't be read: {error}"


def timeline(trace: object) -> dict[str, Any]:
    """Return lanes with their events, from a trace in the Trace Event Format.

    Args:
        trace: as JSON gives it; what is no complete event (ph X) with numbers is left out.

    Returns:
        names: texts; roles: categories; lanes: of each its name and events [start, duration, name, role], in microseconds
        from the first, and indices of names and roles.

    Raises:
        ValueError: it is no trace.
    """
    events = trace.get("traceEvents") if isinstance(trace, dict) else None
    if not isinstance(events, list):
        raise ValueError("it has no traceEvents")
    known = [e for e in events if isinstance(e, dict)]
    texts = {(e.get("name"), e.get("pid"), e.get("tid")): _name(e) for e in known if e.get("ph") == "M" and _hashable(e)}
    whole = sorted((e for e in known if e.get("ph") == "X" and _fits(e)), key=lambda e: e["ts"])[:MOST_EVENTS]
    names: dict[str, int] = {}
    roles: dict[str, int] = {}
    lanes: dict[tuple[Any, Any], list[list[float]]] = {}
    begin = whole[0]["ts"] if whole else 0.0
    for e in whole:
        facts = e.get("args")
        tip = str(e["name"])
        if isinstance(facts, dict) and isinstance(facts.get("kernels"), str):
            tip += f"\n{facts['kernels']}\n{facts.get('writes', '')}\n{facts.get('at', '')}"
        name = names.setdefault(tip[:500], len(names))
        role = roles.setdefault(str(e.get("cat", ""))[:40], len(roles))
        row = [round(e["ts"] - begin, 3), round(e["dur"], 3), name, role]
        lanes.setdefault((e["pid"], e["tid"]), []).append(row)
    made = []
    for pid, tid in sorted(lanes):
        device, thread = texts.get(("process_name", pid, 0), f"{pid}"), texts.get(("thread_name", pid, tid), "")
        made.append({"name": f"{device} {thread}".strip()[:60], "events": lanes[pid, tid]})
    return {"names": list(names), "roles": list(roles), "lanes": made}


def one_after_another(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return several timelines as one, each behind the end of the one before it, in the same lanes.

    Args:
        parts: as `timeline` returns them.
    """
    names: dict[str, int] = {}
    roles: dict[str, int] = {}
    lanes: dict[str, list[list[float]]] = {}
    begin = 0.0
    for part in parts:
        for lane in part["lanes"]:
            mine = lanes.setdefault(lane["name"], [])
            for start, length, name, role in lane["events"]:
                named = names.setdefault(part["names"][name], len(names))
                mine.append([round(begin + start, 3), length, named, roles.setdefault(part["roles"][role], len(roles))])
        begin = max((event[0] + event[1] for events in lanes.values() for event in events), default=begin)
    return {"names": list(names), "roles": list(roles), "lanes": [{"name": name, "events": events} for name, events in lanes.items()]}


def _name(event: Mapping[str, Any]) -> str:
    facts = event.get("args")
    return str(facts.get("name", "")) if isinstance(facts, dict) else ""


def _hashable(event: Mapping[str, Any]) -> bool:
    return all(isinstance(event.get(key), int) for key in ("pid", "tid")) and isinstance(event.get("name"), str)


def _fits(event: Mapping[str, Any]) -> bool:
    numbers = (event.get("ts"), event.get("dur"))
    fine = all(isinstance(n, int | float) and math.isfinite(n) and 0 <= n < 1e15 for n in numbers)
    return fine and _hashable(event)
