"""beam_search and beam_search_decode: the best continuations of sequences, and the sequences that were found. They run on the host."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from pe_cli.core.errors import ExitCode, PeError
from pe_cli.core.types import TensorType
from pe_cli.ops.define.lod import HostRun, Leveled, fixed, listed
from pe_cli.ops.define.onnx import ON_HOST, not_in_onnx
from pe_cli.ops.define.registry import Attr, Sample, op


def _two_levels(name: str, given: Leveled) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the offsets of both levels; plain rows are the sequences of one sample.

    Raises:
        PeError: there is one level, or there are more than two.
    """
    rows = len(given.array)
    # Plain rows, as the first step feeds them, are hypotheses of one sample: both levels then follow from their number.
    lod = given.lod or ([0, rows], range(rows + 1))
    if len(lod) != 2:
        hint = "feed the first ids and scores with two levels: samples, and sequences of each"
        raise PeError(f"{name} needs two levels of sequences, got {len(lod)}", hint=hint, code=ExitCode.DATA)
    return np.asarray(lod[0], np.int64), np.asarray(lod[1], np.int64)


@op(
    "beam_search",
    inputs="pre_ids pre_scores ids? scores",
    outputs="selected_ids selected_scores parent_idx",
    differentiable="",
    attrs={
        "level": Attr(0, "level of the sequences of scores that are samples"),
        "beam_size": Attr(1, "sequences of every sample that are kept"),
        "end_id": Attr(0, "id that ends a sequence"),
        "is_accumulated": Attr(True, "scores are those of whole sequences; else they are probabilities of a step"),
    },
    samples=[
        Sample(
            {"pre_ids": fixed([[3], [1]]), "pre_scores": (2, 1), "ids": fixed([[2, 4], [1, 2]]), "scores": (2, 2)},
            {"beam_size": 2, "end_id": 1}, "two sequences of a sample", grad=False,
        ),
    ],
)
def beam_search(
    pre_ids: TensorType, pre_scores: TensorType, ids: TensorType | None, scores: TensorType,
    *, level: int, beam_size: int, end_id: int, is_accumulated: bool,
) -> tuple[TensorType, TensorType, TensorType]:  # fmt: skip
    """Choose the best continuations of the sequences of every sample.

    A sequence that has ended goes on with end_id and keeps its score. A sample all of whose best sequences had ended before is left out.

    Args:
        pre_ids: [sequences, 1] int64; the last id of every sequence.
        pre_scores: [sequences, 1] float32 or float64; its score.
        ids: [sequences, candidates] int64; ids that may follow; without it the places of scores.
        scores: [sequences, candidates] type of pre_scores, with two levels of sequences; plain rows are the sequences of one sample.
        level, beam_size, end_id, is_accumulated: see the attributes.

    Returns:
        selected_ids: [chosen, 1] int64, selected_scores: [chosen, 1] type of scores; their sequences are those of samples, and the
            continuations of every sequence.
        parent_idx: [chosen] int32; the sequence that each continues.

    Raises:
        PeError: types that do not fit, beam_size below 1; in a step, sequences that do not fit.

    Source:
        fluid.layers.beam_search.
    """
    del level, end_id, is_accumulated
    if beam_size < 1:
        raise PeError(f"beam_search: beam_size is {beam_size}, must be at least 1")
    if len(scores.shape) != 2 or (ids is not None and len(ids.shape) != 2) or pre_ids.dtype != "int64":
        raise PeError(f"beam_search needs int64 pre_ids and scores [sequences, candidates], got {pre_ids} and {scores}")
    if pre_scores.dtype != scores.dtype:
        raise PeError(f"beam_search: pre_scores {pre_scores} and scores {scores} of two types")
    return TensorType((-1, 1), "int64"), scores.with_shape(-1, 1), TensorType((-1,), "int32")


@beam_search.host_run
def beam_search_host(run: HostRun) -> dict[str, list[Leveled]]:
    """Sample by sample.

    Raises:
        PeError: scores without sequences, or rows that do not fit.
    """
    attrs = run.attrs
    given = next((v for slot in ("scores", "ids") for v in run.values.get(slot, ()) if v.lod), run.values["scores"][0])
    samples, sequences = _two_levels("beam_search", given)
    # With level 0 a sample is a group of hypotheses, whose rows the inner level counts; with level 1 every hypothesis is a sample of its
    # own.
    starts = sequences[samples] if attrs["level"] == 0 else sequences
    pre_ids, pre_scores, scores = (run.one(slot) for slot in ("pre_ids", "pre_scores", "scores"))
    pre_ids, pre_scores = pre_ids.ravel(), pre_scores.ravel()
    if not starts[-1] == len(scores) == len(pre_ids) == len(pre_scores):
        message = f"beam_search: {starts[-1]} sequences, but {len(scores)} scores and {len(pre_ids)} pre_ids"
        raise PeError(message, hint="one row for every sequence", code=ExitCode.DATA)
    ids = run.one("ids") if run.values.get("ids") else np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    # Chosen continuations are filed under the hypothesis that they continue, because the inner level of the result says how many each one
    # has. `beam_search_decode` finds its way back by those counts alone.
    found: list[list[tuple[Any, int, Any]]] = [[] for _ in pre_ids]
    for begin, end in itertools.pairwise(starts):
        for item in _best(range(begin, end), pre_ids, pre_scores, ids, scores, attrs):
            found[item[1]].append(item)
    flat = [item for row in found for item in row]
    lod = ([int(n) for n in starts], [0, *itertools.accumulate(len(row) for row in found)])
    return {
        "selected_ids": [Leveled(np.array([[i] for _, _, i in flat], "int64").reshape(-1, 1), lod)],
        "selected_scores": [Leveled(np.array([[s] for s, _, _ in flat], scores.dtype).reshape(-1, 1), lod)],
        "parent_idx": [Leveled(np.array([row for _, row, _ in flat], "int32"))],
    }


