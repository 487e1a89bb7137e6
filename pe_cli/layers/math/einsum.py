"""einsum: sums of products over axes that are named by letters."""

from __future__ import annotations

from string import ascii_letters

from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.layers.define.helper import LayerHelper
from pe_cli.layers.define.registry import layer
from pe_cli.program.ir import Variable


@dataclass(frozen=True)
class _Term:
    """A tensor whose axes have letters.

    Args:
        letters: of the axes, in order; empty for one number of shape [1].
        value: the tensor.
    """

    letters: str
    value: Variable


@layer
def einsum(equation: str, operands: list[Variable], name: str | None = None) -> Variable:
    """Multiply tensors and add up, as letters of their axes say.

    Axes with one letter run together. Letters that the result does not have are summed over: "bij,bkj->bik" is one product of matrices for
    each b. A letter that comes twice in one operand takes the diagonal. Three dots stand for the axes without letters, the last ones of
    each operand run together, and they come first where there is no arrow; the other letters that come once follow in the order of the
    alphabet.

    Args:
        equation: letters of the axes of each operand, with commas, and after an arrow those of the result.
        operands: one tensor for each group of letters, float32 or float64, all of one dtype; axes with one letter are of one size.
        name: prefix of the output's name.

    Returns:
        A tensor with the axes of the result; [1] where it has none.

    Raises:
        PeError: the letters do not fit the operands or each other, the size of a diagonal is not known, or in a group of axes that are
            taken together more than one size is not known.

    Source:
        numpy.einsum.
    """
    helper = LayerHelper("einsum", name)
    terms, wanted = _parsed(helper, equation, operands)
    terms = [_diagonal(helper, term) for term in terms]
    # From left to right, as they are written: no better order is looked for. What neither the result nor a later operand has is summed at
    # once.
    while len(terms) > 1:
        first, second, *others = terms
        kept = set(wanted).union(*(each.letters for each in others))
        both = kept & set(first.letters + second.letters)
        # A letter of one of the two alone is summed before the product, which is then smaller.
        first, second = (_summed(helper, a, kept | set(b.letters)) for a, b in ((first, second), (second, first)))
        terms = [_product(helper, first, second, both), *others]
    found = _summed(helper, terms[0], set(wanted))
    found = _ordered(helper, found, wanted)
    unchanged = any(found.value is x for x in operands)
    return helper.one("assign", {"X": found.value}) if unchanged else found.value


def _parsed(helper: LayerHelper, equation: str, operands: list[Variable]) -> tuple[list[_Term], str]:
    """Return the operands with their letters, and those of the result."""
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    groups = given.split(",")
    dots = _letters_of_dots(equation, groups, operands)
    free = [max(0, len(x.shape) - len(g.replace("...", ""))) for g, x in zip(groups, operands, strict=False)]
    groups = [g.replace("...", dots[len(dots) - n :], 1) for g, n in zip(groups, free, strict=False)] + groups[len(free) :]
    every = "".join(groups)
    # Without an arrow, letters that come once are the result's, in the order of the alphabet, as in NumPy.
    once = sorted(letter for letter in set(every) - set(dots) if every.count(letter) == 1)
    wanted = wanted.replace("...", dots, 1) if arrow else dots + "".join(once)
    hint = 'write letters, commas and dots, such as "bij,bkj->bik" or "...ij->...ji"'
    if not all(letter.isascii() and letter.isalpha() for letter in every + wanted):
        raise helper.error(f"einsum: '{equation:.100}' has something else than letters, commas and an arrow", hint)
    if len(groups) != len(operands):
        raise helper.error(f"einsum: '{equation:.100}' is for {len(groups)} operands, got {len(operands)}")
    sizes: dict[str, int] = {}
    for letters, x in zip(groups, operands, strict=True):
        # A number is [1] here: nothing has no axis.
        if len(letters) != len(x.shape) and (letters or x.shape != (1,)):
            raise helper.error(f"einsum: '{letters}' is for {len(letters)} axes, got {x}")
        for letter, size in zip(letters, x.shape, strict=False):
            if -1 not in (size, sizes.setdefault(letter, size)) and sizes[letter] != size:
                raise helper.error(f"einsum: axis {letter} is of size {sizes[letter]}, and of {size} in {x}")
            sizes[letter] = max(size, sizes[letter])
    if len(set(wanted)) < len(wanted) or not set(wanted) <= set(every):
        raise helper.error(f"einsum: the result's '{wanted}' must be letters of the operands, each once", hint)
    return [_Term(letters, x) for letters, x in zip(groups, operands, strict=True)], wanted


