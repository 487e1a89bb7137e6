"""Scripts that are run with `paddle` as another name of this package: as Python runs them, and with one error for what is refused."""

from __future__ import annotations

import collections
import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.paddle.script_processes import ROOT, Ended, run_scripts

SEES = """\
import beside.inner, os, pickle, sys
class Own:
    pass
assert type(pickle.loads(pickle.dumps(Own()))) is Own and sys.modules["__main__"].Own is Own
print(sys.argv, sys.path, __name__, __file__, __package__, __doc__, __spec__ and __spec__.name, os.getcwd(), sep="\\n")
print(beside.inner.SAID, sorted(set(globals()) - {"__annotations__"}))
print("wrong", file=sys.stderr)
"""
#: Scripts without `paddle`, with their arguments: what they do here is what they do under Python.
OWN: dict[str, tuple[str, list[str]]] = {
    "what a script sees": (SEES, ["--epochs", "3", "-m", "--seed=4"]),
    "its exit code": ("import sys\nsys.exit(7)\n", []),
    "a text for an exit code": ("raise SystemExit('that is all')\n", []),
    "its own error": ("def f():\n    raise KeyError('mine')\nf()\n", []),
    "an error in a module of its own": ("import beside.fails\n", []),
    "an error that follows from another": ("try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('so') from e\n", []),
    "a wrong line that is no Python 2": ("x = (1,\n\nprint(x)\n", []),
    "an import of its own that fails": ("raise ImportError('what I need')\n", []),
    "an attribute of something else": ("import numpy\nnumpy.no_such_name\n", []),
    "a name of Python 2": ("for i in xrange(3): pass\n", []),
    "work at the end": ("import atexit\natexit.register(print, 'bye')\nassert not 1\n", []),
    "an end without a word": ("import os\nos._exit(9)\n", []),
    "its encoding": ("# -*- coding: latin-1 -*-\nprint(len('\xe4'))\n", []),
}
MODULES: dict[str, tuple[str, list[str]]] = {"a module": (SEES, ["x"]), "a module that fails": ("def f():\n    1 / 0\nf()\n", [])}
HEAD = "import numpy as np\nimport paddle\nimport paddle.fluid as fluid\n"
X = "x = fluid.layers.data('x', [4])\n"
#: Scripts that this package refuses, or that are not for this Python: exit code, line, message, hint.
REFUSED: dict[str, tuple[str, int, int, str, str]] = {
    "the dynamic mode": (
        "with fluid.dygraph.guard():\n    pass\n", 2, 4,
        "fluid.dygraph.guard is not there: graphs are static", "build the network once",
    ),
    "the dynamic mode of 2.x": (
        "paddle.disable_static()\n", 2, 4,
        "paddle.disable_static is not there: graphs are static", "build the network once",
    ),
    "a step of the dynamic mode": (
        X + "fluid.layers.mean(x).backward()\n", 2, 5,
        "Variable has no 'backward'", "optimizer.minimize",
    ),
    "a value of the dynamic mode": (X + "x.numpy()\n", 2, 5, "Variable has no 'numpy'", "Executor.run"),
    "a device that is not there": (
        "fluid.Executor(fluid.CUDAPlace(99))\n", 5, 4, r"CUDAPlace\(99\): there are \d+ CUDA devices", "CPUPlace"
    ),
    "a reader of the network": (
        "next(paddle.dataset.mnist.train()())\n", 3, 4,
        "there is no file .*train-images.*nothing is downloaded", "put it there",
    ),
    "a download": (
        "paddle.dataset.common.download('http://a/b.tgz', 'c', '0')\n", 3, 4,
        "there is no file .*/c/b.tgz, and", "put http://a/b.tgz there",
    ),
    "a package that is not there": (
        "import cv2_no_such\n", 2, 4,
        "the package 'cv2_no_such' is not installed", "pip install cv2_no_such",
    ),
    "a part of PaddlePaddle": (
        "import paddlehub.x\n", 2, 4,
        "the package 'paddlehub' is not installed", "pe run stands in for paddle alone",
    ),
    "a module of Python 2": ("import cPickle\n", 2, 4, "'cPickle' is a module of Python 2", "import pickle as cPickle"),
    "an import that Python 2 had": (
        "import beside.implicit\n", 2, 1,
        "there is no module 'inner': Python 3 looks for it", "from . import inner",
    ),
    "a module of paddle that is not there": (
        "import paddle.fluid.laiers\n", 2, 4,
        "there is no module 'paddle.fluid.laiers'", "paddle.fluid.layers",
    ),
    "a name that is not there": ("fluid.layers.fcc\n", 2, 4, "fluid.layers has no 'fcc'", "did you mean 'fc'"),
    "a name that is imported": (
        "from paddle.fluid.layers import fcc\n", 2, 4,
        "fluid.layers has no 'fcc'", "did you mean 'fc'",
    ),
    "a method that is not there": (
        "fluid.Executor(fluid.CPUPlace()).runn()\n", 2, 4,
        "Executor has no 'runn'", "did you mean 'run'",
    ),
    "a wrong shape in a module": (X + "import beside.net\nbeside.net.build(x)\n", 2, 3, r"[\s\S]*note: called here\n", ""),
    "print without parentheses": ("print 'step', 1\n", 2, 4, "this is Python 2, and Python 3 does not read it", "fissix"),
    "an exception after a comma": ("try:\n    pass\nexcept KeyError, e:\n    pass\n", 2, 6, "this is Python 2", "fissix"),
    "tabs and spaces": ("if 1:\n        a = 1\n\tb = 1\n", 2, 6, "this is Python 2", "fissix"),
}
#: What a pipe command of 1.8 looks like: lines of words become lines of their lengths.
SLOTS = (
    "import paddle.fluid.incubate.data_generator as dg\nclass Lengths(dg.MultiSlotDataGenerator):\n    def generate_sample(self, line):\n"
    "        return lambda: iter([[('x', [len(word) for word in line.split()])]])\n"
    "if __name__ == '__main__':\n    Lengths().run_from_stdin()\n"
)
RUNS = {
    "the modules of paddle": (
        HEAD + "import pe_cli.paddle, sys\nimport paddle.fluid.layers.nn as nn\nfrom paddle.fluid.layers import fc\n"
        "assert paddle is pe_cli.paddle and nn is sys.modules['pe_cli.paddle.fluid.layers.nn'] and nn.fc is fc\n"
        "assert paddle.__spec__.name == paddle.__name__ == 'pe_cli.paddle'\n"
        "import importlib; assert importlib.import_module('paddle.fluid.io') is fluid.io\n"
        "try:\n    import paddle.no_such\nexcept ImportError as e:\n    print(e)\nprint(len(fluid.cpu_places()))\n"
    ),
    "a seed": (
        "import random, numpy, paddle.fluid as fluid\nprint(random.random(), numpy.random.rand())\n"
        "fluid.layers.data('x', [4])\ny = fluid.layers.fc(fluid.layers.data('z', [3]), 2)\nexe = fluid.Executor(fluid.CPUPlace())\n"
        "exe.run(fluid.default_startup_program())\nprint(exe.run(feed={'z': numpy.ones((1, 3), 'float32')}, fetch_list=[y]))\n"
    ),
    "a data set that lies there": (
        "import os, paddle\npaddle.dataset.common.DATA_HOME = os.getcwd()\n"
        f"print(paddle.dataset.common.download('http://a/b.txt', 'c', '{hashlib.md5(b'here').hexdigest()}') == os.getcwd() + '/c/b.txt')\n"
    ),
    "names that NumPy and Pillow have dropped": (
        "import sys, numpy as np\nassert np.int is int and np.NaN != np.NaN and np.asscalar(np.array([3])) == 3 and np.NINF < 0\n"
        "try:\n    from PIL import Image\nexcept ImportError:\n    sys.exit()\n"
        "assert Image.new('L', (4, 4)).resize((2, 2), Image.ANTIALIAS).size == (2, 2) and Image.__file__ and Image.__spec__.origin\n"
    ),
    "names that Python has dropped": (
        "import base64, collections, inspect, time\n\nfrom collections import Mapping, Sequence\nfrom fractions import gcd\n"
        "def f(a, b=1, *c, **d): pass\ndef g(*, a): pass\n"
        "assert isinstance({}, Mapping) and isinstance([], Sequence) and issubclass(collections.OrderedDict, collections.MutableMapping)\n"
        "assert time.clock() >= 0 and gcd(4, 6) == 2 and base64.encodestring(b'a') == b'YQ==\\n'\n"
        "assert inspect.getargspec(f) == (['a', 'b'], 'c', 'd', (1,))\n"
        "try:\n    inspect.getargspec(g)\nexcept ValueError as e:\n    print(e)\n"
        "import distutils.util; assert distutils.util.strtobool('Yes') == 1 and distutils.util.strtobool('off') == 0\n"
        "for wanted in (lambda: collections.no_such, lambda: __import__('numpy').no_such):\n"
        "    try:\n        wanted()\n    except AttributeError as e:\n        print(e)\n"
    ),
    "forms that packages have dropped": (
        "import json\nimport yaml\nassert yaml.load('a: [1, 2.5]') == {'a': [1, 2.5]} == yaml.load('a: [1, 2.5]', yaml.SafeLoader)\n"
        "assert list(yaml.load_all('- 1\\n---\\n- x\\n')) == [[1], ['x']] and yaml.load.__name__ == 'load'\n"
        "assert json.loads('[1]', encoding='utf-8') == [1] == json.loads('[1]') == json.loads(b'[1]', encoding=None)\n"
        "try:\n    yaml.load('!!python/object/apply:os.getcwd []')\nexcept yaml.YAMLError as e:\n    print('refused')\n"
    ),
    "arrays of one number in modules": (
        "import numpy as np\nfrom beside import casts\nimport beside.casts as again, sys, json\n"
        "print(casts.cast(np.array([[2.5]])), again is casts, casts.__file__.endswith('casts.py'), casts.__spec__.name)\n"
        "try:\n    casts.cast(np.ones(2))\nexcept TypeError as e:\n    print(e.__traceback__.tb_next.tb_lineno)\n"
        "print(type(json.__loader__).__name__, type(sys.modules['pe_cli.paddle'].__loader__).__name__)\n"
    ),
    "programs that a data set starts": (
        HEAD + "x = fluid.data('x', [None, 1], 'int64', lod_level=1)\n"
        "for command in ('python slots.py', 'cat | python3 -u slots.py', 'cd beside && python -m slots'):\n"
        "    found = fluid.DatasetFactory().create_dataset('InMemoryDataset')\n"
        "    found.set_use_var([x])\n    found.set_batch_size(2)\n    found.set_filelist(['words.txt'])\n"
        "    found.set_pipe_command(command)\n    found.load_into_memory()\n    print(found.get_memory_data_size())\n"
    ),
}  # fmt: skip


