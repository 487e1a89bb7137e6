"""Runs in MLflow."""

from __future__ import annotations

import re
from collections.abc import Mapping

from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Name
from pe_cli.session.observer import Observer, Start
from pe_cli.session.observers.define import About, observer

#: Characters of a parameter's value, parameters that are sent at a time, and the tag that a run is found by when it goes on.
MOST, EACH, FOLDER = 500, 100, "pe.folder"
#: How a run of MLflow's ends.
_ENDS = {"done": "FINISHED", "stopped": "KILLED"}


class MlflowOptions(Section):
    """Options of `mlflow`."""

    uri: Name | None = Field(default=None, description="where runs are kept: an address or a folder; MLFLOW_TRACKING_URI when absent")
    experiment: Name | None = Field(default=None, description="name of the experiment; MLFLOW_EXPERIMENT_NAME when absent")


def _named(name: str) -> str:
    """Return a name as MLflow takes it: of other signs than its own, brackets become a dot and the rest `_`.

    >>> _named("eval/recall[ja]"), _named("data.columns.price (€).type")
    ('eval/recall.ja', 'data.columns.price ___.type')
    """
    return re.sub(r"[^\w./ -]", "_", re.sub(r"\[(.*?)\]", r".\1", name))


@observer("mlflow", MlflowOptions, needs="mlflow", install="'pe-cli[mlflow]'")
class Mlflow(Observer):
    """Write config, tags and metrics into MLflow.

    A run of pe's is a run of MLflow's; the resolved config becomes its parameters. A run that is resumed goes on in the same one.
    """

    def __init__(self, options: MlflowOptions, about: About) -> None:
        import mlflow

        self._mlflow, self._about = mlflow, about
        if options.uri is not None:
            mlflow.set_tracking_uri(options.uri)
        if options.experiment is not None:
            mlflow.set_experiment(options.experiment)

    def started(self, start: Start) -> None:
        """Begin, or go on with the run of this folder."""
        about = self._about
        known = self._mlflow.search_runs(filter_string=f"tags.`{FOLDER}` = '{about.folder}'", output_format="list", max_results=1)
        if start.done and known:
            self._mlflow.start_run(run_id=known[0].info.run_id)
            return
        tags = {FOLDER: about.folder, **dict.fromkeys(about.tags, "true")}
        self._mlflow.start_run(run_name=about.name, tags=tags, description=about.note or None)
        params = [(_named(key), str(value)[:MOST]) for key, value in about.flat().items()]
        for first in range(0, len(params), EACH):
            self._mlflow.log_params(dict(params[first : first + EACH]))

    def recorded(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Write metrics."""
        self._mlflow.log_metrics({"epoch": float(epoch), **{_named(name): value for name, value in values.items()}}, step=step)

    def ended(self, state: str) -> None:
        """End."""
        self._mlflow.end_run(_ENDS.get(state, "FAILED"))
