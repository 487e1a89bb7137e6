"""version: which version of the original the names follow."""

from __future__ import annotations

from pe_cli.paddle.fluid.flags import VERSION

full_version = VERSION
major, minor, patch = VERSION.split(".")
rc = "0"
istaged = True
commit = "none"
with_mkl = "OFF"


def mkl() -> str:
    """Return whether the original's kernels of Intel's library are there: they are not."""
    return with_mkl


def show() -> None:
    """Print the version."""
    print(f"full_version: {full_version}\nmajor: {major}\nminor: {minor}\npatch: {patch}\nrc: {rc}")  # noqa: T201


__all__ = ["commit", "full_version", "istaged", "major", "minor", "mkl", "patch", "rc", "show", "with_mkl"]
