"""Cutmix: a box of every picture is another's, and labels are mixed by its area."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from pydantic import Field

from pe_cli.core.types import TensorType
from pe_cli.data.augment.random_draws import Draws
from pe_cli.data.augment.registry import AugmentOptions, BatchKind, Chance, Positive, augmentation, partners
from pe_cli.data.dataset import Batch


class CutmixOptions(AugmentOptions):
    """Options of cutmix."""

    alpha: Positive = Field(1.0, description="both parameters of the beta distribution that areas are drawn from; 1 is uniform")
    p: Chance = Field(1.0, description="chance of a sample to be mixed")


@augmentation
class Cutmix(BatchKind[CutmixOptions]):
    """Replace a box of every picture by that of the picture before it in the batch; labels are mixed by the share of its area.

    Labels are mixed: the label's feed has one_hot, and the loss takes soft labels. Pictures are [channels, height, width].
    """

    name = "cutmix"
    options = CutmixOptions

    def check(self, options: CutmixOptions, types: Mapping[str, TensorType], picture: str, last: bool) -> None:
        """Check that pictures have rows and columns, and that nothing else does.

        Raises:
            ValueError: feeds of which no box can be cut; with a remedy.
        """
        if last:
            raise ValueError("cutmix needs pictures as [channels, height, width]", "set layout: chw on the column")
        for name, kind in types.items():
            if name == picture and len(kind.shape) not in (2, 3):
                raise ValueError(f"feed '{name}' is {kind}, no picture", "cutmix needs [channels, height, width]")
            if name != picture and len(kind.shape) > 1:
                raise ValueError(f"feed '{name}' is {kind}, of which no box can be cut along with feed '{picture}'", "use mixup")

    def mix(self, options: CutmixOptions, batch: Batch, picture: str, draws: Draws) -> None:
        """Draw the boxes.

        Source:
            Yun et al. 2019, "CutMix", eq. 1 and 2.
        """
        pictures = batch[picture]
        height, width = pictures.shape[-2:]
        side = np.sqrt(1 - draws.beta("share", options.alpha)) * draws.chosen(options.p)
        y, x = draws.whole("row", height), draws.whole("column", width)
        tall, wide = np.floor(height * side / 2).astype(np.int64), np.floor(width * side / 2).astype(np.int64)
        top, bottom = np.maximum(y - tall, 0), np.minimum(y + tall, height)
        left, right = np.maximum(x - wide, 0), np.minimum(x + wide, width)
        other = partners(pictures)
        for i in range(len(pictures)):
            box = (..., slice(top[i], bottom[i]), slice(left[i], right[i]))
            pictures[i][box] = other[i][box]
        share = 1 - (bottom - top) * (right - left) / (height * width)
        for name, values in batch.items():
            if name != picture:
                weight = share.reshape(-1, *(1,) * (values.ndim - 1))
                batch[name] = (values * weight + partners(values) * (1 - weight)).astype(values.dtype)
