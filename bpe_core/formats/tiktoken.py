"""The `.tiktoken` file: a token in base64 and its rank, which is its id, on each line."""

import base64
import binascii
from collections.abc import Mapping

import numpy as np

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.model import Model, NotExpressibleError, make_pre_tokenizer
from bpe_core.formats.ranks import check_ranks_equal_merges
from bpe_core.merging.alphabet import BYTE_ALPHABET
from bpe_core.pretokenize.pre_tokenizer import Normalization


def read_tiktoken(
    text: str,
    pattern: str | tuple[str, ...],
    special_tokens: Mapping[str, int] | None = None,
    unicode: Normalization = "none",
) -> Model:
    """Returns the model of a `.tiktoken` file: lines of a token in base64, a blank, and its rank, which is its id.

    Args:
        pattern: how text is cut; the file does not say. A key of `PATTERNS` or a regular expression.
        special_tokens: spelling -> id; ids between those of the file and these stay unused.

    Raises:
        ValueError: a line that is not such a pair, a rank or token that is there twice, a byte that is missing, or a
            special token whose id is taken.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line:
            continue
        try:
            spelled, rank = line.split(" ")
            token, id_ = base64.b64decode(spelled, validate=True), int(rank)
        except (ValueError, binascii.Error) as error:
            raise ValueError(
                f"line {number} is {line[:60]!r}; it should be a token in base64, a blank and a rank"
            ) from error
        if not token or id_ < 0 or token in ranks:
            raise ValueError(f"line {number} is {line[:60]!r}: the token is empty or there twice, or the rank below 0")
        ranks[token] = id_
    special = dict(special_tokens or {})
    tokens = _order_by_id(
        {**ranks, **{spelling.encode(): id_ for spelling, id_ in special.items()}}, len(ranks) + len(special)
    )
    missing = [byte for byte in BYTE_ALPHABET.symbols if byte not in ranks]
    if missing:
        raise ValueError(f"the byte {missing[0]!r} is not among the tokens; texts with it could not be encoded")
    # Every two tokens that spell a third are a merge.
    merges = [
        (ranks[token[:at]], ranks[token[at:]], id_)
        for token, id_ in sorted(ranks.items(), key=lambda item: item[1])
        for at in range(1, len(token))
        if token[:at] in ranks and token[at:] in ranks
    ]
    return Model(
        make_pre_tokenizer("byte", pattern, unicode),
        BYTE_ALPHABET,
        tokens,
        np.array(merges, np.int32).reshape(-1, 3),
        {},
        tuple(AddedToken(spelling, id_) for spelling, id_ in special.items()),
        ignore_merges=True,
        ranked_by="token",
    )


def write_tiktoken(model: Model) -> str:
    """Returns the text of a `.tiktoken` file; special tokens and the pattern are not in it.

    Raises:
        NotExpressibleError: the merges mean another thing as ranks.
    """
    if model.alphabet.kind != "byte":
        raise NotExpressibleError("a .tiktoken file holds bytes, and this tokenizer is of kind char")
    if any(not token.special for token in model.added_tokens):
        raise NotExpressibleError("a .tiktoken file has no added tokens that are not special")
    if model.ranked_by == "merge":
        check_ranks_equal_merges(model)
    added = {token.id for token in model.added_tokens}
    return "".join(
        f"{base64.b64encode(token).decode()} {id_}\n"
        for id_, token in enumerate(model.tokens)
        if id_ not in added and token
    )


def _order_by_id(ids: Mapping[bytes, int], expected: int) -> list[bytes]:
    """Returns the tokens in the order of their ids; an id without a token is empty."""
    tokens = [b""] * (max(ids.values(), default=-1) + 1)
    for token, id_ in ids.items():
        if tokens[id_]:
            raise ValueError(f"the id {id_} is given to {tokens[id_]!r} and to {token!r}")
        tokens[id_] = token
    if len(ids) != expected:
        raise ValueError("a special token is spelled like a token of the file")
    return tokens
