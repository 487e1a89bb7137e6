"""text: data sets of tables and texts, read from files that are there; nothing is downloaded."""

from __future__ import annotations

from pe_cli.paddle.reference_names import missing, places
from pe_cli.paddle.text.conll05 import Conll05st
from pe_cli.paddle.text.housing import UCIHousing
from pe_cli.paddle.text.imdb import Imdb
from pe_cli.paddle.text.imikolov import Imikolov
from pe_cli.paddle.text.movielens import Movielens
from pe_cli.paddle.text.translation import WMT14, WMT16
from pe_cli.paddle.text.viterbi import ViterbiDecoder, viterbi_decode

__all__ = ["WMT14", "WMT16", "Conll05st", "Imdb", "Imikolov", "Movielens", "UCIHousing", "ViterbiDecoder", "viterbi_decode"]
globals().update(places(__name__, {"datasets": __name__}))
__getattr__ = missing("paddle.text", lambda: globals())
