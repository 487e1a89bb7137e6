"""pe itself: help, unknown commands, exit codes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

from pe_cli.cli.main import PLUMBING, cli, run
from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.signals import SIGNALS, fatal, held, interruptible
from tests.cli.conftest import ROOT, Pe

COMMANDS = cli.list_commands(click.Context(cli))
HEAVY = ("numpy", "numba", "pydantic", "rich", "yaml")


def test_commands_are_found_and_plumbing_is_not() -> None:
    assert {"bench", "check", "devices", "eval", "graph", "init", "ops", "predict", "schema", "summary"} <= set(
        COMMANDS
    )
    assert "train" in COMMANDS
    assert not PLUMBING & set(COMMANDS)


def test_pe_alone_says_how_to_start(pe: Pe) -> None:
    said = pe()
    assert said.code == 0
    assert said.out.index("pe init") < said.out.index("pe check") < said.out.index("pe train config")


def test_help_lists_every_command_once(pe: Pe) -> None:
    listed = [line.split()[0] for line in pe("--help").out.splitlines() if line.startswith("  ") and line.split()[0] in COMMANDS]
    assert sorted(listed) == COMMANDS


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("flag", ["--help", "-h"])
def test_every_command_has_help_with_a_sentence(pe: Pe, name: str, flag: str) -> None:
    said = pe(name, flag)
    assert said.code == 0
    assert said.out.startswith(f"Usage: pe {name}")
    assert "." in said.out


def test_help_imports_nothing_heavy() -> None:
    code = "import sys; from pe_cli.cli.main import run; run(['--help']); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(HEAVY) & set(done.stderr.split())


def test_an_unknown_command_is_usage_with_the_closest_name(pe: Pe) -> None:
    said = pe("trian", "x.yaml")
    assert said.code == ExitCode.USAGE
    assert "did you mean 'train'?" in said.err


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["train"], id="a missing argument"),
        pytest.param(["train", "--nonsense", "x"], id="an unknown option"),
        pytest.param(["bench", "x.yaml", "--steps", "0"], id="a number out of range"),
        pytest.param(["graph", "x.yaml", "--stage", "what"], id="a choice that is none"),
    ],
)
def test_wrong_usage_exits_2_without_a_traceback(pe: Pe, arguments: list[str]) -> None:
    said = pe(*arguments)
    assert said.code == ExitCode.USAGE
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        pytest.param(["train"], "error: pe train needs CONFIG\nhint: pe init writes", id="no config: how to get one"),
        pytest.param(["eval"], "error: pe eval needs TARGET\nhint: the folder of a run", id="no run: what it is"),
        pytest.param(["bench", "a", "b"], "a pattern such as runs/*", id="two configs where one is taken"),
    ],
)
def test_wrong_usage_says_how_to_go_on(pe: Pe, arguments: list[str], text: str) -> None:
    assert text in pe(*arguments).err


@pytest.mark.parametrize("command", ["eval", "report"])
def test_a_folder_of_runs_instead_of_a_run_names_the_newest(pe: Pe, tmp_path: Path, command: str) -> None:
    for i, name in enumerate(("old", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "status.json").write_text("{}")
        os.utime(tmp_path / name, (i, i))
    said = pe(command, tmp_path)
    assert said.code == ExitCode.DATA
    assert said.err.endswith(f"hint: it holds runs; the newest is {tmp_path / 'new'}\n")


@pytest.mark.parametrize(
    ("raised", "code", "text"),
    [
        pytest.param(PeError("too hot", code=ExitCode.DATA, hint="cool it"), 3, "hint: cool it", id="ours by its code"),
        pytest.param(KeyboardInterrupt(), 130, "interrupted", id="Ctrl-C is 130"),
        pytest.param(
            ModuleNotFoundError("x", name="yaml"), 2, "error: the package 'yaml' is not installed", id="half an installation"
        ),
        pytest.param(ModuleNotFoundError("x", name="pe_cli.core.x"), 1, "this is a bug of pe", id="our own module is a bug"),
        pytest.param(MemoryError(), 5, "batch_size", id="memory is 5"),
        pytest.param(ZeroDivisionError("x"), 1, "this is a bug of pe: ZeroDivisionError", id="the rest is our bug"),
    ],
)
def test_exceptions_become_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], raised: BaseException, code: int, text: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(cli, "main", fail)
    assert run([]) == code
    err = capsys.readouterr().err
    assert text in err
    assert "Traceback" not in err


def test_a_reader_that_goes_away_is_no_error(config: Path) -> None:
    command = f"{sys.executable} -m pe_cli.cli.main ops | head -n 1"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_the_first_signal_stops_after_the_step_with_a_checkpoint_and_exits_75(config: Path) -> None:
    command = [sys.executable, "-m", "pe_cli.cli.main", "train", str(config), "-o", "train.epochs=1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ) as child:
        assert child.stdout
        for line in child.stdout:
            if line.strip()[:1].isdigit():  # the row of an epoch
                break
        child.send_signal(signal.SIGINT)
        out, err = child.communicate(timeout=60)
    assert child.returncode == ExitCode.STOPPED, err
    assert "stopped at step" in out
    folder = next((config.parent / "runs").iterdir())
    assert (folder / "checkpoints" / "last").is_file()
    assert '"stopped"' in (folder / "status.json").read_text()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_training_begins_interrupts(config: Path, number: signal.Signals) -> None:
    """Sent while the command's own modules are imported."""
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a shell's background jobs ignore it
        "from pe_cli.cli import main\n"
        "real = main.Commands.get_command\n"
        "def signalled(*arguments):\n"
        f"    os.kill(os.getpid(), {int(number)})\n"
        "    return real(*arguments)\n"
        "main.Commands.get_command = signalled\n"
        "main.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", code, "train", str(config)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.strip()) == (ExitCode.INTERRUPTED, "interrupted")
    assert not (config.parent / "runs").exists()


