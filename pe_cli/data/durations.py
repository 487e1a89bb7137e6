"""Reads lengths of time as people and programs write them: 1:23:45, 2 days 01:00:00, 2h 11m, PT5H31M."""

from __future__ import annotations

import re

#: Seconds of each unit, by how it is written.
_UNITS = {
    86400.0: ("d", "day", "days", "tag", "tage", "jour", "jours", "día", "días"),
    3600.0: ("h", "hr", "hrs", "hour", "hours", "std", "stunde", "stunden", "heure", "heures"),
    60.0: ("m", "min", "mins", "minute", "minutes", "minuten"),
    1.0: ("s", "sec", "secs", "second", "seconds", "sek", "sekunde", "sekunden"),
    0.001: ("ms",),
}
_SECONDS = {name: seconds for seconds, names in _UNITS.items() for name in names}
_CLOCK = re.compile(r"(?:(\d+)\s*(?:d|days?|tage?)?[ .,]+)?(\d+):([0-5]\d)(?::([0-5]\d(?:[.,]\d+)?))?", re.IGNORECASE)
_PART = re.compile(r"\s*(\d+(?:[.,]\d+)?)\s*([^\W\d_]+)\.?[,\s]*")
_ISO = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?")


def seconds_of(text: str) -> float:
    """Return the seconds of a length of time; of two numbers with a colon between them, the first is hours.

    Raises:
        ValueError: it is none.

    >>> [seconds_of(text) for text in ("1:23:45", "26:10", "2 days 01:00:00", "2h 11m", "PT5H31M", "3m 33.5s")]
    [5025.0, 94200.0, 176400.0, 7860.0, 19860.0, 213.5]
    """
    sign, text = (-1.0, text[1:]) if text.startswith("-") else (1.0, text)
    clock = _CLOCK.fullmatch(text)
    if clock:
        days, hours, minutes, seconds = (float((part or "0").replace(",", ".")) for part in clock.groups())
        return sign * (86400 * days + 3600 * hours + 60 * minutes + seconds)
    iso = _ISO.fullmatch(text)
    if iso and any(iso.groups()):
        return sign * sum(float(part or 0) * unit for part, unit in zip(iso.groups(), (86400, 3600, 60, 1), strict=True))
    at, total, before = 0, 0.0, float("inf")
    while at < len(text):
        part = _PART.match(text, at)
        unit = _SECONDS.get(part[2].lower()) if part else None
        # Each unit is there once, the longest first: anything else is another text.
        if part is None or unit is None or unit >= before:
            raise ValueError(f"'{text}' is no length of time")
        total, before, at = total + float(part[1].replace(",", ".")) * unit, unit, part.end()
    if not text:
        raise ValueError("nothing is no length of time")
    return sign * total


def written(seconds: float) -> str:
    """Return a length of time as `seconds_of` reads it.

    >>> written(5025.0), written(-213.5)
    ('1:23:45', '-0:03:33.5')
    """
    sign, size = "-" if seconds < 0 else "", abs(seconds)
    rest = f"{size % 60:06.3f}".rstrip("0").rstrip(".").zfill(2)
    return f"{sign}{int(size // 3600)}:{int(size // 60) % 60:02}:{rest}"
