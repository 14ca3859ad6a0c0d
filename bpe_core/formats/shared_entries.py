"""Entries of `tokenizer.json` that both of its layouts have: added tokens and the spelling of every token."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.model import Model
from bpe_core.kernels import Int32s
from bpe_core.merging.alphabet import BYTE_TO_CHARACTER, CHARACTER_TO_BYTE, MARKER, Alphabet, Placement

_ADDED_TOKEN_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def get_entry(content: Mapping[str, Any], key: str) -> Any:
    """Returns an entry of a JSON object; raises ValueError if it is missing."""
    if key not in content:
        raise ValueError(f"the entry {key!r} is missing")
    return content[key]


def list_vocabulary(model: Mapping[str, Any]) -> dict[str, int]:
    """Returns spelling -> id from the entry `model`; Unigram lists pairs of spelling and score in the order of ids."""
    vocab = get_entry(model, "vocab")
    if isinstance(vocab, list):
        return {spelling: id_ for id_, (spelling, _) in enumerate(vocab)}
    return dict(vocab)


def write_added_tokens(model: Model) -> list[dict[str, Any]]:
    """Returns the entry `added_tokens`, by id."""
    return [
        {"id": token.id, "content": token.content, **{flag: getattr(token, flag) for flag in _ADDED_TOKEN_FLAGS}}
        for token in sorted(model.added_tokens, key=lambda token: token.id)
    ]


def read_added_tokens(entries: Any) -> tuple[AddedToken, ...]:
    """Returns the tokens in the entry `added_tokens`, in the order given and without exact repeats.

    Raises:
        ValueError: A token has no content, or the same content has two different entries.
    """
    tokens: dict[str, AddedToken] = {}
    for entry in entries or []:
        if not isinstance(entry.get("content"), str) or not entry["content"]:
            raise ValueError(f"the entry {json.dumps(entry)[:100]} in added_tokens has no content")
        flags = {flag: bool(entry.get(flag, False)) for flag in _ADDED_TOKEN_FLAGS}
        token = AddedToken(entry["content"], entry["id"], **flags)
        if tokens.setdefault(token.content, token) != token:
            raise ValueError(f"added_tokens list {token.content!r} twice, with different entries")
    return tuple(tokens.values())


def spell_tokens(model: Model) -> list[str]:
    """Returns the spelling of every token in the files, from id 0.

    An added token is spelled as its content. Kind `byte` writes each byte as the character that GPT-2 gives it (`Ġ` is
    the space); kind `char` writes out the end-of-word marker. An id without a token has an empty spelling.
    """
    added = {token.id: token.content for token in model.added_tokens}
    alphabet = model.alphabet
    spellings = []
    for id_, token in enumerate(model.tokens):
        if id_ in added:
            spellings.append(added[id_])
        elif alphabet.kind == "byte":
            spellings.append("".join(BYTE_TO_CHARACTER[byte] for byte in token))
        else:
            spellings.append(str(alphabet.spell(token)))
    return spellings


def read_byte_spelling(spelling: str) -> bytes:
    """Returns the bytes of a token of kind `byte`; the inverse of what `spell_tokens` writes.

    Raises:
        ValueError: A character is not among the 256 that GPT-2 writes bytes with.

    >>> read_byte_spelling("Ġthe")
    b' the'
    """
    try:
        return bytes(CHARACTER_TO_BYTE[character] for character in spelling)
    except KeyError as error:
        raise ValueError(
            f"the token {spelling!r} holds {error}, which is not one of the 256 characters that stand for bytes"
        ) from error


def read_merges(merges: Any, vocab: dict[str, int]) -> Int32s:
    """Returns the ids of left, right and merged token of each merge: int32, shape `(merges, 3)`.

    Args:
        merges: the entry `merges`, whose items are two tokens each, in a list or with a space between them.
        vocab: spelling -> id.

    Raises:
        ValueError: an item has another form, or `vocab` lacks a token.
    """
    ids = np.empty((len(merges), 3), np.int32)
    for rank, merge in enumerate(merges):
        sides = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(sides, list) or len(sides) != 2:
            raise ValueError(f"merge {rank} is {merge!r}; a merge is two tokens")
        left, right = sides
        for column, spelling in enumerate((left, right, left + right)):
            if spelling not in vocab:
                raise ValueError(
                    f"merge {rank} ({left!r}, {right!r}) needs the token {spelling!r}, which is not in model.vocab"
                )
            ids[rank, column] = vocab[spelling]
    return ids


def make_character_alphabet(
    tokens: list[bytes], added_ids: set[int], end_of_word: str, placement: Placement
) -> Alphabet:
    """Returns the alphabet of kind `char` of a vocabulary: the tokens that are one character long, added ones apart.

    Args:
        tokens: The tokens by id, with the marker as the byte `MARKER`.
        added_ids: The ids of added tokens.
        end_of_word: The marker's spelling.
        placement: `glued` if the marker is part of a word's last character, `apart` if it is a symbol of its own.
    """
    symbols = {
        token
        for id_, token in enumerate(tokens)
        if id_ not in added_ids and len(token.removesuffix(MARKER).decode()) == 1
    }
    if placement == "apart":
        symbols = {symbol for symbol in symbols if not symbol.endswith(MARKER)} | {MARKER}
    return Alphabet("char", tuple(sorted(symbols)), end_of_word, placement)
