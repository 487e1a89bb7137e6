"""A kernel's hash is the same whatever the process has done before: its routines are found by it."""

from __future__ import annotations

import subprocess
import sys

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.kernels.compiler.digest import reached


def test_a_class_that_has_had_an_instance_says_the_same() -> None:
    @dataclass(frozen=True)
    class Places:
        """What an emitter uses."""

        pointers: list[int]
        offsets: list[int]

    @dataclass(frozen=True)
    class Renamed:
        """The same with another field."""

        pointers: list[int]
        strides: list[int]

    # Classes of other packages count by their names alone.
    Places.__module__ = Renamed.__module__ = "pe_cli.kernels.cpu"

    def emit() -> object:
        return Places([1], [2])

    def emit_otherwise() -> object:
        return Renamed([1], [2])

    before, other = reached(emit, "float32"), reached(emit_otherwise, "float32")
    assert emit() == emit()
    assert emit_otherwise() == emit_otherwise()
    assert reached(emit, "float32") == before
    assert reached(emit_otherwise, "float32") == other
    assert "offsets" in before
    assert "strides" in other


KEYS = """
import sys
from pe_cli.kernels.compiler.compiler import compile_kernel
from pe_cli.kernels.compiler.instance import Instance, symbol
from pe_cli.kernels.language import KERNELS
import pe_cli.ops.nn.conv_kernels
wanted = [Instance(KERNELS[name], "float64") for name in sorted(KERNELS) if "winograd" in name]
if sys.argv[1] == "after":
    for instance in wanted:
        compile_kernel(instance.kernel, instance.dtype, instance.second, symbol(instance))
    from pe_cli.kernels.compiler import digest, instance as module
    digest._reached.cache_clear(); module._key.cache_clear()
print([instance.key for instance in wanted])
"""


def test_keys_are_the_same_before_and_after_kernels_are_compiled() -> None:
    said = [
        subprocess.run([sys.executable, "-c", KEYS, when], capture_output=True, text=True, check=True).stdout
        for when in ("before", "after")
    ]
    assert said[0] == said[1]
    assert len(said[0]) > 100
