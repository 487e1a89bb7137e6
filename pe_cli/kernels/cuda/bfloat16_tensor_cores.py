"""Building blocks for tensor-core kernels whose factors are both bfloat16 in memory, and stay so in shared memory.

An address of shared memory is a number of bytes. A lane gets fragments of a product by `ldmatrix`, which reads rows of 16 bytes; it
turns them over on the way where a tile lies the other way round.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cuda.bfloat16_pointers import BYTES, element_of, is_half, number_of
from pe_cli.kernels.cuda.language import CudaIntrinsic, cuda_intrinsic

#: Address space of shared memory in LLVM.
_SHARED = 3


def _asm(env: Any, returns: Any, takes: list[Any], text: str, constraints: str, args: list[Any], *, effect: bool = True) -> Any:
    from llvmlite import ir

    return env.builder.call(ir.InlineAsm(ir.FunctionType(returns, takes), text, constraints, side_effect=effect), args)


def half_room(nbytes: int) -> CudaIntrinsic:
    """Return an intrinsic that gives the address of so many bytes of shared memory; a kernel calls one of them, once."""

    def half_room(env: Any, args: list[Any]) -> Any:
        from llvmlite import ir

        kind = ir.ArrayType(ir.IntType(8), nbytes)
        # The name begins like those of numba-cuda's own shared arrays, which `compiler._renamed` looks for.
        room = ir.GlobalVariable(env.builder.module, kind, "_cudapy_smem_halves", _SHARED)
        room.linkage, room.align, room.initializer = "internal", 16, ir.Constant(kind, ir.Undefined)
        return env.builder.ptrtoint(room, ir.IntType(64))

    return CudaIntrinsic(f"half_room_{nbytes}", "int64", (), half_room, -(-nbytes // 4))  # T is float32


@cuda_intrinsic("bool", "T*", "int64", "int64")
def is_eight(env: Any, args: list[Any]) -> Any:
    """Return whether lines of so many elements of bfloat16, the first at an index of a pointer, all begin at multiples of 16 bytes."""
    from llvmlite import ir

    b, word = env.builder, ir.IntType(64)
    # One test for the first address and the stride: their union has a low bit wherever one of them has it.
    both = b.or_(b.ptrtoint(b.gep(args[0], [args[1]]), word), b.mul(args[2], word(BYTES)))
    return b.zext(b.icmp_unsigned("==", b.and_(both, word(15)), word(0)), ir.IntType(8))


@cuda_intrinsic("void", "int64", "T*", "int64", "int32")
def copy_eight(env: Any, args: list[Any]) -> None:
    """Begin to copy eight neighbours of bfloat16, 16 bytes and aligned so, to shared memory; zeros where the last argument is 0."""
    from llvmlite import ir

    b, word, short = env.builder, ir.IntType(64), ir.IntType(32)
    assert is_half(args[1])
    source = b.ptrtoint(b.addrspacecast(b.gep(args[1], [args[2]]), ir.PointerType(ir.IntType(16), addrspace=1)), word)
    # With a source size of 0 the instruction reads nothing and fills with zeros, so the address may lie outside of the array.
    size = b.select(b.icmp_signed("==", args[3], short(0)), short(0), short(16))
    text = "cp.async.cg.shared.global [$0], [$1], 16, $2;"
    _asm(env, ir.VoidType(), [short, word, short], text, "r,l,r,~{memory}", [b.trunc(args[0], short), source, size])


@cuda_intrinsic("void", "int64", "T*", "int64", "bool")
def copy_half(env: Any, args: list[Any]) -> None:
    """Write an element of bfloat16 to shared memory, or 0 where the last argument is false."""
    from llvmlite import ir

    b, kind = env.builder, ir.IntType(16)
    assert is_half(args[1])
    there = b.icmp_unsigned("!=", args[3], ir.IntType(8)(0))
    # A branch and not a select, because the element may lie outside of the array.
    with b.if_else(there) as (then, otherwise):
        with then:
            held = b.load(b.gep(args[1], [args[2]]), align=BYTES)
            from_there = b.block
        with otherwise:
            from_here = b.block
    value = b.phi(kind)
    value.add_incoming(held, from_there)
    value.add_incoming(kind(0), from_here)
    b.store(value, b.inttoptr(args[0], ir.PointerType(kind, addrspace=_SHARED)), align=BYTES)


def _upper(env: Any, number: Any) -> Any:
    from llvmlite import ir

    word = env.builder.bitcast(number, ir.IntType(32))
    return env.builder.trunc(env.builder.lshr(word, ir.IntType(32)(16)), ir.IntType(16))


@cuda_intrinsic("void", "int64", "float32")
def put_shared_half(env: Any, args: list[Any]) -> None:
    """Write a number that is one of bfloat16 to shared memory."""
    from llvmlite import ir

    place = env.builder.inttoptr(args[0], ir.PointerType(ir.IntType(16), addrspace=_SHARED))
    env.builder.store(_upper(env, args[1]), place, align=BYTES)


@cuda_intrinsic("void", "int64", "float32", "float32", "float32", "float32")
def put_shared_halves(env: Any, args: list[Any]) -> None:
    """Write four numbers that are of bfloat16 to neighbours in shared memory, at a multiple of 8 bytes."""
    from llvmlite import ir

    kind = ir.VectorType(ir.IntType(16), 4)
    made = ir.Constant(kind, ir.Undefined)
    for i, number in enumerate(args[1:]):
        made = env.builder.insert_element(made, _upper(env, number), ir.IntType(32)(i))
    env.builder.store(made, env.builder.inttoptr(args[0], ir.PointerType(kind, addrspace=_SHARED)), align=4 * BYTES)


def _fragments(turned: bool) -> Any:
    def fragments(env: Any, args: list[Any]) -> Any:
        from llvmlite import ir

        short = ir.IntType(32)
        text = f"ldmatrix.sync.aligned.m8n8.x4{'.trans' if turned else ''}.shared.b16 {{$0,$1,$2,$3}}, [$4];"
        made = ir.LiteralStructType([short] * 4)
        found = _asm(env, made, [short], text, "=r,=r,=r,=r,r,~{memory}", [env.builder.trunc(args[0], short)])
        out = ir.Constant(ir.ArrayType(short, 4), ir.Undefined)
        for i in range(4):
            out = env.builder.insert_value(out, env.builder.extract_value(found, i), i)
        return out

    fragments.__qualname__ = "turned_fragments" if turned else "fragments"
    return cuda_intrinsic("4int32", "int64")(fragments)


#: `fragments(address)`: four matrices of [8, 8] whose rows are 16 bytes at the addresses that lanes 0 to 7, 8 to 15 and so on give.
fragments: Any = _fragments(False)
#: Likewise, each matrix turned over.
turned_fragments: Any = _fragments(True)


@cuda_intrinsic("bool", "T*", "int64", "int64")
def is_even(env: Any, args: list[Any]) -> Any:
    """Return whether lines of so many elements, the first at an index of a pointer, all begin where two neighbours are one access."""
    from llvmlite import ir

    b, word, (_, size) = env.builder, ir.IntType(64), element_of(args[0], env.dtype)
    both = b.or_(b.ptrtoint(b.gep(args[0], [args[1]]), word), b.mul(args[2], word(size)))
    return b.zext(b.icmp_unsigned("==", b.and_(both, word(2 * size - 1)), word(0)), ir.IntType(8))


@cuda_intrinsic("void", "T*", "int64", "T", "T")
def put_global_two(env: Any, args: list[Any]) -> None:
    """Write two neighbours by one access, at a multiple of its bytes; rounded to bfloat16 by the instruction of tensor cores."""
    from llvmlite import ir

    b, short = env.builder, ir.IntType(32)
    place = b.gep(args[0], [args[1]])
    if is_half(args[0]):
        # The instruction puts its first source into the upper half.
        word = _asm(env, short, [ir.FloatType()] * 2, "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", args[2:], effect=False)
        b.store(word, b.bitcast(place, short.as_pointer()), align=4)
        return
    kind = ir.VectorType(args[2].type, 2)
    made = b.insert_element(ir.Constant(kind, ir.Undefined), args[2], short(0))
    b.store(b.insert_element(made, args[3], short(1)), b.bitcast(place, kind.as_pointer()), align=8)


@cuda_intrinsic("2T", "T*", "int64")
def global_two(env: Any, args: list[Any]) -> Any:
    """Return two neighbours by one access, at a multiple of its bytes."""
    from llvmlite import ir

    b, (element, size) = env.builder, element_of(args[0], env.dtype)
    kind = ir.VectorType(element, 2)
    found = b.load(b.bitcast(b.gep(args[0], [args[1]]), kind.as_pointer()), align=2 * size)
    two = [number_of(b, b.extract_element(found, ir.IntType(32)(i))) for i in range(2)]
    out = ir.Constant(ir.ArrayType(two[0].type, 2), ir.Undefined)
    for i, number in enumerate(two):
        out = b.insert_value(out, number, i)
    return out
