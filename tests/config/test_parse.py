"""YAML text to nodes: values, places, and every way in which text can be wrong."""

from __future__ import annotations

import time
from collections.abc import Callable
from textwrap import dedent

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pe_cli.config.error_collector import Mistakes
from pe_cli.config.nodes import MapNode, Node, to_data
from pe_cli.config.parse import decode, parse
from pe_cli.config.source import Source
from pe_cli.core.errors import PeError

Errors = Callable[[str], list[PeError]]
Tree = Callable[[str], Node]


def test_values_and_order(tree: Tree) -> None:
    found = to_data(tree("b: 1\na: [1e-3, yes, '2', null, {c: true}]\n"))
    assert found == {"b": 1, "a": [0.001, "yes", "2", None, {"c": True}]}
    assert list(found) == ["b", "a"]


def test_places_of_keys_and_values(tree: Tree) -> None:
    root = tree("a:\n  bc: {d: 'ef'}   # comment\n")
    assert isinstance(root, MapNode)
    inner = root.get("a")
    assert isinstance(inner, MapNode)
    entry = inner.entries["bc"]
    assert (str(entry.at), entry.at.length) == ("f.yaml:2:3", 2)
    assert (str(entry.value.at), entry.value.at.length) == ("f.yaml:2:7", 9)
    assert entry.value.at.text == "  bc: {d: 'ef'}   # comment"


def test_a_value_over_several_lines_is_underlined_on_its_first(tree: Tree) -> None:
    root = tree("a: [1,\n    2]\n")
    assert isinstance(root, MapNode)
    assert root.entries["a"].value.at.length == len("[1,")


def test_an_empty_value_is_placed_at_its_key(tree: Tree) -> None:
    root = tree("abc:\nd: 1\n")
    assert isinstance(root, MapNode)
    assert (str(root.entries["abc"].value.at), root.entries["abc"].value.at.length) == ("f.yaml:1:1", 3)


def test_aliases_are_the_anchored_value(tree: Tree) -> None:
    assert to_data(tree("a: &x {b: 1}\nc: [*x, *x]\n"))["c"] == [{"b": 1}, {"b": 1}]


def test_unusual_line_breaks_keep_places_right(tree: Tree) -> None:
    root = tree("a: 1\r\nb: 2\rc: 3\n")
    assert isinstance(root, MapNode)
    assert [entry.at.line for entry in root.entries.values()] == [1, 2, 3]
    assert root.entries["b"].at.text == "b: 2"


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        pytest.param(
            "a: 1\nb: 2\na: 3\n",
            """\
            f.yaml:3:1: error: key 'a' is written twice
                  a: 3
                  ^
            f.yaml:1:1: note: the first is here
                  a: 1
                  ^
            hint: delete or rename one of them""",
            id="a duplicate key points at both",
        ),
        pytest.param(
            "a: !!python/object:os.system x\n",
            """\
            f.yaml:1:4: error: tags are not supported: tag:yaml.org,2002:python/object:os.system
                  a: !!python/object:os.system x
                     ^^^^^^^^^^^^^^^^^^^^^^^^^^^
            hint: write the plain value""",
            id="a tag",
        ),
        pytest.param(
            "a: &x {b: 1}\nc:\n  <<: *x\n",
            """\
            f.yaml:3:3: error: merge keys (<<) are not supported
                    <<: *x
                    ^^
            hint: write the keys out, or give the whole value an anchor""",
            id="a merge key",
        ),
        pytest.param(
            "1: a\n",
            """\
            f.yaml:1:1: error: a key must be a name, got 1
                  1: a
                  ^
            hint: quote it: "1\"""",
            id="a number as a key",
        ),
        pytest.param(
            "{[a]: 1}\n",
            """\
            f.yaml:1:2: error: a key must be a name, got ['a']
                  {[a]: 1}
                   ^^^""",
            id="a list as a key",
        ),
        pytest.param(
            "a: 1\n---\nb: 1\n",
            """\
            f.yaml:2:1: error: a second document starts here
                  ---
                  ^^^
            hint: use one file per document, or delete the ---""",
            id="two documents",
        ),
        pytest.param(
            "a:\n\tb: 1\n",
            "f.yaml:2:1: error: a tab is not allowed here\n      \tb: 1\n      ^\nhint: use spaces",
            id="a tab",
        ),
        pytest.param(
            "a:\n    b: 1\n  c: 2\n",
            """\
            f.yaml:3:3: error: this line's indentation is that of no mapping around it
                    c: 2
                    ^
            hint: give all keys of one mapping the same indentation""",
            id="an indentation between two levels",
        ),
        pytest.param(
            "a: 1\n  b: 2\n",
            """\
            f.yaml:2:4: error: a ':' is not allowed here
                    b: 2
                     ^
            hint: check the indentation of this line and of the line before, or quote text that holds ': '""",
            id="a deeper line after a finished one",
        ),
        pytest.param(
            "a: {b: 1\nc: 2\n",
            """\
            f.yaml:2:2: error: expected ',' or '}' in the mapping that begins with '{'
                  c: 2
                   ^
            f.yaml:1:4: note: it begins here
                  a: {b: 1
                     ^
            hint: add what is missing""",
            id="a brace that is not closed",
        ),
        pytest.param(
            "a: {b: ${c}}\n",
            """\
            f.yaml:1:9: error: expected ',' or '}' in the mapping that begins with '{'
                  a: {b: ${c}}
                          ^
            f.yaml:1:4: note: it begins here
                  a: {b: ${c}}
                     ^
            hint: quote it: "${c}\"""",
            id="a reference without quotes in braces",
        ),
        pytest.param(
            "a: 'b\n",
            """\
            f.yaml:1:4: error: the quote is not closed
                  a: 'b
                     ^
            hint: close it on the same line""",
            id="an open quote",
        ),
        pytest.param(
            'a: "\\q"\n',
            """\
            f.yaml:1:6: error: '\\q' is no escape that YAML knows
                  a: "\\q"
                       ^
            hint: use single quotes, in which a backslash is a backslash""",
            id="an unknown escape",
        ),
        pytest.param(
            "a: @b\n",
            """\
            f.yaml:1:4: error: text cannot begin with '@'
                  a: @b
                     ^
            hint: quote it""",
            id="a reserved character",
        ),
        pytest.param(
            "a: [1]]\n",
            """\
            f.yaml:1:7: error: ']' closes nothing
                  a: [1]]
                        ^
            hint: delete it, or open the list or mapping""",
            id="a bracket too many",
        ),
        pytest.param(
            "a: \x00b\n",
            "f.yaml:1:4: error: the character U+0000 is not allowed\n      a: \ufffdb\n         ^\nhint: delete it",
            id="a control character is not sent to the terminal",
        ),
        pytest.param(
            "abc: &x 1\nd: *abd\n",
            """\
            f.yaml:2:4: error: there is no anchor 'abd' before this line
                  d: *abd
                     ^^^^""",
            id="an unknown anchor",
        ),
        pytest.param(
            "a: &x [1, *x]\n",
            """\
            f.yaml:1:11: error: anchor 'x' contains itself
                  a: &x [1, *x]
                            ^^
            hint: write the value out""",
            id="a list in itself",
        ),
        pytest.param(
            "a: 12345678901234567890\n",
            """\
            f.yaml:1:4: error: 12345678901234567890 does not fit into 64 bits
                  a: 12345678901234567890
                     ^^^^^^^^^^^^^^^^^^^^
            hint: quote it if it is text""",
            id="a number of more than 64 bits",
        ),
    ],
)
def test_messages(errors_of: Errors, text: str, rendered: str) -> None:
    (error,) = errors_of(text)
    assert error.render() == dedent(rendered)


