"""Slow, obvious twins of the compiled Unigram encoders, with the arithmetic of the libraries."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np


class Step(NamedTuple):
    """A token at the end of the best path to a place in a word."""

    start: int
    id: int
    score: float


def encode_word(word: str, vocab: Sequence[tuple[str, float]], unknown_id: int, byte_fallback: bool) -> list[int]:
    """Returns the ids of a word as Hugging Face tokenizers does: in double precision, unknown characters in runs."""
    ids = {token: id_ for id_, (token, _) in enumerate(vocab)}
    unknown_score = min(score for _, score in vocab) - 10.0
    longest = max(map(len, ids))
    steps: dict[int, Step] = {}
    for start in range(len(word)):
        before = steps[start].score if start else 0.0
        ends = [end for end in range(start + 1, min(len(word), start + longest) + 1) if word[start:end] in ids]
        offers = [(end, ids[word[start:end]], vocab[ids[word[start:end]]][1] + before) for end in ends]
        if start + 1 not in ends:
            offers.append((start + 1, unknown_id, unknown_score + before))
        for end, id_, score in offers:
            if end not in steps or score > steps[end].score:
                steps[end] = Step(start, id_, score)
    pieces: list[tuple[str, bool]] = []  # From the last one on.
    end = len(word)
    while end > 0:
        start, id_, _ = steps[end]
        if id_ == unknown_id and pieces and pieces[-1][1]:
            pieces[-1] = (word[start:end] + pieces[-1][0], True)
        else:
            pieces.append((word[start:end], id_ == unknown_id))
        end = start
    result: list[int] = []
    for piece, _ in reversed(pieces):
        spelled = [f"<0x{byte:02X}>" for byte in piece.encode()]
        if piece in ids:
            result.append(ids[piece])
        elif byte_fallback and all(one in ids for one in spelled):
            result += [ids[one] for one in spelled]
        else:
            result.append(unknown_id)
    return result


def encode_text_in_single_precision(
    text: str,
    scores: Mapping[str, float],
    user_defined: Sequence[str],
    ids: Mapping[str, int],
    unknown_id: int,
    byte_ids: Sequence[int],
) -> list[int]:
    """Returns the ids of a normalized text as sentencepiece does: over the whole text, in single precision."""
    single = np.float32
    unknown_score = min(map(single, scores.values())) - single(10)
    offered = {piece: single(score) for piece, score in scores.items()}
    offered |= {piece: single(0.1 * (len(piece.encode()) - 1)) for piece in user_defined}
    longest = max(map(len, offered))
    steps: dict[int, Step] = {}
    for start in range(len(text)):
        before = single(steps[start].score if start else 0)
        if abs(before) > 100_000:
            for end in range(start, len(text) + 1):
                if end in steps:
                    steps[end] = steps[end]._replace(score=float(single(steps[end].score) - before))
            before = single(0)
        ends = [e for e in range(start + 1, min(len(text), start + longest) + 1) if text[start:e] in offered]
        offers: list[tuple[int, int, float]] = [
            (end, ids[text[start:end]], float(offered[text[start:end]] + before)) for end in ends
        ]
        if start + 1 not in ends:
            offers.append((start + 1, unknown_id, float(unknown_score + before)))
        for end, id_, score in offers:
            if end not in steps or score > steps[end].score:
                steps[end] = Step(start, id_, score)
    path: list[tuple[str, int]] = []
    end = len(text)
    while end > 0:
        start, id_, _ = steps[end]
        path.append((text[start:end], id_))
        end = start
    result: list[int] = []
    was_unknown = False
    for piece, id_ in reversed(path):
        if id_ == unknown_id and byte_ids:
            result += [byte_ids[byte] for byte in piece.encode()]
        elif id_ != unknown_id or not was_unknown:
            result.append(id_)
        was_unknown = id_ == unknown_id
    return result
