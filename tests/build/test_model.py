"""Layers of a model file: names of variables, arguments, and every kind of mistake."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pe_cli.build.build import Built, build
from pe_cli.config.load import load_model
from pe_cli.core.errors import PeError
from pe_cli.core.types import TensorType
from pe_cli.program.ir import Parameter

Model = Callable[[str], Built]
Errors = Callable[..., list[str]]

FEEDS = "feeds: {x: {shape: [8]}, label: {shape: [1], dtype: int64}}\n"


def parameters(built: Built) -> dict[str, Parameter]:
    return {p.name: p for p in built.eval.global_block().parameters()}


def test_keys_name_outputs_and_parameters(built: Model) -> None:
    found = built(
        FEEDS + "layers:\n  h: {type: fc, input: x, size: 3, act: relu}\n  y: {type: mean}\nfetches: [h, y]\n"
    )
    block = found.eval.global_block()
    assert block.vars["h"].type == TensorType((-1, 3), "float32")
    assert {name: p.shape for name, p in parameters(found).items()} == {"h.w_0": (8, 3), "h.b_0": (3,)}
    assert [op.type for op in block.ops] == ["mul", "elementwise_add", "relu", "mean"]
    assert block.ops[-1].inputs["X"] == ["h"]
    assert found.fetches == {"h": "h", "y": "y"}
    assert found.feeds == {"x": TensorType((-1, 8)), "label": TensorType((-1, 1), "int64")}
    assert {op.outputs["Out"][0] for op in found.startup.global_block().ops} == {"h.w_0", "h.b_0"}


def test_every_op_names_its_line(built: Model) -> None:
    found = built(FEEDS + "layers:\n  h: {type: fc, input: x, size: 3}\n  y: {type: mean}\n")
    assert [str(op.at) for op in found.eval.global_block().ops] == ["model.yaml:3:7"] * 2 + ["model.yaml:4:7"]
    assert found.eval.global_block().ops[0].scope == "h/"


def test_several_outputs_are_numbered_and_the_key_is_the_first(built: Model) -> None:
    found = built(
        FEEDS + "layers:\n  s: {type: split, input: x, num_or_sections: [3, 5]}\n  a: {type: relu, x: s}\n"
        "  b: {type: relu, x: s.1}\n"
    )
    block = found.eval.global_block()
    assert [block.vars[name].shape for name in ("s.0", "s.1", "a", "b")] == [(-1, 3), (-1, 5), (-1, 3), (-1, 5)]


def test_names_of_the_program_may_be_used_too(built: Model) -> None:
    found = built("""\
        feeds: {x: {shape: [8]}}
        blocks: {b: {args: {input: ~}, layers: {h: {type: fc, input: "${input}", size: 2}}}}
        layers: {s: {block: b, input: x, repeat: 2}, y: {type: relu, x: s/0/h}, w: {type: relu, x: s/1/h.w_0}}
        """)
    block = found.eval.global_block()
    assert block.vars["s/1/h"].shape == (-1, 2)
    assert block.vars["w"].shape == (2, 2)


def test_parameter_attributes(built: Model) -> None:
    found = built(
        FEEDS
        + """\
layers:
  a: {type: fc, input: x, size: 3, bias_attr: false,
      param_attr: {name: shared, learning_rate: 0.5, trainable: false, initializer: {type: Constant, value: 2},
                   regularizer: {type: L2Decay, regularization_coeff: 1e-3},
                   gradient_clip: {type: GradientClipByNorm, clip_norm: 1}}}
  b: {type: fc, input: x, size: 3, param_attr: shared, bias_attr: {initializer: Normal}}
