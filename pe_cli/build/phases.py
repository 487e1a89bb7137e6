"""train.phases: builds one training program per phase, with its optimizer's ops; all phases share one scope."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field

from pe_cli.build.parameter_patterns import Matching
from pe_cli.build.recompute import set_checkpoints
from pe_cli.build.typed_objects import OPTIMIZER, Maker
from pe_cli.build.weighted_losses import append_final_total, append_total
from pe_cli.config.error_collector import Mistakes
from pe_cli.config.sections.losses import Term
from pe_cli.config.sections.train import TrainSection
from pe_cli.config.spec import PhaseSpec, RunSpec
from pe_cli.core.errors import PeError
from pe_cli.core.lazy_dataclass import dataclass
from pe_cli.optim.average import MovingAverage, append_moving_average
from pe_cli.optim.gradient_accumulation import PartPrograms, add_up
from pe_cli.optim.gradient_norms import gradient_norms
from pe_cli.optim.optimizer import Optimizer
from pe_cli.program.defaults import default_startup_program, program_guard
from pe_cli.program.ir import Program, Variable
from pe_cli.program.prune import needed, prune

Terms = Mapping[str, tuple[Variable, Term]]


@dataclass(frozen=True)
class Phase:
    """What every step does once, or several times, with a batch for each time.

    Args:
        spec: as the run file says it.
        program: forward, backward and optimizer ops.
        loss: variable that is minimised; None where that is wrong.
        recorded: metric -> variable that is recorded beside the loss: the learning rate and the like.
        norms: parameters whose gradients' lengths are the elements of the variable `norms_name`, in order.
        norms_name: empty where they are not asked for.
        parts: with `accumulate`, what runs for all parts of a batch but the last; `program` runs for that.
        average: with `ema`, the variables that hold the averages of parameters.
        follows: variable of the optimizer's -> the parameter whose value it has when training it begins.
        trained: parameters that it updates.
    """

    spec: PhaseSpec
    program: Program
    loss: str | None = None
    recorded: Mapping[str, str] = field(default_factory=dict)
    norms: tuple[str, ...] = ()
    norms_name: str = ""
    parts: PartPrograms | None = None
    average: MovingAverage | None = None
    follows: Mapping[str, str] = field(default_factory=dict)
    trained: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """The name of the phase; empty where a run has only one."""
        return self.spec.name

    @property
    def newest(self) -> dict[str, str]:
        """What is recorded as it was in the last update: the mean of a learning rate over several is one that no update had."""
        return {name: variable for name, variable in self.recorded.items() if not name.endswith("gradient_norm")}

    @property
    def repeat(self) -> int:
        """Updates in every step."""
        return self.spec.repeat


@dataclass(frozen=True)
class Wanted:
    """A phase before there is its program.

    Args:
        spec: as the run file says it.
        loss: variable of the model's program; None where there are terms, and where it is wrong.
        terms: losses that are added up, by name as written.
    """

    spec: PhaseSpec
    loss: Variable | None
    terms: Terms

    @property
    def targets(self) -> list[str]:
        """Variables that are minimised."""
        return [v.name for v, _ in self.terms.values()] if self.terms else [self.loss.name] if self.loss else []


class Phases:
    """Makes the phases of a run.

    Args:
        run: that is trained.
        forward: program of the model; the only phase of a run without `train.phases` is appended to it.
        evaluation: program that gets the sums of several losses, too.
        waiting: parameters that are frozen until some time.
        mistakes: where errors go.
    """

    def __init__(self, run: RunSpec, forward: Program, evaluation: Program, waiting: Collection[str], mistakes: Mistakes) -> None:
        self.run, self.forward, self.evaluation, self.waiting, self.mistakes = run, forward, evaluation, waiting, mistakes
        self.matching = Matching(forward)

    def make(self, wanted: Sequence[Wanted], fetched: Collection[str]) -> tuple[Phase, ...]:
        """Return the phases, in order.

        Args:
            wanted: as the run file says them.
            fetched: variables that are read after a step; each belongs to the phase that has to compute least for it. Sums of losses may
                be among them, which belong to theirs.
        """
        section = self.run.train
        if section and section.recompute is not None and not self.mistakes:
            set_checkpoints(self.forward, section.recompute, self.mistakes, section.at_of("recompute"))
        targets = self._shared_out(wanted, fetched)
        made = tuple(self._phase(each, names) for each, names in zip(wanted, targets, strict=True))
        if made and made[0].name and not self.mistakes:
            self._check_trained(made)
        return made

    def _shared_out(self, wanted: Sequence[Wanted], fetched: Collection[str]) -> list[list[str]]:
        """Return what every phase computes beside its updates; of phases with equal work the last one computes a fetch."""
        block, given = self.forward.main_block, self._given()
        targets = [list(each.targets) for each in wanted]
        if len(wanted) < 2 or self.mistakes:
            return targets
        for name in [name for name in fetched if name in block.vars]:
            # Where it costs the fewest further ops; the last of several alike, whose values are the newest.
            further = [len(needed(block, [*names, name], given)) - len(needed(block, names, given)) for names in targets]
            least = max(i for i, count in enumerate(further) if count == min(further))
            targets[least].append(name)
        return targets

    def _given(self) -> set[str]:
        """Return variables whose values are not of this step alone: what reads them needs no op that writes them, too."""
        return {v.name for v in self.forward.persistables()}

    def _phase(self, wanted: Wanted, targets: Sequence[str]) -> Phase:
        spec, run = wanted.spec, self.run
        program = prune(self.forward, targets, self._given()) if spec.name and targets else self.forward
        if spec.name:
            program.name, program.prefix = f"train, {spec.name}", f"{spec.name}/"
        with program_guard(program):
            terms = {name: (program.var(v.name), term) for name, (v, term) in wanted.terms.items()}
            loss, weights = (program.var(wanted.loss.name) if wanted.loss else None), dict[str, str]()
            if terms and spec.loss:
                places = {name: run.tree_key(*spec.path, "loss", name) for name in terms}
                loss, weights = append_total(program, terms, places, spec.loss)
                append_final_total(self.evaluation, terms, spec.loss)
            made = self._optimize(spec, program, loss)
        recorded = {spec.called(name): variable for name, variable in {**made.recorded, **weights}.items()}
        return Phase(**{**vars(made), "recorded": recorded})

    def _optimize(self, spec: PhaseSpec, program: Program, loss: Variable | None) -> Phase:
        """Append backward and optimizer ops, whose place is the optimizer's; nothing where that is wrong."""
        node, where = spec.optimizer, ".".join(map(str, (*spec.path, "optimizer")))
        bare = Phase(spec, program, loss.name if loss else None)
        if node is None or loss is None:
            # still look at the optimizer, in a program that nobody keeps
            with program_guard(Program(), Program()):
                if node is not None:
                    Maker(self.mistakes).make(OPTIMIZER, node, where)
            return bare
        at = self.run.at_of(*spec.path, "optimizer", "type")
        with program.place(at):
            optimizer = Maker(self.mistakes, loss.block).make(OPTIMIZER, node, where)
            wanted = self._parameters(spec)
            if optimizer is None or self.mistakes or self.run.train is None:
                return bare
            if optimizer.evaluations > 1:
                self._check_evaluations(self.run.train)
            with self.mistakes.catch():
                try:
                    bare = self._minimize(bare, self.run.train, optimizer, loss, wanted)
                except PeError as error:
                    error.at = error.at or at
                    raise
        return bare

    def _parameters(self, spec: PhaseSpec) -> list[str] | None:
        """Return the parameters that a phase is to train; None for all that its loss depends on."""
        if spec.patterns is None:
            return None
        where, at = "train.phases", self.run.at_of(*spec.path, "parameters")
        found = [p.name for pattern in spec.patterns for p in self.matching.find(pattern, where, self.mistakes, at)]
        return [name for name in dict.fromkeys(found) if name not in self.matching.statistics]

    def _minimize(self, bare: Phase, section: TrainSection, optimizer: Optimizer, loss: Variable, wanted: list[str] | None) -> Phase:
        """Append what the optimizer does; gradients are measured before they are clipped, and averages of what waits go on, too."""
        program, spec = bare.program, bare.spec
        # Gradients are measured before they are clipped, as what clipping hides is what one wants to see.
        pairs = optimizer.backward(loss, wanted)
        trained = frozenset(p.name for p, _ in pairs)
        parts = average = None
        if section.accumulate > 1:
            parts, pairs = add_up(pairs, loss)
        measured = gradient_norms(pairs) if self.run.output.gradient_norms and pairs else None
        optimizer.apply_gradients(pairs)
        rate = optimizer.rate(program)
        recorded = {"learning_rate": rate.name} if rate else {}
        follows = {optimizer.state(slot, p).name: p.name for p, _ in pairs for slot in optimizer.follows()}
        # What a group still keeps frozen will be trained later, and its average has to start with it.
        if section.ema is not None:
            mine = [p for p in program.parameters() if wanted is None or p.name in wanted]
            averaged = [p for p in mine if p.trainable or p.name in self.waiting]
            average = append_moving_average(program, default_startup_program(), averaged, section.ema.decay)
        norms: tuple[str, ...] = ()
        norms_name = ""
        if measured is not None:
            total, each = measured
            recorded["gradient_norm"] = total.name
            norms, norms_name = tuple(spec.called(p.name) for p, _ in pairs), each.name
        return Phase(spec, program, bare.loss, recorded, norms, norms_name, parts, average, follows, trained)

    def _check_evaluations(self, section: TrainSection) -> None:
        """Refuse what does not go with an optimizer that computes several gradients in a step."""
        why = "does not go with an optimizer that computes a gradient twice in a step, such as SAM"
        if section.accumulate > 1:
            self.mistakes.say(f"train.accumulate {why}", section.at_of("accumulate"), "leave accumulate out")
        if section.recompute is not None:
            self.mistakes.say(f"train.recompute {why}", section.at_of("recompute"), "leave recompute out")

    def _check_trained(self, phases: Sequence[Phase]) -> None:
        """Refuse patterns that name what a loss does not depend on, and parameters that nothing trains though nobody froze them."""
        ready = {n: p for n, p in self.matching.parameters.items() if p.trainable and n not in self.matching.statistics}
        for phase in phases:
            for pattern in phase.spec.patterns or ():
                named = [p.name for p in self.matching.find(pattern, "", self.mistakes, None) if p.name in ready]
                if named and phase.trained.isdisjoint(named):
                    text = f"train.phases: the loss of '{phase.name}' depends on no parameter that '{pattern}' names"
                    self.mistakes.say(text, self.run.at_of(*phase.spec.path, "parameters"), f"name others, or remove '{pattern}'")
        # A parameter that nothing trains, though nobody froze it, is nearly always a forgotten pattern.
        idle = [n for n in ready if not any(n in phase.trained for phase in phases)]
        if idle and not self.mistakes:
            more = f" and {len(idle) - 1} more" if len(idle) > 1 else ""
            hint = "add a pattern to parameters of a phase, or freeze it: groups: [{match: ..., freeze: true}]"
            self.mistakes.say(f"train.phases: no phase trains '{idle[0]}'{more}", self.run.tree_key("train", "phases"), hint)
