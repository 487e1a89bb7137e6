"""Data: readers of files, batches in a reproducible order, prefetching."""

from pe_cli.data.dataset import ArrayDataset, Dataset
from pe_cli.data.feed import Feed
from pe_cli.data.loader import Loader
from pe_cli.data.registry import Reader, ReaderOptions, discover, open_reader

__all__ = ["ArrayDataset", "Dataset", "Feed", "Loader", "Reader", "ReaderOptions", "discover", "open_reader"]
