"""build: a model and a run become startup, train and eval programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pe_cli.build.class_weights import weigh_classes
from pe_cli.build.decisions import Deciding, deciding
from pe_cli.build.head import begun_anew
from pe_cli.build.layerwise_rates import apply_depth
from pe_cli.build.metrics import declare
from pe_cli.build.model import Layers
from pe_cli.build.parameter_groups import Groups, apply_groups
from pe_cli.build.phases import Phase, Phases, Wanted
from pe_cli.build.regions import BrokenError
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.load import read_run
from pe_cli.config.period import Period
from pe_cli.config.sections.feed import FeedSection
from pe_cli.config.sections.losses import Term
from pe_cli.config.spec import ModelSpec, PhaseSpec, RunSpec
from pe_cli.core.errors import PeError, Span, did_you_mean
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.core.types import FLOATS, TensorType
from pe_cli.graph.lod_resolution import resolve
from pe_cli.metrics.define import Declared
from pe_cli.optim.average import MovingAverage
from pe_cli.program.defaults import program_guard
from pe_cli.program.ir import Operator, Program, Variable

if TYPE_CHECKING:
    from pe_cli.build.adapters import Adapted


@dataclass(frozen=True)
class Built:
    """Programs of a model.

    Args:
        name: of the model.
        startup: initialises every persistable variable, the optimizers' too.
        eval: forward ops, with layers like dropout switched to evaluation.
        feeds: type of every feed, with the batch axis (-1).
        phases: what a step trains, in order; none where the run file says nothing of training.
        fetches: name as written -> variable, of the model file and of the run file.
        groups: parameter -> number of the group of `train.groups` that it belongs to, from 0.
        waiting: parameter that is frozen until some time -> when that is; no phase trains it.
        last: the programs of when nothing waits any more; None where nothing does.
        metrics: of all rows of an evaluation.
        deciding: what is decided on its rows.
        adapted: what `train.adapt` has added; None for nothing.
        anew: parameters of the layer that `model.head` replaces.
    """

    name: str
    startup: Program
    eval: Program
    feeds: Mapping[str, TensorType] = field(default_factory=dict)
    phases: tuple[Phase, ...] = ()
    fetches: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, Period] = field(default_factory=dict)
    last: Built | None = None
    metrics: tuple[Declared, ...] = ()
    deciding: Deciding | None = None
    adapted: Adapted | None = None
    anew: frozenset[str] = frozenset()

    @property
    def train(self) -> Program | None:
        """What the first phase runs: all of a step where there are no others. None where nothing is trained."""
        return self.phases[0].program if self.phases else None

    @property
    def programs(self) -> tuple[Program, ...]:
        """What the phases of a step run, in order."""
        return tuple(phase.program for phase in self.phases)

    @property
    def ops(self) -> list[Operator]:
        """All operators of a step, in the order in which they are run."""
        return [op for program in self.programs for op in program.top_ops]

    @property
    def losses(self) -> dict[str, str]:
        """What is minimised: name as written -> variable."""
        return {phase.spec.loss: phase.loss for phase in self.phases if phase.spec.loss and phase.loss}

    @property
    def recorded(self) -> dict[str, str]:
        """Metric -> variable of a phase that is recorded beside the loss."""
        return {name: variable for phase in self.phases for name, variable in phase.recorded.items()}

    @property
    def norms(self) -> list[str]:
        """The names under which the lengths of gradients are recorded, of all phases."""
        return [name for phase in self.phases for name in phase.norms]

    @property
    def follows(self) -> dict[str, str]:
        """Variable of an optimizer's -> the parameter whose value it has when training it begins."""
        return {name: parameter for phase in self.phases for name, parameter in phase.follows.items()}

    @property
    def batches(self) -> int:
        """Batches of a step: as many as the phase has that repeats most."""
        return max((phase.repeat for phase in self.phases), default=1)

    @property
    def average(self) -> MovingAverage | None:
        """With `ema`, the variables that hold the averages of parameters; of one that several phases train that of the last."""
        found = [phase.average for phase in self.phases if phase.average]
        averages = {name: average for each in found for name, average in each.averages.items()}
        weights = {name: weight for each in found for name, weight in each.weights.items()}
        return MovingAverage(averages, weights) if found else None

    def phase(self, name: str) -> Phase:
        """Return a phase by its name.

        Raises:
            PeError: there is none.
        """
        found = next((phase for phase in self.phases if phase.name == name), None)
        if found is None:
            names = [phase.name for phase in self.phases if phase.name]
            hint = did_you_mean(name, names) or (f"there are {', '.join(names)}" if names else "the config has no train.phases")
            raise PeError(f"there is no phase '{name}'", hint=hint)
        return found

    def phase_of(self, variable: str) -> Phase | None:
        """Return the phase that a value is taken from in training: that which minimises it, else the last one that has the variable."""
        behind = self.phases[::-1]
        minimising = next((phase for phase in behind if phase.loss == variable), None)
        return minimising or next((phase for phase in behind if variable in phase.program.vars), None)

    @property
    def read(self) -> set[str]:
        """Variables that others than the layers read: the loss, what is fetched and what metrics compare."""
        # A warning about layers that nothing uses has to know of them.
        compared = {variable for declared in self.metrics for variable in declared.variables.values()}
        if self.deciding is not None:
            compared.add(self.deciding.of.variable(self.deciding.wish)[0])
        return {*self.fetches.values(), *compared, *self.losses.values()}


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


