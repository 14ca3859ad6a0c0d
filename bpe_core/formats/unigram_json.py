"""Reads a `tokenizer.json` of type Unigram, such as those of T5, ALBERT and XLM-R."""

from decimal import Decimal
from typing import Any

from bpe_core.encoding.piece_model import PieceModel
from bpe_core.encoding.unigram import make_unigram_rules
from bpe_core.formats.hugging_face_normalizers import read_normalizer_steps
from bpe_core.formats.hugging_face_word_steps import read_word_steps
from bpe_core.formats.piece_entries import make_piece_model
from bpe_core.formats.shared_entries import get_entry, list_vocabulary
from bpe_core.pretokenize.step_splitter import StepSplitter


def read_unigram(content: dict[str, Any]) -> PieceModel:
    """Returns the model in a `tokenizer.json` of type Unigram.

    Raises:
        ValueError: an entry is missing, contradicts another, or asks for something that is not supported.
    """
    model = get_entry(content, "model")
    vocab = get_entry(model, "vocab")
    for entry in vocab:
        match entry:
            case [str(), int() | float()]:
                pass
            case _:
                raise ValueError(f"model.vocab has the entry {entry!r}; each one is a token and its score")
    unknown_id = model.get("unk_id")
    if unknown_id is None:
        raise ValueError("model.unk_id is null; texts with a character that is not in model.vocab could not be encoded")
    if not 0 <= unknown_id < len(vocab):
        raise ValueError(f"model.unk_id is {unknown_id}, but model.vocab has {len(vocab)} tokens")
    scored = [(token, read_score(score)) for token, score in vocab]
    rules = make_unigram_rules(scored, unknown_id, bool(model.get("byte_fallback", False)))
    splitter = StepSplitter(
        read_normalizer_steps(content.get("normalizer")), read_word_steps(content.get("pre_tokenizer"))
    )
    return make_piece_model(content, "unigram", list_vocabulary(model), splitter, rules)


def read_score(score: float) -> float:
    """Returns the number that Hugging Face's library reads from the digits of a score in a file.

    The library divides the digits by a power of ten, each rounded to double precision (`serde_json` without the feature
    `float_roundtrip`). For one score in four, this is not the nearest number, which decides between paths that are else
    equal.

    >>> read_score(-3.8777992725372314)
    -3.877799272537231
    """
    sign, digits, exponent = Decimal(repr(score)).as_tuple()
    number = float(int("".join(map(str, digits))))
    power = int(exponent)
    while power < -308:
        number, power = number / 1e308, power + 308
    number = number * float(f"1e{power}") if power >= 0 else number / float(f"1e{-power}")
    return -number if sign else number
