"""Special tokens that a user gives for a `tokenizer.json` that does not declare them, or gives them no roles."""

from collections.abc import Mapping
from typing import Any

from bpe_core.formats.shared_entries import get_entry, list_vocabulary

GivenSpecialTokens = Mapping[str, Mapping[str, int]]
"""Role -> spelling -> id."""


def list_given_roles(given: GivenSpecialTokens) -> dict[str, str | list[str]]:
    """Returns role -> spelling, or a list of them for `additional` and for a role that was given several.

    >>> list_given_roles({"eos": {"</s>": 2}, "additional": {"<a>": 7}})
    {'eos': '</s>', 'additional': ['<a>']}
    """
    return {
        role: next(iter(ids)) if role != "additional" and len(ids) == 1 else list(ids) for role, ids in given.items()
    }


def declare_special_tokens(content: Mapping[str, Any], given: GivenSpecialTokens) -> dict[str, Any]:
    """Returns the content of a `tokenizer.json` in which the given tokens are special tokens.

    A token that is already among the added tokens becomes special. A token of the vocabulary, or with an id that no
    token has, becomes an added token, which is searched for in texts as it is spelled.

    Raises:
        ValueError: a token has another id in the file, or its id is another token's.
    """
    entries = [dict(entry) for entry in content.get("added_tokens") or []]
    by_spelling = {entry["content"]: entry for entry in entries}
    ids = list_vocabulary(get_entry(content, "model")) | {one["content"]: one["id"] for one in entries}
    spelling_of = {id_: spelling for spelling, id_ in ids.items()}
    for spelling, id_ in ((spelling, id_) for tokens in given.values() for spelling, id_ in tokens.items()):
        if spelling_of.get(id_, spelling) != spelling:
            raise ValueError(
                f"the special token {spelling!r} was given the id {id_}, which is that of {spelling_of[id_]!r}"
            )
        if ids.get(spelling, id_) != id_:
            raise ValueError(
                f"the special token {spelling!r} was given the id {id_}, but it has the id {ids[spelling]}"
            )
        ids[spelling], spelling_of[id_] = id_, spelling
        if spelling not in by_spelling:
            by_spelling[spelling] = {
                "id": id_,
                "content": spelling,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
            }
            entries.append(by_spelling[spelling])
        by_spelling[spelling]["special"] = True
    return {**content, "added_tokens": sorted(entries, key=lambda entry: int(entry["id"]))}
