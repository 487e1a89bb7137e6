"""Keys of samples: equal samples have equal keys, which finds rows that are in two parts of the data."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.data.array_dataset import row_keys
from pe_cli.data.counter_random import random_bits, stream_key
from pe_cli.data.dataset import Array, Dataset, sequence_fields
from pe_cli.data.fields import ArrayField, Field, FieldDataset, Rows, SequenceField
from pe_cli.ops.define.lod import offsets_name

Keys = NDArray[np.uint64]
#: Bytes that are read at a time; bytes of a picture's file that are compared, and of all pictures at most.
STEP, MIDDLE, PICTURES = 1 << 24, 1 << 13, 1 << 28
#: Rows whose words are mixed at a time.
PART = 1 << 16


def keys_of(dataset: Dataset, names: Sequence[str], most: int | None = None) -> Keys | None:
    """Return a key for every sample; those of samples that differ in some field differ, with a probability of about 1 - 2**-64.

    Args:
        dataset: of which.
        names: fields that are compared.
        most: bytes that may be read; all when None.

    Returns:
        uint64 [samples]; None where that would take more.
    """
    if isinstance(dataset, FieldDataset):
        return _of_columns(dataset, names, most)
    # Bounded, because a warning must not cost more than the training.
    row = sum(dataset.fields[name].nbytes for name in names)
    if most is not None and row * len(dataset) > most:
        return None
    step = max(1, STEP // max(1, row))
    sequences = sequence_fields(dataset)
    parts = []
    for start in range(0, len(dataset), step):
        batch = dataset.take(np.arange(start, min(start + step, len(dataset)), dtype=np.int64))
        parts.append(
            _joined(
                (
                    _of_values(batch[name], batch.get(offsets_name(name, 0)) if name in sequences else None)
                    for name in names
                ),
                len(names),
            )
        )
    return None if any(part is None for part in parts) else np.concatenate([part for part in parts if part is not None])


def _of_columns(dataset: FieldDataset, names: Sequence[str], most: int | None) -> Keys | None:
    rows = dataset.table_rows(np.arange(len(dataset), dtype=np.int64))
    fields = [dataset.columns[name] for name in names]
    if most is not None and sum(_bytes(field, len(rows)) for field in fields) > most:
        return None
    return _joined((_of_field(field, rows) for field in fields), len(fields))


def _bytes(field: Field, rows: int) -> int:
    return (
        0
        if hasattr(field, "source")
        else len(field.values) * 8
        if isinstance(field, SequenceField)
        else field.type.nbytes * rows
    )


def _of_field(field: Field, rows: Rows) -> Keys | None:
    if isinstance(field, ArrayField):
        return (
            _of_values(field.values, None)[rows] if len(rows) * 2 > len(field) else _of_values(field.values[rows], None)
        )
    source = getattr(field, "source", None)
    if source is not None and hasattr(source, "words"):
        return _of_files(source, rows)
    step = max(1, STEP // max(1, field.type.nbytes))
    parts = [_of_values(*field.take(rows[start : start + step])) for start in range(0, len(rows), step)]
    return np.concatenate(parts)


def _joined(keys: Iterable[Keys | None], count: int) -> Keys | None:
    """Return the sum of the keys of several fields, each times an odd random number of its own; None where a field has none.

    Args:
        keys: made one after the other, as those of all fields together may take more memory than the data. They are overwritten.
        count: of the fields.
    """
    # Odd factors lose no bit, and their differing numbers make the order of fields count.
    factors = random_bits(stream_key("keys of fields"), np.arange(count, dtype=np.int64)) | np.uint64(1)
    found: Keys | None = None
    for one, factor in zip(keys, factors, strict=True):
        if one is None:
            return None
        one *= factor
        if found is None:
            found = one
        else:
            found += one
    return found


def _of_values(values: Array, offsets: NDArray[np.int64] | None) -> Keys:
    """Return a key for each sample of an array, or for each sequence of its rows."""
    keys = _of_rows(np.ascontiguousarray(values).reshape(len(values), -1))
    if offsets is None:
        return keys
    # A sequence's key is made of its items with their places, and its length.
    within = np.arange(len(keys)) - np.repeat(offsets[:-1], np.diff(offsets))
    sums = np.append(np.uint64(0), np.cumsum(row_keys([keys, within]), dtype=np.uint64))
    return row_keys([sums[offsets[1:]] - sums[offsets[:-1]], np.diff(offsets)])


def _of_rows(values: NDArray[Any]) -> Keys:
    """Return the sum of a row's words, each mixed with an odd random number of its own."""
    if values.dtype == np.bool_ or values.dtype.itemsize not in (1, 2, 4, 8):
        values = np.ascontiguousarray(values, np.float64)
    width = values.shape[1] * values.dtype.itemsize
    # The widest words that fit: as few products as possible.
    size = next(size for size in (8, 4, 2, 1) if width % size == 0)
    words = values.view(f"u{size}") if width else np.zeros((len(values), 1), np.uint8)
    factors = random_bits(stream_key("keys of rows"), np.arange(words.shape[1], dtype=np.int64)) | np.uint64(1)
    keys = np.zeros(len(words), np.uint64)
    for start in range(0, len(words), PART):
        part = slice(start, start + PART)
        for column, factor in zip(words[part].T, factors, strict=True):
            # floats differ in their upper bits alone where they are small whole numbers: products would lose them
            word = column.astype(np.uint64)
            # Folded before the product, which moves bits up only.
            word ^= word >> np.uint64(32)
            word *= factor
            word ^= word >> np.uint64(29)
            keys[part] += word
    return keys


def _of_files(source: Any, rows: Rows) -> Keys | None:
    """Return keys of pictures: of their sizes in bytes and what is in the middle of their files."""
    codes = source.codes[rows]
    used = np.unique(codes[codes >= 0])
    if len(used) * MIDDLE > PICTURES:
        return None
    keys = np.zeros(len(source.words) + 1, np.uint64)
    for code in used.tolist():
        # Not by its name, which may stand for another picture in another folder.
        try:
            with open(source.path(code), "rb") as file:  # noqa: PTH123 - called for every picture
                size = os.fstat(file.fileno()).st_size
                file.seek(max(0, (size - MIDDLE) // 2))
                content = size.to_bytes(8, "little") + file.read(MIDDLE)
        except OSError:
            return None
        keys[code] = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")
    found: Keys = keys[codes]
    return found
