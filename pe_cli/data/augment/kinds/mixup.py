"""Mixup: every sample is mixed with another, and so are their labels."""

from __future__ import annotations

import numpy as np
from pydantic import Field

from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import AugmentOptions, BatchKind, Chance, Positive, augmentation, partners
from pe_cli.data.dataset import Batch


class MixupOptions(AugmentOptions):
    """Options of mixup."""

    alpha: Positive = Field(0.2, description="both parameters of the beta distribution that shares are drawn from; 1 is uniform")
    p: Chance = Field(1.0, description="chance of a sample to be mixed")


@augmentation
class Mixup(BatchKind[MixupOptions]):
    """Replace every sample by share * sample + (1 - share) * the sample before it in the batch, in all feeds alike.

    Labels are mixed, too: the label's feed has one_hot, and the loss takes soft labels.
    """

    name = "mixup"
    options = MixupOptions

    def mix(self, options: MixupOptions, batch: Batch, picture: str, draws: Draws) -> None:
        """Draw the shares.

        Source:
            Zhang et al. 2017, "mixup: Beyond empirical risk minimization", eq. 1.
        """
        share = np.where(draws.chosen(options.p), draws.beta("share", options.alpha), 1.0)
        for name, values in batch.items():
            weight = share.reshape(-1, *(1,) * (values.ndim - 1)).astype(values.dtype)
            other = partners(values)
            other *= 1 - weight
            values *= weight
            values += other
            batch[name] = values
