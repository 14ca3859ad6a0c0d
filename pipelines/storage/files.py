"""Files on local disks and on every file system that Beam knows: find them, read them, write them atomically.

A path is local unless it is a URL. Local files need no Beam; `beam_files` is imported on the first use of a URL.
"""

import os
import re
import uuid
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO

from pipelines.errors import locate_errors
from pipelines.storage.local_files import LocalFiles, StoredFile, has_glob_mark
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


def is_glob(path: str) -> bool:
    """Whether a path is a glob: it contains one of `*`, `?` and `[`, and no file or folder has exactly this name."""
    return has_glob_mark(path) and not exists(path)


def split_glob(path: str) -> tuple[str, str]:
    """Returns the start of a glob that is not to be read as a glob, and the rest.

    The start ends with a slash, and is the longest one that contains none of `*`, `?` and `[`, or is the name of an
    existing folder: `data[1]/*.txt` means the files in the folder `data[1]` if it exists, otherwise those in `data1`.
    """
    folders = [path[: index + 1] for index, character in enumerate(path) if character == "/"]
    literal = next((one for one in reversed(folders) if not is_glob(one.rstrip("/"))), "")
    return literal, path[len(literal) :]


def match(path: str) -> list[StoredFile]:
    """Returns the file of this name or, if nothing has this name, the files that the path matches as a glob.

    They are sorted by path; folders are not files. `*` stays within a folder, `**` crosses folders, `/**/` also matches
    a single `/`, and a path that ends in a slash matches the files of a folder. See `split_glob` for names of folders
    that look like globs. If the name of a folder is known, use `list_files`.
    """
    storage = _files_at(path)
    if path.endswith(("/", "\\")):
        path += "*"
    if not is_glob(path):
        file = storage.find(path)
        return [file] if file else []
    literal, glob = split_glob(path)
    # The slash before the glob belongs to `literal`.
    globs = {glob, f"/{glob}".replace("/**/", "/")[1:] if literal else glob.replace("/**/", "/")}
    return _sort_files(file for one in globs for file in storage.match(literal, one))


def list_files(folder: str, glob: str = "**") -> list[StoredFile]:
    """Returns the files below a folder whose relative path a glob matches, sorted by path.

    The name of the folder is no glob, whatever characters it contains.
    """
    storage = _files_at(folder)
    return _sort_files(storage.match(storage.join(folder, "x")[:-1], glob))


def _sort_files(found: Iterable[StoredFile]) -> list[StoredFile]:
    by_path = {file.path: file for file in found}
    return [by_path[path] for path in sorted(by_path)]


def get_size(path: str) -> int:
    """Returns the size of a file in bytes.

    Raises:
        FileNotFoundError: the file does not exist.
    """
    file = _files_at(path).find(path)
    if file is None:
        raise FileNotFoundError(f"{path}: no such file")
    return file.num_bytes


def read_text(path: str) -> str:
    """Returns a whole file as text; raises ValueError if it is not UTF-8."""
    with locate_errors(path), open_raw(path) as file:
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
        with locate_errors(path), storage.create(path) as file:
            file.write(content)
        return
    folder, name = storage.split(path)
    temporary = storage.join(folder, TEMPORARY_FOLDER, f"{uuid.uuid4().hex}-{name}")
    with locate_errors(path), storage.create(temporary) as file:
        file.write(content)
    publish([(temporary, path)])


def publish(moves: Iterable[tuple[str, str]]) -> None:
    """Renames finished files from their temporary names to their final names, and replaces files of these names.

    Each file appears complete or not at all, on object stores too, and a local file survives a power failure. The files
    do not appear together: whatever declares them finished must be written afterwards.
    """
    sources, targets = map(list, zip(*moves, strict=True))
    with locate_errors(targets[0]):
        _files_at(sources[0]).rename(sources, targets)


def delete(*paths: str) -> None:
    """Deletes files, and folders with everything in them; passes over paths that do not exist.

    The order is undefined. What must be deleted first needs a call of its own.
    """
    for path in paths:
        storage = _files_at(path)
        if not storage.has_folders:
            found = [path] if storage.find(path) else []
            found += [file.path for file in list_files(path)]
            if found:
                storage.delete(found)
        elif storage.exists(path):
            storage.delete([path])


def delete_files(folder: str, glob: str) -> None:
    """Deletes the files that `list_files` returns; keeps their folders."""
    found = [file.path for file in list_files(folder, glob)]
    if found:
        _files_at(folder).delete(found)


def delete_empty(*folders: str) -> None:
    """Deletes each local folder that is empty; object stores have no folders to delete."""
    for folder in folders:
        with suppress(OSError):
            os.rmdir(folder)
