"""Names, signatures and docs that users rely on are those that were recorded; new ones may come."""

from __future__ import annotations

import pytest

from tests.public_names import now, recorded

KNOWN, NOW = recorded(), now()


def is_there(was, found):
    """Tell whether a name is as it was; a class may have more methods."""
    if isinstance(was, dict) and isinstance(found, dict):
        return was.items() <= found.items()
    if isinstance(was, list) and isinstance(found, list) and len(was) == len(found):
        return all(is_there(a, b) for a, b in zip(was, found, strict=True))
    return was == found


@pytest.mark.parametrize("kind", sorted(KNOWN))
def test_what_users_call_is_as_recorded(kind):
    differs = {name: (was, NOW[kind].get(name)) for name, was in KNOWN[kind].items() if not is_there(was, NOW[kind].get(name))}
    shown = "\n".join(f"{name}\n  recorded {was}\n  now      {found}" for name, (was, found) in list(differs.items())[:10])
    assert not differs, f"{len(differs)} names differ; `python -m tests.public_names` records them anew\n{shown}"


def test_there_is_much_to_compare():
    least = {"layers": 300, "modules": 600, "ops": 500, "optimizers": 40}
    assert all(len(KNOWN[kind]) > count for kind, count in least.items())
