"""Atomic operations on words and calls through addresses, for the scheduler. Words are int64, addresses are in bytes."""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.language import intrinsic


def _word(env: Any, address: Any) -> Any:
    return env.builder.inttoptr(address, env.type_of("int64*"))


@intrinsic("int64", "int64", "int64")
def atomic_add(env: Any, args: list[Any]) -> Any:
    """Add to the word at an address and return what it was."""
    return env.builder.atomic_rmw("add", _word(env, args[0]), args[1], "seq_cst")


@intrinsic("int64", "int64", "int64")
def atomic_swap(env: Any, args: list[Any]) -> Any:
    """Write a word and return what it was."""
    return env.builder.atomic_rmw("xchg", _word(env, args[0]), args[1], "seq_cst")


@intrinsic("int64", "int64", "int64", "int64")
def atomic_claim(env: Any, args: list[Any]) -> Any:
    """Replace a word that has the expected value; return 1 on success, else 0."""
    from llvmlite import ir

    result = env.builder.cmpxchg(_word(env, args[0]), args[1], args[2], "seq_cst", "seq_cst")
    return env.builder.zext(env.builder.extract_value(result, 1), ir.IntType(64))


@intrinsic("int64", "int64")
def atomic_load(env: Any, args: list[Any]) -> Any:
    """Read a word; what was written before its release is visible after."""
    return env.builder.load_atomic(_word(env, args[0]), "seq_cst", 8)


@intrinsic("void", "int64", "int64")
def atomic_store(env: Any, args: list[Any]) -> Any:
    """Write a word; everything written before is visible to who reads it."""
    return env.builder.store_atomic(args[1], _word(env, args[0]), "seq_cst", 8)


@intrinsic("void", "int64", "int64")
def call(env: Any, args: list[Any]) -> Any:
    """Call the kernel `void f(int64 *record)` at an address with a record's address."""
    from llvmlite import ir

    builder = env.builder
    kind = ir.FunctionType(ir.VoidType(), [env.type_of("int64*")])
    builder.call(builder.inttoptr(args[0], kind.as_pointer()), [_word(env, args[1])])


@intrinsic("int64", "int64", "int64")
def call_c(env: Any, args: list[Any]) -> Any:
    """Call `int f(void *)` of the C library through its address (sem_wait, sem_post, sched_yield)."""
    from llvmlite import ir

    builder = env.builder
    kind = ir.FunctionType(ir.IntType(32), [env.type_of("int64*")])
    result = builder.call(builder.inttoptr(args[0], kind.as_pointer()), [_word(env, args[1])])
    return builder.sext(result, ir.IntType(64))


@intrinsic("int64", "int64")
def call_word(env: Any, args: list[Any]) -> Any:
    """Call `long f(void)` of the C library through its address (pthread_self)."""
    from llvmlite import ir

    kind = ir.FunctionType(ir.IntType(64), [])
    return env.builder.call(env.builder.inttoptr(args[0], kind.as_pointer()), [])


@intrinsic("void")
def pause(env: Any, args: list[Any]) -> Any:
    """Tell the processor that this is a spin loop; nothing on machines without such an instruction."""
    import llvmlite.binding as llvm
    from llvmlite import ir

    if "x86_64" in llvm.get_default_triple():
        env.builder.call(env.function("llvm.x86.sse2.pause", ir.VoidType(), []), [])


@intrinsic("int64")
def cycles(env: Any, args: list[Any]) -> Any:
    """Return a counter that all cores share and that runs at a constant rate (the cycle counter on x86)."""
    import llvmlite.binding as llvm
    from llvmlite import ir

    word = ir.IntType(64)
    if "aarch64" in llvm.get_default_triple() or "arm64" in llvm.get_default_triple():
        # the cycle counter of ARM is closed to programs; the timer is not
        read = ir.InlineAsm(ir.FunctionType(word, []), "mrs $0, cntvct_el0", "=r", side_effect=True)
        return env.builder.call(read, [])
    return env.builder.call(env.function("llvm.readcyclecounter", word, []), [])
