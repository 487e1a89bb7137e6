"""No file of the package is so long that nobody has it in mind."""

from __future__ import annotations

from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "pe_cli"
#: Lines of a file at most.
LONGEST = 400


def test_no_file_is_too_long():
    lines = {str(p.relative_to(PACKAGE)): len(p.read_text(encoding="utf-8").splitlines()) for p in PACKAGE.rglob("*.py")}
    assert len(lines) > 1000
    long = {name: count for name, count in lines.items() if count > LONGEST}
    assert not long, f"split by what it holds: {long}"
