"""Augmentation: changes of training samples, drawn for each sample and epoch.

`Augmentation.make` checks what a config asks for; a `Loader` takes its samples through it. Evaluation and prediction have none.
"""

from pe_cli.data.augment.draws import Draws
from pe_cli.data.augment.plan import Augmentation

__all__ = ["Augmentation", "Draws"]
