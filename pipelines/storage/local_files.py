"""Files on local disks, without Beam, which takes half a second to import."""

import errno
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, NamedTuple


class StoredFile(NamedTuple):
    """A file that a pattern matches; its size is in bytes."""

    path: str
    num_bytes: int


_GLOB_MARK = re.compile(r"[*?\[]")


def has_glob_mark(path: str) -> bool:
    """Whether a path contains one of `*`, `?` and `[`, so that it is a glob unless a file or folder has this name."""
    return _GLOB_MARK.search(path) is not None


def is_utf8(path: str) -> bool:
    """Whether a path can be written as UTF-8.

    Linux allows any bytes in names. Python decodes those that are not UTF-8 to lone surrogates.
    """
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def find_glob_start(literal: str, glob: str) -> str:
    """Returns the start that all paths share which are `literal` followed by what a glob matches.

    >>> find_glob_start("run[1]/", "bucket=*/part-*.parquet")
    'run[1]/bucket='
    """
    return literal + _GLOB_MARK.split(glob, maxsplit=1)[0]


class LocalFiles:
    """Reads, finds, renames and deletes local files. `BeamFiles` does the same for URLs."""

    has_folders = True

    def join(self, folder: str, *names: str) -> str:
        """Returns the path of a file in a folder."""
        return os.path.join(folder, *names)

    def split(self, path: str) -> tuple[str, str]:
        """Returns the folder and the name of a file; the folder is absolute."""
        return os.path.split(os.path.abspath(path))

    def exists(self, path: str) -> bool:
        """Whether `path` is a file or a folder."""
        return os.path.exists(path)

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading."""
        return open(path, "rb")

    def create(self, path: str) -> BinaryIO:
        """Opens a file for writing and makes its folder if needed."""
        if folder := os.path.dirname(path):
            os.makedirs(folder, exist_ok=True)
        return open(path, "wb")

    def find(self, path: str) -> StoredFile | None:
        """Returns the file of this name, or None if it does not exist or is a folder."""
        with suppress(OSError, ValueError):  # It may be deleted meanwhile, or be no possible name.
            size = os.path.getsize(path)
            if not os.path.isdir(path):
                return StoredFile(path, size)
        return None

    def match(self, literal: str, glob: str) -> Iterator[StoredFile]:
        """Yields the files whose path is `literal`, followed by what a glob matches; in no order.

        A glob means what it means to Beam.

        Args:
            literal: the start of the paths, which is no glob whatever it contains; empty, or ends with a slash.
            glob: matches the rest of the paths.

        Raises:
            ValueError: the glob has a malformed `[...]`.
        """
        start = find_glob_start(literal, glob)
        if not os.path.dirname(start):  # Beam finds no files for a glob that starts in the working folder.
            literal, start = f"./{literal}", f"./{start}"
        # Not `dirname`, which drops slashes, so that paths start as they were given.
        folder = start.removesuffix(os.path.basename(start))
        is_match = compile_glob(literal, glob).match
        yield from filter(None, map(self.find, filter(is_match, _walk(folder))))

    def rename(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Renames files so that each target is complete at once, and still is after a power failure."""
        folders = {os.path.dirname(os.path.abspath(target)) for target in targets}
        new = {folder for folder in folders if not os.path.isdir(folder)}
        for folder in new:
            os.makedirs(folder, exist_ok=True)
        for source in sources:
            _flush_to_disk(source, os.O_RDWR)
        for source, target in zip(sources, targets, strict=True):
            os.replace(source, target)
        for folder in folders | set(map(os.path.dirname, new)):
            _flush_to_disk(folder, os.O_RDONLY)

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files, and folders with everything in them; passes over what does not exist."""
        for path in paths:
            if os.path.isdir(path):
                shutil.rmtree(path)
            else:
                with suppress(FileNotFoundError):
                    os.remove(path)


def _walk(folder: str) -> Iterator[str]:
    for inner, _, names in os.walk(folder):
        for name in names:
            yield os.path.join(inner, name)


def compile_glob(literal: str, glob: str) -> re.Pattern[str]:
    r"""Returns a pattern for whole paths that are `literal`, followed by what a glob matches.

    `*` stays within a folder, `**` and `?` match any character.

    >>> is_match = compile_glob("a[1]/", "*.txt").match
    >>> bool(is_match("a[1]/b.txt")), bool(is_match("a[1]/b/c.txt")), bool(is_match("a1/b.txt"))
    (True, False, False)

    Raises:
        ValueError: the glob has a malformed `[...]`.
    """
    # A set may start with `]`, as in `[]a]`, or `[!]a]`; one that does not end is plain text.
    parts = re.split(r"(\*\*|\*|\?|\[!?+\]?+[^\]]*\])", glob)
    meaning = {"**": ".*", "*": r"[^/\\]*", "?": "."}
    for index in range(1, len(parts), 2):
        mark = parts[index]
        if mark[0] == "[":
            inside = mark[1:-1].replace("\\", "\\\\").replace("[", "\\[")
            mark = f"[^{inside[1:]}]" if inside[0] == "!" else f"[\\{inside}]" if inside[0] == "^" else f"[{inside}]"
        parts[index] = meaning.get(mark, mark)
    parts[::2] = map(re.escape, parts[::2])
    try:
        return re.compile(f"(?ms){re.escape(literal)}{''.join(parts)}\\Z")
    except re.error as error:
        raise ValueError(f"{literal + glob!r} is not a valid glob: {error}") from error


def _flush_to_disk(path: str, mode: int) -> None:
    """Waits until a file, or the names in a folder, are on the disk, if the system can say so.

    Windows cannot open folders, and some network file systems cannot flush them.
    """
    if mode == os.O_RDONLY and os.name == "nt":
        return
    descriptor = os.open(path, mode)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.ENOSYS):
            raise
    finally:
        os.close(descriptor)
