"""Augmentation: changes of training samples, drawn for each sample and epoch.

`Augmentation.make` checks what a config asks for; a `Loader` takes its samples through it. Evaluation and prediction have none.
"""

from pe_cli.data.augment.plan import Augmentation
from pe_cli.data.augment.random_draws import Draws

__all__ = ["Augmentation", "Draws"]