def _write(folder: Path) -> None:
    texts = {f"own{i}": text for i, (text, _) in enumerate(OWN.values())}
    texts |= {f"module{i}": text for i, (text, _) in enumerate(MODULES.values())}
    texts |= {f"refused{i}": HEAD + case[0] for i, case in enumerate(REFUSED.values())}
    texts |= {f"runs{i}": text for i, text in enumerate(RUNS.values())}
    for name, text in texts.items():
        (folder / f"{name}.py").write_text(text, encoding="latin-1")
    for name, text in {
        "words.txt": "a b\nccc\n", "slots.py": SLOTS, "beside/slots.py": SLOTS,
        "beside/casts.py": "import math\n\ndef cast(x):\n    return int(x), float(x), '%.2f' % x, math.floor(x)\n",
        "beside/__init__.py": "", "beside/inner.py": "SAID = __name__, __file__\n", "beside/fails.py": "def f():\n    {}['x']\nf()\n",
        "beside/implicit.py": "import inner\n", "c/b.txt": "here",
        "beside/net.py": "import paddle.fluid as fluid\ndef build(x):\n    return fluid.layers.reshape(x, [0, 7])\n",
    }.items():  # fmt: skip
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("scripts")
    _write(made)
    return made


@pytest.fixture(scope="module")
def ended(folder: Path) -> Mapping[str, Ended]:
    """Run all scripts of this file."""
    lines = {f"own{i}": [f"own{i}.py", *arguments] for i, (_, arguments) in enumerate(OWN.values())}
    lines |= {f"module{i}": ["-m", f"module{i}", *arguments] for i, (_, arguments) in enumerate(MODULES.values())}
    lines |= {f"refused{i}": [f"refused{i}.py"] for i in range(len(REFUSED))}
    lines |= {f"runs{i}": [f"runs{i}.py"] for i in range(len(RUNS))}
    lines |= {f"seed{i}": [f"--seed={i // 2}", "runs1.py"] for i in range(3)}
    lines |= {"no script": ["no-such.py"], "no module": ["-m", "no_such_module"], "a folder": ["beside"]}
    return dict(zip(lines, run_scripts(folder, list(lines.values())), strict=True))


