"""Files on local disks and on every file system that Beam knows: find them, read them, write them atomically.

A path is local unless it is a URL. Local files need no Beam; `beam_files` is imported on the first use of a URL.
"""

import os
import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from pipelines.storage.local_files import LocalFiles, StoredFile
from pipelines.storage.output_files import TEMPORARY_FOLDER
from pipelines.storage.quiet_beam import quiet_beam_import

if TYPE_CHECKING:
    from pipelines.storage.beam_files import BeamFiles

_URL = re.compile(r"\s*[a-zA-Z][-a-zA-Z0-9+.]*://")
_LOCAL_FILES = LocalFiles()


def use_flags(beam_args: Sequence[str]) -> None:
    """Makes this process reach files as Beam's flags say (`--s3_endpoint_url=...`); workers get the flags from Beam."""
    with quiet_beam_import():
        from pipelines.storage.beam_files import use_beam_flags
    use_beam_flags(beam_args)


def _files_at(path: str) -> "LocalFiles | BeamFiles":
    if not _URL.match(path):
        return _LOCAL_FILES
    with quiet_beam_import():
        from pipelines.storage.beam_files import BeamFiles
    return BeamFiles(path)


def split(path: str) -> tuple[str, str]:
    """Returns the folder and the name of a file."""
    return _files_at(path).split(path)


def join(folder: str, *names: str) -> str:
    """Returns the path of a file in a folder."""
    return _files_at(folder).join(folder, *names)


def open_raw(path: str) -> BinaryIO:
    """Opens a file to read its bytes as they are stored.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    try:
        return _files_at(path).open(path)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{path}: no such file") from error


def create_raw(path: str) -> BinaryIO:
    """Opens a file to write bytes to, and makes its folder if needed."""
    return _files_at(path).create(path)


def exists(path: str) -> bool:
    """Whether `path` is a file or a folder; on an object store, a folder exists while it holds files."""
    return _files_at(path).exists(path)


def match(pattern: str) -> list[StoredFile]:
    """Returns the files that a pattern matches, sorted by path; folders are not files.

    `*` stays within a folder, `**` crosses folders, and `/**/` also matches a single `/`.
    """
    storage = _files_at(pattern)
    found = {file.path: file for one in {pattern, pattern.replace("/**/", "/")} for file in storage.match(one)}
    return [found[path] for path in sorted(found)]


def read_text(path: str) -> str:
    """Returns a whole file as text; raises ValueError if it is not UTF-8."""
    with open_raw(path) as file:
        content = file.read()
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text: {error}") from error


def write_text(path: str, text: str) -> None:
    """Writes a text file atomically, see `write_bytes`."""
    write_bytes(path, text.encode())


def write_bytes(path: str, content: bytes | memoryview) -> None:
    """Writes a file atomically: a reader sees the old content or the new content, never a part."""
    storage = _files_at(path)
    if not storage.has_folders:  # An object store shows a file only when it is closed.
        with storage.create(path) as file:
            file.write(content)
        return
    folder, name = storage.split(path)
    temporary = storage.join(folder, TEMPORARY_FOLDER, f"{uuid.uuid4().hex}-{name}")
    with storage.create(temporary) as file:
        file.write(content)
    publish([(temporary, path)])


def publish(moves: Iterable[tuple[str, str]]) -> None:
    """Renames finished files from their temporary names to their final names, and replaces files of these names.

    Each file appears complete or not at all, on object stores too, and a local file survives a power failure. The files
    do not appear together: whatever declares them finished must be written afterwards.
    """
    sources, targets = map(list, zip(*moves, strict=True))
    _files_at(sources[0]).rename(sources, targets)


def delete(*paths: str) -> None:
    """Deletes files, and folders with everything in them; passes over paths that do not exist.

    The order is undefined. What must be deleted first needs a call of its own.
    """
    for path in paths:
        storage = _files_at(path)
        if not storage.has_folders:
            delete_matching(path)
            delete_matching(join(path, "**"))
        elif storage.exists(path):
            storage.delete([path])


def delete_matching(pattern: str) -> None:
    """Deletes the files that a pattern matches, see `match`; keeps their folders."""
    found = [file.path for file in match(pattern)]
    if found:
        _files_at(pattern).delete(found)


def delete_empty(*folders: str) -> None:
    """Deletes each local folder that is empty; object stores have no folders to delete."""
    for folder in folders:
        with suppress(OSError):
            os.rmdir(folder)
