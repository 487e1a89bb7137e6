"""fluid.contrib.decoder: decoders that were on trial in the original."""

from __future__ import annotations

from pe_cli.paddle.fluid.contrib.decoder import beam_search_decoder
from pe_cli.paddle.fluid.contrib.decoder.beam_search_decoder import (
    BeamSearchDecoder,
    InitState,
    StateCell,
    TrainingDecoder,
)

__all__ = ["BeamSearchDecoder", "InitState", "StateCell", "TrainingDecoder", "beam_search_decoder"]
