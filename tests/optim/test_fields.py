"""Optimizers as lists of fields: the constructor, its checks, attributes and states come from the class."""

from __future__ import annotations

import inspect

import pytest

from pe_cli.core.errors import PeError
from pe_cli.optim.clip import GradientClip
from pe_cli.optim.fields import Declared, decay, least, part
from pe_cli.optim.optimizer import Rate, State
from pe_cli.optim.regularizer import Regularizer


class Written(Declared):
    op = "adamw"
    decay_attr = "weight_decay"
    keeps = (State("Moment1", "moment1"), State("Beta1Pow", "pow", "first", single=True))

    learning_rate: Rate
    first: float = part(default=0.5, attr="beta1")
    epsilon: float = least(default=1e-3)
    weight_decay: float = decay(default=0.25)
    regularization: Regularizer | None = None
    grad_clip: GradientClip | None = None
    name: str | None = None
    further: int = 3


class Same(Written):
    pass


@pytest.mark.parametrize("made", [Written, Same])
def test_the_constructor_is_the_list_of_fields(made):
    found = inspect.signature(made).parameters
    order = ["learning_rate", "first", "epsilon", "weight_decay", "regularization", "grad_clip", "name", "further"]
    assert list(found) == order
    assert found["learning_rate"].default is inspect.Parameter.empty
    assert [found[n].default for n in order[1:]] == [0.5, 1e-3, 0.25, None, None, None, 3]
    optimizer = made(0.1, 0.75, name="n")
    assert (optimizer.learning_rate, optimizer.first, optimizer.name, optimizer.further) == (0.1, 0.75, "n", 3)


def test_attributes_are_the_fields_that_the_op_knows():
    assert Written(0.1, first=0).attrs() == {"beta1": 0.0, "epsilon": 1e-3, "weight_decay": 0.25}


def test_a_state_may_begin_as_a_field():
    assert [s.value for s in Written(0.1, 0.75).states()] == [0.0, 0.75]


@pytest.mark.parametrize(
    ("given", "what"),
    [
        pytest.param({"first": 1.0}, r"Written: first must be in \[0, 1\), got 1.0", id="a part that is all"),
        pytest.param({"epsilon": -1.0}, "Written: epsilon must be >= 0", id="a negative epsilon"),
        pytest.param({"weight_decay": float("inf")}, "Written: weight_decay must be >= 0", id="an endless decay"),
        pytest.param({"learning_rate": 0.0}, "learning_rate must be > 0", id="no rate"),
    ],
)
def test_fields_are_checked(given, what):
    with pytest.raises(PeError, match=what):
        Written(**{"learning_rate": 0.1, **given})


@pytest.mark.parametrize("given", [{}, {"learning_rate": 0.1, "secnd": 0.5}])
def test_other_arguments_are_a_type_error_that_names_the_class(given):
    with pytest.raises(TypeError, match="Written: "):
        Written(**given)
