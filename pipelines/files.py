"""Files on any file system that Beam knows: found, read, and written so that a reader sees all of one or none of it."""

import os
import re
import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import BinaryIO, cast

from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems

from bpe_core import PATTERNS, Tokenizer
from bpe_core.formats import CONFIG_FILE, SPECIAL_TOKENS_FILE, TOKENIZER_FILE

TEMPORARY = "_temporary"
"""The folder, inside an output folder, of files that are still being written. Readers of Parquet folders skip it."""


def join(folder: str, *names: str) -> str:
    """Returns the path of a file in a folder."""
    return cast(str, FileSystems.join(folder, *names))


def open_raw(path: str) -> BinaryIO:
    """Opens a file to read its bytes as they are stored.

    Raises:
        FileNotFoundError: there is no such file.
    """
    if not FileSystems.exists(path):
        raise FileNotFoundError(f"{path}: no such file")
    return cast(BinaryIO, FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED))


def create_raw(path: str) -> BinaryIO:
    """Opens a file to write bytes to; makes its folder where that is needed."""
    return cast(BinaryIO, FileSystems.create(path, compression_type=CompressionTypes.UNCOMPRESSED))


def exists(path: str) -> bool:
    """Whether there is a file or a folder at `path`."""
    return bool(FileSystems.exists(path))


def match(pattern: str) -> list[FileMetadata]:
    """Returns the files that a pattern matches, by path.

    `*` stays within a folder, `**` does not, and `/**/` may also stand for no folder at all.
    """
    before_marks = re.split(r"[*?\[]", pattern)[0]
    if before_marks != pattern and "/" not in before_marks:
        pattern = f"./{pattern}"  # Beam finds no local files for a glob that starts in the working folder.
    patterns = {pattern, pattern.replace("/**/", "/")}
    found = {m.path: m for result in FileSystems.match(list(patterns)) for m in result.metadata_list}
    # Beam takes a local folder for a file where the pattern is the folder's own name.
    return [found[path] for path in sorted(found) if not os.path.isdir(path)]


def read_text(path: str) -> str:
    """Returns a whole file as text."""
    with open_raw(path) as file:
        return file.read().decode()


def read_tokenizer(
    path: str, pattern: str | None = None, special_tokens: Mapping[str, Mapping[str, int]] | None = None
) -> Tokenizer:
    """Returns the tokenizer in a folder, in a `tokenizer.json` with the files beside it, or in a `.tiktoken` file.

    A folder without `tokenizer.json` may hold `vocab.json` and `merges.txt`.

    Args:
        pattern: how text is cut, where the files do not say: for `.tiktoken`, and `vocab.json` with `merges.txt`.
        special_tokens: role -> spelling -> id, for the same files.

    Raises:
        FileNotFoundError: there is none.
        ValueError: see `Tokenizer.load`; the pattern is missing, or given where the files say it.
    """
    tables = [join(path, name) for name in ("vocab.json", "merges.txt")]
    is_ranks = path.endswith(".tiktoken")
    if is_ranks or (not exists(join(path, TOKENIZER_FILE)) and all(map(exists, tables))):
        if pattern is None:
            raise ValueError(
                f"{path} does not say how text is cut into words. Give the pattern that the tokenizer was made with "
                f"(shards.pattern, --pattern): one of {', '.join(PATTERNS)}, or a regular expression"
            )
        try:
            return _read_without_pattern([path] if is_ranks else tables, pattern, special_tokens or {})
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    file = path if path.endswith(".json") else join(path, TOKENIZER_FILE)
    if (pattern is not None or special_tokens) and exists(file):
        raise ValueError(
            f"{path} says itself how text is cut and which tokens are special; remove the pattern "
            f"{pattern!r} and the special tokens {special_tokens or 'none'} from the settings"
        )
    beside = [join(FileSystems.split(file)[0], name) for name in (SPECIAL_TOKENS_FILE, CONFIG_FILE)]
    roles = next((read_text(path) for path in beside if exists(path)), None)
    return Tokenizer.from_json(read_text(file), roles, source=file)


def _read_without_pattern(paths: list[str], pattern: str, special_tokens: Mapping[str, Mapping[str, int]]) -> Tokenizer:
    ids = {spelling: id_ for given in special_tokens.values() for spelling, id_ in given.items()}
    roles: dict[str, str | list[str]] = {
        role: next(iter(given)) if role != "additional" and len(given) == 1 else list(given)
        for role, given in special_tokens.items()
    }
    texts = [read_text(path) for path in paths]
    if len(texts) == 1:
        return Tokenizer.from_tiktoken(texts[0], pattern=pattern, special_tokens=ids, roles=roles)
    tokenizer = Tokenizer.from_vocab_and_merges(texts[0], texts[1], pattern=pattern, special_tokens=roles)
    for spelling, id_ in ids.items():
        if tokenizer.special_tokens[spelling] != id_:
            raise ValueError(
                f"the special token {spelling!r} is given the id {id_}, and has {tokenizer.special_tokens[spelling]}"
            )
    return tokenizer


def write_text(path: str, text: str) -> None:
    """Writes text as a whole file, see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: str, content: bytes) -> None:
    """Writes a file under a temporary name beside it, then gives it its own."""
    folder, name = FileSystems.split(path)
    temporary = join(folder, TEMPORARY, f"{uuid.uuid4().hex}-{name}")
    with create_raw(temporary) as file:
        file.write(content)
    publish([(temporary, path)])


def publish(moves: Iterable[tuple[str, str]]) -> None:
    """Renames finished files from their temporary names to their own; a file that stood there is replaced."""
    sources, targets = map(list, zip(*moves, strict=True))
    for folder in sorted({FileSystems.split(target)[0] for target in targets}):
        with suppress(OSError):  # It is there already, or the file system knows no folders.
            FileSystems.mkdirs(folder)
    FileSystems.rename(sources, targets)


def delete(*paths: str) -> None:
    """Deletes files, and folders with all that is in them; what is not there is passed over."""
    found = [path for path in paths if exists(path)]
    if found:
        FileSystems.delete(found)


def delete_empty(*folders: str) -> None:
    """Deletes local folders that hold nothing, one after the other; object stores have none."""
    for folder in folders:
        with suppress(OSError):
            os.rmdir(folder)