def _by_python(folder: Path, arguments: list[str]) -> Ended:
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env={**plain, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False
    )
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("i", range(len(OWN)), ids=list(OWN))
def test_a_script_does_as_under_python(i: int, folder: Path, ended: Mapping[str, Ended]) -> None:
    expected = _by_python(folder, [f"own{i}.py", *list(OWN.values())[i][1]])
    assert ended[f"own{i}"] == expected


@pytest.mark.parametrize("i", range(len(MODULES)), ids=list(MODULES))
def test_a_module_does_as_under_python(i: int, folder: Path, ended: Mapping[str, Ended]) -> None:
    expected = _by_python(folder, ["-m", f"module{i}", *list(MODULES.values())[i][1]])
    found = ended[f"module{i}"]
    assert (found.code, found.out) == (expected.code, expected.out)
    assert found.err == re.sub(r'  File "<frozen runpy>".*\n', "", expected.err)


@pytest.mark.parametrize("i", range(len(REFUSED)), ids=list(REFUSED))
def test_what_is_refused_is_one_error_with_the_line(i: int, ended: Mapping[str, Ended]) -> None:
    text, code, line, message, hint = list(REFUSED.values())[i]
    found = ended[f"refused{i}"]
    file = next((f"beside/{name}.py" for name in ("implicit", "net") if f"beside.{name}" in text), f"refused{i}.py")
    assert found.code == code, found.err
    assert re.match(rf"{file}:{line}:\d+: error: {message}", found.err), found.err
    assert "Traceback" not in found.err
    assert hint in found.err.rpartition("hint: ")[2] or not hint


