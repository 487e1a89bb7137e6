"""Model files: arguments, blocks, names, and every kind of mistake with its sentence, place and remedy."""

from __future__ import annotations

import time
from collections.abc import Callable
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pe_cli.config.load import load_model
from pe_cli.config.nodes import ScalarNode, to_data
from pe_cli.config.spec import LayerSpec, ModelSpec
from pe_cli.core.errors import PeError

Load = Callable[[str], ModelSpec]


@pytest.fixture
def model(folder: Callable[..., None]) -> Load:
    def run(text: str) -> ModelSpec:
        folder(model=text)
        return load_model("model.yaml")

    return run


def args(layer: LayerSpec) -> dict[str, object]:
    return {name: to_data(arg.value) for name, arg in layer.args.items()}


def name_in(layer: LayerSpec, arg: str) -> str | None:
    """Return the variable that a text argument stands for."""
    node = layer.args[arg].value
    assert isinstance(node, ScalarNode)
    return (node.scope or layer.scope).find(str(node.value))


def test_a_plain_model(model: Load) -> None:
    found = model(
        "name: m\nfeeds: {x: {shape: [4]}}\nlayers:\n  b: {type: relu, x: x}\n  a: {type: tanh}\nfetches: [a]\n"
    )
    assert found.name == "m"
    assert (found.feeds["x"].shape, found.feeds["x"].dtype) == ((4,), "float32")
    assert [(layer.key, layer.type, layer.previous) for layer in found.layers] == [
        ("b", "relu", None),
        ("a", "tanh", "b"),
    ]
    assert list(found.fetches) == ["a"]
    assert str(found.layers[0].at) == "model.yaml:4:7"
    assert found.layers[0].at.length == len("type: relu")


def test_arguments_keep_their_type_alone_and_become_text_in_text(model: Load) -> None:
    found = model("""\
        args: {n: 10, s: [1, 2], t: "yes", f: 1e-3}
        layers:
          a: {type: x, n: "${n}", s: "${s}", t: "a${n}b${t}", f: "${f}", g: "x${f}", d: "$${n} costs $5"}
        """)
    assert args(found.layers[0]) == {
        "n": 10,
        "s": [1, 2],
        "t": "a10byes",
        "f": 0.001,
        "g": "x1e-3",
        "d": "${n} costs $5",
    }


def test_an_argument_knows_where_its_value_is_written(model: Load) -> None:
    found = model('args: {n: 10}\nlayers: {a: {type: x, n: "${n}"}}\n')
    node = found.layers[0].args["n"].value
    assert (str(node.at), str(node.via)) == ("model.yaml:2:26", "model.yaml:1:11")


def test_later_arguments_may_use_earlier_ones(model: Load) -> None:
    assert args(model('args: {a: 2, b: "${a}"}\nlayers: {x: {type: t, n: "${b}"}}\n').layers[0]) == {"n": 2}


def test_a_block_gives_its_layers_names_and_its_last_output_a_name(model: Load) -> None:
    found = model("""\
        feeds: {image: {shape: [4]}}
        blocks:
          two:
            args: {input: ~, size: 3}
            layers:
              a: {type: fc, input: "${input}", size: "${size}"}
              b: {type: fc, size: 1}
        layers:
          s: {block: two, input: image, size: 7}
          t: {type: relu, x: s}
        """)
    assert [(layer.key, layer.previous) for layer in found.layers] == [("s/a", "image"), ("s/b", "s/a"), ("t", "s/b")]
    assert args(found.layers[0])["size"] == 7
    assert found.scope.find("s") == "s/b"
    assert name_in(found.layers[2], "x") == "s/b"


def test_repeats_feed_each_other(model: Load) -> None:
    found = model("""\
        feeds: {image: {shape: [4]}}
        blocks:
          two: {args: {input: ~}, layers: {a: {type: fc, input: "${input}"}, b: {type: fc}}, output: a}
        layers:
          stem: {type: relu, x: image}
          s: {block: two, repeat: 3}
          t: {type: relu}
        """)
    assert [layer.key for layer in found.layers][1:-1] == ["s/0/a", "s/0/b", "s/1/a", "s/1/b", "s/2/a", "s/2/b"]
    assert [name_in(layer, "input") for layer in found.layers if layer.key.endswith("/a")] == ["stem", "s/0/a", "s/1/a"]
    assert found.layers[-1].previous == "s/2/a"


