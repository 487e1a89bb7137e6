"""DatasetFactory: files of MultiSlot text as batches."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from pe_cli.core.errors import did_you_mean
from pe_cli.paddle.errors import FluidValueError, NotThereYet
from pe_cli.paddle.fluid.data_feed_desc import Slot
from pe_cli.paddle.fluid.multi_slot import batches, read_instances, to_batch


class DatasetBase:
    """Files, and which variables they feed."""

    def __init__(self) -> None:
        self.use_vars: list[Any] = []
        self.files: list[str] = []
        self.batch_size = 1
        self.thread_num = 1

    def set_batch_size(self, batch_size: int) -> None:
        """Set the instances of a batch."""
        self.batch_size = batch_size

    def set_thread(self, thread_num: int) -> None:
        """Keep the number of threads; batches are read by one."""
        self.thread_num = thread_num

    def set_filelist(self, filelist: Any) -> None:
        """Set the files."""
        self.files = list(filelist)

    def set_use_var(self, var_list: Any) -> None:
        """Set the variables, in the order of a line's slots."""
        self.use_vars = list(var_list)

    def set_pipe_command(self, pipe_command: str) -> None:
        """Accept `cat`.

        Raises:
            NotThereYet: another command.
        """
        if pipe_command != "cat":
            raise NotThereYet("set_pipe_command: files are read as they are", hint="convert them first")

    def slots(self) -> list[Slot]:
        """Return the slots of a line."""
        out = []
        for v in self.use_vars:
            kind = "uint64" if v.dtype == "int64" else "float"
            dense = not getattr(v, "lod_level", 0)
            out.append(Slot(v.name, kind, dense, True, list(v.shape[1:]) if dense else []))
        return out

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield batches."""
        yield from batches(self.files, self.slots(), self.batch_size)


class QueueDataset(DatasetBase):
    """Reads while it is used."""


class InMemoryDataset(DatasetBase):
    """Reads everything first, and can shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self._instances: list[Any] = []
        self.facts: dict[str, Any] = {}

    def load_into_memory(self) -> None:
        """Read all files."""
        self._instances = [i for file in self.files for i in read_instances(file, self.slots())]

    def local_shuffle(self) -> None:
        """Shuffle what was read."""
        order = np.random.default_rng().permutation(len(self._instances))
        self._instances = [self._instances[i] for i in order]

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Shuffle what was read; there is one process."""
        self.local_shuffle()

    def release_memory(self) -> None:
        """Forget what was read."""
        self._instances = []

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """Return the number of instances read."""
        return len(self._instances)

    get_shuffle_data_size = get_memory_data_size

    def set_queue_num(self, queue_num: int) -> None:
        """Keep a number; without effect: there is one queue."""
        self.facts["queue_num"] = queue_num

    def set_fleet_send_batch_size(self, fleet_send_batch_size: int = 1024) -> None:
        """Keep a number; without effect in one process."""
        self.facts["fleet_send_batch_size"] = fleet_send_batch_size

    def set_fleet_send_sleep_seconds(self, fleet_send_sleep_seconds: int = 0) -> None:
        """Keep a number; without effect in one process."""
        self.facts["fleet_send_sleep_seconds"] = fleet_send_sleep_seconds

    def set_parse_ins_id(self, parse_ins_id: bool) -> None:
        """Say whether lines begin with an id; only read when they do not."""
        self.facts["parse_ins_id"] = parse_ins_id

    def set_parse_content(self, parse_content: bool) -> None:
        """Say whether lines carry a content; only read when they do not."""
        self.facts["parse_content"] = parse_content

    def set_parse_logkey(self, parse_logkey: bool) -> None:
        """Say whether lines carry a log key; only read when they do not."""
        self.facts["parse_logkey"] = parse_logkey

    def set_enable_pv_merge(self, enable_pv_merge: bool) -> None:
        """Say whether instances are merged by page view; only read when they are not."""
        self.facts["enable_pv_merge"] = enable_pv_merge

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield batches of what was read.

        Raises:
            NotThereYet: lines with ids, contents, log keys or page views.
        """
        asked = [k for k, v in self.facts.items() if v is True]
        if asked:
            raise NotThereYet(f"InMemoryDataset: {', '.join(asked)} is not there yet", hint="leave it out")
        slots = self.slots()
        for begin in range(0, len(self._instances), self.batch_size):
            yield to_batch(self._instances[begin : begin + self.batch_size], slots)


class DatasetFactory:
    """Makes datasets."""

    def create_dataset(self, datafeed_class: str = "QueueDataset") -> Any:
        """Return a dataset of a class: QueueDataset or InMemoryDataset.

        Raises:
            FluidValueError: another class; a ValueError.
        """
        found = {"QueueDataset": QueueDataset, "InMemoryDataset": InMemoryDataset}
        if datafeed_class not in found:
            hint = did_you_mean(datafeed_class, found) or "QueueDataset or InMemoryDataset"
            raise FluidValueError(f"there is no dataset '{datafeed_class}'", hint=hint)
        return found[datafeed_class]()
