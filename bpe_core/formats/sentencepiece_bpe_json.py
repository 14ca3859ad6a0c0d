"""Reads a `tokenizer.json` whose byte-pair encoding merges characters, as files made from SentencePiece's do."""

from typing import Any

import numpy as np
import pyarrow as pa

from bpe_core.encoding.piece_model import PieceModel
from bpe_core.encoding.sentencepiece_bpe import NO_ID, SentencePieceRules
from bpe_core.encoding.word_encoder import WordEncoder
from bpe_core.encoding.word_merging import make_merge_table
from bpe_core.formats.hugging_face_normalizers import read_normalizer_steps
from bpe_core.formats.hugging_face_word_steps import read_word_steps
from bpe_core.formats.piece_entries import make_piece_model
from bpe_core.formats.shared_entries import get_entry, read_merges
from bpe_core.kernels import Int32s, flatten_bytes
from bpe_core.pretokenize.safe_cuts import CutStep, make_cut_tables
from bpe_core.pretokenize.step_splitter import StepSplitter
from bpe_core.pretokenize.text_splitter import WordEnds
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS

_BYTES_OF_LONG_CHARACTERS = (*range(0x80, 0xC0), *range(0xC2, 0xF5))
"""The bytes of characters that are not ASCII, in UTF-8."""


def read_sentencepiece_bpe(content: dict[str, Any]) -> PieceModel:
    """Returns the model in a `tokenizer.json` whose words are made of characters.

    Raises:
        ValueError: an entry is missing, contradicts another, or asks for something that is not supported.
    """
    model = get_entry(content, "model")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key) not in (None, ""):
            raise ValueError(f"model.{key} is {model[key]!r}, which is not supported")
    vocab: dict[str, int] = get_entry(model, "vocab")
    merges = read_merges(get_entry(model, "merges"), vocab)
    steps = read_word_steps(content.get("pre_tokenizer"))
    rules = _make_rules(model, vocab, merges)
    whole_words = _find_whole_words(vocab, rules) if model.get("ignore_merges") else {}
    if not whole_words:
        steps = (*steps, _make_cut_step(vocab, merges, rules))
    splitter = StepSplitter(read_normalizer_steps(content.get("normalizer")), steps)
    return make_piece_model(content, "sentencepiece-bpe", vocab, splitter, rules, whole_words)


def _make_rules(model: dict[str, Any], vocab: dict[str, int], merges: Int32s) -> SentencePieceRules:
    character_ids = np.full(NUM_CODE_POINTS, NO_ID, np.int32)
    for spelling, id_ in vocab.items():
        if len(spelling) == 1:
            character_ids[ord(spelling)] = id_
    byte_ids = np.full(256, NO_ID, np.int32)
    if model.get("byte_fallback"):
        byte_ids[:] = [vocab.get(f"<0x{byte:02X}>", NO_ID) for byte in range(256)]
    unknown = model.get("unk_token")
    lacks_token = byte_ids == NO_ID
    lacks_token[:128] &= character_ids[:128] == NO_ID
    if unknown is None and lacks_token[[*range(0x80), *_BYTES_OF_LONG_CHARACTERS]].any():
        raise ValueError(
            "model.unk_token is null, and not every byte has a token: the library would drop unknown characters "
            "without a sign"
        )
    if unknown is not None and unknown not in vocab:
        raise ValueError(f"model.unk_token {unknown!r} is not in model.vocab")
    unknown_id = NO_ID if unknown is None else vocab[unknown]
    return SentencePieceRules(
        character_ids, byte_ids, unknown_id, bool(model.get("fuse_unk")), make_merge_table(merges), has_ties=False
    )


def _find_whole_words(vocab: dict[str, int], rules: SentencePieceRules) -> dict[bytes, int]:
    """Returns the vocabulary if merges give another encoding of one of its tokens, else nothing.

    With `ignore_merges` a word that is a token is that token, whatever merges make of it.
    """
    tokens = {spelling.encode(): id_ for spelling, id_ in vocab.items() if spelling}
    data, offsets = flatten_bytes(pa.array(list(tokens), pa.large_binary()))
    ids, starts = WordEncoder(rules).encode(data, offsets, WordEnds(offsets[1:], np.arange(offsets.size), 1))
    has_one_id = np.diff(starts) == 1
    is_itself = has_one_id & (ids[starts[:-1]] == np.array(list(tokens.values())))
    return {} if is_itself.all() else tokens


def _make_cut_step(vocab: dict[str, int], merges: Int32s, rules: SentencePieceRules) -> CutStep:
    spelling_of_id = {id_: spelling for spelling, id_ in vocab.items()}
    made = dict.fromkeys(merges[:, 2].tolist())
    # If merges join bytes or `unk`, a token may reach from an unknown character to its neighbor.
    without_character = {rules.unknown_id, *rules.byte_ids.tolist()} - {NO_ID}
    beside_unknown = without_character.isdisjoint(merges[:, :2].ravel().tolist())
    known = [spelling for spelling in vocab if len(spelling) == 1]
    return CutStep(make_cut_tables(known, map(spelling_of_id.__getitem__, made), beside_unknown))
