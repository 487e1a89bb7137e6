"""Data: readers of files, batches in a reproducible order, prefetching."""

from pe_cli.data import readers as readers  # fills READERS
from pe_cli.data.dataset import ArrayDataset, Dataset
from pe_cli.data.feed import Feed
from pe_cli.data.loader import Loader
from pe_cli.data.registry import READERS, Reader, ReaderOptions, open_reader

__all__ = ["READERS", "ArrayDataset", "Dataset", "Feed", "Loader", "Reader", "ReaderOptions", "open_reader"]
