"""Files on any file system that Beam knows: found, read, and written so that a reader sees all of one or none of it."""

import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import BinaryIO, cast
from weakref import WeakValueDictionary

from apache_beam.io.filesystem import CompressionTypes, FileMetadata, FileSystem
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from bpe_core import PATTERNS, Tokenizer
from bpe_core.formats.tokenizer_json import CONFIG_FILE, SPECIAL_TOKENS_FILE, TOKENIZER_FILE
from pipelines.storage.object_storage import S3
from pipelines.storage.output_files import TEMPORARY_FOLDER

_in_use: WeakValueDictionary[tuple[str, str, str | None], Tokenizer] = WeakValueDictionary()
"""Tokenizers that this process uses, by what they were read from: the local runner's worker is the driver's process."""

if FileSystems._pipeline_options is None:  # In a worker, Beam has set those of the job by now.
    FileSystems.set_options(PipelineOptions([]))


def use_flags(beam_args: Sequence[str]) -> None:
    """Has this process reach files as Beam's flags say (`--s3_endpoint_url=…`); workers get them from the pipeline."""
    FileSystems.set_options(PipelineOptions(list(beam_args)))


def _system(path: str) -> FileSystem:
    return S3(FileSystems._pipeline_options) if path.startswith("s3://") else FileSystems.get_filesystem(path)


def join(folder: str, *names: str) -> str:
    """Returns the path of a file in a folder."""
    return cast(str, FileSystems.join(folder, *names))


def open_raw(path: str) -> BinaryIO:
    """Opens a file to read its bytes as they are stored.

    Raises:
        FileNotFoundError: there is no such file.
    """
    system = _system(path)
    if not system.exists(path):
        raise FileNotFoundError(f"{path}: no such file")
    return cast(BinaryIO, system.open(path, compression_type=CompressionTypes.UNCOMPRESSED))


def create_raw(path: str) -> BinaryIO:
    """Opens a file to write bytes to; makes its folder where that is needed."""
    return cast(BinaryIO, _system(path).create(path, compression_type=CompressionTypes.UNCOMPRESSED))


def exists(path: str) -> bool:
    """Whether there is a file or a folder at `path`."""
    system = _system(path)
    if system.exists(path):
        return True
    return not system.has_dirs() and bool(system.match([join(path, "**")], [1])[0].metadata_list)


def match(pattern: str) -> list[FileMetadata]:
    """Returns the files that a pattern matches, by path.

    `*` stays within a folder, `**` does not, and `/**/` may also stand for no folder at all.
    """
    before_marks = re.split(r"[*?\[]", pattern)[0]
    if before_marks != pattern and "/" not in before_marks:
        pattern = f"./{pattern}"  # Beam finds no local files for a glob that starts in the working folder.
    patterns = {pattern, pattern.replace("/**/", "/")}
    found = {m.path: m for result in _system(pattern).match(list(patterns)) for m in result.metadata_list}
    # Beam takes a local folder for a file where the pattern is the folder's own name. In an object store, a name that
    # ends in a slash is an empty object that stands for a folder.
    return [found[path] for path in sorted(found) if not path.endswith("/") and not os.path.isdir(path)]


def read_text(path: str) -> str:
    """Returns a whole file as text; raises ValueError where it is not UTF-8."""
    with open_raw(path) as file:
        content = file.read()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not a text in UTF-8: {error}") from error


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
    if not exists(file):
        raise FileNotFoundError(f"{file}: no such file; train the tokenizer first (tokenmill train), or name another")
    if pattern is not None or special_tokens:
        raise ValueError(
            f"{path} says itself how text is cut and which tokens are special; remove the pattern "
            f"{pattern!r} and the special tokens {special_tokens or 'none'} from the settings"
        )
    beside = [join(FileSystems.split(file)[0], name) for name in (SPECIAL_TOKENS_FILE, CONFIG_FILE)]
    roles = next((read_text(path) for path in beside if exists(path)), None)
    content = read_text(file)
    tokenizer = _in_use.get((file, content, roles))
    if tokenizer is None:
        tokenizer = Tokenizer.from_json(content, roles, source=file)
        _in_use[file, content, roles] = tokenizer
    return tokenizer


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


def write_tokenizer(folder: str, tokenizer: Tokenizer) -> None:
    """Writes the files of a tokenizer into a folder."""
    for name, text in tokenizer.files().items():
        write_text(join(folder, name), text)


def write_text(path: str, text: str) -> None:
    """Writes a file of text in one go, see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: str, content: bytes | memoryview) -> None:
    """Writes a file in one go: a reader sees what stood there before, or all of it."""
    if not _system(path).has_dirs():  # An object store shows a file when it is closed.
        with create_raw(path) as file:
            file.write(content)
        return
    folder, name = FileSystems.split(path)
    temporary = join(folder, TEMPORARY_FOLDER, f"{uuid.uuid4().hex}-{name}")
    with create_raw(temporary) as file:
        file.write(content)
    publish([(temporary, path)])


def publish(moves: Iterable[tuple[str, str]]) -> None:
    """Renames finished files from their temporary names to their own; a file that stood there is replaced.

    Each of them is seen whole or not at all, on an object store too, where a rename is a copy and a deletion. They do
    not appear together: what makes them one has to be written afterwards.
    """
    sources, targets = map(list, zip(*moves, strict=True))
    for folder in sorted({FileSystems.split(target)[0] for target in targets}):
        with suppress(OSError):  # It is there already, or the file system knows no folders.
            FileSystems.mkdirs(folder)
    _system(sources[0]).rename(sources, targets)


def delete(*paths: str) -> None:
    """Deletes files, and folders with all that is in them; what is not there is passed over.

    In no order, and not all at once: what must be gone before the rest takes a call of its own.
    """
    for path in paths:
        if _system(path).has_dirs():
            if exists(path):
                FileSystems.delete([path])
        else:
            delete_matching(path)
            delete_matching(join(path, "**"))


def delete_matching(pattern: str) -> None:
    """Deletes the files that a pattern matches, see `match`; not their folders."""
    found = [metadata.path for metadata in match(pattern)]
    if found:
        _system(pattern).delete(found)


def delete_empty(*folders: str) -> None:
    """Deletes local folders that hold nothing, one after the other; object stores have none."""
    for folder in folders:
        with suppress(OSError):
            os.rmdir(folder)
