"""Vector access on CUDA: four neighbouring elements per load or store, in global and shared memory."""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cuda.bfloat16_pointers import element_of, held_as, number_of
from pe_cli.kernels.cuda.language import CudaIntrinsic, cuda_intrinsic


def _fours(env: Any, place: Any, at: Any) -> tuple[Any, int, Any]:
    """Return a pointer to a vector of four elements, its alignment in bytes, and the number of a lane as LLVM wants it."""
    from llvmlite import ir

    element, size = element_of(place, env.dtype)
    pointer = env.builder.bitcast(env.builder.gep(place, [at]), ir.VectorType(element, 4).as_pointer())
    return pointer, min(16, 4 * size), ir.IntType(32)


@cuda_intrinsic("4T", "T*", "int64")
def load_four(env: Any, args: list[Any]) -> Any:
    """Return four neighbours that lie at a multiple of 16 bytes, of bfloat16 of 8, by one load, or two of float64."""
    from llvmlite import ir

    place, align, lane = _fours(env, *args)
    found = env.builder.load(place, align=align)
    four = [number_of(env.builder, env.builder.extract_element(found, ir.Constant(lane, i))) for i in range(4)]
    out = ir.Constant(ir.ArrayType(four[0].type, 4), ir.Undefined)
    for i, number in enumerate(four):
        out = env.builder.insert_value(out, number, i)
    return out


@cuda_intrinsic("void", "T*", "int64", "T", "T", "T", "T")
def store_four(env: Any, args: list[Any]) -> None:
    """Write four neighbours that lie at a multiple of 16 bytes, of bfloat16 of 8, by one store, or two of float64."""
    from llvmlite import ir

    place, align, lane = _fours(env, *args[:2])
    made = ir.Constant(place.type.pointee, ir.Undefined)
    for i, value in enumerate(args[2:]):
        made = env.builder.insert_element(made, held_as(env.builder, value, made.type.element), ir.Constant(lane, i))
    env.builder.store(made, place, align=align)


def shared_tile(name: str, size: int) -> Any:
    """Return a function without arguments, for a kernel to call once, that gives a pointer to so many elements of shared memory.

    They lie at a multiple of 16 bytes, so that `load_four` and `store_four` take four of them at a time.
    """

    def emit(env: Any, args: list[Any]) -> Any:
        from llvmlite import ir

        kind = ir.ArrayType({"float64": ir.DoubleType, "float32": ir.FloatType}[env.dtype](), size)
        memory = ir.GlobalVariable(env.builder.module, kind, f"_cudapy_smem_{name}", addrspace=3)
        memory.linkage, memory.align, memory.initializer = "internal", 16, ir.Constant(kind, ir.Undefined)
        place = env.builder.addrspacecast(memory, kind.as_pointer())
        return env.builder.bitcast(place, kind.element.as_pointer())

    return CudaIntrinsic(name, "T*", (), emit, size)
