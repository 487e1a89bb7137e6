"""Runs in Weights & Biases."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from pe_cli.config.sections.section import Section
from pe_cli.config.sections.value_types import Name
from pe_cli.session.observer import Observer, Start
from pe_cli.session.observers.define import About, observer


class WandbOptions(Section):
    """Options of `wandb`."""

    project: Name | None = Field(default=None, description="name of the project; WANDB_PROJECT when absent")
    entity: Name | None = Field(default=None, description="user or team; WANDB_ENTITY when absent")
    mode: Literal["online", "offline", "disabled"] | None = Field(
        default=None, description="offline writes to the disk only, for `wandb sync`; WANDB_MODE, or online, when absent"
    )


@observer("wandb", WandbOptions, needs="wandb", install="'pe-cli[wandb]'")
class Wandb(Observer):
    """Write config, tags and metrics into Weights & Biases.

    Its own files lie where WANDB_DIR says, or in the folder `wandb` of the present one. A run that is resumed goes on in the same one.
    The key is what `wandb login` or WANDB_API_KEY say; a run file has none.
    """

    def __init__(self, options: WandbOptions, about: About) -> None:
        import wandb

        self._wandb, self._options, self._about = wandb, options, about

    def started(self, start: Start) -> None:
        """Begin, or go on with the run of this folder."""
        del start
        about, options = self._about, self._options
        key = hashlib.blake2b(about.folder.encode(), digest_size=8).hexdigest()
        self._run = self._wandb.init(
            project=options.project, entity=options.entity, mode=options.mode, id=key, resume="allow", name=about.name,
            tags=list(about.tags) or None, notes=about.note or None, config=dict(about.config),
        )  # fmt: skip
        self._run.define_metric("*", step_metric="step")

    def recorded(self, step: int, epoch: int, values: Mapping[str, float]) -> None:
        """Write metrics."""
        self._run.log({"step": step, "epoch": epoch, **values})

    def ended(self, state: str) -> None:
        """End."""
        self._run.finish(exit_code=0 if state in ("done", "stopped") else 1)
