"""Compiles kernels for a 64-bit ARM processor, on whatever machine, and counts what their innermost loops do.

`python -m tests.kernels.arm_code PROCESSOR KERNEL...` prints JSON: for each kernel, a list of loops. PROCESSOR is a name of LLVM's, such as
`neoverse-n1` or `apple-m1`; KERNEL is `module:name`, or a module of kernels.
"""

from __future__ import annotations

import importlib
import json
import platform
import re
import sys
from dataclasses import asdict, dataclass
from typing import Any

import llvmlite.binding as llvm

TRIPLE = "aarch64-unknown-linux-gnu"
_BRANCH = re.compile(r"(?:b|b\.\w+|cbn?z|tbn?z)\s+(?:.*,\s*)?(\.\w+)$")
_VECTOR = re.compile(r"(?:fmla|fmls|fmul|fadd|fsub|fdiv)\s+(?:v\d+\.(?:4s|2d)|z\d+\.[sd])")
_SCALAR = re.compile(r"(?:fmadd|fmsub|fnmadd|fnmsub|fmul|fadd|fsub|fdiv)\s+[sd]\d+")
_SPILL = re.compile(r"(?:ldr|str|ldp|stp)\s+q\d.*\[sp")


@dataclass
class Loop:
    """What an innermost loop has: instructions, among them arithmetic on vectors and on single numbers, and vectors on the stack."""

    instructions: int
    vector: int
    scalar: int
    spilled: int
    calls: int


class _Machine:
    """A target machine that keeps the assembly of what it is asked to make."""

    def __init__(self, processor: str) -> None:
        llvm.initialize_all_targets()
        llvm.initialize_all_asmprinters()
        target = llvm.Target.from_triple(TRIPLE)
        self.machine = target.create_target_machine(cpu=processor, opt=3, reloc="static", codemodel="small")
        self.assembly = ""

    def emit_object(self, module: Any) -> bytes:
        self.assembly = self.machine.emit_assembly(module)
        return b""


def pretend(processor: str) -> _Machine:
    """Let this process take itself for one on a machine of that processor; it can compile kernels then, and not run them."""
    from pe_cli.kernels.compiler import compiler

    machine = _Machine(processor)
    llvm.get_default_triple = lambda: TRIPLE  # type: ignore[assignment]
    llvm.get_host_cpu_name = lambda: processor  # type: ignore[assignment]
    llvm.get_host_cpu_features = lambda: llvm.FeatureMap()  # type: ignore[assignment]
    platform.machine = lambda: "aarch64"
    compiler._machine = lambda: machine  # type: ignore[assignment]

    def optimise(module: Any) -> None:
        options = llvm.create_pipeline_tuning_options(speed_level=3)
        options.loop_vectorization = True
        options.slp_vectorization = False
        builder = llvm.create_pass_builder(machine.machine, options)
        builder.getModulePassManager().run(module, builder)

    compiler._optimise = optimise  # type: ignore[assignment]
    return machine


def loops(assembly: str) -> list[Loop]:
    """Return the innermost loops of a text in assembly language that compute."""
    lines = [line.strip() for line in assembly.splitlines()]
    lines = [line for line in lines if line and not line.startswith((".cfi", "//", ".p2align"))]
    places = {line[:-1]: i for i, line in enumerate(lines) if re.fullmatch(r"\.\w+:", line)}
    ends = [(places[found[1]], i) for i, line in enumerate(lines) if (found := _BRANCH.match(line)) and places.get(found[1], i) < i]
    innermost = [(a, z) for a, z in ends if not any(a <= c and d <= z and (c, d) != (a, z) for c, d in ends)]
    counted = []
    for begin, end in innermost:
        body = [line for line in lines[begin:end] if not line.endswith(":")]
        counts = [sum(bool(form.match(line)) for line in body) for form in (_VECTOR, _SCALAR, _SPILL, re.compile(r"bl\s"))]
        if any(counts):
            counted.append(Loop(len(body), *counts))
    return counted


def main(processor: str, names: list[str]) -> None:
    machine = pretend(processor)
    from pe_cli.kernels.compiler.compiler import compile_kernel
    from pe_cli.kernels.language import KERNELS

    found = {}
    for name in names:
        importlib.import_module(name.partition(":")[0])
        for key in [key for key in KERNELS if key == name or (":" not in name and key.startswith(f"{name}:"))]:
            compile_kernel(KERNELS[key], "float32", "float32", "entry")
            found[key] = [asdict(loop) for loop in loops(machine.assembly)]
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
