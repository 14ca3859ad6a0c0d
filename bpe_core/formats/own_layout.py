"""`tokenizer.json` in our own layout, for models that Hugging Face's layout cannot hold exactly.

Its `version` makes the Hugging Face library refuse the file instead of reading it wrongly, and its `reason` says what
Hugging Face's layout cannot hold.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from bpe_core.encoding.model import Model, make_pre_tokenizer
from bpe_core.encoding.word_merging import RankedBy
from bpe_core.formats.shared_entries import (
    get_entry,
    make_character_alphabet,
    read_added_tokens,
    read_byte_spelling,
    spell_tokens,
    write_added_tokens,
)
from bpe_core.merging.alphabet import BYTE_ALPHABET, MARKER, Kind, check_choice

OWN_VERSION = "tokenmill 1"


def to_own_layout(model: Model, reason: str) -> dict[str, Any]:
    """Returns the content of `tokenizer.json` for a model, in our own layout.

    Args:
        model: What to write.
        reason: Why Hugging Face's layout cannot hold the model.
    """
    alphabet, pre_tokenizer = model.alphabet, model.pre_tokenizer
    added_ids = {token.id for token in model.added_tokens}
    ends_word = [id_ not in added_ids and token.endswith(MARKER) for id_, token in enumerate(model.tokens)]
    return {
        "version": OWN_VERSION,
        "reason": f"not in the layout of Hugging Face tokenizers: {reason}",
        "kind": alphabet.kind,
        "pattern": pre_tokenizer.pattern,
        "unicode": pre_tokenizer.unicode,
        "lowercase": pre_tokenizer.lowercase,
        **({"add_prefix_space": True} if pre_tokenizer.add_prefix_space else {}),
        "end_of_word": alphabet.end_of_word,
        "end_of_word_placement": alphabet.placement,
        "added_tokens": write_added_tokens(model),
        "tokens": [
            [spelling, alphabet.kind == "char" and ends]
            for spelling, ends in zip(spell_tokens(model), ends_word, strict=True)
        ],
        "merges": model.merges.tolist(),
        "ignore_merges": model.ignore_merges,
        "ranked_by": model.ranked_by,
        "around": model.prefix_suffix_ids,
    }


def read_own_layout(content: dict[str, Any]) -> Model:
    """Returns the model in a `tokenizer.json` of our own layout.

    Raises:
        ValueError: An entry is missing, or contradicts another.
    """
    kind, pattern, unicode, lowercase, end_of_word, placement = (
        get_entry(content, key)
        for key in ("kind", "pattern", "unicode", "lowercase", "end_of_word", "end_of_word_placement")
    )
    check_choice("kind", kind, Kind)
    added = read_added_tokens(get_entry(content, "added_tokens"))
    added_ids = {token.id for token in added}
    tokens = _read_tokens(get_entry(content, "tokens"), kind, end_of_word, added_ids)
    alphabet = make_character_alphabet(tokens, added_ids, end_of_word, placement) if kind == "char" else BYTE_ALPHABET
    rows = get_entry(content, "merges")
    _check_merges(rows, tokens)
    expressions = tuple(pattern) if isinstance(pattern, list) else pattern
    pre_tokenizer = replace(
        make_pre_tokenizer(alphabet.kind, expressions, unicode, lowercase),
        add_prefix_space=bool(content.get("add_prefix_space", False)),
    )
    check_choice("ranked_by", get_entry(content, "ranked_by"), RankedBy)
    prefix, suffix = get_entry(content, "around")
    not_added = [id_ for id_ in (*prefix, *suffix) if id_ not in added_ids]
    if not_added:
        raise ValueError(f"around puts the id {not_added[0]!r} around texts, but no added token has this id")
    return Model(
        pre_tokenizer,
        alphabet,
        tokens,
        np.array(rows, np.int32).reshape(-1, 3),
        {},
        added,
        ignore_merges=bool(get_entry(content, "ignore_merges")),
        ranked_by=content["ranked_by"],
        prefix_suffix_ids=(tuple(prefix), tuple(suffix)),
    )


def _read_tokens(entries: Any, kind: Kind, end_of_word: str, added_ids: set[int]) -> list[bytes]:
    """Returns the bytes of every token, from id 0; a token that ends a word ends in `MARKER`."""
    tokens: list[bytes] = []
    for id_, entry in enumerate(entries):
        if not isinstance(entry, list) or len(entry) != 2:
            raise ValueError(f"token {id_} is {entry!r}; a token is a list: its spelling, and whether it ends a word")
        spelling, ends_word = entry
        if ends_word:
            tokens.append(spelling.removesuffix(end_of_word).encode() + MARKER)
        elif kind == "byte" and id_ not in added_ids:
            tokens.append(read_byte_spelling(spelling))
        else:
            tokens.append(spelling.encode())
    return tokens


def _check_merges(rows: Any, tokens: list[bytes]) -> None:
    """Raises ValueError unless each row is the ids of left, right and merged token, and their bytes agree."""
    if any(len(row) != 3 for row in rows):
        raise ValueError("merges are not rows of three ids: left, right and merged token")
    unknown = [id_ for row in rows for id_ in row if not 0 <= id_ < len(tokens)]
    if unknown:
        raise ValueError(f"merges name the id {unknown[0]}, but there are only {len(tokens)} tokens")
    for rank, (left, right, made) in enumerate(rows):
        # This also rules out a chain of merges that leads back to its start.
        if tokens[left] + tokens[right] != tokens[made]:
            raise ValueError(f"merge {rank} makes {tokens[made]!r} of {tokens[left]!r} and {tokens[right]!r}")
