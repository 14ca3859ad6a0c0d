"""Reads a `tokenizer.json` of the family WordPiece, as BERT has it."""

from typing import Any

from bpe_core.encoding.piece_model import PieceModel
from bpe_core.encoding.wordpiece import make_wordpiece_rules
from bpe_core.formats.hugging_face_normalizers import read_normalizer_steps
from bpe_core.formats.hugging_face_word_steps import read_word_steps
from bpe_core.formats.piece_entries import make_piece_model
from bpe_core.formats.shared_entries import get_entry, read_added_tokens
from bpe_core.pretokenize.step_splitter import StepSplitter


def read_wordpiece(content: dict[str, Any]) -> PieceModel:
    """Returns the model in a `tokenizer.json` of type WordPiece.

    Special tokens are left out of the vocabulary that words are made of, so that ordinary text never gets their ids.
    The library leaves them in. That differs only if a word can spell one, as with the pre-tokenizer WhitespaceSplit.

    Raises:
        ValueError: an entry is missing, contradicts another, or asks for something that is not supported.
    """
    model = get_entry(content, "model")
    vocab: dict[str, int] = get_entry(model, "vocab")
    unknown = model.get("unk_token", "[UNK]")
    if unknown not in vocab:
        raise ValueError(f"model.unk_token {unknown!r} is not in model.vocab, so unknown words could not be encoded")
    splitter = StepSplitter(
        read_normalizer_steps(content.get("normalizer")), read_word_steps(content.get("pre_tokenizer"))
    )
    special = [token for token in read_added_tokens(content.get("added_tokens")) if token.special]
    for token in special:
        if token.single_word and token.content in vocab and splitter.split(token.content) == [token.content]:
            raise ValueError(
                f"the special token {token.content!r} is single_word, and it is also a word in model.vocab: ordinary "
                "text could hold its id"
            )
    left_out = {token.content for token in special}
    ids = {spelling.encode(): id_ for spelling, id_ in vocab.items() if spelling not in left_out}
    rules = make_wordpiece_rules(
        ids,
        model.get("continuing_subword_prefix", "##"),
        vocab[unknown],
        int(model.get("max_input_chars_per_word", 100)),
    )
    return make_piece_model(content, "wordpiece", vocab, splitter, rules)
