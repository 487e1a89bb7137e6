"""Building blocks for matrix products on CUDA: shared memory by address, access by four elements, and tensor cores.

An address of shared memory is a number of bytes, so that a kernel may lay out its room as it likes; it must be a multiple of what is
read or written there. Four neighbours are one access of 16 bytes, two of float64.
"""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.cuda.bfloat16_pointers import BYTES, element_of, held_as, is_half, number_of
from pe_cli.kernels.cuda.language import CudaIntrinsic, cuda_intrinsic

#: Address space of shared memory in LLVM.
_SHARED = 3


def shared_room(elements: int) -> CudaIntrinsic:
    """Return an intrinsic that gives the address of so many elements T of shared memory; a kernel calls one of them, once."""

    def shared_room(env: Any, args: list[Any]) -> Any:
        from llvmlite import ir

        kind = ir.ArrayType(_element(env), elements)
        room = ir.GlobalVariable(env.builder.module, kind, "_cudapy_smem_room", _SHARED)
        room.linkage, room.align, room.initializer = "internal", 16, ir.Constant(kind, ir.Undefined)
        return env.builder.ptrtoint(room, ir.IntType(64))

    return CudaIntrinsic(f"shared_room_{elements}", "int64", (), shared_room, elements)


def _element(env: Any) -> Any:
    from llvmlite import ir

    return {"float64": ir.DoubleType, "float32": ir.FloatType}[env.dtype]()