"""
    )
    made = parameters(found)
    assert list(made) == ["shared", "b.b_0"]
    assert (made["shared"].learning_rate, made["shared"].trainable) == (0.5, False)
    assert made["shared"].regularizer.regularization_coeff == 0.001
    assert made["shared"].gradient_clip.clip_norm == 1
    ops = {op.outputs["Out"][0]: op for op in found.startup.global_block().ops}
    assert (ops["shared"].type, ops["shared"].attrs["value"]) == ("fill_constant", 2.0)
    assert ops["b.b_0"].type == "gaussian_random"


def test_numbers_become_the_kind_that_is_asked_for(built: Model) -> None:
    found = built(FEEDS + "layers:\n  d: {type: scale, x: x, scale: 2}\n")
    assert found.eval.global_block().ops[0].attrs["scale"] == 2.0


def test_evaluation_switches_dropout_off(built: Model) -> None:
    found = built(FEEDS + "layers: {d: {type: dropout, x: x, dropout_prob: 0.5}}\n")
    assert found.eval.global_block().ops[0].attrs["is_test"] is True
    assert found.eval.is_test


@pytest.mark.parametrize(
    ("layers", "rendered"),
    [
        pytest.param(
            "h: {type: fcc, input: x, size: 3}",
            """\
            model.yaml:3:7: error: there is no layer type 'fcc'
                    h: {type: fcc, input: x, size: 3}
                        ^^^^^^^^^
            hint: did you mean 'fc'?""",
            id="an unknown layer type",
        ),
        pytest.param(
            "h: {type: fc, inpt: x, input: x, size: 3}",
            """\
            model.yaml:3:17: error: layer 'fc' has no argument 'inpt'
                    h: {type: fc, inpt: x, input: x, size: 3}
                                  ^^^^
            hint: did you mean 'input'?""",
            id="an unknown argument",
        ),
        pytest.param(
            "h: {type: fc, input: x}",
            """\
            model.yaml:3:7: error: layer 'fc' needs the argument 'size'
                    h: {type: fc, input: x}
                        ^^^^^^^^
            hint: add size: ...""",
            id="a missing argument",
        ),
        pytest.param(
            "h: {type: fc, size: 3}",
            """\
            model.yaml:3:7: error: layer 'fc' needs the argument 'input', as it is the first layer
                    h: {type: fc, size: 3}
                        ^^^^^^^^
            hint: add input: and the name of a feed""",
            id="a first layer without an input",
        ),
        pytest.param(
            "h: {type: fc, input: lable, size: 3}",
            """\
            model.yaml:3:24: error: there is no variable 'lable'
                    h: {type: fc, input: lable, size: 3}
                                         ^^^^^
            hint: did you mean 'label'?""",
            id="an unknown variable",
        ),
        pytest.param(
            "h: {type: fc, input: 3, size: 3}",
            """\
            model.yaml:3:24: error: layer 'fc': input must be the name of a variable, got 3
                    h: {type: fc, input: 3, size: 3}
                                         ^""",
            id="a number for a variable",
        ),
        pytest.param(
            "h: {type: relu, x: g}\n  g: {type: relu, x: x}",
            """\
            model.yaml:3:22: error: 'g' is computed only later
                    h: {type: relu, x: g}
                                       ^
            model.yaml:4:7: note: 'g' is made here
                    g: {type: relu, x: x}
                        ^^^^^^^^^^
            hint: move it up""",
            id="a variable of a later layer",
        ),
        pytest.param(
            "h: {type: fc, input: x, size: ten}",
            """\
            model.yaml:3:33: error: layer 'fc': size must be a whole number, got 'ten'
                    h: {type: fc, input: x, size: ten}
                                                  ^^^""",
            id="text for a number",
        ),
        pytest.param(
            "h: {type: fc, input: x, size: 3.0}",
            """\
            model.yaml:3:33: error: layer 'fc': size must be a whole number, got 3.0
                    h: {type: fc, input: x, size: 3.0}
                                                  ^^^
            hint: write 3""",
            id="a float for a whole number",
        ),
        pytest.param(
            "h: {type: fc, input: x, size: ~}",
            """\
            model.yaml:3:33: error: layer 'fc': size must be a whole number, got null
                    h: {type: fc, input: x, size: ~}
                                                  ^""",
            id="null where a number is needed",
        ),
        pytest.param(
            "h: {type: transpose, x: x, perm: [0, a]}",
            """\
            model.yaml:3:40: error: layer 'transpose': perm must be a list of whole numbers, got [0, 'a']
                    h: {type: transpose, x: x, perm: [0, a]}
                                                         ^""",
            id="text in a list of numbers",
        ),
        pytest.param(
            "h: {type: dropout, x: x, dropout_prob: 0.5, is_test: yes}",
            """\
            model.yaml:3:56: error: layer 'dropout': is_test must be true or false, got 'yes'
                    h: {type: dropout, x: x, dropout_prob: 0.5, is_test: yes}
                                                                         ^^^
            hint: write true or false; in YAML 1.2 yes is text""",
            id="yes for a truth",
        ),
        pytest.param(
            "h: {type: fc, input: x, size: 3, act: rleu}",
            """\
            model.yaml:3:7: error: fc: there is no activation 'rleu'
                    h: {type: fc, input: x, size: 3, act: rleu}
                        ^^^^^^^^
            hint: did you mean 'relu'?""",
            id="what a layer itself refuses is placed at it",
        ),
        pytest.param(
            "h: {type: fc, input: x, size: 3, param_attr: {initialiser: Xavier}}",
            """\
            model.yaml:3:49: error: layer 'fc': param_attr has no key 'initialiser'
                    h: {type: fc, input: x, size: 3, param_attr: {initialiser: Xavier}}
                                                                  ^^^^^^^^^^^
            hint: did you mean 'initializer'?""",
            id="an unknown parameter attribute",
        ),
        pytest.param(
            "h: {type: fc, input: x, size: 3, param_attr: {initializer: {type: Xaver}}}",
            """\
            model.yaml:3:69: error: there is no initializer 'Xaver'
                    h: {type: fc, input: x, size: 3, param_attr: {initializer: {type: Xaver}}}
                                                                                      ^^^^^
            hint: did you mean 'Xavier'?""",
            id="an unknown initializer",
        ),
        pytest.param(
            "h: {type: fc, input: x, size: 3, param_attr: {initializer: {type: Constant, vaule: 1}}}",
            """\
            model.yaml:3:79: error: initializer 'Constant' has no argument 'vaule'
                    h: {type: fc, input: x, size: 3, param_attr: {initializer: {type: Constant, vaule: 1}}}
                                                                                                ^^^^^
            hint: did you mean 'value'?""",
            id="an unknown argument of an initializer",
        ),
        pytest.param(
            "h: {type: fc, input: x, size: 3, bias_attr: {regularizer: {type: L2Decay, regularization_coeff: a}}}",
            """\
            model.yaml:3:99: error: regularizer 'L2Decay': regularization_coeff must be a number, got 'a'
                    h: {type: fc, input: x, size: 3, bias_attr: {regularizer: {type: L2Decay, regularization_coeff: a}}}
                                                                                                                    ^""",
            id="a wrong argument of a regularizer",
        ),
        pytest.param(
            "h: {type: fc, input: x, size: 3, param_attr: {learning_rate: -1}}",
            """\
            model.yaml:3:48: error: the learning_rate factor of a parameter must be >= 0, got -1.0
                    h: {type: fc, input: x, size: 3, param_attr: {learning_rate: -1}}
                                                                 ^^^^^^^^^^^^^^^^^^^""",
            id="a negative learning rate of a parameter",
        ),
        pytest.param(
            "h: {type: fc, input: x, size: 3, bias_attr: 3}",
            """\
            model.yaml:3:47: error: layer 'fc': bias_attr must be a mapping, a name, true or false, got 3
                    h: {type: fc, input: x, size: 3, bias_attr: 3}
                                                                ^
            hint: for example {initializer: {type: Xavier}, learning_rate: 0.5}""",
            id="a number for a parameter attribute",
        ),
    ],
)
def test_messages(errors: Errors, layers: str, rendered: str) -> None:
    assert errors(FEEDS + f"layers:\n  {layers}\n") == [dedent(rendered)]


def test_shapes_that_do_not_fit_are_placed_at_the_layer(errors: Errors) -> None:
    (found,) = errors(FEEDS + "layers:\n  a: {type: fc, input: x, size: 3}\n  m: {type: elementwise_add, x: a, y: x}\n")
    assert found.splitlines()[0].startswith("model.yaml:4:7: error: ")
    assert found.splitlines()[1:3] == [
        "        m: {type: elementwise_add, x: a, y: x}",
        "            ^^^^^^^^^^^^^^^^^^^^^",
    ]


def test_all_mistakes_come_at_once_and_what_depends_on_them_is_silent(errors: Errors) -> None:
    found = errors(
        FEEDS
        + """\
