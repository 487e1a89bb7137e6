"""Write roles-*.txt: made-up sentences and who does what to whom, one a line in MultiSlot form, the same bytes every time.

A line is `<n> <word> ... <n> <tag> ...`. Words are numbers, as after any tokeniser: `WORDS` in order, from 0. Tags: 0 outside;
1 and 2 begin and go on with who does it, 3 and 4 with whom it is done to, 5 and 6 with where; 7 is the verb. In the passive
voice ("the fox was seen by the old king") roles change places, which is told by a word that stands later.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

NOUNS = ["king", "fox", "miller", "girl", "smith", "goose", "queen", "boy", "trout", "wizard"]
ADJECTIVES = ["old", "young", "proud", "poor", "small", "clever"]
VERBS = ["seen", "met", "found", "helped", "followed", "heard"]
PLACES = ["forest", "river", "castle", "mill", "market"]
REST = ["the", "a", "was", "by", "had", "near", "in", "and", "often", "once"]
WORDS = [*REST, *NOUNS, *ADJECTIVES, *VERBS, *PLACES]
FILES = {"roles-train.txt": 1500, "roles-eval.txt": 300}
OUTSIDE, AGENT, PATIENT, PLACE, VERB = 0, 1, 3, 5, 7


def phrase(rng: np.random.Generator, nouns: list[str], tag: int) -> list[tuple[str, int]]:
    """Return an article, up to two adjectives and a noun, as words with tags."""
    article, count = str(rng.choice(["the", "a"])), int(rng.integers(0, 3))
    words = [article, *map(str, rng.choice(ADJECTIVES, count, replace=False)), str(rng.choice(nouns))]
    return [(word, tag if i == 0 else tag + 1) for i, word in enumerate(words)]


def sentence(rng: np.random.Generator) -> list[tuple[str, int]]:
    """Return the words of a sentence with their tags."""
    passive = rng.random() < 0.5
    said = [("once", OUTSIDE)] if rng.random() < 0.3 else []
    said += phrase(rng, NOUNS, PATIENT if passive else AGENT)
    where = [(str(rng.choice(["in", "near"])), OUTSIDE), *phrase(rng, PLACES, PLACE)] if rng.random() < 0.5 else []
    early = rng.random() < 0.5
    said += [*(where if early else []), ("was" if passive else "had", OUTSIDE)]
    said += [("often", OUTSIDE)] * int(rng.random() < 0.3) + [(str(rng.choice(VERBS)), VERB)]
    said += [("by", OUTSIDE)] if passive else []
    return [*said, *phrase(rng, NOUNS, AGENT if passive else PATIENT), *([] if early else where)]


def main() -> None:
    """Write the files beside this one."""
    rng = np.random.default_rng(20261205)
    for name, lines in FILES.items():
        found = []
        for _ in range(lines):
            words, tags = zip(*sentence(rng), strict=True)
            ids = " ".join(str(WORDS.index(word)) for word in words)
            found.append(f"{len(words)} {ids} {len(tags)} {' '.join(map(str, tags))}")
        (Path(__file__).parent / name).write_text("\n".join(found) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