def load_and_build(
    path: Path | str, overrides: Sequence[str] = (), settle: Callable[[RunSpec, Mistakes], RunSpec] | None = None
) -> tuple[RunSpec, Built]:
    """Read a run file and its model file and make the programs: the mistakes of all three in one error.

    Args:
        path: the run file.
        overrides: `key=value`, as after `-o`.
        settle: fills in what only the data tells; None where a run file that needs it is a mistake.

    Raises:
        PeError: any mistake; a `PeErrors` with all where there are several.
    """
    mistakes = Mistakes()
    run = read_run(Path(path), overrides, mistakes)
    run = settle(run, mistakes) if run and settle else run
    built = build_into(run.model, run, mistakes) if run else None
    mistakes.raise_all()
    assert run is not None
    assert built is not None
    return run, built


def build_into(model: ModelSpec, run: RunSpec | None, mistakes: Mistakes, released: Collection[str] | None = ()) -> Built:
    """Make the programs as far as they can be made, with every mistake added; `released` as of `build`."""
    made = _build(model, run, mistakes, released)
    if not made.waiting or mistakes:
        # With groups that thaw, the programs of the last stage are made at once, so their mistakes show before training.
        return made
    return replace(made, last=_build(model, run, mistakes, None))


def _build(model: ModelSpec, run: RunSpec | None, mistakes: Mistakes, released: Collection[str] | None) -> Built:
    train, startup = Program("train"), Program("startup")
    train.random_seed = startup.random_seed = run.executor.seed if run else 0
    layers = Layers(train, model, mistakes)
    with program_guard(train, startup):
        layers.append_all()
        anew = begun_anew(train, model.head, mistakes) if model.head else frozenset()
        adapted = _adapted(train, run, mistakes)
        if run and run.train and run.train.by_depth and not mistakes:
            apply_depth(train, run.train.by_depth, mistakes)
        groups = apply_groups(train, run.train.groups, mistakes, released) if run and run.train and not mistakes else Groups()
        _check_common_steps(run, mistakes)
        # Before backward and updates are appended: evaluation needs the forward ops alone.
        evaluation = train.clone(for_test=True)
        evaluation.name = "eval"
        references = _References(layers, mistakes, run)
        if run and run.preparation.class_weights is not None and not mistakes:
            with mistakes.catch():
                weigh_classes(train, model, run.preparation.class_weights.at)
        if not mistakes:
            with mistakes.catch():
                resolve(evaluation)  # says which layer misses sequences
        wanted = references.wanted()
        fetches = references.fetches(model) | {name: variable.name for each in wanted for name, (variable, _) in each.terms.items()}
        phases = Phases(run, train, evaluation, groups.waiting, mistakes).make(wanted, {*fetches.values()}) if run else ()
    feeds = {v.name: v.type for v in evaluation.list_vars() if v.is_data}
    trained = phases if run and run.train else ()
    made = Built(model.name, startup, evaluation, feeds, trained, fetches, groups.numbers, groups.waiting, adapted=adapted, anew=anew)
    if run is None:
        return made
    references.feeds(feeds)
    metrics = references.metrics(evaluation, fetches)
    references.measured({**fetches, **made.losses})
    # Only where no mistake was found: what was left out because of one would be reported as missing.
    _check_plateau(run, train, made.recorded.get("learning_rate"), mistakes)
    return replace(made, metrics=metrics, deciding=None if mistakes else deciding(run, evaluation, mistakes))


