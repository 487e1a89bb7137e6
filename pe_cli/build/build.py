"""build: a model and a run become startup, train and eval programs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from pe_cli.build.class_weights import weigh_classes
from pe_cli.build.groups import Groups, apply_groups
from pe_cli.build.losses import append_final_total, append_total
from pe_cli.build.metrics import declare
from pe_cli.build.model import Layers
from pe_cli.build.objects import OPTIMIZER, Maker
from pe_cli.build.recompute import set_checkpoints
from pe_cli.build.regions import BrokenError
from pe_cli.config.load import read_run
from pe_cli.config.mistakes import Mistakes
from pe_cli.config.period import Period
from pe_cli.config.sections.feed import FeedSection
from pe_cli.config.sections.losses import Term
from pe_cli.config.sections.train import TrainSection
from pe_cli.config.spec import TOTAL_LOSS, ModelSpec, RunSpec
from pe_cli.core.errors import PeError, Span, did_you_mean
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.graph.sequences import resolve
from pe_cli.metrics.define import Declared
from pe_cli.optim.accumulate import PartPrograms, add_up
from pe_cli.optim.average import MovingAverage, append_moving_average
from pe_cli.optim.norms import gradient_norms
from pe_cli.optim.optimizer import Optimizer
from pe_cli.program.defaults import default_startup_program, program_guard
from pe_cli.program.ir import Program, Variable


@dataclass(frozen=True)
class Built:
    """Programs of a model.

    Args:
        name: of the model.
        startup: initialises every persistable variable, the optimizer's too.
        train: forward, backward and optimizer ops; None where the run says nothing of training.
        eval: forward ops, with layers like dropout switched to evaluation.
        feeds: type of every feed, with the batch axis (-1).
        loss: variable that is minimised, None without training.
        fetches: name as written -> variable, of the model file and of the run file.
        recorded: metric -> variable of the training program that is recorded beside the loss: the learning rate and the like.
        norms: parameters whose gradients' lengths are the elements of the variable `norms_name`, in order.
        norms_name: empty where they are not asked for.
        parts: with `accumulate`, what runs for all parts of a batch but the last; `train` runs for that.
        average: with `ema`, the variables that hold the averages of parameters.
        groups: parameter -> number of the group of `train.groups` that it belongs to, from 0.
        waiting: parameter that is frozen until some time -> when that is; `train` does not train it.
        follows: variable of the optimizer's -> the parameter whose value it has when training it begins.
        last: the programs of when nothing waits any more; None where nothing does.
        metrics: of all rows of an evaluation.
    """

    name: str
    startup: Program
    train: Program | None
    eval: Program
    feeds: Mapping[str, TensorType] = field(default_factory=dict)
    loss: str | None = None
    fetches: Mapping[str, str] = field(default_factory=dict)
    recorded: Mapping[str, str] = field(default_factory=dict)
    norms: tuple[str, ...] = ()
    norms_name: str = ""
    parts: PartPrograms | None = None
    average: MovingAverage | None = None
    groups: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, Period] = field(default_factory=dict)
    follows: Mapping[str, str] = field(default_factory=dict)
    last: Built | None = None
    metrics: tuple[Declared, ...] = ()

    @property
    def read(self) -> set[str]:
        """Variables that others than the layers read: the loss, what is fetched and what metrics compare."""
        compared = {variable for declared in self.metrics for variable in declared.variables.values()}
        return {*self.fetches.values(), *compared, *([self.loss] if self.loss else [])}


def build(model: ModelSpec, run: RunSpec | None = None, released: Collection[str] | None = ()) -> Built:
    """Make the programs.

    Args:
        model: what is computed.
        run: what is trained and fetched; None makes an eval program only.
        released: times that have come, such as `3 epochs`: what is frozen until then is trained; None: all of them.

    Raises:
        PeError: any mistake in the layers or in what the run says of them; a `PeErrors` with all where there are more.
    """
    mistakes = Mistakes()
    built = build_into(model, run, mistakes, released)
    mistakes.raise_all()
    return built


def load_and_build(path: Path | str, overrides: Sequence[str] = ()) -> tuple[RunSpec, Built]:
    """Read a run file and its model file and make the programs: the mistakes of all three in one error.

    Args:
        path: the run file.
        overrides: `key=value`, as after `-o`.

    Raises:
        PeError: any mistake; a `PeErrors` with all where there are several.
    """
    mistakes = Mistakes()
    run = read_run(Path(path), overrides, mistakes)
    built = build_into(run.model, run, mistakes) if run else None
    mistakes.raise_all()
    assert run is not None
    assert built is not None
    return run, built


def build_into(model: ModelSpec, run: RunSpec | None, mistakes: Mistakes, released: Collection[str] | None = ()) -> Built:
    """Make the programs as far as they can be made, with every mistake added; `released` as of `build`."""
    made = _build(model, run, mistakes, released)
    if not made.waiting or mistakes:
        return made
    return replace(made, last=_build(model, run, mistakes, None))


def _build(model: ModelSpec, run: RunSpec | None, mistakes: Mistakes, released: Collection[str] | None) -> Built:
    train, startup = Program("train"), Program("startup")
    train.random_seed = startup.random_seed = run.executor.seed if run else 0
    layers = Layers(train, model, mistakes)
    with program_guard(train, startup):
        layers.append_all()
        groups = apply_groups(train, run.train.groups, mistakes, released) if run and run.train and not mistakes else Groups()
        _check_common_steps(run, mistakes)
        evaluation = train.clone(for_test=True)
        evaluation.name = "eval"
        references = _References(layers, mistakes, run)
        terms = references.terms()
        places = {name: run.tree_key("train", "loss", name) for name in terms} if run else {}
        loss, weights = append_total(train, terms, places) if terms else (references.loss(), {})
        if terms:
            append_final_total(evaluation, terms)
        if run and run.preparation.class_weights is not None and not mistakes:
            with mistakes.catch():
                weigh_classes(train, model, run.preparation.class_weights.at)
        if not mistakes:
            with mistakes.catch():
                resolve(evaluation)  # says which layer misses sequences
        if run and run.train and run.train.recompute is not None and not mistakes:
            set_checkpoints(train, run.train.recompute, mistakes, run.train.at_of("recompute"))
        made = (_optimize(run, loss, mistakes, groups.waiting) if run else None) or _Training()
    feeds = {v.name: v.type for v in evaluation.list_vars() if v.is_data}
    fetches = references.fetches(model) | {name: variable.name for name, (variable, _) in terms.items()}
    metrics: tuple[Declared, ...] = ()
    if run:
        references.feeds(feeds)
        metrics = references.metrics(evaluation, fetches)
        references.measured({**fetches, **({run.loss: loss.name} if run.loss and loss else {})})
        _check_plateau(run, train, made.recorded.get("learning_rate"), mistakes)
    trained = train if run and run.train else None
    least = loss.name if loss else None
    facts = vars(made) | {"recorded": {**made.recorded, **weights}}
    facts |= {"groups": groups.numbers, "waiting": groups.waiting}
    return Built(model.name, startup, trained, evaluation, feeds, least, fetches, **facts, metrics=metrics)


@dataclass(frozen=True)
class _Training:
    """What comes of the optimizer; as in `Built`."""

    recorded: Mapping[str, str] = field(default_factory=dict)
    norms: tuple[str, ...] = ()
    norms_name: str = ""
    parts: PartPrograms | None = None
    average: MovingAverage | None = None
    follows: Mapping[str, str] = field(default_factory=dict)


def _optimize(run: RunSpec, loss: Variable | None, mistakes: Mistakes, waiting: Collection[str]) -> _Training | None:
    """Append backward and optimizer ops, whose place is the optimizer's; None where that is wrong."""
    node = run.optimizer
    if node is None or loss is None:
        # still look at the optimizer, in a program that nobody keeps
        with program_guard(Program(), Program()):
            if node is not None:
                Maker(mistakes).make(OPTIMIZER, node, "train.optimizer")
        return None
    at = run.at_of("train", "optimizer", "type")
    made = None
    with loss.block.program.place(at):
        optimizer = Maker(mistakes, loss.block).make(OPTIMIZER, node, "train.optimizer")
        if optimizer is None or mistakes or run.train is None:
            return None
        if optimizer.evaluations > 1:
            _check_evaluations(run, mistakes)
        with mistakes.catch():
            try:
                made = _minimize(run.train, optimizer, loss, run.output.gradient_norms, waiting)
            except PeError as error:
                error.at = error.at or at
                raise
    return made


