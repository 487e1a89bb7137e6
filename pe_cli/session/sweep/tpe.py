"""Draws trials by the results of earlier ones, with optuna's tree-structured Parzen estimator made a function of the results alone."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from pe_cli.config.sections.sweep import SweepSection
from pe_cli.config.sweep_domain import Choices, Range
from pe_cli.core.errors import PeError, Span
from pe_cli.io import strict_json
from pe_cli.session.sweep.trials import Values, choices_of, rounded


def require_optuna(at: Span | None) -> Any:
    """Return the module optuna.

    Raises:
        PeError: USAGE; it is not installed.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import optuna
    except ImportError as error:
        hint = "pip install 'pe-cli[search]', or write method: random"
        raise PeError(f"sweep.method: tpe needs the package optuna: {error}", at=at, hint=hint) from None
    return optuna


def draw(section: SweepSection, known: Sequence[tuple[Values, float | None]], count: int) -> list[Values]:
    """Return the next combinations.

    They depend on the section and on what is known alone, so that a sweep that was killed goes on to the same draws.

    Args:
        section: checked, with method tpe.
        known: combinations with their metrics, in the order in which they were drawn; None or not finite for one that failed.
        count: how many.

    Raises:
        PeError: USAGE; optuna is not installed.

    Source:
        Bergstra et al. 2011, algorithm 1; `optuna.samplers.TPESampler` with its defaults. The draws of a call do not know each other's
        results, so that `constant_liar` keeps them apart.
    """
    optuna = require_optuna(section.at_of("method"))
    over = choices_of(section)
    # By the number of known results, so that a sweep that goes on draws what it would have drawn.
    seed = int(np.random.SeedSequence([section.seed, len(known)]).generate_state(1)[0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        optuna.logging.set_verbosity(optuna.logging.ERROR)
        # Trials that are still running count as bad ones, so that two processes do not draw the same.
        sampler = optuna.samplers.TPESampler(seed=seed, constant_liar=True)
        study = optuna.create_study(direction="minimize" if section.mode == "min" else "maximize", sampler=sampler)
        kinds = {key: _kind(optuna, domain) for key, domain in over.items()}
        for values, result in known:
            good = result is not None and math.isfinite(result)
            # A result that is not finite says that the values are no good, and no number how bad.
            state = optuna.trial.TrialState.COMPLETE if good else optuna.trial.TrialState.FAIL
            params = {key: _told(over[key], value) for key, value in values.items()}
            told = optuna.trial.create_trial(params=params, distributions=kinds, value=result if good else None, state=state)
            study.add_trial(told)
        asked = [study.ask(kinds).params for _ in range(count)]
    return [{key: _meant(domain, params[key]) for key, domain in over.items()} for params in asked]


def _kind(optuna: Any, domain: Choices | Range) -> Any:
    """Return a domain as optuna has it: a value of a list is known by its place."""
    made = optuna.distributions
    if isinstance(domain, Choices):
        # Choices are numbers to the sampler: values may be lists, which it does not take.
        return made.CategoricalDistribution(list(range(len(domain.values))))
    if domain.scale == "int":
        return made.IntDistribution(int(domain.low), int(domain.high))
    return made.FloatDistribution(domain.low, domain.high, log=domain.scale == "log")


def _told(domain: Choices | Range, value: Any) -> Any:
    if isinstance(domain, Range):
        return value
    # As JSON, because 1 and true are equal in Python.
    return [strict_json.dumps(known) for known in domain.values].index(strict_json.dumps(value))


def _meant(domain: Choices | Range, drawn: Any) -> Any:
    if isinstance(domain, Choices):
        return domain.values[drawn]
    return int(drawn) if domain.scale == "int" else rounded(float(drawn), domain)
