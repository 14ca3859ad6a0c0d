"""A file system in memory that behaves like an object store: no folders, no exclusive creation, renaming is copying."""

import io
from collections.abc import Iterator, Sequence
from typing import Any

from apache_beam.io.filesystem import BeamIOError, FileMetadata, FileSystem

SCHEME = "memory"
OBJECTS: dict[str, bytes] = {}


class _Upload(io.BytesIO):
    """An object that appears when it is closed."""

    def __init__(self, path: str) -> None:
        super().__init__()
        self._path = path

    def close(self) -> None:
        if not self.closed:
            OBJECTS[self._path] = self.getvalue()
        super().close()


class MemoryFileSystem(FileSystem):
    """The file system of URLs such as `memory://folder/name`; Beam finds it by its scheme."""

    @classmethod
    def scheme(cls) -> str:
        return SCHEME

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *(path.strip("/") for path in paths)])

    def split(self, path: str) -> tuple[str, str]:
        head, _, tail = path.rpartition("/")
        return head, tail

    def mkdirs(self, path: str) -> None:
        pass

    def has_dirs(self) -> bool:
        return False

    def _list(self, dir_or_prefix: str) -> Iterator[FileMetadata]:
        for path, content in sorted(OBJECTS.items()):
            if path.startswith(dir_or_prefix):
                yield FileMetadata(path, len(content), 0.0)

    def create(self, path: str, *_: Any, **__: Any) -> io.BytesIO:
        return _Upload(path)

    def open(self, path: str, *_: Any, **__: Any) -> io.BytesIO:
        return io.BytesIO(self._content(path))

    def copy(self, source_file_names: Sequence[str], destination_file_names: Sequence[str]) -> None:
        for source, target in zip(source_file_names, destination_file_names, strict=True):
            OBJECTS[target] = self._content(source)

    def rename(self, source_file_names: Sequence[str], destination_file_names: Sequence[str]) -> None:
        self.copy(source_file_names, destination_file_names)
        self.delete(source_file_names)

    def exists(self, path: str) -> bool:
        return path in OBJECTS

    def size(self, path: str) -> int:
        return len(self._content(path))

    def last_updated(self, path: str) -> float:
        return 0.0

    def checksum(self, path: str) -> str:
        return str(self.size(path))

    def metadata(self, path: str) -> FileMetadata:
        return FileMetadata(path, self.size(path), 0.0)

    def delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            for key in [key for key in OBJECTS if key == path or key.startswith(f"{path.rstrip('/')}/")]:
                OBJECTS.pop(key, None)

    def _content(self, path: str) -> bytes:
        if path not in OBJECTS:
            raise BeamIOError("no such object", {path: KeyError(path)})
        return OBJECTS[path]
