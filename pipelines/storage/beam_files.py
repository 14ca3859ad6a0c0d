"""Files at URLs (`s3://`, `gs://`, `hdfs://`, ...), on the file systems that Beam knows."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import BinaryIO, cast

from apache_beam.io.filesystem import CompressionTypes, FileMetadata
from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

from pipelines.storage.local_files import StoredFile, compile_glob, find_glob_start
from pipelines.storage.object_storage import S3

if FileSystems._pipeline_options is None:  # In a worker, Beam has already set the options of the job.
    FileSystems.set_options(PipelineOptions([]))


def use_beam_flags(beam_args: Sequence[str]) -> None:
    """Makes this process reach files as Beam's flags say, such as `--s3_endpoint_url`."""
    FileSystems.set_options(PipelineOptions(list(beam_args)))


class BeamFiles:
    """The file system of one URL, with the methods of `LocalFiles`."""

    def __init__(self, url: str) -> None:
        """Finds the file system of a URL.

        Raises:
            ValueError: Beam knows no such file system.
        """
        is_s3 = url.startswith("s3://")
        self._system = S3(FileSystems._pipeline_options) if is_s3 else FileSystems.get_filesystem(url)

    @property
    def has_folders(self) -> bool:
        """Whether folders exist by themselves; an object store has only files whose names contain slashes."""
        return bool(self._system.has_dirs())

    def join(self, folder: str, *names: str) -> str:
        """Returns the URL of a file in a folder."""
        return cast(str, self._system.join(folder, *names))

    def split(self, path: str) -> tuple[str, str]:
        """Returns the folder and the name of a file."""
        return cast(tuple[str, str], self._system.split(path))

    def exists(self, path: str) -> bool:
        """Whether `path` is a file or a folder; if folders do not exist by themselves, whether a folder holds files."""
        if self._system.exists(path):
            return True
        return not self.has_folders and next(self._list(self.join(path, "x")[:-1]), None) is not None

    def find(self, path: str) -> StoredFile | None:
        """Returns the file of this name, or None if it does not exist."""
        if isinstance(self._system, S3):
            found = self._system.find(path)
        else:
            found = self._system.metadata(path) if self._system.exists(path) else None
        return None if found is None else StoredFile(path, int(found.size_in_bytes))

    def open(self, path: str) -> BinaryIO:
        """Opens a file for reading.

        Raises:
            FileNotFoundError: it does not exist.
        """
        if not self._system.exists(path):
            raise FileNotFoundError(path)
        return cast(BinaryIO, self._system.open(path, compression_type=CompressionTypes.UNCOMPRESSED))

    def create(self, path: str) -> BinaryIO:
        """Opens a file for writing; an object store shows it when it is closed."""
        return cast(BinaryIO, self._system.create(path, compression_type=CompressionTypes.UNCOMPRESSED))

    def match(self, literal: str, glob: str) -> Iterator[StoredFile]:
        """Yields the files whose path is `literal`, followed by what a glob matches; see `LocalFiles.match`.

        Beam's own `match` has no way to say that a part of a path is no glob.
        """
        start = find_glob_start(literal, glob)
        is_match = compile_glob(literal, glob).match
        for found in self._list(self.split(start)[0] if self.has_folders else start):
            # In an object store, a name that ends in a slash is an empty object that stands for a folder.
            if is_match(found.path) and not found.path.endswith("/"):
                yield StoredFile(found.path, int(found.size_in_bytes))

    def _list(self, start: str) -> Iterator[FileMetadata]:
        """Yields all files of a folder; without folders, all files whose paths start with `start`."""
        yield from self._system._list(start)

    def rename(self, sources: Sequence[str], targets: Sequence[str]) -> None:
        """Renames files; on an object store that is a copy and a deletion."""
        for folder in sorted({self.split(target)[0] for target in targets}):
            with suppress(OSError):  # It exists, or the file system has no folders.
                self._system.mkdirs(folder)
        self._system.rename(list(sources), list(targets))

    def delete(self, paths: Sequence[str]) -> None:
        """Deletes files; if folders exist by themselves, also folders with everything in them."""
        self._system.delete(list(paths))
