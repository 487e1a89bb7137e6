"""Access to bytes of text by address, for the kernels that parse tables. All values are int64, also unsigned ones."""

from __future__ import annotations

from typing import Any

from pe_cli.kernels.language import helper, intrinsic

#: Bytes that `find_special` looks at at once.
BLOCK = 64
#: Bytes behind the end of a buffer of text that may be read.
SLACK = 3 * BLOCK
TAB, NEWLINE, RETURN, SPACE, QUOTE = 9, 10, 13, 32, 34


def _at(env: Any, address: Any, kind: Any) -> Any:
    return env.builder.inttoptr(address, kind.as_pointer())


@intrinsic("int64", "int64")
def byte(env: Any, args: list[Any]) -> Any:
    """Return the byte at an address."""
    from llvmlite import ir

    return env.builder.zext(env.builder.load(_at(env, args[0], ir.IntType(8)), align=1), ir.IntType(64))


@intrinsic("void", "int64", "int64")
def put_byte(env: Any, args: list[Any]) -> Any:
    """Write the byte at an address."""
    from llvmlite import ir

    kind = ir.IntType(8)
    env.builder.store(env.builder.trunc(args[1], kind), _at(env, args[0], kind), align=1)


@intrinsic("int64", "int64")
def eight_bytes(env: Any, args: list[Any]) -> Any:
    """Return eight bytes at any address; on machines that store the lowest byte first, it is the lowest."""
    from llvmlite import ir

    return env.builder.load(_at(env, args[0], ir.IntType(64)), align=1)


def _mask(env: Any, address: Any, found: Any) -> Any:
    """Return a word whose bit i tells what `found(builder, 64 bytes, splat)` says of byte i."""
    from llvmlite import ir

    b, lane = env.builder, ir.IntType(8)
    kind = ir.VectorType(lane, BLOCK)
    order = ir.Constant(ir.VectorType(ir.IntType(32), BLOCK), [0] * BLOCK)

    def splat(value: Any) -> Any:
        one = b.insert_element(ir.Constant(kind, ir.Undefined), b.trunc(value, lane), ir.Constant(ir.IntType(32), 0))
        return b.shuffle_vector(one, ir.Constant(kind, ir.Undefined), order)

    def same(x: Any, value: int) -> Any:
        return b.icmp_unsigned("==", x, ir.Constant(kind, [value] * BLOCK))

    block = b.load(_at(env, address, kind), align=1)
    return b.bitcast(found(b, block, splat, same), ir.IntType(BLOCK))


@intrinsic("int64", "int64", "int64")
def find_special(env: Any, args: list[Any]) -> Any:
    """Return which of the 64 bytes at an address are the delimiter (argument 2), a quote, or the end of a line; one bit each."""

    def found(b: Any, block: Any, splat: Any, same: Any) -> Any:
        ends = b.or_(same(block, NEWLINE), same(block, RETURN))
        return b.or_(b.or_(ends, same(block, QUOTE)), b.icmp_unsigned("==", block, splat(args[1])))

    return _mask(env, args[0], found)


@intrinsic("int64", "int64")
def find_odd(env: Any, args: list[Any]) -> Any:
    """Return which of the 64 bytes at an address are 0 or no ASCII; one bit each."""

    def found(b: Any, block: Any, splat: Any, same: Any) -> Any:
        from llvmlite import ir

        return b.icmp_signed("<=", block, ir.Constant(block.type, [0] * BLOCK))

    return _mask(env, args[0], found)


@intrinsic("int64", "int64")
def find_zero(env: Any, args: list[Any]) -> Any:
    """Return which of the 64 bytes at an address are 0; one bit each."""
    return _mask(env, args[0], lambda b, block, splat, same: same(block, 0))


@intrinsic("int64", "int64")
def lowest_bit(env: Any, args: list[Any]) -> Any:
    """Return the position of the lowest bit of a word that is not 0."""
    from llvmlite import ir

    word = ir.IntType(64)
    function = env.function("llvm.cttz.i64", word, [word, ir.IntType(1)])
    return env.builder.call(function, [args[0], ir.Constant(ir.IntType(1), 1)])


@intrinsic("int64", "int64")
def leading_zeros(env: Any, args: list[Any]) -> Any:
    """Return the number of zeros above the highest bit of a word that is not 0."""
    from llvmlite import ir

    word = ir.IntType(64)
    function = env.function("llvm.ctlz.i64", word, [word, ir.IntType(1)])
    return env.builder.call(function, [args[0], ir.Constant(ir.IntType(1), 1)])


@intrinsic("int64", "int64", "int64")
def shift_right(env: Any, args: list[Any]) -> Any:
    """Shift an unsigned word right by 0 to 63 bits."""
    return env.builder.lshr(args[0], args[1])


@intrinsic("int64", "int64", "int64")
def multiply_high(env: Any, args: list[Any]) -> Any:
    """Return the upper word of the product of two unsigned words."""
    from llvmlite import ir

    b, wide = env.builder, ir.IntType(128)
    product = b.mul(b.zext(args[0], wide), b.zext(args[1], wide))
    return b.trunc(b.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))


@intrinsic("int64", "int64", "int64")
def below(env: Any, args: list[Any]) -> Any:
    """Return 1 where an unsigned word is below another, else 0."""
    from llvmlite import ir

    return env.builder.zext(env.builder.icmp_unsigned("<", args[0], args[1]), ir.IntType(64))


@intrinsic("float64", "int64")
def double_of_bits(env: Any, args: list[Any]) -> Any:
    """Return the float64 that has these bits."""
    return env.builder.bitcast(args[0], env.type_of("float64"))


@helper
def is_blank(c):
    """Return whether a byte is one that is trimmed from both ends of a cell."""
    return c == SPACE or (TAB <= c <= RETURN)


@helper
def all_blank(text, start, end):
    """Return whether bytes start to end are blanks."""
    while start < end and is_blank(byte(text + start)):
        start += 1
    return start >= end


@helper
def trim(text, start, end):
    """Return start and end of a text without the blanks around it."""
    while start < end and is_blank(byte(text + start)):
        start += 1
    while end > start and is_blank(byte(text + end - 1)):
        end -= 1
    return start, end


@helper
def same_bytes(a, b, length):
    """Return whether two texts of a length are equal; up to 7 bytes behind them are read."""
    i = 0
    while i + 8 <= length:
        if eight_bytes(a + i) != eight_bytes(b + i):
            return False
        i += 8
    if i < length:
        mask = (1 << (8 * (length - i))) - 1
        return (eight_bytes(a + i) & mask) == (eight_bytes(b + i) & mask)
    return True


@helper
def copy_bytes(source, target, length):
    """Copy a text."""
    for i in range(length):
        put_byte(target + i, byte(source + i))
