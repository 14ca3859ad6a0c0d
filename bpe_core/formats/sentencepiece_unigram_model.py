"""The parts of a SentencePiece `.model` of type Unigram: which words it makes of a normalized text, and their ids."""

from typing import NamedTuple

from bpe_core.encoding.sentencepiece_unigram import SentencePieceUnigramRules, make_sentencepiece_unigram_rules
from bpe_core.formats.sentencepiece_bpe_model import SortedPieces
from bpe_core.pretokenize.safe_cuts import CutStep, make_cut_tables
from bpe_core.pretokenize.word_steps import WordStep


class UnigramParts(NamedTuple):
    """What encodes the words of a model.

    Attributes:
        word_steps: split a normalized text into words.
        rules: encode a word.
    """

    word_steps: tuple[WordStep, ...]
    rules: SentencePieceUnigramRules


def make_unigram_parts(pieces: SortedPieces) -> UnigramParts:
    """Returns what encodes the words of a model.

    A word ends where no piece can reach across, so the best path through a text is made of those through its words.
    """
    spellings = [*pieces.scores, *pieces.user_defined]
    tables = make_cut_tables([one for one in spellings if len(one) == 1], spellings)
    rules = make_sentencepiece_unigram_rules(
        pieces.scores, pieces.user_defined, pieces.ids, pieces.unknown_id, pieces.byte_ids
    )
    return UnigramParts((CutStep(tables),), rules)
