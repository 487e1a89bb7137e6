"""DatasetFactory: files of MultiSlot text as batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby
from typing import Any

import numpy as np

from pe_cli.core.errors import did_you_mean
from pe_cli.data.multi_slot import read_lines
from pe_cli.execute import seeds
from pe_cli.paddle.errors import FluidValueError, NotThereYet, raised_as
from pe_cli.paddle.fluid.data_feed_desc import Slot, written
from pe_cli.paddle.fluid.multi_slot import Instance, cut, marked, piped_lines, to_batch

#: What may stand before the slots of a line, in order.
MARKS = ("ins_id", "content", "logkey")


class DatasetBase:
    """Files, and which variables they feed."""

    feed_type = "MultiSlotDataFeed"

    def __init__(self) -> None:
        self.use_vars: list[Any] = []
        self.files: list[str] = []
        self.batch_size = 1
        self.thread_num = 1
        self.pipe_command = "cat"
        self.download_command = ""
        self.candidates: int | None = None
        #: Names of what was asked for and cannot act; `instances` says so.
        self.asked: dict[str, str] = {}
        self._pv: dict[str, Any] = {}

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
        """Set the command of a shell that every file goes through; what it writes is read."""
        self.pipe_command = pipe_command

    def set_download_cmd(self, download_cmd: str) -> None:
        """Set the command of a shell that fetches a file: it is given the file's name and writes its content."""
        self.download_command = download_cmd

    def set_hdfs_config(self, fs_name: str, fs_ugi: str) -> None:
        """Keep an address of Hadoop. Reading is an error then: files lie where the machine can open them."""
        self.asked["set_hdfs_config"] = "copy the files, mount the file system, or fetch them by set_download_cmd"

    def set_fea_eval(self, record_candidate_size: int, fea_eval: bool = True) -> None:
        """Allow `slots_shuffle`.

        Args:
            record_candidate_size: instances that values are drawn from.
            fea_eval: False forbids it again.
        """
        self.candidates = record_candidate_size if fea_eval else None

    def set_rank_offset(self, rank_offset: str) -> None:
        """Keep the name of a variable for ranks inside page views. Reading is an error then."""
        self._pv["rank_offset"] = rank_offset
        self.asked["set_rank_offset"] = "leave it out"

    def set_pv_batch_size(self, pv_batch_size: int) -> None:
        """Set the page views of a batch; see `InMemoryDataset.preprocess_instance`."""
        self._pv["pv_batch_size"] = pv_batch_size

    def desc(self) -> str:
        """Return the description of the files as protobuf text."""
        slots = [{"name": s.name, "type": s.type, "is_dense": s.is_dense, "is_used": s.is_used, "shape": s.shape} for s in self.slots()]
        facts = {"name": self.feed_type, "batch_size": self.batch_size, "pipe_command": self.pipe_command}
        return written({**facts, "multi_slot_desc": {"slots": slots}, "thread_num": self.thread_num, **self._pv})

    def slots(self) -> list[Slot]:
        """Return the slots of a line."""
        out = []
        for v in self.use_vars:
            # The file has whole numbers or real ones; all whole numbers are ids of 64 bits.
            kind = "uint64" if v.dtype == "int64" else "float"
            dense = not getattr(v, "lod_level", 0)
            out.append(Slot(v.name, kind, dense, True, list(v.shape[1:]) if dense else []))
        return out

    def instances(self, file: str, marks: Iterable[str] = ()) -> Iterator[Instance]:
        """Yield the instances of a file.

        Args:
            file: its name.
            marks: kinds of what stands before the slots of a line.

        Raises:
            NotThereYet: something was asked for that cannot act.
            FluidValueError: a command fails, or the file does not fit the slots; a ValueError.
        """
        # Options that cannot act here are refused where data is read, not where they are set: many scripts set them without need.
        for name, hint in self.asked.items():
            raise NotThereYet(f"{type(self).__name__}: {name} cannot act here", hint=hint)
        piped = self.download_command or self.pipe_command != "cat"
        lines = piped_lines(file, self.pipe_command, self.download_command) if piped else read_lines(file)
        with raised_as(FluidValueError):
            yield from marked(lines, file, self.slots(), tuple(marks))

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield batches; a file's last one may be smaller."""
        for file in self.files:
            yield from cut(self.instances(file), self.slots(), self.batch_size)


