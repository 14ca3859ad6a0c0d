r"""`.tiktoken` files: one token per line, as base64, with its rank, which is also its id.

Only `\n` or `\r\n` ends a line. The file does not say how text is split into words, nor what the special tokens are; a
reader is told both.
"""

import base64
import binascii
import re
from collections.abc import Mapping

import numpy as np

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.model import Model, NotExpressibleError, make_pre_tokenizer
from bpe_core.formats.lines import split_lines
from bpe_core.formats.ranks import check_ranks_equal_merges
from bpe_core.merging.alphabet import BYTE_ALPHABET
from bpe_core.pretokenize.normalizer import Normalization

_RANK = re.compile("-?[0-9]+")  # `int` also reads other digits, underscores, and white space around a number.

_EMPTY_TOKEN = "="
"""How a token of no bytes is spelled; it marks that the ids reach at least this far."""


def read_tiktoken(
    text: str,
    pattern: str | tuple[str, ...],
    special_tokens: Mapping[str, int] | None = None,
    unicode: Normalization = "none",
) -> Model:
    """Returns the model in the text of a `.tiktoken` file.

    Args:
        text: The file's text; a line is a token in base64, a space, and the token's rank.
        pattern: How text is split into words: a key of `PATTERNS` or a regular expression.
        special_tokens: Spelling -> id. Ids between those of the file and these have no token.
        unicode: The Unicode normalization applied before splitting.

    Raises:
        ValueError: A line is malformed, a token or id occurs twice, a single byte is missing, or a special token has
            the id or the spelling of another token.
    """
    ranks, num_ids = _read_ranks(text)
    return make_ranked_model(ranks, pattern, special_tokens or {}, unicode, num_ids)


def make_ranked_model(
    ranks: Mapping[bytes, int],
    pattern: str | tuple[str, ...],
    special_tokens: Mapping[str, int],
    unicode: Normalization = "none",
    num_ids: int = 0,
) -> Model:
    """Returns the model of tokens whose ids are their ranks.

    Args:
        ranks: token -> id.
        pattern: as for `read_tiktoken`.
        special_tokens: as for `read_tiktoken`.
        unicode: as for `read_tiktoken`.
        num_ids: the model has at least so many ids; those without a token are not used.

    Raises:
        ValueError: as for `read_tiktoken`.
    """
    special = dict(special_tokens)
    ids = {**ranks, **{spelling.encode(): id_ for spelling, id_ in special.items()}}
    if len(ids) != len(ranks) + len(special):
        raise ValueError("a special token has the spelling of a token in the file")
    missing = [byte for byte in BYTE_ALPHABET.symbols if byte not in ranks]
    tokens = _order_by_id(ids, num_ids)
    if missing:
        raise ValueError(f"the file has no token for the byte {missing[0]!r}; texts that hold it could not be encoded")
    # tiktoken merges any two tokens whose bytes together are a third.
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


def _read_ranks(text: str) -> tuple[dict[bytes, int], int]:
    """Returns token -> rank, and the least number of ids.

    Empty lines are skipped. A token that is empty, as at the end of Whisper's files, is no token, but its rank is an
    id.
    """
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(split_lines(text), 1):
        if not line:
            continue
        try:
            spelled, rank = line.split(" ")
            if not _RANK.fullmatch(rank):
                raise ValueError(rank)
            is_empty = spelled == _EMPTY_TOKEN
            token, id_ = b"" if is_empty else base64.b64decode(spelled, validate=True), int(rank)
        except (ValueError, binascii.Error) as error:
            raise ValueError(
                f"line {number} is {line[:60]!r}; it should be a token in base64, a space and a rank"
            ) from error
        if not (token or is_empty) or id_ < 0 or token in ranks:
            problem = "the rank is below 0" if id_ < 0 else "the token repeats" if token else "the token is empty"
            raise ValueError(f"line {number} is {line[:60]!r}: {problem}")
        ranks[token] = id_
    num_ids = ranks.pop(b"", -1) + 1
    if num_ids and num_ids - 1 in ranks.values():
        raise ValueError(f"the rank {num_ids - 1} has a token, and another line says that its token is empty")
    return ranks, num_ids


def _order_by_id(ids: Mapping[bytes, int], num_ids: int) -> list[bytes]:
    """Returns the tokens by id, from id 0; an id without a token gets empty bytes."""
    tokens = [b""] * max(num_ids, max(ids.values(), default=-1) + 1)
    for token, id_ in ids.items():
        if tokens[id_]:
            raise ValueError(f"the id {id_} is given to {tokens[id_]!r} and to {token!r}")
        tokens[id_] = token
    return tokens


def write_tiktoken(model: Model) -> str:
    """Returns the text of a `.tiktoken` file.

    Special tokens, the pattern and the Unicode normalization are left out, because the format has none of them.

    Raises:
        NotExpressibleError: The model is of kind `char`, puts text in lower case, has added tokens that are not
            special, or would encode differently when its ids are used as ranks.
    """
    if model.alphabet.kind != "byte":
        raise NotExpressibleError("a .tiktoken file holds tokens of bytes, but this tokenizer is of kind char")
    if model.pre_tokenizer.lowercase:
        raise NotExpressibleError(
            "a .tiktoken file cannot say that text is put in lower case, as this tokenizer does; export hugging-face"
        )
    if model.pre_tokenizer.add_prefix_space:
        raise NotExpressibleError(
            "a .tiktoken file cannot say that a space is put before texts, as this tokenizer does; export hugging-face"
        )
    if any(not token.special for token in model.added_tokens):
        raise NotExpressibleError("a .tiktoken file cannot hold added tokens that are not special")
    if model.ranked_by == "merge":
        check_ranks_equal_merges(model)
    added = {token.id for token in model.added_tokens}
    last = len(model.tokens) - 1
    return "".join(
        f"{base64.b64encode(token).decode() or _EMPTY_TOKEN} {id_}\n"
        for id_, token in enumerate(model.tokens)
        if id_ not in added and (token or id_ == last)
    )