def test_a_block_without_an_input_goes_on_with_the_layer_before_it(model: Load) -> None:
    found = model("""\
        blocks: {one: {layers: {a: {type: relu}}}}
        layers: {stem: {type: data}, s: {block: one, repeat: 2}}
        """)
    assert [layer.previous for layer in found.layers] == [None, "stem", "s/0/a"]


def test_names_in_a_block_are_its_own_layers_then_its_arguments_then_what_is_around(model: Load) -> None:
    found = model("""\
        feeds: {label: {shape: [1]}, x: {shape: [1]}}
        blocks:
          inner:
            args: {input: ~, a: ~, act: relu}
            layers:
              a: {type: f, own: a, arg: input, outer: label, given: "${a}", text: "${act}"}
        layers:
          relu: {type: f, x: x}
          s: {block: inner, input: x, a: label}
        """)
    layer = found.layers[1]
    assert name_in(layer, "own") == "s/a"
    assert name_in(layer, "arg") == "x"
    assert name_in(layer, "outer") == "label"
    # the caller's label, although the block has a layer a
    assert name_in(layer, "given") == "label"
    # as text it is still what was written, although a layer has this name
    assert args(layer)["text"] == "relu"


def test_blocks_use_blocks(model: Load) -> None:
    found = model("""\
        feeds: {image: {shape: [4]}}
        blocks:
          leaf: {args: {input: ~, n: ~}, layers: {f: {type: fc, input: "${input}", size: "${n}"}}}
          pair:
            args: {input: ~, n: ~}
            layers:
              p: {block: leaf, input: "${input}", n: "${n}"}
              q: {block: leaf, n: 2, repeat: 2}
              out: {type: add, x: "${input}", y: q}
        layers: {s: {block: pair, input: image, n: 5}}
        """)
    assert [layer.key for layer in found.layers] == ["s/p/f", "s/q/0/f", "s/q/1/f", "s/out"]
    assert [name_in(layer, "input") for layer in found.layers[:3]] == ["image", "s/p/f", "s/q/0/f"]
    assert [args(layer)["size"] for layer in found.layers[:3]] == [5, 2, 2]
    assert (name_in(found.layers[3], "x"), name_in(found.layers[3], "y")) == ("image", "s/q/1/f")
    assert len(found.layers[0].calls) == 2


def test_null_may_be_given_to_an_argument_that_has_no_default(model: Load) -> None:
    found = model(
        'blocks: {b: {args: {act: ~}, layers: {a: {type: f, act: "${act}"}}}}\nlayers: {s: {block: b, act: ~}}\n'
    )
    assert args(found.layers[0]) == {"act": None}


