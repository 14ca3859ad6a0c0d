"""What a `tokenizer.json` of every family of `PieceModel` has: all but the vocabulary and the rules for words."""

from collections.abc import Mapping
from typing import Any

from bpe_core.encoding.piece_model import PieceKind, PieceModel
from bpe_core.formats.hugging_face_decoders import read_decoder
from bpe_core.formats.hugging_face_steps import read_post_processor
from bpe_core.formats.shared_entries import read_added_tokens
from bpe_core.pretokenize.text_splitter import TextSplitter


def make_piece_model(
    content: Mapping[str, Any],
    kind: PieceKind,
    vocab: Mapping[str, int],
    pre_tokenizer: TextSplitter,
    rules: Any,
    whole_words: Mapping[bytes, int] | None = None,
) -> PieceModel:
    """Returns the model of a `tokenizer.json`.

    Args:
        content: the JSON content of the file; its added tokens, decoder and post-processor are read.
        kind: the family.
        vocab: spelling -> id, with or without added tokens.
        pre_tokenizer: normalizes texts and splits them into words.
        rules: encode a word.
        whole_words: as in `PieceModel`.

    Raises:
        ValueError: an added token has two ids, two tokens have the same id, an id is negative, or an entry asks for
            something that is not supported.
    """
    added = read_added_tokens(content.get("added_tokens"))
    tokens = _order_tokens(vocab, {token.content: token.id for token in added})
    unknown = _find_unknown(content["model"])
    is_special = any(token.special and token.content == unknown for token in added)
    return PieceModel(
        kind,
        pre_tokenizer,
        rules,
        tokens,
        read_decoder(content.get("decoder")),
        {"unk": unknown} if unknown is not None and is_special else {},
        added,
        read_post_processor(content.get("post_processor")),
        content,
        whole_words or {},
    )


def _find_unknown(model: Mapping[str, Any]) -> str | None:
    """Returns the spelling of the `unk` token, which Unigram names by its id."""
    unknown_id = model.get("unk_id")
    return model.get("unk_token") if unknown_id is None else model["vocab"][unknown_id][0]


def _order_tokens(vocab: Mapping[str, int], added: Mapping[str, int]) -> list[bytes]:
    """Returns the tokens by id, empty for an id that is not used."""
    for spelling, id_ in added.items():
        if vocab.get(spelling, id_) != id_:
            raise ValueError(f"added token {spelling!r} has the id {id_}, but {vocab[spelling]} in model.vocab")
    ids = {**vocab, **added}
    if min(ids.values(), default=0) < 0:
        raise ValueError(f"the id {min(ids.values())} is negative")
    tokens = [b""] * (max(ids.values(), default=-1) + 1)
    for spelling, id_ in ids.items():
        if tokens[id_]:
            raise ValueError(f"the tokens {tokens[id_].decode()!r} and {spelling!r} have the same id {id_}")
        tokens[id_] = spelling.encode()
    return tokens
