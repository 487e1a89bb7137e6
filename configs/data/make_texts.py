"""Write tales.txt and reviews.csv: made-up texts to learn from, the same bytes every time.

- tales.txt: short tales by a small grammar. Who is in a tale is said in its first sentence and stays the same, he or she; what is
  said stands in quotation marks, and sums are right.
- reviews.csv: what people say of things that they bought, and whether they are content: good, bad, or mixed. A `not` turns a word
  around, and a few opinions are noted wrongly.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
PEOPLE = {
    "miller": "he", "king": "he", "fisherman": "he", "boy": "he", "smith": "he", "hunter": "he", "baker": "he",
    "queen": "she", "girl": "she", "witch": "she", "shepherdess": "she", "widow": "she", "weaver": "she",
}  # fmt: skip
NATURE = ["old", "young", "poor", "proud", "clever", "lonely", "brave", "quiet", "merry", "stubborn"]
PLACES = [
    "by the sea", "in a dark forest", "on a high hill", "beside the river", "behind the seven mountains", "at the edge of the village",
]  # fmt: skip
HOMES = ["hut", "tower", "house", "mill", "castle", "cave"]
BEASTS = ["fox", "raven", "wolf", "hedgehog", "bear", "owl", "trout", "goose", "toad"]
THINGS = ["ring", "lantern", "key", "fiddle", "cloak", "mirror", "loaf of bread", "silver coin", "bell", "boat"]
LOOKS = ["golden", "broken", "tiny", "heavy", "magic", "rusty", "shining", "forgotten"]
TIMES = ["One morning", "One evening", "In the middle of winter", "When the moon was full", "On the third day", "Early in spring"]
WALKS = ["walked", "ran", "wandered", "rode", "crept"]
FELT = ["glad", "afraid", "astonished", "angry", "ashamed", "tired"]
NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]

GOOD = ["great", "lovely", "sturdy", "reliable", "quick", "bright", "comfortable", "quiet", "handy", "excellent", "pleasant", "sharp"]
BAD = ["awful", "flimsy", "useless", "slow", "dull", "noisy", "broken", "ugly", "cheap", "disappointing", "clumsy", "weak"]
GOODS = [
    "kettle", "lamp", "chair", "radio", "bicycle", "phone", "knife", "tent", "keyboard", "jacket", "camera", "drill", "pan", "mattress",
]  # fmt: skip
PARTS = ["handle", "battery", "colour", "sound", "lid", "strap", "screen", "manual", "switch", "cable", "surface", "packaging"]
DEGREES = ["", "", "really ", "very ", "rather ", "quite ", "so "]
OPENINGS = ["Bought this {0} last month.", "My second {0}.", "A gift for my sister, a {0}.", "I needed a {0}.", "The {0} came on time.", ""]
ENDINGS = [
    "", "", "Would order again.", "It went back.", "Five words are enough.", "Delivery took three days.", "My neighbour has one, too.",
]  # fmt: skip


def pick(rng: np.random.Generator, values: list[str]) -> str:
    """Return one of some texts."""
    return values[int(rng.integers(len(values)))]


def article(words: str) -> str:
    """Return words with `a` or `an` before them."""
    return f"an {words}" if words[0] in "aeiou" else f"a {words}"


def tale(rng: np.random.Generator) -> str:
    """Return a tale of a few sentences."""
    who = pick(rng, list(PEOPLE))
    they, home, beast = PEOPLE[who], pick(rng, HOMES), pick(rng, BEASTS)
    their = {"he": "his", "she": "her"}[they]
    thing = f"{pick(rng, LOOKS)} {pick(rng, THINGS)}"
    lines = [f"Once there was {article(f'{pick(rng, NATURE)} {who}')} who lived in {article(home)} {pick(rng, PLACES)}."]
    lines.append(f"{pick(rng, TIMES)} {they} {pick(rng, WALKS)} out of the {home} and met {article(beast)}.")
    a, b = int(rng.integers(1, 7)), int(rng.integers(1, 7))
    middle = [
        f'"Give me your {thing}," said the {beast}, "and I will show you the way."',
        f"The {who} was {pick(rng, FELT)}, for {they} had lost {their} {thing}.",
        f'"How much is {NUMBERS[a]} and {NUMBERS[b]}?" asked the {beast}. "It is {NUMBERS[a + b]}," said the {who}.',
        f"The {beast} was {pick(rng, FELT)} and {pick(rng, WALKS)} away.",
        f"So the {who} gave the {beast} {their} {thing}, and {they} was {pick(rng, FELT)}.",
        f'"I live {pick(rng, PLACES)}," said the {beast}, "and I have {article(thing)}."',
    ]
    order = rng.permutation(len(middle))[: int(rng.integers(1, 5))]
    lines += [middle[i] for i in sorted(order)]
    lines.append(f"Then the {who} {pick(rng, WALKS)} home to {their} {home}, and {they} kept the {thing} for ever.")
    return " ".join(lines)


def opinion(rng: np.random.Generator, content: bool) -> str:
    """Return a sentence that praises or blames; in one of four, by a `not`."""
    turned = rng.random() < 0.25
    word = pick(rng, GOOD if content != turned else BAD)
    what = pick(rng, ["It is", f"The {pick(rng, PARTS)} is", "I find it", f"I find the {pick(rng, PARTS)}"])
    return f"{what} {'not ' if turned else ''}{pick(rng, DEGREES)}{word}{pick(rng, ['.', '.', '!', ' indeed.'])}"


def review(rng: np.random.Generator) -> tuple[str, str]:
    """Return a review and the opinion that is noted for it."""
    kind = str(rng.choice(["good", "bad", "mixed"], p=[0.45, 0.35, 0.2]))
    count = int(rng.integers(1, 4))
    sides = {"good": [True] * count, "bad": [False] * count, "mixed": [True, False][:: 1 if rng.random() < 0.5 else -1]}[kind]
    said = [pick(rng, OPENINGS).format(pick(rng, GOODS)), *(opinion(rng, side) for side in sides), pick(rng, ENDINGS)]
    noted = str(rng.choice(["good", "bad", "mixed"])) if rng.random() < 0.03 else kind
    return " ".join(part for part in said if part), noted


def main() -> None:
    """Write the files beside this one."""
    rng = np.random.default_rng(20261125)
    (HERE / "tales.txt").write_text("\n\n".join(tale(rng) for _ in range(500)) + "\n", encoding="utf-8")
    with (HERE / "reviews.csv").open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["id", "review", "opinion"])
        for number in range(2500):
            out.writerow([f"r{number + 1:04d}", *review(rng)])


if __name__ == "__main__":
    main()