def test_several_outputs_are_numbered(model: Load) -> None:
    assert model("layers: {a: {type: split}}\n").scope.find("a.1") == "a.1"


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        pytest.param(
            "layers: {a: {type: f, n: '${m}'}}\nargs: {n: 1}\n",
            """\
            model.yaml:1:26: error: there is no argument 'm'
                  layers: {a: {type: f, n: '${m}'}}
                                           ^^^^^^
            hint: one of n""",
            id="an unknown argument",
        ),
        pytest.param(
            "layers: {a: {type: f, n: 'x${m'}}\nargs: {n: 1}\n",
            """\
            model.yaml:1:26: error: '${' is not closed
                  layers: {a: {type: f, n: 'x${m'}}
                                           ^^^^^^
            hint: write ${name}, or $${ for the characters themselves""",
            id="a reference that is not closed",
        ),
        pytest.param(
            "layers: {a: {type: f, n: 'x${n}'}}\nargs: {n: [1]}\n",
            """\
            model.yaml:1:26: error: 'n' is a list, which cannot stand inside text
                  layers: {a: {type: f, n: 'x${n}'}}
                                           ^^^^^^^
            hint: write "${n}" alone""",
            id="a list in text",
        ),
        pytest.param(
            "args: {n: ~}\nlayers: {a: {type: f, n: '${n}'}}\n",
            """\
            model.yaml:1:8: error: the model's argument 'n' has no value
                  args: {n: ~}
                         ^
            hint: set model.args.n in the config""",
            id="an argument without a value is reported once",
        ),
        pytest.param(
            "layrs: {}\nlayers: {a: {type: f}}\n",
            """\
            model.yaml:1:1: error: a model has no section 'layrs'
                  layrs: {}
                  ^^^^^
            hint: did you mean 'layers'?""",
            id="an unknown section",
        ),
        pytest.param(
            "feeds: {}\n",
            """\
            model.yaml:1:1: error: a model needs layers
                  feeds: {}
                  ^^^^^^^^^
            hint: add layers: {...}""",
            id="no layers",
        ),
        pytest.param(
            "layers:\n  a: fc\n",
            """\
            model.yaml:2:6: error: layer 'a' must be a mapping, got 'fc'
                    a: fc
                       ^^
            hint: a: {type: ...}""",
            id="a layer that is text",
        ),
        pytest.param(
            "layers:\n  a: {tpye: fc}\n",
            """\
            model.yaml:2:7: error: layer 'a' has no type
                    a: {tpye: fc}
                        ^^^^
            hint: did you mean 'type'?""",
            id="a layer without a type",
        ),
        pytest.param(
            "layers:\n  a/b: {type: fc}\n",
            """\
            model.yaml:2:3: error: 'a/b' is no name for a layer
                    a/b: {type: fc}
                    ^^^
            hint: use letters, digits, _ and -, and begin with a letter""",
            id="a slash in a name",
        ),
        pytest.param(
            "feeds: {a: {shape: [1]}}\nlayers:\n  a: {type: fc}\n",
            """\
            model.yaml:3:3: error: layer 'a' has the name of a feed
                    a: {type: fc}
                    ^
            model.yaml:1:9: note: the feed is here
                  feeds: {a: {shape: [1]}}
                          ^
            hint: give it another name""",
            id="a layer with the name of a feed",
        ),
        pytest.param(
            "feeds: {a: {shape: [0]}}\nlayers: {b: {type: fc}}\n",
            """\
            model.yaml:1:20: error: feeds.a.shape must have sizes of at least 1, or -1, got [0]
                  feeds: {a: {shape: [0]}}
                                     ^^^""",
            id="a feed of size 0",
        ),
        pytest.param(
            "feeds: {a: {shape: [4, x]}}\nlayers: {b: {type: fc}}\n",
            """\
            model.yaml:1:24: error: feeds.a.shape.1 must be a whole number, got 'x'
                  feeds: {a: {shape: [4, x]}}
                                         ^""",
            id="a size that is text",
        ),
        pytest.param(
            "layers: {a: {block: b}}\n",
            """\
            model.yaml:1:14: error: there is no block 'b'
                  layers: {a: {block: b}}
                               ^^^^^^^^
            hint: declare it under blocks""",
            id="an unknown block",
        ),
        pytest.param(
            "blocks: {b: {layers: {x: {type: f}}}}\nlayers: {a: {block: b, n: 1}}\n",
            """\
            model.yaml:2:24: error: block 'b' has no argument 'n'
                  layers: {a: {block: b, n: 1}}
                                         ^
            hint: its arguments are none""",
            id="an argument that a block has not",
        ),
        pytest.param(
            "blocks: {b: {args: {n: ~}, layers: {x: {type: f}}}}\nlayers: {a: {block: b}}\n",
            """\
            model.yaml:2:14: error: block 'b' needs the argument 'n'
                  layers: {a: {block: b}}
                               ^^^^^^^^
            model.yaml:1:21: note: declared here
                  blocks: {b: {args: {n: ~}, layers: {x: {type: f}}}}
                                      ^
            hint: add n: ..., or n: ~ for none""",
            id="an argument that a block needs",
        ),
        pytest.param(
            "blocks: {b: {layers: {x: {type: f}}, output: y}}\nlayers: {a: {block: b}}\n",
            """\
            model.yaml:1:46: error: the output of block 'b' must be one of its layers, got 'y'
                  blocks: {b: {layers: {x: {type: f}}, output: y}}
                                                               ^
            hint: one of x""",
            id="an output that a block has not",
        ),
        pytest.param(
            "blocks: {b: {layers: {x: {block: b}}}}\nlayers: {a: {block: b}}\n",
            """\
            model.yaml:1:27: error: block 'b' contains itself: b -> b
                  blocks: {b: {layers: {x: {block: b}}}}
                                            ^^^^^^^^
            hint: a block can use other blocks only""",
            id="a block in itself",
        ),
        pytest.param(
            "blocks: {b: {layers: {x: {type: f}}}}\nlayers: {a: {block: b, repeat: 0}}\n",
            """\
            model.yaml:2:32: error: repeat must be a whole number of at least 1, got 0
                  layers: {a: {block: b, repeat: 0}}
                                                 ^""",
            id="no repeats",
        ),
        pytest.param(
            "layers: {a: {type: f, block: b}}\n",
            """\
            model.yaml:1:14: error: layer 'a' has both type and block
                  layers: {a: {type: f, block: b}}
                               ^^^^
            hint: keep one of them""",
            id="type and block",
        ),
        pytest.param(
            "layers: {a: {type: f}}\nfetches: a\n",
            """\
            model.yaml:2:10: error: fetches must be a list of names, got 'a'
                  fetches: a
                           ^
            hint: fetches: [loss, acc]""",
            id="fetches that are no list",
        ),
    ],
)
def test_messages(model_errors: Callable[[str], list[str]], text: str, rendered: str) -> None:
    assert model_errors(text) == [dedent(rendered)]


