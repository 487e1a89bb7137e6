"""A kernel for given element types: the unit that is compiled, cached and loaded."""

from __future__ import annotations

import functools
import importlib.metadata
from dataclasses import dataclass

import llvmlite.binding as llvm

from pe_cli.kernels.compiler.bounds_check import CHECKED, FORM
from pe_cli.kernels.compiler.cache import MAGIC
from pe_cli.kernels.compiler.digest import digest
from pe_cli.kernels.compiler.target import cpu_name, features, vector_bytes
from pe_cli.kernels.language import Kernel


@dataclass(frozen=True)
class Instance:
    """A kernel for element types: what is compiled once and has one address."""

    kernel: Kernel
    dtype: str = "float32"
    second: str = "float32"

    @property
    def key(self) -> str:
        """Content hash: names the object file and its symbol."""
        return _key(self)

    @property
    def line(self) -> str:
        """Name for compile workers and progress lines."""
        return f"{self.kernel.name} {self.dtype} {self.second}"


@functools.cache
def _key(instance: Instance) -> str:
    return digest(instance.kernel, instance.dtype, instance.second, _environment())


def symbol(instance: Instance) -> str:
    """Return the name of an instance's function."""
    return f"pe_{instance.key}"


@functools.cache
def _environment() -> str:
    # the form of cached files too: versions of pe that differ in it would take each other's for damaged
    versions = [MAGIC.decode(), *(importlib.metadata.version(name) for name in ("numba", "llvmlite"))]
    return "|".join([*versions, cpu_name(), features(), str(vector_bytes()), llvm.get_default_triple(), *[FORM] * CHECKED])
