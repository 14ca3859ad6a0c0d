"""Reads a `tokenizer.json` for `LibraryModel`: what our side must know of a tokenizer that the library runs."""

from typing import Any

from bpe_core.encoding.library_model import LibraryModel, LibraryTokenizer
from bpe_core.formats.shared_entries import get_entry, list_vocabulary, read_added_tokens


def read_for_library(content: dict[str, Any]) -> LibraryModel:
    """Returns the model of a `tokenizer.json` that Hugging Face's library runs.

    Raises:
        ModuleNotFoundError: the library is not installed.
        ValueError: the library cannot read it, or its post-processor puts ids elsewhere than before and after a text.
    """
    library = LibraryTokenizer(content)
    model = get_entry(content, "model")
    added = read_added_tokens(content.get("added_tokens"))
    ids = list_vocabulary(model) | {token.content: token.id for token in added}
    tokens = [b""] * (max(ids.values(), default=-1) + 1)
    for spelling, id_ in ids.items():
        tokens[id_] = spelling.encode()
    unknown = model.get("unk_token")
    is_special = any(token.special and token.content == unknown for token in added)
    return LibraryModel(
        library, tokens, {"unk": unknown} if is_special else {}, added, _find_prefix_suffix(library), content
    )


def _find_prefix_suffix(library: LibraryTokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns the ids that the post-processor puts before and after a text, by encoding one with and without them."""
    text = ["a"]
    bare = list(library.encode(text, plain=True)[0])
    full = list(library.encode(text, plain=True, add_special_tokens=True)[0])
    for at in range(len(full) - len(bare) + 1):
        if full[at : at + len(bare)] == bare:
            return tuple(map(int, full[:at])), tuple(map(int, full[at + len(bare) :]))
    raise ValueError("the post-processor changes the ids of a text; this is not supported")
