"""Untrusted input: it works, or it is a PeError; nothing else happens. Bounds are in bounds.py, what reads in targets.py.

The examples are the same in every run; `PE_FUZZ=5000` draws so many new ones for every target that is quick, of others
in proportion fewer. What was found once lies in
`corpus/TARGET/` and is tried in every run.
"""

from __future__ import annotations

import os
import random
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from tests.fuzz import bounds, messages, requests
from tests.fuzz.bounds import kept
from tests.fuzz.damage import bomb, damaged, deep, rewritten
from tests.fuzz.grammars import GRAMMARS
from tests.fuzz.many import failure, made
from tests.fuzz.targets import TARGETS
from tests.fuzz.whole_inputs import KERNEL, binaries, texts
from tests.rotation import of_today

MORE = int(os.environ.get("PE_FUZZ", "0"))
CORPUS = Path(__file__).parent / "corpus"
VARIABLE = 'program "a"\nblock 0\nvar x: float32[1]'
#: Inputs of a grammar in an ordinary run.
FEW_OF_A_GRAMMAR = 40
#: Examples of a target in an ordinary run; those of the command line take longer.
FEW = {"config": 20, "model": 20, "override": 20, "run_folder": 30}

pytestmark = pytest.mark.filterwarnings("ignore:Reading .* created on Python 2:UserWarning")


@pytest.fixture(scope="module", autouse=True)
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder, when every target has read something whole: what is imported, and compiled, on first use is that now."""
    found = tmp_path_factory.mktemp("fuzz").resolve()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bounds, "ROUGHLY", True)  # a compiler whose memory is traced takes five times as long
        for kind, (whole, *_) in {**binaries(), **texts()}.items():
            (found / kind).mkdir()
            failure(kind, whole.encode() if isinstance(whole, str) else whole, found / kind)
    return found


def _try(target: str, folder: Path, inputs: st.SearchStrategy[bytes], few: int = 80) -> None:
    own = folder / target
    own.mkdir(exist_ok=True)

    phases = (Phase.generate, Phase.shrink) if not os.environ.get("PE_FUZZ_RAW") else (Phase.generate,)

    @settings(
        phases=phases,
        max_examples=max(1, MORE or 80) * min(few, FEW.get(target, few)) // 80,
        derandomize=not MORE,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
    )
    @given(inputs)
    def attempt(data: bytes) -> None:
        assume(target != "kernel" or data != KERNEL)
        TARGETS[target](data, own)

    attempt()


@pytest.mark.parametrize("target", of_today(sorted(binaries()), 2))
def test_damaged_bytes(target: str, folder: Path) -> None:
    _try(target, folder, damaged(binaries()[target]))


def test_messages_of_odd_things(folder: Path) -> None:
    chances = st.tuples(st.sampled_from(messages.wholes()), st.integers(0, 1 << 32))
    _try("frames", folder, chances.map(lambda one: messages.changed(one[0], random.Random(one[1]))), few=400)


def test_requests_of_a_grammar(folder: Path) -> None:
    _try("http", folder, st.integers(0, 2**32).map(lambda seed: requests.stream(random.Random(seed))))


@pytest.mark.parametrize("target", of_today(sorted(texts()), 2))
def test_rewritten_text(target: str, folder: Path) -> None:
    wholes = texts()[target]
    as_bytes = rewritten(wholes).map(lambda text: text.encode("utf-8", "surrogatepass"))
    _try(target, folder, as_bytes | damaged([text.encode() for text in wholes]))


@pytest.mark.parametrize("kind", of_today(sorted(GRAMMARS), 2))
def test_inputs_of_a_grammar(kind: str, folder: Path) -> None:
    own = folder / kind
    own.mkdir(exist_ok=True)
    seed = str(random.SystemRandom().getrandbits(32)) if MORE else "1"
    for i in range(MORE or FEW_OF_A_GRAMMAR):
        why = failure(kind, made(random.Random(f"{seed}:{kind}:{i}"), kind, (), as_text=False), own)
        assert not why, f"{kind} {seed}:{i}: {why}"


@pytest.mark.parametrize(
    ("target", "inputs"),
    [
        pytest.param("config", deep("[", "]") | deep("{a: ", "}") | deep("- ", "") | deep("a:\n ", "") | bomb(), id="a config"),
        pytest.param("model", deep("layers: [", "]") | deep("{blocks: ", "}") | deep("? ", "") | bomb(), id="a model"),
        pytest.param("override", deep("train=[", "]") | deep("a.", "=1") | deep("data={a: ", "}"), id="an override"),
        pytest.param("checkpoint_meta", deep("[", "]", 200_000) | deep('{"a":', "}", 200_000), id="a description of a checkpoint"),
        pytest.param("program", deep('{"a":', "}", 200_000) | deep(f'{VARIABLE} {{"a": ', "}"), id="a program"),
        pytest.param("csv", deep('"', '"'), id="a table"),
    ],
)  # fmt: skip
def test_nested_text(target: str, inputs: st.SearchStrategy[str], folder: Path) -> None:
    _try(target, folder, inputs.map(str.encode), few=12)


@pytest.mark.parametrize("path", [pytest.param(p, id=f"{p.parent.name}: {p.name}") for p in sorted(CORPUS.glob("*/*"))])
def test_what_was_found_once(path: Path, tmp_path: Path) -> None:
    TARGETS[path.parent.name](path.read_bytes(), tmp_path.resolve())


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        pytest.param(lambda: eval("1"), "exec", id="code that is run"),
        pytest.param(lambda: bytearray(100 << 20), "bytes at the peak", id="memory"),
        pytest.param(lambda: Path(tempfile.gettempdir(), "pe-fuzz-outside").touch(), "open", id="a file elsewhere"),
        pytest.param(lambda: os.system("true"), "os.system", id="a command"),
    ],
)
def test_the_bounds_see(wrong: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=said), kept(tmp_path):
        wrong()  # type: ignore[operator]
    Path(tempfile.gettempdir(), "pe-fuzz-outside").unlink(missing_ok=True)