def _adapted(train: Program, run: RunSpec | None, mistakes: Mistakes) -> Adapted | None:
    if run is None or run.train is None or run.train.adapt is None or mistakes:
        return None
    from pe_cli.build.adapters import adapt

    return adapt(train, run.train.adapt, mistakes)


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
    variable = program.find_var(rate or "")
    if variable is None or not variable.persistable or variable.is_data:
        text = "train.plateau lowers a learning rate that is a number, and here it is a schedule or a feed"
        mistakes.say(text, section.at, "write a number as learning_rate, or leave train.plateau out")


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

    def wanted(self) -> list[Wanted]:
        """Return what the phases minimise."""
        return [Wanted(spec, None if spec.summed else self.loss(spec), self.terms(spec)) for spec in (self.run.phases if self.run else ())]

    def terms(self, spec: PhaseSpec) -> dict[str, tuple[Variable, Term]]:
        """Return the losses that are added up; empty where there is one alone, or a mistake."""
        found: dict[str, tuple[Variable, Term]] = {}
        before, where = self.mistakes.total, ".".join(map(str, (*spec.path, "loss")))
        for name, term in spec.terms.items():
            assert self.run
            assert self.run.train
            place = self.run.tree_key(*spec.path, "loss", name)
            variable = self.find(name, place)
            if variable is None:
                continue
            if variable.type.size != 1 or variable.dtype not in FLOATS:
                text = f"{where}: '{name}' must be one number, it is {variable.type}"
                self.mistakes.say(text, place, "put a layer of type mean after it")
            if term.ramp is not None and self.run.train.accumulate > 1:
                self.mistakes.say("a weight that ramps up does not go with train.accumulate", place, "leave ramp out, or accumulate")
            found[name] = variable, term
        if self.run and found and spec.loss in self.layers.block.vars:
            text = f"the sum of the losses is called {spec.loss}, and the model has a variable of that name"
            self.mistakes.say(text, self.run.at_of(*spec.path, "loss"), "rename it in the model")
        return found if self.mistakes.total == before else {}

    def loss(self, spec: PhaseSpec) -> Variable | None:
        return self.find(spec.loss, self.run.at_of(*spec.path, "loss")) if self.run and spec.loss else None

    def fetches(self, model: ModelSpec) -> dict[str, str]:
        wanted: dict[str, Span | None] = dict(model.fetches)
        for name in self.run.fetches if self.run else ():
            assert self.run
            wanted[name] = self.run.tree_key("fetches", name)
        sums = {spec.loss for spec in self.run.phases if spec.loss and spec.summed} if self.run else set()
        found = {name: self.find(name, at) for name, at in wanted.items() if name not in sums}
        for name, section in self.run.fetches.items() if self.run else ():
            variable = found.get(name)
            number = variable is not None and variable.type.size == 1 and variable.dtype.startswith("float")
            if section.to and (number or name in sums):
                text = f"fetches.{name}.to: '{name}' is one number per step, and those go to metrics.jsonl"
                self.mistakes.say(text, section.at_of("to"), "leave to out; output.log: [jsonl, csv] writes a table too")
        names = {name: variable.name for name, variable in found.items() if variable} | {name: name for name in sums if name in wanted}
        return {name: names[name] for name in wanted if name in names}

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
        # With Customized, the gradient of the loss is a feed, under its own name.
        if self.run.build_strategy.gradient_scale_strategy == "Customized":
            known = {**known, **{f"{spec.loss}@GRAD": TensorType((1,)) for spec in self.run.phases if spec.loss}}
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
            # A feed that the run file does not name takes the field of its name.
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
        types = {name: evaluation.vars[v].type for name, v in fetches.items() if v in evaluation.vars}
        numbers = {name for name, kind in types.items() if kind.size == 1 and kind.dtype.startswith("float")}
        losses = {spec.loss for spec in self.run.phases if spec.loss}
        return declare(self.run.metrics, evaluation, numbers | losses, self.find, self.mistakes)

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
