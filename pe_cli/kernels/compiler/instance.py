"""A kernel for given element types: the unit that is compiled, cached and loaded."""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.compiler.bounds_check import CHECKED, FORM
from pe_cli.kernels.compiler.cache import MAGIC
from pe_cli.kernels.compiler.digest import digest
from pe_cli.kernels.compiler.target import bfloat16_unit, cpu_name, features, has_unit, vector_bytes
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


# `target` is not among them: what it decides is part of `_environment`, or of constants that the digest reads.
#: Modules of this folder that decide what a kernel's text becomes.
_TRANSLATING = ("arithmetic", "bounds_check", "builder", "compiler", "expressions", "translator", "unit", "value_kinds")


def _translation() -> str:
    """Return a hash of the text of those modules: a change of them is one of every kernel's machine code."""
    spec = importlib.util.find_spec(__name__)
    loader: Any = spec.loader if spec else None
    folder = Path(__file__).parent
    texts = [loader.get_data(str(folder / f"{name}.py")) for name in _TRANSLATING]
    return hashlib.sha256(b"\0".join(texts)).hexdigest()[:16]


@functools.cache
def _environment() -> str:
    # the form of cached files too: versions of pe that differ in it would take each other's for damaged
    versions = [MAGIC.decode(), importlib.metadata.version("llvmlite"), _translation()]
    processor = (cpu_name(), features(), str(vector_bytes()), bfloat16_unit(), str(has_unit(bfloat16_unit())), llvm.get_default_triple())
    return "|".join([*versions, *processor, *[FORM] * CHECKED])
