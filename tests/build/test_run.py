"""Runs: loss, optimizer, feeds and fetches; and the files that ship."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from textwrap import dedent

import pytest

from pe_cli.build.build import load_and_build
from pe_cli.program.ir import Role

ROOT = Path(__file__).parents[2]
MODEL = """\
feeds: {x: {shape: [4]}, label: {shape: [1], dtype: int64}}
layers:
  logits: {type: fc, input: x, size: 3}
  xent: {type: softmax_with_cross_entropy, logits: logits, label: label}
  loss: {type: mean, x: xent}
fetches: [loss]
"""
RUN = """\
model: model.yaml
train: {loss: loss, epochs: 1, batch_size: 2, optimizer: {type: SGD, learning_rate: 0.1}}
"""
Errors = Callable[..., list[str]]


def with_optimizer(text: str) -> str:
    return RUN.replace("{type: SGD, learning_rate: 0.1}", text)


def test_training_has_backward_and_updates_and_evaluation_has_not(write: Callable[..., None]) -> None:
    write(model=MODEL, run=RUN)
    run, built = load_and_build("run.yaml")
    assert run.train is not None
    assert built.train is not None
    roles = [op.role for op in built.train.global_block().ops]
    assert {Role.FORWARD, Role.BACKWARD, Role.OPTIMIZE} <= set(roles)
    assert {op.role for op in built.eval.global_block().ops} == {Role.FORWARD}
    assert built.losses == {"loss": "loss"}
    assert built.fetches == {"loss": "loss"}
    updated = [op.inputs["Param"][0] for op in built.train.global_block().ops if op.type == "sgd"]
    assert updated == ["logits.w_0", "logits.b_0"]


def test_the_seed_reaches_both_programs(write: Callable[..., None]) -> None:
    write(model=MODEL, run=RUN + "executor: {seed: 5}\n")
    _, built = load_and_build("run.yaml")
    assert built.train is not None
    assert (built.train.random_seed, built.startup.random_seed) == (5, 5)


def test_without_a_train_section_there_is_no_train_program(write: Callable[..., None]) -> None:
    write(model=MODEL, run="model: model.yaml\n")
    _, built = load_and_build("run.yaml")
    assert built.train is None
    assert built.losses == {}


def test_an_optimizer_with_everything(write: Callable[..., None]) -> None:
    text = """{type: Momentum, momentum: 0.9, use_nesterov: true,
      learning_rate: {type: linear_lr_warmup, warmup_steps: 10, start_lr: 0, end_lr: 0.1,
                      learning_rate: {type: piecewise_decay, boundaries: [5], values: [0.1, 1e-2]}},
      regularization: {type: L2Decay, regularization_coeff: 1e-4},
      gradient_clip: {type: GradientClipByGlobalNorm, clip_norm: 5}}"""
    write(model=MODEL, run=with_optimizer(text))
    _, built = load_and_build("run.yaml")
    assert built.train is not None
    types = [op.type for op in built.train.global_block().ops]
    assert types.count("momentum") == 2
    assert {"linear_lr_warmup", "piecewise_decay", "l2_decay", "global_norm_scale"} <= set(types)
    (first, _) = [op for op in built.train.global_block().ops if op.type == "momentum"]
    assert first.attrs["use_nesterov"] is True


def test_a_decay_apart_from_the_gradient_is_a_number(write: Callable[..., None]) -> None:
    write(model=MODEL, run=with_optimizer("{type: AdamW, learning_rate: 0.001, weight_decay: 0.02}"))
    _, built = load_and_build("run.yaml")
    assert built.train is not None
    updates = [op for op in built.train.global_block().ops if op.role is Role.OPTIMIZE]
    assert [(op.type, op.attrs["weight_decay"]) for op in updates] == [("adamw", 0.02)] * 2


def test_an_optimizer_around_another(write: Callable[..., None]) -> None:
    inner = "{type: Momentum, learning_rate: 0.1, momentum: 0.9}"
    write(model=MODEL, run=with_optimizer(f"{{type: Lookahead, k: 6, alpha: 0.8, inner: {inner}}}"))
    _, built = load_and_build("run.yaml")
    assert built.train is not None
    types = [op.type for op in built.train.global_block().ops if op.role is Role.OPTIMIZE]
    assert types == ["lookahead_start", "lookahead_start", "momentum", "momentum", "lookahead", "lookahead"]


def test_a_warmup_in_front_of_a_schedule_that_starts_later(write: Callable[..., None]) -> None:
    text = """{type: AdamW, learning_rate: {type: linear_lr_warmup, warmup_steps: 10, start_lr: 0, end_lr: 0.1, delay: true,
                      learning_rate: {type: cosine_restarts, learning_rate: 0.1, T_0: 50, T_mult: 2}}}"""
    write(model=MODEL, run=with_optimizer(text))
    _, built = load_and_build("run.yaml")
    assert built.train is not None
    types = [op.type for op in built.train.global_block().ops if op.role is Role.LR_SCHED]
    assert types == ["increment", "delayed_step", "cosine_restarts", "linear_lr_warmup"]


@pytest.mark.parametrize(
    ("run", "rendered"),
    [
        pytest.param(
            RUN.replace("loss: loss", "loss: los"),
            """\
            run.yaml:2:15: error: there is no variable 'los'
                  train: {loss: los, epochs: 1, batch_size: 2, optimizer: {type: SGD, learning_rate: 0.1}}
                                ^^^
            hint: did you mean 'loss'?""",
            id="an unknown loss",
        ),
        pytest.param(
            with_optimizer("{type: SDG, learning_rate: 0.1}"),
            """\
            run.yaml:2:65: error: there is no optimizer 'SDG'
                  train: {loss: loss, epochs: 1, batch_size: 2, optimizer: {type: SDG, learning_rate: 0.1}}
                                                                                  ^^^
            hint: did you mean 'SGD'?""",
            id="an unknown optimizer",
        ),
        pytest.param(
            with_optimizer("{type: SGD}"),
            """\
            run.yaml:2:65: error: optimizer 'SGD' needs the argument 'learning_rate'
                  train: {loss: loss, epochs: 1, batch_size: 2, optimizer: {type: SGD}}
                                                                                  ^^^
            hint: add learning_rate: ...""",
            id="no learning rate",
        ),
        pytest.param(
            with_optimizer("{type: SGD, learning_rate: -0.1}"),
            """\
            run.yaml:2:85: error: learning_rate must be > 0, got -0.1
                  train: {loss: loss, epochs: 1, batch_size: 2, optimizer: {type: SGD, learning_rate: -0.1}}
                                                                                                      ^^^^""",
            id="a negative learning rate",
        ),
        pytest.param(
            with_optimizer("{type: SGD, learning_rate: {type: one_cycle, max_lr: 1, total_steps: 9, anneal_strategy: cosine}}"),
            """\
            run.yaml:2:65: error: op 'one_cycle': attribute anneal_strategy is 'cosine'
            hint: one of 'cos', 'linear'""",
            id="a shape of a cycle that is not there",
        ),
        pytest.param(
            with_optimizer("{type: Lookahead, inner: {type: SGD, learning_rate: -1}}"),
            """\
            run.yaml:2:110: error: learning_rate must be > 0, got -1.0""",
            id="a wrong optimizer inside another",
        ),
        pytest.param(
            with_optimizer("{type: SGD, learning_rate: fast}"),
            """\
            run.yaml:2:85: error: learning_rate must be a number, a schedule or the name of a feed, got 'fast'
                  train: {loss: loss, epochs: 1, batch_size: 2, optimizer: {type: SGD, learning_rate: fast}}
                                                                                                      ^^^^""",
            id="a learning rate that is text",
        ),
        pytest.param(
            with_optimizer("{type: SGD, learning_rate: {type: piecewise_decay, boundaries: [1], vales: [1, 2]}}"),
            """\
            run.yaml:2:126: error: learning-rate schedule 'piecewise_decay' has no argument 'vales'
            hint: did you mean 'values'?""",
            id="an unknown argument of a schedule",
        ),
        pytest.param(
            with_optimizer("{type: SGD, learning_rate: 1, momentum: 0.9}"),
            """\
            run.yaml:2:88: error: optimizer 'SGD' has no argument 'momentum'
                  train: {loss: loss, epochs: 1, batch_size: 2, optimizer: {type: SGD, learning_rate: 1, momentum: 0.9}}
                                                                                                         ^^^^^^^^
            hint: its arguments are learning_rate, regularization, grad_clip""",
            id="an argument of another optimizer",
        ),
        pytest.param(
            RUN + "fetches: {los: {}}\n",
            """\
            run.yaml:3:11: error: there is no variable 'los'
                  fetches: {los: {}}
                            ^^^
            hint: did you mean 'loss'?""",
            id="an unknown fetch",
        ),
        pytest.param(
            RUN + "feeds: {x: a, label: b, lable: c}\n",
            """\
            run.yaml:3:25: error: the model has no feed 'lable'
                  feeds: {x: a, label: b, lable: c}
                                          ^^^^^
            hint: did you mean 'label'?""",
            id="an unknown feed",
        ),
        pytest.param(
            RUN + "data: {eval: {reader: npz}}\nfeeds: {x: a, label: b}\n"
            "output: {checkpoint: {best: {by: eval/los, mode: min}}}\n",
            """\
            run.yaml:5:34: error: nothing is measured as 'eval/los'
                  output: {checkpoint: {best: {by: eval/los, mode: min}}}
                                                   ^^^^^^^^
            hint: did you mean 'eval/loss'?""",
            id="a best checkpoint by something that is not fetched",
        ),
        pytest.param(
            RUN + "feeds: {x: a, label: b}\nfetches: {loss: {to: loss.csv}}\n",
            """\
            run.yaml:4:22: error: fetches.loss.to: 'loss' is one number per step, and those go to metrics.jsonl
                  fetches: {loss: {to: loss.csv}}
                                       ^^^^^^^^
            hint: leave to out; output.log: [jsonl, csv] writes a table too""",
            id="a file for a metric",
        ),
    ],
)
def test_messages(errors: Errors, run: str, rendered: str) -> None:
    found = errors(MODEL, run)
    wanted = dedent(rendered)
    if "\n      " not in wanted:
        found = ["\n".join(line for line in error.splitlines() if not line.startswith(" ")) for error in found]
    assert found == [wanted]


def test_a_loss_of_many_numbers_is_refused(errors: Errors) -> None:
    (found,) = errors(MODEL, RUN.replace("loss: loss", "loss: xent"))
    assert found.splitlines()[0].startswith("model.yaml:4:10: error: the loss 'xent' must be one number")


def test_mistakes_of_all_three_stages_come_at_once(errors: Errors) -> None:
    found = errors(
        MODEL.replace("size: 3", "sizes: 3") + "extra: 1\n",
        "model: model.yaml\n"
        "train: {loss: loss, epochs: 0, batch_size: 2, optimizer: {type: SDG, learning_rate: 0.1}}\n"
        "fetches: {nothing: {}}\n",
    )
    assert [error.splitlines()[0] for error in found] == [
        "run.yaml:2:29: error: train.epochs must be at least 1, got 0",
        "run.yaml:2:65: error: there is no optimizer 'SDG'",
        "run.yaml:3:11: error: there is no variable 'nothing'",
        "model.yaml:3:32: error: layer 'fc' has no argument 'sizes'",
        "model.yaml:7:1: error: a model has no section 'extra'",
    ]


@pytest.mark.parametrize("path", sorted((ROOT / "configs").glob("*.yaml")), ids=lambda path: f"{path.name} is built")
def test_configs_that_ship(path: Path) -> None:
    run, built = load_and_build(path)
    assert built.train is not None
    assert built.losses
    assert [phase.spec for phase in built.phases] == list(run.phases)
    assert set(run.feeds) <= set(built.feeds)  # a feed takes the field of its own name by default


@pytest.mark.parametrize(
    ("name", "count"),
    [
        # 64*128+128 + 128*128+128 + 128*10+10
        pytest.param("digits", 26122, id="the perceptron for digits"),
        # 0.27M in He et al. 2016, table 6; the two 1x1 convolutions with batch_norm add 512 + 64 + 2048 + 128
        pytest.param(
            "resnet20_synthetic", 269_722 + 2_752, id="ResNet-20 has 0.27 million, and more for its projections"
        ),
    ],
)
def test_numbers_of_parameters(name: str, count: int) -> None:
    _, built = load_and_build(ROOT / "configs" / f"{name}.yaml")
    trainable = [p for p in built.eval.global_block().parameters() if p.trainable]
    assert sum(p.type.size for p in trainable) == count
