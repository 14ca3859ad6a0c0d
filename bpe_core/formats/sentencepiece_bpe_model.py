"""The parts of a SentencePiece `.model` of type BPE: which words it makes of a normalized text, and their ids.

Such a model has no list of merges. Two symbols are merged if they join to a piece, the pair with the highest score
first, of equal scores the leftmost.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import regex

from bpe_core.encoding.sentencepiece_bpe import NO_ID, SentencePieceRules
from bpe_core.encoding.word_merging import make_merge_table
from bpe_core.kernels import Int32s
from bpe_core.pretokenize.safe_cuts import CutStep, make_cut_tables
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS
from bpe_core.pretokenize.word_steps import PatternStep, WordStep


class SortedPieces(NamedTuple):
    """The pieces of a model by what they are for.

    Attributes:
        scores: the spelling of each ordinary piece -> its score.
        ids: spelling -> id of all pieces.
        byte_ids: the id of each byte's piece; empty without `byte_fallback`.
        user_defined: the spellings of pieces that are found in the text before all others and never merged.
        unknown_id: the id of the piece for unknown characters.
    """

    scores: Mapping[str, float]
    ids: Mapping[str, int]
    byte_ids: Sequence[int]
    user_defined: Sequence[str]
    unknown_id: int


class BpeParts(NamedTuple):
    """What encodes the words of a model.

    Attributes:
        word_steps: split a normalized text into words.
        rules: encode a word.
        whole_words: words that have one id each, whatever the rules say.
    """

    word_steps: tuple[WordStep, ...]
    rules: SentencePieceRules
    whole_words: dict[bytes, int]


def make_bpe_parts(pieces: SortedPieces) -> BpeParts:
    """Returns what encodes the words of a model.

    Raises:
        ValueError: an ordinary piece has a character that is not a piece itself, so that its symbol has no id.
    """
    for spelling in pieces.scores:
        absent = next((one for one in spelling if one not in pieces.scores), None)
        if absent is not None:
            raise ValueError(
                f"the piece {spelling!r} has the character {absent!r}, which is not a piece itself; this is not "
                "supported"
            )
    # Pieces of no other kind can hold these characters, because user-defined ones are taken out of the text first.
    characters = [spelling for spelling in pieces.scores if len(spelling) == 1]
    character_ids = np.full(NUM_CODE_POINTS, NO_ID, np.int32)
    character_ids[[ord(character) for character in characters]] = [pieces.ids[one] for one in characters]
    merges, priorities = _rank_by_score(pieces)
    rules = SentencePieceRules(
        character_ids,
        np.array(pieces.byte_ids if pieces.byte_ids else [NO_ID] * 256, np.int32),
        pieces.unknown_id,
        True,
        make_merge_table(merges, "token", priorities),
        has_ties=bool(np.any(np.diff(priorities) <= 0)),
    )
    # A user-defined piece is one word, in which nothing is split.
    tables = make_cut_tables(characters, [*pieces.scores, *pieces.user_defined])
    steps: tuple[WordStep, ...] = (CutStep(tables),)
    if pieces.user_defined:
        longest_first = sorted(pieces.user_defined, key=len, reverse=True)
        steps = (PatternStep("|".join(map(regex.escape, longest_first))), *steps)
    return BpeParts(steps, rules, {spelling.encode(): pieces.ids[spelling] for spelling in pieces.user_defined})


def _rank_by_score(pieces: SortedPieces) -> tuple[Int32s, Int32s]:
    """Returns all merges, as in `Model`, and the priority of each token that they make, in the order of the ids."""
    merges = [
        (pieces.ids[spelling[:at]], pieces.ids[spelling[at:]], pieces.ids[spelling])
        for spelling in pieces.scores
        for at in range(1, len(spelling))
        if spelling[:at] in pieces.scores and spelling[at:] in pieces.scores
    ]
    made = sorted({merge[2] for merge in merges})
    score_of_id = {pieces.ids[spelling]: score for spelling, score in pieces.scores.items()}
    _, priorities = np.unique([-score_of_id[id_] for id_ in made], return_inverse=True)
    return np.array(merges, np.int32).reshape(-1, 3), priorities.astype(np.int32)