def _letters_of_dots(equation: str, groups: list[str], operands: list[Variable]) -> str:
    """Return letters that the equation does not have, one for each axis that three dots stand for in some operand."""
    most = [len(x.shape) - len(g) + 3 for g, x in zip(groups, operands, strict=False) if "..." in g]
    return "".join([letter for letter in ascii_letters if letter not in equation][: max([0, *most])])


def _diagonal(helper: LayerHelper, x: _Term) -> _Term:
    """Return a tensor in which no letter comes twice: the elements whose places along such axes are the same."""
    for at, letter in enumerate(x.letters):
        first = x.letters.index(letter)
        if first == at:
            continue
        size = min(x.value.shape[first], x.value.shape[at])
        if size < 1:
            raise helper.error(f"einsum: the size of the diagonal {letter} of {x.value} is not known", "give shapes of feeds in full")
        others = [i for i in range(len(x.letters)) if i not in (first, at)]
        square = helper.one("transpose", {"X": x.value}, {"axis": [*others, first, at]})
        # With `size` zeros behind them the size * size elements are rows of size + 1, which begin with the diagonal.
        line = _reshaped(helper, square, len(others), [size * size])
        longer = helper.one("pad", {"X": line}, {"paddings": [0] * (2 * len(others) + 1) + [size], "pad_value": 0.0})
        rows = _reshaped(helper, longer, len(others), [size, size + 1])
        cut = helper.one("slice", {"Input": rows}, {"axes": [len(others) + 1], "starts": [0], "ends": [1]})
        made = _reshaped(helper, cut, len(others), [size])
        return _diagonal(helper, _Term("".join(x.letters[i] for i in others) + letter, made))
    return x


def _summed(helper: LayerHelper, x: _Term, kept: set[str]) -> _Term:
    """Return a tensor without the axes that are not kept."""
    gone = [i for i, letter in enumerate(x.letters) if letter not in kept]
    if not gone:
        return x
    made = helper.one("reduce_sum", {"X": x.value}, {"dim": gone, "reduce_all": len(gone) == len(x.letters)})
    return _Term("".join(letter for letter in x.letters if letter in kept), made)


def _ordered(helper: LayerHelper, x: _Term, letters: str) -> _Term:
    """Return a tensor with its axes in another order."""
    if x.letters == letters:
        return x
    return _Term(letters, helper.one("transpose", {"X": x.value}, {"axis": [x.letters.index(letter) for letter in letters]}))


def _product(helper: LayerHelper, a: _Term, b: _Term, kept: set[str]) -> _Term:
    """Return the product of two tensors, summed over the letters that both have and that are not kept."""
    if not a.letters or not b.letters:
        one, other = (a, b) if b.letters else (b, a)
        return _Term(other.letters, helper.one("elementwise_mul", {"X": other.value, "Y": one.value}))
    common = [letter for letter in a.letters if letter in b.letters]
    # Letters that both have: where they are kept there is a matrix for each of their values, others are what the product sums over.
    batch, inner = ("".join(letter for letter in common if (letter in kept) is stays) for stays in (True, False))
    rows, columns = ("".join(letter for letter in x.letters if letter not in common) for x in (a, b))
    left = _joined(helper, _ordered(helper, a, batch + rows + inner), len(batch), (rows, inner))
    right = _joined(helper, _ordered(helper, b, batch + inner + columns), len(batch), (inner, columns))
    made = helper.one("matmul", {"X": left, "Y": right})
    letters = batch + rows + columns
    sizes = {**dict(zip(b.letters, b.value.shape, strict=True)), **dict(zip(a.letters, a.value.shape, strict=True))}
    if len(rows) == len(columns) == 1:
        return _Term(letters, made)
    if not letters:
        return _Term("", helper.one("squeeze", {"X": made}, {"axes": [1]}))
    return _Term(letters, _reshaped(helper, made, len(batch), [sizes[letter] for letter in rows + columns]))


def _joined(helper: LayerHelper, x: _Term, batch: int, groups: tuple[str, str]) -> Variable:
    """Return a tensor with one axis for each of two groups of letters after the first `batch` axes."""
    if all(len(letters) == 1 for letters in groups):
        return x.value
    sizes = dict(zip(x.letters, x.value.shape, strict=True))
    joined = []
    for letters in groups:
        size = 1
        for letter in letters:
            size = -1 if -1 in (size, sizes[letter]) else size * sizes[letter]
        joined.append(size)
    return _reshaped(helper, x.value, batch, joined)


def _reshaped(helper: LayerHelper, x: Variable, batch: int, sizes: list[int]) -> Variable:
    """Return a tensor whose axes after the first `batch` have other sizes."""
    if sizes.count(-1) > 1:
        hint = "give shapes of feeds in full, or an order in which such axes come together with no other"
        raise helper.error(f"einsum: more than one of the sizes {sizes} is not known", hint)
    return helper.one("reshape", {"X": x}, {"shape": [0] * batch + sizes})
