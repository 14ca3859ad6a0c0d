"""The files of the corpus that an output was made from, as they are now."""

from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from bpe_core.kernels import Int64s
from pipelines.checking.finished_output import FinishedOutput
from pipelines.reading.documents import read_task
from pipelines.reading.formats.raw_rows import FileSlice
from pipelines.reading.source_files import SourceFile, find_files
from pipelines.settings.corpus import Corpus
from pipelines.storage import files
from pipelines.storage.manifest import read_json
from pipelines.storage.output_files import PLAN


class CorpusFiles:
    """The files that the manifest lists, as they are now.

    Attributes:
        found: the files that exist and can be read, by path.
        missing: the paths of files that no longer exist.
        changed: the paths of files with another fingerprint.
        errors: what is wrong with each file that cannot be read.
    """

    def __init__(self, output: FinishedOutput) -> None:
        """Looks at every file that the manifest lists, and computes its fingerprint."""
        plan = read_json(files.join(output.folder, PLAN)) or {"tasks": {}}
        formats = {file_slice["path"]: file_slice["format"] for task in plan["tasks"].values() for file_slice in task}
        settings = output.manifest["settings"]["corpus"]
        self._settings = {name: value for name, value in settings.items() if not name.startswith("weight")}
        self.found: dict[str, SourceFile] = {}
        self.missing: list[str] = []
        self.changed: list[str] = []
        self.errors: list[str] = []
        for path, recorded in output.manifest["inputs"].items():
            if files.is_glob(path):  # It was the name of a file, and must not be read as a glob now.
                self.missing.append(path)
                continue
            try:
                [source] = find_files(self._make_settings(path, formats.get(path, "auto")))
            except FileNotFoundError:
                self.missing.append(path)
                continue
            except ValueError as error:
                self.errors.append(str(error))
                continue
            self.found[path] = source
            if source.fingerprint != recorded["fingerprint"]:
                self.changed.append(path)

    def is_unchanged(self, path: str) -> bool:
        """Returns whether a file can be read and has the fingerprint that the manifest records."""
        return path in self.found and path not in self.changed

    def read_texts(self, path: str, rows: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Yields (row, text) for some rows of a file; skips rows that do not exist."""
        source, wanted = self.found[path], np.array(sorted(rows))
        for file_slice in _find_slices(source, wanted):
            for batch in read_task((file_slice,), self._make_settings(path, source.format), Counter()):
                is_wanted = np.isin(batch.rows, wanted)
                texts = batch.texts.filter(pa.array(is_wanted)).to_pylist()
                yield from zip(batch.rows[is_wanted].tolist(), texts, strict=True)

    def count_rows(self, path: str) -> int:
        """Returns the number of rows of a Parquet file, or of the rows up to the last document of another file."""
        source = self.found[path]
        if source.format == "parquet":
            return sum(rows for rows, _ in source.row_groups or ())
        file_slices = _find_slices(source, np.zeros(0, np.int64))
        batches = read_task(tuple(file_slices), self._make_settings(path, source.format), Counter())
        return 1 + max((int(batch.rows[-1]) for batch in batches), default=-1)

    def _make_settings(self, path: str, format: str) -> Corpus:
        """Returns the settings that read one file as the job read it."""
        if format == "known-answers":
            return Corpus(**{**self._settings, "sample": format})
        return Corpus(**{**self._settings, "files": path, "format": format})


def _find_slices(source: SourceFile, rows: Int64s) -> Iterator[FileSlice]:
    """Yields the row groups of a Parquet file that contain any of the rows; yields another file as one slice."""
    if source.format != "parquet":
        yield FileSlice(source.path, source.format, None, 0, source.num_bytes)
    first = 0
    for index, (num_rows, num_bytes) in enumerate(source.row_groups or ()):
        if ((rows >= first) & (rows < first + num_rows)).any():
            yield FileSlice(source.path, "parquet", (index, index + 1), first, num_bytes)
        first += num_rows