def test_every_module_of_paddle_is_the_one_of_this_package(ended: Mapping[str, Ended]) -> None:
    found = ended["runs0"]
    assert (found.code, found.out) == (0, f"No module named 'paddle.no_such'\n{os.environ.get('CPU_NUM', 1)}\n"), found.err


def test_one_seed_gives_the_same_numbers_and_another_gives_others(ended: Mapping[str, Ended]) -> None:
    first, again, other, none = (ended[name] for name in ("seed0", "seed1", "seed2", "runs1"))
    assert first.code == 0, first.err
    assert first == again
    assert len({first.out, other.out, none.out}) == 3


def test_a_file_that_a_script_downloads_may_lie_there(ended: Mapping[str, Ended]) -> None:
    assert (ended["runs2"].code, ended["runs2"].out) == (0, "True\n"), ended["runs2"].err


def test_names_that_packages_have_dropped_are_there(ended: Mapping[str, Ended]) -> None:
    assert ended["runs3"].code == 0, ended["runs3"].err


def test_names_that_python_has_dropped_are_there_and_that_is_said_once(ended: Mapping[str, Ended]) -> None:
    found = ended["runs4"]
    assert found.code == 0, found.err
    assert found.out.splitlines()[1:] == ["module 'collections' has no attribute 'no_such'", "module 'numpy' has no attribute 'no_such'"]
    first = "runs4.py:3: note: Python has dropped collections.Mapping; under pe run it is there again, and so are other such names"
    assert [line for line in found.err.splitlines() if "note:" in line] == [first]


def test_forms_that_packages_have_dropped_are_there_and_run_no_code(ended: Mapping[str, Ended]) -> None:
    found = ended["runs5"]
    assert (found.code, found.out) == (0, "refused\n"), found.err
    first = "runs5.py:3: note: PyYAML has dropped yaml.load without a Loader; under pe run it is there again, and so are other such names"
    assert found.err.splitlines() == [first]


def test_modules_of_a_script_take_arrays_of_one_number_as_the_script_does(ended: Mapping[str, Ended]) -> None:
    found = ended["runs6"]
    assert found.code == 0, found.err
    assert found.out.splitlines() == ["(2, 2.5, '2.50', 2) True True beside.casts", "4", "SourceFileLoader SourceFileLoader"]


def test_a_program_that_a_data_set_starts_has_the_same_paddle(ended: Mapping[str, Ended]) -> None:
    found = ended["runs7"]
    assert (found.code, found.out) == (0, "2\n2\n2\n"), found.err


def test_outside_of_pe_run_the_names_stay_dropped() -> None:
    with pytest.raises(AttributeError):
        collections.Mapping  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("name", "message"),
    [
        pytest.param("no script", "error: no-such.py: no such script\nhint: name a Python file", id="no script"),
        pytest.param("no module", "error: can't run the module 'no_such_module': No module named", id="no module"),
        pytest.param("a folder", "error: beside: is a directory\nhint: name a Python file", id="a folder"),
    ],
)
def test_what_cannot_be_run_is_an_error(name: str, message: str, ended: Mapping[str, Ended]) -> None:
    assert ended[name].code == 2
    assert ended[name].err.startswith(message), ended[name].err
