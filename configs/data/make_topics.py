"""Write topics-*.txt: made-up texts on four topics, one a line in MultiSlot form: `<n> <word> ... 1 <topic>`.

Every topic has words of its own; a text takes a third of its words from them and the others from all. Numbers stand for
words, as after any tokeniser.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

WORDS, TOPICS, OWN = 200, 4, 15
FILES = {"topics-train-0.txt": 300, "topics-train-1.txt": 300, "topics-eval.txt": 200}


def text(rng: np.random.Generator, topic: int) -> str:
    """Return one line."""
    count = int(rng.integers(3, 21))
    common = rng.integers(0, WORDS, count)
    own = topic * OWN + rng.integers(0, OWN, count)
    words = np.where(rng.random(count) < 1 / 3, own, common)
    return f"{count} {' '.join(map(str, words))} 1 {topic}"


def main() -> None:
    """Write the files beside this one."""
    rng = np.random.default_rng(20261121)
    for name, lines in FILES.items():
        found = [text(rng, int(rng.integers(TOPICS))) for _ in range(lines)]
        (Path(__file__).parent / name).write_text("\n".join(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