layers:
  a: {type: fcc, input: x}
  b: {type: relu, x: a}
  c: {type: fc, input: b, size: big}
  d: {type: fc, input: [c, nothing], size: 3}
  e: {type: mean}
  g: {type: fc, input: x, sizes: 3}
  f: {type: fc, input: x}
fetches: [e, nowhere]
"""
    )
    assert [error.splitlines()[0] for error in found] == [
        "model.yaml:3:7: error: there is no layer type 'fcc'",
        "model.yaml:5:33: error: layer 'fc': size must be a whole number, got 'big'",
        "model.yaml:6:28: error: there is no variable 'nothing'",
        "model.yaml:8:27: error: layer 'fc' has no argument 'sizes'",
        "model.yaml:9:7: error: layer 'fc' needs the argument 'size'",
        "model.yaml:10:14: error: there is no variable 'nowhere'",
    ]


def test_a_mistake_in_a_block_says_where_the_block_is_used(errors: Errors) -> None:
    found = errors("""\
        feeds: {x: {shape: [8]}}
        blocks: {b: {args: {input: ~, n: ~}, layers: {h: {type: fc, input: "${input}", size: "${n}"}}}}
        layers: {s: {block: b, input: x, n: a, repeat: 3}, t: {block: b, n: 2}}
        """)
    assert found == [
        dedent("""\
            model.yaml:2:86: error: layer 'fc': size must be a whole number, got 'a'
                  blocks: {b: {args: {input: ~, n: ~}, layers: {h: {type: fc, input: "${input}", size: "${n}"}}}}
                                                                                                       ^^^^^^
            model.yaml:3:37: note: the value is written here
                  layers: {s: {block: b, input: x, n: a, repeat: 3}, t: {block: b, n: 2}}
                                                      ^
            model.yaml:3:14: note: in 's/0', used here
                  layers: {s: {block: b, input: x, n: a, repeat: 3}, t: {block: b, n: 2}}
                               ^^^^^^^^""")
    ]


INNER = """\
feeds: {x: {shape: [8]}}
blocks:
  two: {args: {input: ~}, layers: {h: {type: fc, input: input, size: 2}, out: {type: fc, size: 3}}}
  use: {args: {input: ~, said: ~}, layers: {both: {type: concat, input: [input, said], axis: 1}, copy: {type: relu, x: "${said}"}}}
  all: {args: {input: ~}, layers: {a: {block: two, input: input, repeat: 2}, b: {block: use, input: a, said: SAID}}}