def test_mistakes_that_leave_a_tree_are_all_reported(errors_of: Errors) -> None:
    found = errors_of("a: 1\na: 2\n3: x\n<<: {}\nb: !t 1\nc: 1e999\n")
    assert [error.at.line for error in found if error.at] == [2, 3, 4, 5, 6]


def bomb(levels: int) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(bomb(40), "more than 50000 values, with aliases written out", id="a billion laughs"),
        pytest.param("[" * 100_000, "nested more than 64 levels deep", id="a hundred thousand brackets"),
        pytest.param("{a: " * 100_000, "nested more than 64 levels deep", id="a hundred thousand braces"),
        pytest.param(
            "a0: &a0 [1]\n" + "\n".join(f"a{i}: &a{i} [*a{i - 1}]" for i in range(1, 200)),
            "nested more than 64 levels deep",
            id="depth by aliases",
        ),
        pytest.param("- a\n" * 60_000, "more than 50000 values, with aliases written out", id="many values"),
    ],
)
def test_sizes_are_bounded(errors_of: Errors, text: str, message: str) -> None:
    start = time.process_time()  # whatever else the machine does
    (error,) = errors_of(text)
    assert error.message == message
    # a bomb ends at once; the plain file of 60,000 values takes as long as PyYAML needs for it
    assert time.process_time() - start < (1 if text.startswith("a0") else 10)


def test_a_file_of_more_than_a_megabyte_is_refused() -> None:
    with pytest.raises(PeError, match="has 1048577 bytes, and at most 1048576 are read"):
        decode(b" " * ((1 << 20) + 1), "f.yaml")


def test_bytes_that_are_not_utf8_have_a_place() -> None:
    with pytest.raises(PeError) as caught:
        decode("a: 1\nb: ä".encode() + b"\xff rest\nc: 1", "f.yaml")
    assert caught.value.render() == dedent("""\
        f.yaml:2:5: error: byte 0xff is not UTF-8
              b: ä\ufffd rest
                  ^
        hint: save the file as UTF-8, for example with iconv -t UTF-8""")


def test_a_byte_order_mark_is_skipped() -> None:
    assert decode(b"\xef\xbb\xbfa: 1", "f.yaml") == "a: 1"


@given(st.text(alphabet=st.sampled_from(list("ab:-[]{}&*!|>'\"%@#,? \n\t${}01.e~<\\\x85é"))))
def test_no_text_makes_a_traceback(text: str) -> None:
    mistakes = Mistakes()
    parse(Source("f.yaml", text), mistakes)
    for error in mistakes.errors:
        assert error.at is not None
        error.render()


@given(st.binary())
def test_no_bytes_make_a_traceback(raw: bytes) -> None:
    try:
        parse(Source("f.yaml", decode(raw, "f.yaml")), Mistakes())
    except PeError as error:
        error.render()


def test_of_a_long_line_the_part_around_the_mistake_is_shown(errors_of: Errors) -> None:
    (error,) = errors_of("a: [" + "1, " * 2000 + "*b" + ", 2" * 1000 + "]")
    _, line, carets, *_ = error.render().split("\n")
    assert len(line) < 300
    assert line[carets.index("^") :].startswith("*b, 2")


@pytest.mark.parametrize("character", ["\\e[2J", "\\u202e", "\\0", "\\ud800"], ids=["erase", "right to left", "nul", "half a pair"])
def test_what_an_error_quotes_cannot_steer_a_terminal(errors_of: Errors, character: str) -> None:
    (error,) = errors_of(f'"{character}": 1\n"{character}": 2\n')
    assert "\ufffd" in error.render()
    assert all(c.isprintable() or c == "\n" for c in error.render())