class QueueDataset(DatasetBase):
    """Reads while it is used."""

    def local_shuffle(self) -> None:
        """Refuse.

        Raises:
            NotThereYet: always; the original's message.
        """
        raise NotThereYet("QueueDataset does not support local shuffle, please use InMemoryDataset for local_shuffle")

    def global_shuffle(self, fleet: Any = None) -> None:
        """Refuse.

        Raises:
            NotThereYet: always; the original's message.
        """
        raise NotThereYet("QueueDataset does not support global shuffle, please use InMemoryDataset for global_shuffle")

    def slots_shuffle(self, slots: Any) -> None:
        """Do nothing but where `set_fea_eval` was called.

        Raises:
            NotThereYet: it was.
        """
        if self.candidates is not None:
            raise NotThereYet("QueueDataset holds no instances to shuffle", hint="use InMemoryDataset")


class InMemoryDataset(DatasetBase):
    """Reads everything first; can shuffle, merge instances of one id, and group those of one page view."""

    feed_type = "MultiSlotInMemoryDataFeed"

    def __init__(self) -> None:
        super().__init__()
        self._instances: list[Instance] = []
        self._views: list[list[Instance]] | None = None
        self._shuffled: dict[int, list[Any]] = {}
        self._marks: dict[str, bool] = {}
        self._merged: int | None = None
        self._loading: Future[None] | None = None
        self._phase = 1
        self._by_view, self._by_search = False, True
        self.facts: dict[str, Any] = {}

    # --- reading --------------------------------------------------------------------------------------------------

    def load_into_memory(self) -> None:
        """Read all files."""
        marks = [kind for kind in MARKS if self._marks.get(kind)]
        slots = self.slots()
        found = [one for file in self.files for one in self.instances(file, marks)]
        for one in found:
            # Zeros are what writers fill empty sparse slots with, and no ids.
            one.values = [v if slot.is_dense or v.all() else _without_zeros(v) for v, slot in zip(one.values, slots, strict=True)]
        self._instances, self._views, self._shuffled = found, None, {}

    def preload_into_memory(self, thread_num: int | None = None) -> None:
        """Begin to read all files in a thread; `wait_preload_done` waits for it."""
        # One thread, which ends by itself once everything is read.
        reader = ThreadPoolExecutor(1)
        self._loading = reader.submit(self.load_into_memory)
        reader.shutdown(wait=False)

    def wait_preload_done(self) -> None:
        """Wait until everything is read; what was raised meanwhile is raised here."""
        loading, self._loading = self._loading, None
        if loading is not None:
            loading.result()

    def release_memory(self) -> None:
        """Forget what was read."""
        self._instances, self._views, self._shuffled = [], None, {}

    def get_memory_data_size(self, fleet: Any = None) -> int:
        """Return the number of instances read."""
        return len(self._instances)

    get_shuffle_data_size = get_memory_data_size

    def get_pv_data_size(self) -> int:
        """Return the number of page views, 0 before `preprocess_instance`."""
        return len(self._views or ())

    # --- shuffling and merging ------------------------------------------------------------------------------------

    def local_shuffle(self) -> None:
        """Shuffle what was read."""
        self._mixed()

    def global_shuffle(self, fleet: Any = None, thread_num: int = 12) -> None:
        """Shuffle what was read, and merge instances of one id where `set_merge_by_lineid` asks for it; there is one process."""
        self._mixed()
        if self._merged is not None:
            self._instances = list(self._of_one_id(self._merged))

    def _mixed(self) -> None:
        order = seeds.generator().permutation(len(self._instances))
        self._instances = [self._instances[i] for i in order]
        self._shuffled = {}

    def _of_one_id(self, size: int) -> Iterator[Instance]:
        slots = self.slots()
        # groupby joins neighbours only, hence the order by id.
        by_id = sorted(self._instances, key=lambda one: one.marks["ins_id"])
        for name, found in groupby(by_id, key=lambda one: one.marks["ins_id"]):
            group = list(found)
            dense = [i for i, slot in enumerate(slots) if slot.is_dense]
            differ = any(not np.array_equal(one.values[i], group[0].values[i]) for one in group for i in dense)
            # Instances that disagree in a dense slot, or are not as many as wanted, are left out, as in the original.
            if (size and len(group) != size) or differ:
                continue
            parts = [group[0].values[i] if i in dense else _joined([one.values[i] for one in group]) for i in range(len(slots))]
            yield Instance(parts, {"ins_id": name})

    def slots_shuffle(self, slots: Any) -> None:
        """Give every instance the values that another one, drawn at random, has in some slots; what an earlier call changed is undone.

        Args:
            slots: names of variables.

        Raises:
            FluidValueError: `set_fea_eval` was not called, or there is no such slot; a ValueError.
        """
        if self.candidates is None:
            raise FluidValueError("slots_shuffle: fea_eval is off", hint="call set_fea_eval(record_candidate_size) first")
        names = [slot.name for slot in self.slots()]
        for name in slots:
            if name not in names:
                raise FluidValueError(f"there is no slot '{name}'", hint=did_you_mean(str(name), names) or f"one of {', '.join(names)}")
        # Each call starts from what was read: a study shuffles one slot after the other and compares.
        for i, values in self._shuffled.items():
            for one, was in zip(self._instances, values, strict=True):
                one.values[i] = was
        self._shuffled = {i: [one.values[i] for one in self._instances] for i in {names.index(n) for n in slots}}
        rng = seeds.generator()
        count = len(self._instances)
        drawn = rng.permutation(count)[: max(1, self.candidates)]
        for one in self._instances:
            other = int(rng.choice(drawn))
            for i, values in self._shuffled.items():
                one.values[i] = values[other]

    # --- page views -----------------------------------------------------------------------------------------------

    def preprocess_instance(self) -> None:
        """Group instances into page views: those of one search, where lines have a log key, and otherwise each by itself."""
        if self._by_search and self._marks.get("logkey"):
            ordered = sorted(self._instances, key=_search)
            self._views = [list(group) for _, group in groupby(ordered, key=_search)]
        else:
            self._views = [[one] for one in self._instances]

    def postprocess_instance(self) -> None:
        """Undo `preprocess_instance`, so that instances can be shuffled."""
        self._views = None

    def set_current_phase(self, current_phase: int) -> None:
        """Set what a batch is cut from.

        Args:
            current_phase: 1 from page views, where `set_enable_pv_merge` asks for them, 0 from instances.
        """
        self._phase = current_phase

    def set_enable_pv_merge(self, enable_pv_merge: bool) -> None:
        """Say whether a batch is made of whole page views: `set_pv_batch_size` of them."""
        self._by_view = enable_pv_merge

    def set_merge_by_sid(self, merge_by_sid: bool) -> None:
        """Say whether a page view has the instances of one search; True at first."""
        self._by_search = merge_by_sid

    # --- options --------------------------------------------------------------------------------------------------

    def set_feed_type(self, data_feed_type: str) -> None:
        """Set the name in `desc`."""
        self.feed_type = data_feed_type

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
        """Say whether lines begin with an id: `1 <id>`."""
        self._marks["ins_id"] = parse_ins_id

    def set_parse_content(self, parse_content: bool) -> None:
        """Say whether a content comes next: `1 <content>`."""
        self._marks["content"] = parse_content

    def set_parse_logkey(self, parse_logkey: bool) -> None:
        """Say whether a log key comes next, in whose characters 17 to 32 a search has its number: `1 <log key>`."""
        self._marks["logkey"] = parse_logkey

    def set_merge_by_lineid(self, merge_size: int = 2) -> None:
        """Merge instances of one id in `global_shuffle`: sparse slots are joined, dense ones must be the same.

        Args:
            merge_size: instances that an id must have, others are left out; 0 for any.
        """
        self._merged = merge_size
        self._marks["ins_id"] = True

    def set_generate_unique_feasigns(self, generate_uni_feasigns: bool, shard_num: int) -> None:
        """Keep a wish for the ids of all slots, by shards. Reading is an error then."""
        if generate_uni_feasigns:
            self.asked["set_generate_unique_feasigns"] = "tables of servers make a row when its id first comes"

    def generate_local_tables_unlock(
        self, table_id: int, fea_dim: int, read_thread_num: int, consume_thread_num: int, shard_num: int
    ) -> None:
        """Refuse.

        Raises:
            NotThereYet: always.
        """
        hint = "tables of servers make a row when its id first comes"
        raise NotThereYet("InMemoryDataset: generate_local_tables_unlock cannot act here", hint=hint)

    def batches(self) -> Iterator[dict[str, Any]]:
        """Yield batches of what was read."""
        self.wait_preload_done()
        if not (self._by_view and self._phase == 1):
            yield from cut(self._instances, self.slots(), self.batch_size)
            return
        if self._views is None:
            self.preprocess_instance()
        views, size = self._views or [], self._pv.get("pv_batch_size", 32)
        for begin in range(0, len(views), size):
            yield to_batch([one.values for view in views[begin : begin + size] for one in view], self.slots())


def _without_zeros(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the values of a sparse slot that are not zero, which fill places, or one zero where there are no others."""
    found = values[values != 0]
    return found if len(found) else values[:1]


def _joined(parts: list[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    return _without_zeros(np.concatenate(parts))


def _search(one: Instance) -> str:
    """Return the number of a search inside a log key."""
    # Characters 17 to 32 of a log key, by the original's format.
    return one.marks["logkey"][16:32]


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
