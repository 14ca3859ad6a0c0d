"""Reads and writes tokenizers in any folder or file that a project may name: ours, or files of other tools."""

from collections.abc import Mapping
from typing import Any
from weakref import WeakValueDictionary

from bpe_core.formats.tokenizer_folder import GivenParts, find_tokenizer_files
from bpe_core.formats.tokenizer_json import Engine
from bpe_core.pretokenize.normalizer import Normalization
from bpe_core.tokenizer import Tokenizer
from pipelines.storage import files

_in_use: WeakValueDictionary[tuple[Any, ...], Tokenizer] = WeakValueDictionary()
"""The tokenizers that this process uses, by what they were read from. The local runner's worker may be the driver."""


def read_tokenizer(
    path: str,
    pattern: str | None = None,
    special_tokens: Mapping[str, Mapping[str, int]] | None = None,
    unicode: Normalization = "none",
    engine: Engine = "auto",
) -> Tokenizer:
    """Returns the tokenizer of a folder or a file, on the disk or in an object store.

    While a tokenizer is in use, reading the same files again returns the same object.

    Args:
        path: the folder or the file; see `Tokenizer.load`.
        pattern: splits text into words, for files that do not contain it.
        special_tokens: role -> spelling -> id, as for `Tokenizer.load`.
        unicode: the Unicode normalization of the text, for the same files.
        engine: what encodes; see `Engine`.

    Raises:
        FileNotFoundError: the tokenizer does not exist.
        ValueError: see `Tokenizer.load`.
    """
    found = find_tokenizer_files(path, files)
    given = GivenParts(pattern, special_tokens or {}, unicode)
    key = (found.path, *found.contents.items(), repr(given), engine)
    tokenizer = _in_use.get(key)
    if tokenizer is None:
        tokenizer = _in_use[key] = Tokenizer.from_files(found, given, engine)
    return tokenizer


def write_tokenizer(folder: str, tokenizer: Tokenizer) -> None:
    """Writes the files of a tokenizer into a folder."""
    for name, text in tokenizer.files().items():
        files.write_text(files.join(folder, name), text)