def _check_evaluations(run: RunSpec, mistakes: Mistakes) -> None:
    """Refuse what does not go with an optimizer that computes several gradients in a step."""
    assert run.train
    why = "does not go with an optimizer that computes a gradient twice in a step, such as SAM"
    if run.train.accumulate > 1:
        mistakes.say(f"train.accumulate {why}", run.train.at_of("accumulate"), "leave accumulate out")
    if run.train.recompute is not None:
        mistakes.say(f"train.recompute {why}", run.train.at_of("recompute"), "leave recompute out")
    if run.build_strategy.reduce_strategy == "Reduce":
        place = run.at_of("build_strategy", "reduce_strategy")
        mistakes.say(f"reduce_strategy Reduce {why}", place, "use AllReduce")


def _check_common_steps(run: RunSpec | None, mistakes: Mistakes) -> None:
    """Refuse groups that begin to be trained where threads train on their own."""
    if run is None or run.train is None or run.executor.type != "async":
        return
    for group in run.train.groups:
        if isinstance(group.freeze, Period):
            text = "asynchronous training has no step in common at which a group begins to be trained"
            mistakes.say(text, group.at_of("freeze"), "write freeze: true or false, or executor.type: parallel")


def _check_plateau(run: RunSpec, program: Program, rate: str | None, mistakes: Mistakes) -> None:
    """Refuse to lower a rate that is not a number which training keeps."""
    section = run.train.plateau if run.train else None
    if section is None or mistakes:
        return
    variable = program.global_block().vars.get(rate or "")
    if variable is None or not variable.persistable or variable.is_data:
        text = "train.plateau lowers a learning rate that is a number, and here it is a schedule or a feed"
        mistakes.say(text, section.at, "write a number as learning_rate, or leave train.plateau out")