def _pair(element: Any, size: int) -> tuple[Any, int, int]:
    """Return the vector of elements of so many bytes that one access moves, how many these are, and the accesses of four elements."""
    from llvmlite import ir

    lanes = min(4, 16 // size)
    return ir.VectorType(element, lanes), lanes, 4 // lanes


def _load(env: Any, places: list[Any], kind: Any, lanes: int) -> Any:
    from llvmlite import ir

    out = ir.Constant(ir.ArrayType(_element(env), 4), ir.Undefined)
    for i, place in enumerate(places):
        found = env.builder.load(place, align=_access(kind))
        for j in range(lanes):
            number = number_of(env.builder, env.builder.extract_element(found, ir.IntType(32)(j)))
            out = env.builder.insert_value(out, number, lanes * i + j)
    return out


def _access(kind: Any) -> int:
    """Return the bytes of an access, at a multiple of which it lies."""
    from llvmlite import ir

    return kind.count * BYTES if kind.element == ir.IntType(16) else 16


def _store(env: Any, places: list[Any], kind: Any, lanes: int, values: list[Any]) -> None:
    from llvmlite import ir

    for i, place in enumerate(places):
        made = ir.Constant(kind, ir.Undefined)
        for j in range(lanes):
            held = held_as(env.builder, values[lanes * i + j], kind.element)
            made = env.builder.insert_element(made, held, ir.IntType(32)(j))
        env.builder.store(made, place, align=_access(kind))


def _in_shared(env: Any, at: Any) -> tuple[list[Any], Any, int]:
    from llvmlite import ir

    kind, lanes, count = _pair(_element(env), 4 if env.dtype == "float32" else 8)
    pointer = ir.PointerType(kind, addrspace=_SHARED)
    return [env.builder.inttoptr(env.builder.add(at, ir.IntType(64)(16 * i)), pointer) for i in range(count)], kind, lanes


def _in_global(env: Any, place: Any, at: Any) -> tuple[list[Any], Any, int]:
    from llvmlite import ir

    kind, lanes, count = _pair(*element_of(place, env.dtype))
    first = env.builder.bitcast(env.builder.gep(place, [at]), kind.as_pointer())
    return [env.builder.gep(first, [ir.IntType(64)(i)]) for i in range(count)], kind, lanes


@cuda_intrinsic("4T", "int64")
def shared_four(env: Any, args: list[Any]) -> Any:
    """Return four neighbours of shared memory."""
    return _load(env, *_in_shared(env, args[0]))


@cuda_intrinsic("void", "int64", "T", "T", "T", "T")
def put_shared_four(env: Any, args: list[Any]) -> None:
    """Write four neighbours of shared memory."""
    _store(env, *_in_shared(env, args[0]), args[1:])


def _one(env: Any, at: Any) -> Any:
    from llvmlite import ir

    return env.builder.inttoptr(at, ir.PointerType(_element(env), addrspace=_SHARED))


@cuda_intrinsic("T", "int64")
def shared_one(env: Any, args: list[Any]) -> Any:
    """Return an element of shared memory."""
    return env.builder.load(_one(env, args[0]))


@cuda_intrinsic("void", "int64", "T")
def put_shared_one(env: Any, args: list[Any]) -> None:
    """Write an element of shared memory."""
    env.builder.store(args[1], _one(env, args[0]))


@cuda_intrinsic("4T", "T*", "int64")
def global_four(env: Any, args: list[Any]) -> Any:
    """Return four neighbours from an index on, whose address is a multiple of 16 bytes, of bfloat16 of 8."""
    return _load(env, *_in_global(env, *args))


@cuda_intrinsic("void", "T*", "int64", "T", "T", "T", "T")
def put_global_four(env: Any, args: list[Any]) -> None:
    """Write four neighbours from an index on, whose address is a multiple of 16 bytes, of bfloat16 of 8."""
    _store(env, *_in_global(env, *args[:2]), args[2:])


@cuda_intrinsic("bool", "T*", "int64", "int64")
def is_wide(env: Any, args: list[Any]) -> Any:
    """Return whether lines of so many elements, the first at an index of a pointer, all begin at multiples of 16 bytes (8 of bfloat16)."""
    from llvmlite import ir

    word, (_, size) = ir.IntType(64), element_of(args[0], env.dtype)
    begin = env.builder.ptrtoint(env.builder.gep(args[0], [args[1]]), word)
    both = env.builder.or_(begin, env.builder.mul(args[2], word(size)))
    found = env.builder.icmp_unsigned("==", env.builder.and_(both, word(min(16, 4 * size) - 1)), word(0))
    return env.builder.zext(found, ir.IntType(8))


@cuda_intrinsic("int64")
def thread_again(env: Any, args: list[Any]) -> Any:
    """Return the thread's number along x, asked for anew: what was made of it before is not kept in registers for what comes."""
    from llvmlite import ir

    return env.builder.zext(_asm(env, ir.IntType(32), [], "mov.u32 $0, %tid.x;", "=r", args, effect=True), ir.IntType(64))


# --- tensor cores -----------------------------------------------------------------------------------------------------


def _asm(env: Any, returns: Any, takes: list[Any], text: str, constraints: str, args: list[Any], *, effect: bool = False) -> Any:
    from llvmlite import ir

    made = ir.InlineAsm(ir.FunctionType(returns, takes), text, constraints, side_effect=effect)
    return env.builder.call(made, args)


@cuda_intrinsic("int32", "int64")
def shared_word(env: Any, args: list[Any]) -> Any:
    """Return 32 bits of shared memory, whatever they mean."""
    from llvmlite import ir

    return env.builder.load(env.builder.inttoptr(args[0], ir.PointerType(ir.IntType(32), addrspace=_SHARED)))


@cuda_intrinsic("T", "T")
def tf32_of(env: Any, args: list[Any]) -> Any:
    """Return a number rounded to tf32, a float32 of 10 bits behind the point; of ties, away from zero."""
    from llvmlite import ir

    found = _asm(env, ir.IntType(32), [ir.FloatType()], "cvt.rna.tf32.f32 $0, $1;", "=r,f", args)
    return env.builder.bitcast(found, ir.FloatType())


@cuda_intrinsic("int32", "float32", "float32")
def bf16_of(env: Any, args: list[Any]) -> Any:
    """Return two numbers rounded to bf16, of ties to even, in one word; the first in its low half."""
    from llvmlite import ir

    kinds = [ir.FloatType(), ir.FloatType()]
    return _asm(env, ir.IntType(32), kinds, "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", args)


def _mma(shape: str, kind: str) -> Any:
    def mma(env: Any, args: list[Any]) -> Any:
        from llvmlite import ir

        word, real = ir.IntType(32), ir.FloatType()
        text = f"mma.sync.aligned.{shape}.row.col.f32.{kind}.{kind}.f32 {{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};"
        made = ir.LiteralStructType([real] * 4)
        found = _asm(env, made, [word] * 6 + [real] * 4, text, "=f,=f,=f,=f,r,r,r,r,r,r,f,f,f,f", args, effect=True)
        out = ir.Constant(ir.ArrayType(real, 4), ir.Undefined)
        for i in range(4):
            out = env.builder.insert_value(out, env.builder.extract_value(found, i), i)
        return out

    mma.__qualname__ = f"mma_{kind}"
    return cuda_intrinsic("4T", *["int32"] * 6, *["T"] * 4)(mma)


#: `mma_tf32(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3)`: a lane's four sums of [16, 8] = [16, 8] [8, 8] + C; fragments lie as in the PTX ISA.
mma_tf32: Any = _mma("m16n8k8", "tf32")
#: Likewise [16, 8] = [16, 16] [16, 8] + C, two numbers of bf16 in a word.
mma_bf16: Any = _mma("m16n8k16", "bf16")


@cuda_intrinsic("void", "int64", "T*", "int64", "int32")
def copy_four(env: Any, args: list[Any]) -> None:
    """Begin to copy the first so many of four neighbours of float32 to shared memory, zeros for the rest; 16 bytes each, aligned so.

    Neighbours of bfloat16 become float32 on their way, and are there at once.
    """
    _copy(env, args, "cg", 16)


@cuda_intrinsic("void", "int64", "T*", "int64", "int32")
def copy_one(env: Any, args: list[Any]) -> None:
    """Begin to copy one number of float32 to shared memory, or write zero where the last argument is 0."""
    _copy(env, args, "ca", 4)


def _copy(env: Any, args: list[Any], how: str, size: int) -> None:
    from llvmlite import ir

    b, word, short = env.builder, ir.IntType(64), ir.IntType(32)
    if is_half(args[1]):
        for i in range(size // 4):
            _widen_one(env, b.add(args[0], word(4 * i)), args[1], b.add(args[2], word(i)), b.icmp_signed(">", args[3], short(i)))
        return
    source = b.ptrtoint(b.addrspacecast(b.gep(args[1], [args[2]]), ir.PointerType(_element(env), addrspace=1)), word)
    given = [b.trunc(args[0], short), source, b.mul(args[3], short(4))]
    # cg, which passes by L1, exists for 16 bytes only; 4 bytes have to go through L1 (ca). Bytes beyond the source size become zeros.
    text = f"cp.async.{how}.shared.global [$0], [$1], {size}, $2;"
    _asm(env, ir.VoidType(), [short, word, short], text, "r,l,r,~{memory}", given, effect=True)


def _widen_one(env: Any, at: Any, array: Any, index: Any, there: Any) -> None:
    """Write a number of bfloat16 to shared memory as float32, or 0 where it is not there."""
    from llvmlite import ir

    b = env.builder
    place = b.select(there, b.gep(array, [index]), array)  # some element that is there
    number = b.select(there, number_of(b, b.load(place, align=BYTES)), ir.Constant(_element(env), 0.0))
    b.store(number, _one(env, at))


@cuda_intrinsic("void")
def commit_copies(env: Any, args: list[Any]) -> None:
    """Make a group of the copies that were begun since the last one."""
    from llvmlite import ir

    _asm(env, ir.VoidType(), [], "cp.async.commit_group;", "~{memory}", [], effect=True)


def wait_copies(left: int) -> Any:
    """Return an intrinsic that waits until at most so many groups of this thread's copies are not done."""

    def wait_copies(env: Any, args: list[Any]) -> None:
        from llvmlite import ir

        # The memory clobber keeps reads of shared memory behind the wait.
        _asm(env, ir.VoidType(), [], f"cp.async.wait_group {left};", "~{memory}", [], effect=True)

    wait_copies.__qualname__ = f"wait_copies_{left}"
    return cuda_intrinsic("void")(wait_copies)
