"""Write translations.csv: made-up English sentences and their German, the same bytes every time.

German puts the participle last, has three genders, and an article and the ending of an adjective tell gender and case: what
"the old" becomes depends on the noun behind it and on who does what. So words cannot be translated one by one.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

NOUNS = {
    "king": ("König", "m"), "fox": ("Fuchs", "m"), "miller": ("Müller", "m"), "smith": ("Schmied", "m"), "wizard": ("Zauberer", "m"),
    "girl": ("Mädchen", "n"), "child": ("Kind", "n"), "horse": ("Pferd", "n"),
    "goose": ("Gans", "f"), "queen": ("Königin", "f"), "trout": ("Forelle", "f"), "witch": ("Hexe", "f"),
}  # fmt: skip
PLACES = {"forest": ("Wald", "m"), "river": ("Fluss", "m"), "castle": ("Schloss", "n"), "mill": ("Mühle", "f"), "market": ("Markt", "m")}
ADJECTIVES = {"old": "alt", "proud": "stolz", "young": "jung", "poor": "arm", "small": "klein", "clever": "klug"}
VERBS = {"seen": "gesehen", "met": "getroffen", "found": "gefunden", "praised": "gelobt", "sought": "gesucht", "heard": "gehört"}
NEAR = {"in": "in", "near": "bei"}
#: (article, gender) -> nominative, accusative, dative; and the endings of adjectives behind it.
ARTICLES = {
    ("the", "m"): ("der den dem", "e en en"), ("the", "f"): ("die die der", "e e en"), ("the", "n"): ("das das dem", "e e en"),
    ("a", "m"): ("ein einen einem", "er en en"), ("a", "f"): ("eine eine einer", "e e en"), ("a", "n"): ("ein ein einem", "es es en"),
}  # fmt: skip
NOMINATIVE, ACCUSATIVE, DATIVE = range(3)
ROWS = 3000


def phrase(rng: np.random.Generator, nouns: dict[str, tuple[str, str]], case: int) -> tuple[list[str], list[str]]:
    """Return an article, up to two adjectives and a noun, in English and in German."""
    article, noun = str(rng.choice(["the", "a"])), str(rng.choice(list(nouns)))
    words = list(map(str, rng.choice(list(ADJECTIVES), int(rng.integers(0, 3)), replace=False)))
    german, gender = nouns[noun]
    before, endings = (text.split()[case] for text in ARTICLES[article, gender])
    return [article, *words, noun], [before, *(ADJECTIVES[word] + endings for word in words), german]


def sentence(rng: np.random.Generator) -> tuple[str, str]:
    """Return a sentence in both languages."""
    passive, verb = bool(rng.random() < 0.4), str(rng.choice(list(VERBS)))
    english, german = phrase(rng, NOUNS, NOMINATIVE)
    other = phrase(rng, NOUNS, DATIVE if passive else ACCUSATIVE)
    often = bool(rng.random() < 0.3)
    english += ["was" if passive else "had", *(["often"] if often else []), verb, *(["by"] if passive else []), *other[0]]
    if rng.random() < 0.3:  # German begins with the adverb, and then the verb comes before who does it
        english, german = ["once", *english], ["einst", "wurde" if passive else "hatte", *german]
    else:
        german = [*german, "wurde" if passive else "hatte"]
    german += [*(["von"] if passive else []), *other[1], *(["oft"] if often else [])]
    if rng.random() < 0.5:
        near, where = str(rng.choice(list(NEAR))), phrase(rng, PLACES, DATIVE)
        english, german = [*english, near, *where[0]], [*german, NEAR[near], *where[1]]
    return " ".join(english), " ".join([*german, VERBS[verb]])


def main() -> None:
    """Write the file beside this one."""
    rng = np.random.default_rng(20261207)
    rows: dict[str, str] = {}
    while len(rows) < ROWS:
        english, german = sentence(rng)
        rows.setdefault(english, german)
    with (Path(__file__).parent / "translations.csv").open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["english", "german"])
        writer.writerows(rows.items())


if __name__ == "__main__":
    main()