def _best(rows: range, pre_ids: Any, pre_scores: Any, ids: Any, scores: Any, attrs: Mapping[str, Any]) -> list[tuple[Any, int, Any]]:
    """Return (score, sequence, id) of the best continuations, the best first; none where all had ended."""
    items: list[tuple[Any, int, Any]] = []
    for row in rows:
        if pre_ids[row] == attrs["end_id"]:
            # A sequence that has ended stays as it is, with its score, and competes with those that go on.
            items.append((pre_scores[row], row, attrs["end_id"]))
            continue
        own = scores[row] if attrs["is_accumulated"] else pre_scores[row] + np.log(scores[row])
        items += [(s, row, i) for s, i in zip(own, ids[row], strict=True)]
    # Of equal scores the later sequence goes first, so that the order is the same on every run.
    best = sorted(items, key=lambda item: (-item[0], -item[1]))[: attrs["beam_size"]]
    # Where all the best hypotheses ended in an earlier step, nothing can change any more. Without rows of this sample a loop over steps
    # that asks `is_empty` can end.
    ended = all(i == attrs["end_id"] and pre_ids[row] == attrs["end_id"] for _, row, i in best)
    return [] if ended else best


@op(
    "beam_search_decode",
    inputs="Ids* Scores*",
    outputs="SentenceIds SentenceScores",
    differentiable="",
    attrs={"beam_size": Attr(1, "sequences of every sample"), "end_id": Attr(0, "id that ends a sequence")},
    samples=[Sample({"Ids": [fixed([[0]])], "Scores": [(1, 1)]}, {"end_id": 1}, "one step", grad=False)],
)
def beam_search_decode(ids: list[TensorType], scores: list[TensorType], *, beam_size: int, end_id: int) -> tuple[TensorType, TensorType]:
    """Follow the choices of all steps of beam_search back, to whole sequences.

    Args:
        Ids: selected_ids of every step, the first ids before them, or a list of them; with two levels of sequences.
        Scores: selected_scores likewise.
        beam_size, end_id: see the attributes.

    Returns:
        SentenceIds: [ids] int64, SentenceScores: [ids] type of Scores; with two levels of sequences, those of samples and their
            sequences, the best first.

    Raises:
        PeError: no step, or not as many scores as ids; in a step, values without two levels of sequences.

    Source:
        fluid.layers.beam_search_decode.
    """
    del end_id
    if not ids or len(ids) != len(scores) or beam_size < 1:
        raise PeError(f"beam_search_decode needs as many ids as scores, got {len(ids)} and {len(scores)}, and beam_size {beam_size}")
    return TensorType((-1,), ids[0].dtype), TensorType((-1,), scores[0].dtype)


@beam_search_decode.host_run
def beam_search_decode_host(run: HostRun) -> dict[str, list[Leveled]]:
    """From the last step to the first, sample by sample.

    Raises:
        PeError: a step without two levels of sequences.
    """
    attrs, ids, scores = run.attrs, listed(run.values["Ids"]), listed(run.values["Scores"])
    steps = [(i.array.ravel(), s.array.ravel(), *_two_levels("beam_search_decode", i)) for i, s in zip(ids, scores, strict=True)]
    words: list[Any] = []
    marks: list[Any] = []
    lod: tuple[list[int], list[int]] = ([0], [0])
    for sample in range(len(steps[0][2]) - 1):
        sentences = _traced(steps, sample, attrs["end_id"])
        sentences += [([], [])] * (attrs["beam_size"] - len(sentences))
        # A sample with fewer sequences than beams gets empty ones, which come last.
        sentences.sort(key=lambda found: -found[1][0] if found[1] else np.inf)
        lod[0].append(lod[0][-1] + len(sentences))
        for found, own in sentences:
            lod[1].append(lod[1][-1] + len(found))
            # Ids were collected from the last step to the first.
            words += found[::-1]
            marks += own[::-1]
    return {
        "SentenceIds": [Leveled(np.array(words, ids[0].array.dtype), lod)],
        "SentenceScores": [Leveled(np.array(marks, scores[0].array.dtype), lod)],
    }


def _traced(steps: Sequence[tuple[Any, ...]], sample: int, end_id: int) -> list[tuple[list[Any], list[Any]]]:
    """Return the ids and scores of every sequence of a sample, the last first; end ids behind the first one are left out."""
    found: list[tuple[list[Any], list[Any]]] = []
    places: list[int] = []
    for ids, scores, samples, sequences in reversed(steps):
        first, last = samples[sample], samples[sample + 1]
        # The last step has the rows of all hypotheses that are still alive; each earlier step only those that some of these came through.
        if not places:
            places = list(range(sequences[first], sequences[last]))
            found = [([], []) for _ in places]
        for at, (own, marks) in zip(places, found, strict=True):
            if ids[at] != end_id or not own:
                own.append(ids[at])
                marks.append(scores[at])
        # The sequence that a row continued is the one whose range its place lies in.
        places = [int(np.searchsorted(sequences, at, "right")) - 1 for at in places]
    return found
not_in_onnx(ON_HOST, "beam_search", "beam_search_decode")