def _minimize(section: TrainSection, optimizer: Optimizer, loss: Variable, norms: bool, waiting: Collection[str]) -> _Training:
    """Append what the optimizer does, with the lengths of gradients measured before they are clipped; averages of what waits go on, too."""
    program = loss.block.program
    pairs = optimizer.backward(loss)
    parts = average = None
    if section.accumulate > 1:
        parts, pairs = add_up(pairs, loss)
    measured = gradient_norms(pairs) if norms and pairs else None
    optimizer.apply_gradients(pairs)
    rate = optimizer.rate(program)
    recorded = {"learning_rate": rate.name} if rate else {}
    follows = {optimizer.state(slot, p).name: p.name for p, _ in pairs for slot in optimizer.follows()}
    if section.ema is not None:
        trained = [p for p in program.global_block().parameters() if p.trainable or p.name in waiting]
        average = append_moving_average(program, default_startup_program(), trained, section.ema.decay)
    if measured is None:
        return _Training(recorded, parts=parts, average=average, follows=follows)
    total, each = measured
    recorded["gradient_norm"] = total.name
    return _Training(recorded, tuple(p.name for p, _ in pairs), each.name, parts, average, follows)


@dataclass(frozen=True)
class _References:
    """Names in a run file that stand for variables and feeds of the model."""

    layers: Layers
    mistakes: Mistakes
    run: RunSpec | None

    def find(self, name: str, at: Span | None) -> Variable | None:
        try:
            return self.layers.find(name, self.layers.model.scope)
        except BrokenError:
            return None
        except PeError as error:
            error.at = at
            self.mistakes.add(error)
        return None

    def terms(self) -> dict[str, tuple[Variable, Term]]:
        """Return the losses that are added up; empty where there is one alone, or a mistake."""
        found: dict[str, tuple[Variable, Term]] = {}
        before = self.mistakes.total
        for name, term in self.run.terms.items() if self.run else ():
            assert self.run
            assert self.run.train
            place = self.run.tree_key("train", "loss", name)
            variable = self.find(name, place)
            if variable is None:
                continue
            if variable.type.size != 1 or variable.dtype not in FLOATS:
                text = f"train.loss: '{name}' must be one number, it is {variable.type}"
                self.mistakes.say(text, place, "put a layer of type mean after it")
            if term.ramp is not None and self.run.train.accumulate > 1:
                self.mistakes.say("a weight that ramps up does not go with train.accumulate", place, "leave ramp out, or accumulate")
            found[name] = variable, term
        if self.run and found and TOTAL_LOSS in self.layers.block.vars:
            text = f"the sum of the losses is called {TOTAL_LOSS}, and the model has a variable of that name"
            self.mistakes.say(text, self.run.at_of("train", "loss"), "rename it in the model")
        return found if self.mistakes.total == before else {}

    def loss(self) -> Variable | None:
        if self.run and self.run.terms:
            return None
        name = self.run.loss if self.run else None
        return self.find(name, self.run.at_of("train", "loss")) if self.run and name else None

    def fetches(self, model: ModelSpec) -> dict[str, str]:
        wanted: dict[str, Span | None] = dict(model.fetches)
        for name in self.run.fetches if self.run else ():
            assert self.run
            wanted[name] = self.run.tree_key("fetches", name)
        found = {name: self.find(name, at) for name, at in wanted.items()}
        for name, section in self.run.fetches.items() if self.run else ():
            variable = found[name]
            if section.to and variable is not None and variable.type.size == 1 and variable.dtype.startswith("float"):
                text = f"fetches.{name}.to: '{name}' is one number per step, and those go to metrics.jsonl"
                self.mistakes.say(text, section.at_of("to"), "leave to out; output.log: [jsonl, csv] writes a table too")
        return {name: variable.name for name, variable in found.items() if variable}

    def source(self, name: str, section: FeedSection, kind: TensorType | None) -> None:
        """Check that a feed has one source, and one that fits."""
        place = self.run.tree_key("feeds", name) if self.run else None
        if (section.from_ is None) == (section.value is None):
            self.mistakes.say(
                f"feed '{name}' needs either from or value", place, f"{name}: FIELD, or {name}: {{value: 0.1}}"
            )
        elif section.value is not None and kind is not None and not kind.known:
            hint = "value is for feeds that the model declares with replicate: true"
            self.mistakes.say(f"feed '{name}' has a batch axis and needs a field of the data", place, hint)
        elif section.value is None and kind is not None and kind.known:
            self.mistakes.say(f"feed '{name}' has no batch axis", place, f"give it a value: {name}: {{value: 0.1}}")

    def feeds(self, known: Mapping[str, TensorType]) -> None:
        """Check that the run feeds what the model takes."""
        assert self.run
        start = f"{self.run.loss}@GRAD" if self.run.loss else ""
        if self.run.build_strategy.gradient_scale_strategy == "Customized":
            known = {**known, start: TensorType((1,))}
        for name, section in self.run.feeds.items():
            self.source(name, section, known.get(name))
            if name not in known and name not in self.layers.broken:
                hint = did_you_mean(name, known) or f"it has {', '.join(known) or 'none'}"
                self.mistakes.say(f"the model has no feed '{name}'", self.run.tree_key("feeds", name), hint)
        if not self.run.data:
            return
        written = self.run.tree.get("feeds")
        for name in known:
            declared = self.layers.model.feeds.get(name)
            by_name = declared is not None and not declared.replicate
            if name not in getattr(written, "entries", {}) and not by_name:
                place = self.run.at_of("feeds") if written else self.run.at
                notes = (
                    ((self.layers.model.feeds[name].at, "declared here"),) if name in self.layers.model.feeds else ()
                )
                self.mistakes.say(
                    f"the model's feed '{name}' gets no data", place, f"add {name}: FIELD to feeds", notes
                )

    def metrics(self, evaluation: Program, fetches: Mapping[str, str]) -> tuple[Declared, ...]:
        """Return the metrics of the run file, checked."""
        assert self.run
        if not self.run.metrics:
            return ()
        block = evaluation.global_block()
        types = {name: block.vars[v].type for name, v in fetches.items() if v in block.vars}
        numbers = {name for name, kind in types.items() if kind.size == 1 and kind.dtype.startswith("float")}
        return declare(self.run.metrics, evaluation, numbers | {self.run.loss or ""}, self.find, self.mistakes)

    def measured(self, fetches: Mapping[str, str]) -> None:
        """Check that what the best checkpoint, early stopping, a plateau and a sweep go by is fetched, or a metric of the evaluation."""
        assert self.run
        checkpoint, train = self.run.output.checkpoint, self.run.train
        watched = (train.early_stopping, train.plateau) if train else ()
        for section in (checkpoint.best if checkpoint else None, *watched, self.run.sweep):
            if section is None or self.mistakes:
                continue
            use, slash, name = section.by.partition("/")
            known = [f"{data}/{fetch}" for data in self.run.data for fetch in fetches]
            known += [f"eval/{metric}" for metric in self.run.metrics if "eval" in self.run.data]
            if section.by not in known:
                hint = did_you_mean(section.by, known) or f"one of {', '.join(known) or 'none'}"
                if use == "eval" and slash and "eval" not in self.run.data and name in {*fetches, *self.run.metrics}:
                    hint = f"add data.eval{f', or {hint}' if known else ''}"
                self.mistakes.say(f"nothing is measured as '{section.by}'", section.at_of("by"), hint)