layers: {first: {block: all, input: x}, second: {block: all, input: first}}
"""


def test_an_argument_may_name_a_layer_of_another_block(built: Model) -> None:
    """From where it is written: `a/1/h` is that of the same use of the block around it."""
    block = built(INNER.replace("SAID", "a/1/h")).eval.global_block()
    read = {op.outputs["Out"][0]: op.inputs["X"] for op in block.ops if op.type in ("concat", "relu")}
    assert read == {
        f"{use}/b/{layer}": inputs
        for use in ("first", "second")
        for layer, inputs in (("both", [f"{use}/a/1/out", f"{use}/a/1/h"]), ("copy", [f"{use}/a/1/h"]))
    }


@pytest.mark.parametrize(("said", "hint"), [("a/1/hh", "did you mean 'a/1/h'?"), ("inputt", "did you mean 'input'?")])
def test_an_argument_that_names_nothing_is_told_with_what_it_names(errors: Errors, said: str, hint: str) -> None:
    found = errors(INNER.replace("SAID", said))
    assert f"there is no variable '{said}', which 'said' stands for" in found[0]
    assert "there is no variable 'said'" not in "".join(found)
    assert hint in found[0]


VALUES = st.recursive(
    st.sampled_from(["1", "0", "-1", "2.5", "x", "label", "relu", "~", "true", "Xavier", "h0"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: f"[{', '.join(items)}]"),
        st.dictionaries(st.sampled_from(["type", "name", "initializer", "value"]), inner, max_size=2).map(
            lambda d: "{" + ", ".join(f"{k}: {v}" for k, v in d.items()) + "}"
        ),
    ),
    max_leaves=4,
)
ARGS = st.sampled_from(["input", "x", "y", "size", "act", "param_attr", "bias_attr", "shape", "axis", "label", "dim"])
TYPES = st.sampled_from(["fc", "relu", "reshape", "mean", "softmax", "elementwise_add", "matmul", "concat", "dropout"])


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(st.lists(st.tuples(TYPES, st.dictionaries(ARGS, VALUES, max_size=4)), min_size=1, max_size=4))
def test_no_model_makes_a_traceback(write: Callable[..., None], layers: list[tuple[str, dict[str, str]]]) -> None:
    lines = [
        f"  h{i}: {{{', '.join([f'type: {t}', *(f'{k}: {v}' for k, v in a.items())])}}}"
        for i, (t, a) in enumerate(layers)
    ]
    write(model="\n".join([FEEDS + "layers:", *lines, ""]))
    try:
        build(load_model("model.yaml"))
    except PeError as error:
        error.render()


def test_a_weight_of_lengths_and_directions(built: Model) -> None:
    found = built(
        FEEDS
        + "layers:\n  h: {type: fc, input: x, size: 3, param_attr: {type: weight_norm, dim: 1, learning_rate: 0.5}}\n"
    )
    made = parameters(found)
    assert {name: p.shape for name, p in made.items()} == {"h.w_0_v": (8, 3), "h.w_0_g": (1, 3), "h.b_0": (3,)}
    assert made["h.w_0_g"].learning_rate == 0.5
    assert [op.type for op in found.startup.global_block().ops] == [
        "uniform_random",
        "norm_except_dim",
        "fill_constant",
    ]


@pytest.mark.parametrize(
    ("attr", "text"),
    [
        ("{type: weight_nrm}", "there is no parameter attribute"),
        ("{type: [1]}", "there is no parameter attribute"),
        ("{type: weight_norm, dim: a}", "dim must be a whole number"),
        ("{type: weight_norm, dim: 5}", "weight_norm has no dim 5"),
        ("{dim: 1}", "has no key 'dim'"),
    ],
)
def test_a_wrong_weight_norm(errors: Errors, attr: str, text: str) -> None:
    (found,) = errors(FEEDS + f"layers:\n  h: {{type: fc, input: x, size: 3, param_attr: {attr}}}\n")
    assert text in found
