"""Processes that are started together: what they say, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pe_cli.core.errors import ExitCode
from pe_cli.session.launch.group import Group, Task, remote
from tests.mpi_support import ENVIRONMENT

#: A command that stands for ssh: it leaves the host out and runs the rest.
SSH = ("sh", "-c", 'exec sh -c "$1"')


def script(text):
    return [sys.executable, "-c", text]


def ran(tasks, seconds=0.0, ssh=SSH, **given):
    said = []
    group = Group(tasks, seconds, ssh, lambda line, wrong: said.append((line, wrong)), **given)
    return group.wait(), said


def test_lines_are_passed_on_and_the_others_are_named():
    text = "import os, sys; print('I am', os.environ['ME']); print('oh', file=sys.stderr)"
    codes, said = ran([Task(str(i), script(text), {"ME": str(i)}) for i in range(2)])
    assert codes == [0, 0]
    assert sorted(said) == [("I am 0", False), ("[1] I am 1", False), ("[1] oh", True), ("oh", True)]


def test_what_was_said_before_can_be_left_out():
    """Whoever comes first: the first process says all that it has to say, and the second nothing twice."""
    codes, said = ran([Task(str(i), script("print('the same'); print('the same')")) for i in range(2)], once=True)
    assert codes == [0, 0]
    assert said.count(("the same", False)) == 2
    assert said.count(("[1] the same", False)) <= 1


@pytest.mark.parametrize(
    ("code", "serves"),
    [
        pytest.param(ExitCode.PEER_LOST, False, id="another was lost"),
        pytest.param(ExitCode.USAGE, True, id="a server could not begin"),
    ],
)
def test_a_process_that_goes_on_without_the_other_is_ended(monkeypatch, code, serves):
    monkeypatch.setattr("pe_cli.session.launch.group.MERCY", 0.2)
    waits = Task("0", script("import time; time.sleep(100)"))
    codes, _ = ran([waits, Task("1", script(f"raise SystemExit({int(code)})"), serves=serves)], 60.0)
    assert codes == [None, code]


def test_what_starts_processes_itself_ends_with_a_group_that_is_killed(tmp_path):
    """A wish to end would not do: what mpiexec is told while nobody reads what it says depends on who is faster."""
    pid = tmp_path / "pid"
    inner = (
        "import os, pathlib, signal, time; signal.signal(15, signal.SIG_IGN)\n"
        f"pathlib.Path({str(pid)!r}).write_text(str(os.getpid()) + '.'); time.sleep(60)"
    )
    outer = (
        "import sys; from pe_cli.session.launch.group import Group, Task\n"
        f"Group([Task('mpiexec', [sys.executable, '-c', {inner!r}], launches=True)], 0.0, [], print).wait()"
    )
    started = subprocess.Popen(script(outer), env=ENVIRONMENT)
    until = time.monotonic() + 30
    while not (pid.exists() and pid.read_text().endswith(".")) and time.monotonic() < until:
        time.sleep(0.02)
    os.kill(started.pid, signal.SIGKILL)
    started.wait()
    there = Path("/proc") / pid.read_text().rstrip(".") / "cmdline"
    while there.exists() and there.read_text() and time.monotonic() < until:
        time.sleep(0.02)
    assert not (there.exists() and there.read_text())


def test_a_command_on_another_machine_is_quoted_and_gives_its_exit_code(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PE_ODD", "it's $HOME; exit 3")
    text = "import os; print(os.environ['PE_ODD'], os.environ['PE_RANK'], os.getcwd()); raise SystemExit(7)"
    codes, said = ran([Task("0", script(text), {"PE_RANK": "4"}, host="elsewhere")])
    assert codes == [7]
    assert said == [(f"it's $HOME; exit 3 4 {tmp_path}", False)]
    assert remote(Task("0", ["a b"], {}, "node7"), ["ssh", "-p", "22"])[:4] == ["ssh", "-p", "22", "node7"]


@pytest.mark.parametrize("host", ["", "elsewhere"])
@pytest.mark.parametrize(("own", "given", "found"), [("", "it's $HOME", "it's $HOME"), ("mine", "theirs", "theirs"), ("mine", "", "mine")])
def test_a_secret_is_told_and_stands_on_no_command_line(monkeypatch, host, own, given, found):
    monkeypatch.setenv("PE_GROUP_SECRET", own)
    text = "import os; print(os.environ['PE_GROUP_SECRET'], os.environ['PE_RANK'])"
    task = Task("0", script(text), {"PE_RANK": "1"}, host=host, secret=given)
    codes, said = ran([task])
    assert codes == [0]
    assert said == [(f"{found} 1", False)]
    assert not any(word in line for line in remote(task, SSH) for word in (given, own) if word)


def test_a_command_that_is_not_there_starts_nothing():
    with pytest.raises(OSError, match="no-such-command"):
        ran([Task("0", ["no-such-command"])])


def test_signals_that_come_together_in_a_task_of_slurm_are_one_request(monkeypatch):
    """Slurm sends SIGTERM to every process of a task, and each passes it on; outside of it the second ends all."""
    text = "import signal, time, sys; signal.signal(signal.SIGINT, lambda *_: sys.exit(75)); print('up', flush=True); time.sleep(60)"

    def asked(count, **given):
        def say(line, wrong):
            if line == "up":
                for _ in range(count):
                    group._interrupt(signal.SIGTERM, None)

        group = Group([Task("mpiexec", script(text), asks=signal.SIGINT, **given)], 0.0, SSH, say)
        return group.wait(), group

    codes, group = asked(1, deaf=True)
    assert (codes, group.asked, group.interrupted) == ([75], True, False)
    monkeypatch.setenv("SLURM_STEP_ID", "0")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    codes, group = asked(3, deaf=True)
    assert (codes, group.interrupted) == ([75], False)


def test_a_process_may_be_deaf_to_what_slurm_sends_to_all():
    text = "import os, signal, time; [os.kill(os.getpid(), n) for n in (signal.SIGTERM, signal.SIGUSR1)]; time.sleep(0.2); print('here')"
    assert ran([Task("mpiexec", script(text), deaf=True)]) == ([0], [("here", False)])
