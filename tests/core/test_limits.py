"""What a process may use, as groups of versions 1 and 2 limit it; and a real group where this process may make one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pe_cli.core import limits
from tests import needs

#: Lines of /proc/self/mountinfo, with {} for where a test has its files.
TWO = "31 23 0:28 / {}/unified rw,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
ONE = "35 31 0:32 {root} {}/memory rw - cgroup cgroup rw,memory\n36 31 0:33 / {}/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that says in which groups this process is; files of groups lie in `tmp_path`."""

    def make(groups: str, mounts: str, files: dict[str, str]) -> None:
        for name, text in {"groups": groups, "mounts": mounts.replace("{}", str(tmp_path)), **files}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        monkeypatch.setattr(limits, "_GROUPS", tmp_path / "groups")
        monkeypatch.setattr(limits, "_MOUNTS", tmp_path / "mounts")
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)

    for known in (limits._quota, limits._allowed):
        known.cache_clear()
    yield make
    for known in (limits._quota, limits._allowed):
        known.cache_clear()


WHOLE = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
NESTED = "0::/kubepods/pod1/container\n"
SEVERAL = "9:memory:/docker/ab\n8:cpu,cpuacct:/docker/ab\n1:name=systemd:/docker/ab\n0::/\n"


@pytest.mark.parametrize(
    ("groups", "mounts", "files", "cores", "memory"),
    [
        pytest.param("0::/\n", TWO, {}, 8, WHOLE, id="no limit"),
        pytest.param("0::/\n", TWO, {"unified/memory.max": "max\n", "unified/cpu.max": "max 100000\n"}, 8, WHOLE, id="all of it"),
        pytest.param("0::/\n", TWO, {"unified/memory.max": "1048576\n", "unified/cpu.max": "150000 100000\n"}, 2, 1 << 20, id="version 2"),
        pytest.param(
            NESTED, TWO,
            {"unified/kubepods/pod1/memory.max": "4096\n", "unified/kubepods/pod1/container/memory.max": "8192\n",
             "unified/kubepods/cpu.max": "300000 100000\n", "unified/kubepods/pod1/container/cpu.max": "max 100000\n"},
            3, 4096, id="version 2, groups above limit more",
        ),
        pytest.param("0::/\n", TWO, {"unified/cpu.max": "10000 100000\n"}, 1, WHOLE, id="a tenth of a core"),
        pytest.param("0::/\n", TWO, {"unified/cpu.max": "\n", "unified/memory.max": "?\n"}, 8, WHOLE, id="files that say nothing"),
        pytest.param(
            SEVERAL, ONE.replace("{root}", "/docker/ab"),
            {"memory/memory.limit_in_bytes": "65536\n", "cpu,cpuacct/cpu.cfs_quota_us": "200000\n",
             "cpu,cpuacct/cpu.cfs_period_us": "100000\n"},
            2, 65536, id="version 1, as a container sees its own group",
        ),
        pytest.param(
            SEVERAL, ONE.replace("{root}", "/"),
            {"memory/docker/ab/memory.limit_in_bytes": "65536\n", "memory/memory.limit_in_bytes": f"{2**63 - 4096}\n",
             "cpu,cpuacct/docker/ab/cpu.cfs_quota_us": "-1\n", "cpu,cpuacct/docker/ab/cpu.cfs_period_us": "100000\n"},
            8, 65536, id="version 1, seen from the machine",
        ),
        pytest.param("5:memory\nnonsense\n", "no mount at all\n", {}, 8, WHOLE, id="lines that are none"),
    ],
)  # fmt: skip
def test_groups_limit_cores_and_memory(machine, groups, mounts, files, cores, memory):
    machine(groups, mounts, files)
    assert limits.usable_cores() == cores
    assert limits.memory() == memory


def test_affinity_counts_where_it_is_less(machine, monkeypatch):
    machine("0::/\n", TWO, {"unified/cpu.max": "400000 100000\n"})
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3}, raising=False)
    assert limits.usable_cores() == 1


def test_a_system_without_groups_has_no_limit(machine, tmp_path):
    machine("", "", {})
    (tmp_path / "groups").unlink()
    assert limits.usable_cores() == 8
    assert limits.memory() == WHOLE


def test_a_real_group_is_seen(tmp_path: Path):
    files = {"memory": ("memory.limit_in_bytes", 300 << 20), "cpu": ("cpu.cfs_quota_us", 50_000)}
    made = [(Path("/sys/fs/cgroup") / kind / f"pe-test-{os.getpid()}", *what) for kind, what in files.items()]
    try:
        for folder, name, value in made:
            folder.mkdir()
            (folder / name).write_text(str(value))
    except OSError:
        needs.skip("the right to make a group of version 1")
    try:
        enter = "".join(f"echo $$ > {folder}/cgroup.procs && " for folder, *_ in made)
        code = "from pe_cli.core import limits; print(limits.usable_cores(), limits.memory())"
        done = subprocess.run(["sh", "-c", f"{enter} exec {sys.executable} -c '{code}'"], capture_output=True, text=True, check=True)
        assert done.stdout.split() == ["1", str(300 << 20)]
    finally:
        for folder, *_ in made:
            folder.rmdir()