def test_a_mistake_in_a_repeated_block_is_reported_once(model_errors: Callable[[str], list[str]]) -> None:
    text = "blocks: {b: {layers: {x: {type: f, n: '${m}'}}}}\nlayers: {a: {block: b, repeat: 9}, c: {block: b}}\n"
    assert len(model_errors(text)) == 1


def nested(levels: int, repeat: int) -> str:
    lines = ["blocks:", "  b0: {layers: {x: {type: f}}}"]
    lines += [f"  b{i}: {{layers: {{x: {{block: b{i - 1}, repeat: {repeat}}}}}}}" for i in range(1, levels)]
    return "\n".join([*lines, f"layers: {{a: {{block: b{levels - 1}}}}}", ""])


def lists(levels: int) -> str:
    entries = ["a0: [1, 2]", *(f"a{i}: ['${{a{i - 1}}}', '${{a{i - 1}}}', '${{a{i - 1}}}']" for i in range(1, levels))]
    return f"args: {{{', '.join(entries)}}}\nlayers: {{x: {{type: f}}}}\n"


def texts(levels: int) -> str:
    entries = ["a0: ha", *(f"a{i}: '${{a{i - 1}}}${{a{i - 1}}}'" for i in range(1, levels))]
    return f"args: {{{', '.join(entries)}}}\nlayers: {{x: {{type: f}}}}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param(
            nested(20, 1000), "the model has more than 20000 layers, with blocks written out", id="nested repeats"
        ),
        pytest.param(nested(50, 1), "blocks are nested more than 32 deep", id="deep blocks"),
        pytest.param(
            nested(20, 1000).replace("type: f", "typ: f"),
            "layer 'x' has no type",
            id="nested repeats of a mistake",
        ),
        pytest.param(lists(30), "too many values, with ${...} put in", id="lists that triple"),
        pytest.param(texts(60), "the text grows to more than 10000 characters by ${...}", id="text that doubles"),
        pytest.param(
            f"blocks: {{b: {{args: {{n: [{', '.join('0' * 1000)}]}}, layers: {{x: {{block: c, n: '${{n}}'}}}}}}, "
            "c: {args: {n: ~}, layers: {x: {type: f}}}}\nlayers: {a: {block: b, repeat: 9000}}\n",
            "the model grows to more than 500000 values by blocks and ${...}",
            id="a long list handed on many times",
        ),
    ],
)
def test_growth_is_bounded(model_errors: Callable[[str], list[str]], text: str, message: str) -> None:
    start = time.thread_time()
    found = model_errors(text)
    assert any(f"error: {message}" in error for error in found)
    assert time.thread_time() - start < 5


NAMES = st.sampled_from(["a", "b", "input", "type", "block", "repeat", "layers", "args", "output", "shape"])
VALUES = st.recursive(
    st.sampled_from(["1", "a", "b", "~", "'${a}'", "'x${b}'", "'${'", "relu", "-1"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(NAMES, inner, max_size=4).map(
            lambda d: "{" + ", ".join(f"{k}: {v}" for k, v in d.items()) + "}"
        ),
    ),
    max_leaves=16,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.dictionaries(st.sampled_from(["name", "args", "feeds", "blocks", "layers", "fetches"]), VALUES))
def test_no_model_makes_a_traceback(folder: Callable[..., None], sections: dict[str, str]) -> None:
    folder(model="".join(f"{key}: {value}\n" for key, value in sections.items()))
    try:
        load_model("model.yaml")
    except PeError as error:
        error.render()