def test_what_a_library_makes_of_an_interruption_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """An import hook and a callback of C turn a KeyboardInterrupt into errors of their own, and only the signal tells why."""

    def fail(*_: object, **__: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        raise SystemError("returned a result with an exception set")

    monkeypatch.setattr(cli, "main", fail)
    before = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        interruptible()
        assert run([]) == ExitCode.INTERRUPTED
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert capsys.readouterr().err == "interrupted\n"


@pytest.mark.parametrize("said", ["<function> returned NULL without setting an exception", "error return without exception set"])
def test_a_call_that_fails_without_an_exception_had_no_memory_for_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], said: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise SystemError(said)

    monkeypatch.setattr(cli, "main", fail)
    assert run([]) == ExitCode.DEVICE
    assert capsys.readouterr().err.startswith("error: out of memory\nhint: ")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_was_held_back_while_python_started_counts(number: signal.Signals) -> None:
    """It comes before the first instruction, and to a job in the background of a shell, which ignores SIGINT."""
    program = (
        "import os, signal, sys\n"
        f"signal.signal({int(number)}, signal.SIG_DFL)\n"
        f"signal.pthread_sigmask(signal.SIG_BLOCK, [{int(number)}])\n"
        f"os.kill(os.getpid(), {int(number)})\n"
        "sys.argv = ['pe', 'ops']\n"
        "from pe_cli.__main__ import main\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ)
    assert (done.returncode, done.stdout, done.stderr) == (ExitCode.INTERRUPTED, "", "interrupted\n")


def test_an_interruption_that_was_taken_leaves_the_exit_code_as_it_is(tmp_path: Path) -> None:
    """One in an exec, with which named tuples are made, is remembered by Python where a module is the program."""
    (tmp_path / "interrupted.py").write_text(
        "from pe_cli.cli import main\n"
        "def run(arguments):\n"
        "    try: exec('raise KeyboardInterrupt')\n"
        "    except KeyboardInterrupt: return 130\n"
        "main.run = run\n"
        "main.main()\n"
    )
    done = subprocess.run([sys.executable, "-m", "interrupted"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (ExitCode.INTERRUPTED, "")


def test_signals_are_held_back_for_those_who_are_started_only() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with held():
        assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before | set(SIGNALS)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def test_signals_end_what_holds_the_lock_of_python() -> None:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    with fatal():
        assert [signal.getsignal(number) for number in SIGNALS] == [signal.SIG_DFL] * 2
    assert {number: signal.getsignal(number) for number in SIGNALS} == before


def test_the_second_signal_stops_at_once(config: Path) -> None:
    code = (
        "import os, signal, time\n"
        "from pe_cli.session.training.stop import StopRequest\n"
        "with StopRequest() as stop:\n"
        "    os.kill(os.getpid(), signal.SIGTERM); time.sleep(0.1); assert stop.asked\n"
        "    os.kill(os.getpid(), signal.SIGTERM); time.sleep(10)\n"
    )
    begin = time.monotonic()
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == ExitCode.INTERRUPTED, done.stderr
    assert time.monotonic() - begin < 8


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        pytest.param(("train", "run.yaml", "-o", f"data.train.file={'d' * 300}"), ExitCode.DATA, id="data"),
        pytest.param(("train", "run.yaml", "-o", "data.train.file=~nobody-here/x.npz"), ExitCode.DATA, id="data of nobody"),
        pytest.param(("check", "run.yaml", "-o", f"model={'d' * 300}"), ExitCode.USAGE, id="model"),
        pytest.param(("check", "run.yaml", "-o", "model=~nobody-here/x.yaml"), ExitCode.USAGE, id="model of nobody"),
        pytest.param(("check", "d" * 300), ExitCode.USAGE, id="config"),
        pytest.param(("eval", "d" * 300), ExitCode.USAGE, id="run"),
        pytest.param(("report", "d" * 300), ExitCode.USAGE, id="report"),
        pytest.param(("train", "--resume", "d" * 300), ExitCode.USAGE, id="resume"),
        pytest.param(("train", "run.yaml", "--init", "d" * 300), ExitCode.DATA, id="init"),
        pytest.param(("train", "run.yaml", "-o", f"output.dir={'d' * 300}"), ExitCode.USAGE, id="output"),
    ],
)
def test_paths_that_cannot_be(pe: Pe, config: Path, arguments: tuple[str, ...], code: ExitCode) -> None:
    """Names longer than the system's, and homes of users that do not exist."""
    given = [config if a == "run.yaml" else a for a in arguments]
    done = pe(*given)
    assert done.code == code, done.err
    assert "bug" not in done.err
    assert done.err.startswith("error: ") or ": error: " in done.err.splitlines()[0]


@pytest.mark.parametrize("command", ["eval", "predict"])
def test_a_second_run_where_data_is_expected(pe: Pe, tmp_path: Path, command: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "status.json").write_text("{}")
    said = pe(command, ROOT / "configs" / "iris.yaml", tmp_path / "other")
    assert said.code == ExitCode.USAGE
    assert "is a run, and data is expected behind the first one\nhint: name one run; a pattern such as runs/*" in said.err


@pytest.mark.parametrize("kib", [70_000, 135_000, 330_000, 390_000])
def test_too_few_addresses_are_told_before_a_library_fails(kib: int) -> None:
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({kib << 10}, {kib << 10}))"
    code = f"{limit}; from pe_cli.__main__ import main; main()"
    done = subprocess.run([sys.executable, "-c", code, "check", "x.yaml"], capture_output=True, text=True)
    assert done.returncode == ExitCode.DEVICE, done.stderr
    assert f"too little memory: {kib} KiB of addresses are allowed, and 393216 are needed to begin" in done.stderr
