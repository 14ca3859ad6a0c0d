"""Which files a corpus consists of: files, globs and folders, with what is known of each file before it is read."""

import hashlib
import logging
import os.path
import sysconfig
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any

import pyarrow as pa

from pipelines.errors import BadRowsError
from pipelines.reading.fingerprints import fingerprint_file
from pipelines.reading.formats.known_answers import known_answer_documents
from pipelines.reading.formats.raw_rows import FileContents
from pipelines.reading.formats.table import FORMATS, find_format
from pipelines.settings.corpus import Corpus
from pipelines.storage import files
from pipelines.storage.local_files import StoredFile, find_glob_start, is_utf8

_INSPECTING_THREADS = 16

_logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceFile:
    """One file of the corpus.

    Attributes:
        format: a key of `formats.table.FORMATS`.
        fingerprint: a SHA-256 in hex, see `fingerprint_file`; empty if it was not asked for.
        row_groups: (rows, bytes of text before compression) of each row group of a Parquet file; None if the file must
            be read as a whole.
        schema: the columns of a Parquet file.
        is_readable: False if the file is damaged or has no text, and the settings allow that. The task that reads it
            puts it in quarantine.
        source: the entry of `corpus.files` that matched the file.
        weight: how often each document occurs.
    """

    path: str
    format: str
    num_bytes: int
    fingerprint: str
    row_groups: tuple[tuple[int, int], ...] | None = None
    schema: pa.Schema | None = None
    is_readable: bool = True
    source: str = ""
    weight: float = 1.0

    @property
    def facts(self) -> dict[str, Any]:
        """What the rows made from this file depend on, as JSON content for a plan."""
        facts = {"bytes": self.num_bytes, "fingerprint": self.fingerprint}
        return facts if self.weight == 1 else {**facts, "weight": self.weight}


def find_files(
    corpus: Corpus, outputs: Mapping[str, str] | None = None, *, with_fingerprints: bool = True
) -> list[SourceFile]:
    """Returns the files of a corpus, sorted by path, each once.

    Like Spark and Hive, it skips files and folders whose names start with `.` or `_`, both below folders and in globs,
    unless the glob spells that out.

    Args:
        corpus: names the files.
        outputs: setting -> folder; no file of the corpus may be in one of these folders.
        with_fingerprints: whether to compute fingerprints, which reads every file once. Only a manifest needs them.

    Raises:
        FileNotFoundError: a file, glob or folder matches nothing.
        ValueError: a file's name is not UTF-8, a file is in an output folder, its format is unknown, or a Parquet file
            has no text column. Also if a Parquet file is damaged or its text column has a wrong type, unless the
            settings allow that.
    """
    if corpus.sample == "known-answers":
        return [_make_known_answers_file()]
    found = _match_all(corpus)
    _refuse_names_that_are_not_utf8([metadata.path for metadata, _ in found])
    _refuse_outputs([metadata.path for metadata, _ in found], outputs or {})
    weights = dict(zip(corpus.files, corpus.weights, strict=False))
    with ThreadPoolExecutor(_INSPECTING_THREADS) as threads:
        inspected = threads.map(lambda entry: _inspect(entry[0], corpus, with_fingerprints), found)
        sources = [
            replace(file, source=source, weight=weights.get(source, 1.0))
            for file, (_, source) in zip(inspected, found, strict=True)
        ]
    _warn_about_unused_settings(corpus, {source.format for source in sources})
    return sources


def _warn_about_unused_settings(corpus: Corpus, formats: Collection[str]) -> None:
    """Warns about settings for formats that no file has."""
    for name, default, used_by in (("text_column", "text", {"parquet", "jsonl"}), ("text_document", "file", {"text"})):
        value = getattr(corpus, name)
        if value != default and corpus.sample is None and not used_by & set(formats):
            _logger.warning(
                "corpus.%s is %r, which has no effect: all files are %s", name, value, " or ".join(sorted(formats))
            )


def _make_known_answers_file() -> SourceFile:
    texts = [text for _, text in known_answer_documents()]
    num_bytes = sum(len(text.encode()) for text in texts)
    fingerprint = hashlib.sha256("\n".join(texts).encode()).hexdigest()
    return SourceFile("known-answers", "known-answers", num_bytes, fingerprint)


def _match_all(corpus: Corpus) -> list[tuple[StoredFile, str]]:
    """Returns each file of the corpus with the first entry of `corpus.files` that matches it, sorted by path."""
    found: dict[str, tuple[StoredFile, str]] = {}
    weights = dict(zip(corpus.files, corpus.weights, strict=False))
    for pattern in corpus.files or (sysconfig.get_paths()["stdlib"],):
        matched = _match_pattern(pattern, corpus)
        _warn_about_links(pattern)
        if not matched:
            raise FileNotFoundError(
                f"corpus.files: nothing matches {pattern!r}; give a file, a glob or a folder of files"
            )
        for metadata in matched:
            _, first = found.setdefault(_identify(metadata.path), (metadata, pattern))
            if weights.get(first) != weights.get(pattern):
                raise ValueError(
                    f"corpus.files: {metadata.path} is matched by {first!r} with weight {weights[first]} and by "
                    f"{pattern!r} with weight {weights[pattern]}; make one of the two narrower"
                )
    if corpus.sample == "python-stdlib":
        found = {path: m for path, m in found.items() if path.endswith(".py") and "site-packages" not in path}
    return sorted(found.values(), key=lambda metadata_source: metadata_source[0].path)


def _match_pattern(pattern: str, corpus: Corpus) -> list[StoredFile]:
    """Returns the files that one entry of `corpus.files` names: a file, a folder or, if neither exists, a glob."""
    if files.is_glob(pattern):
        fixed = find_glob_start(*files.split_glob(pattern)).rpartition("/")[0]
        shows_hidden = _has_hidden_part(pattern[len(fixed) :])
        return [m for m in files.match(pattern) if shows_hidden or not _has_hidden_part(m.path[len(fixed) :])]
    below = files.list_files(pattern)
    if below:
        data = [m for m in below if _is_data(m.path, pattern, corpus)]
        others = [m.path for m in below if _has_unknown_type(m.path, pattern, corpus)]
        if others:
            count = "1 file" if len(others) == 1 else f"{len(others):,} files"
            _logger.warning("%s: skipped %s of unknown type, such as %s", pattern, count, others[0])
        return data
    return files.match(pattern)


def _warn_about_links(pattern: str) -> None:
    """Warns about symbolic links to folders and to missing files, which Beam does not follow."""
    if "://" in pattern:
        return
    folder = pattern
    if files.is_glob(pattern):
        literal, glob = files.split_glob(pattern)
        if "**" not in glob:
            return
        folder = find_glob_start(literal, glob).rpartition("/")[0] or "."
    for root, folders, names in os.walk(folder):
        paths = [os.path.join(root, name) for name in [*folders, *names] if not name.startswith((".", "_"))]
        links = [path for path in paths if os.path.islink(path) and not os.path.isfile(path)]
        for path in links:
            _logger.warning(
                "%s: skipped, a symbolic link to %s; add the target to corpus.files to read it", path, os.readlink(path)
            )


def _refuse_names_that_are_not_utf8(paths: Sequence[str]) -> None:
    bad = [path for path in paths if not is_utf8(path)]
    if bad:
        raise ValueError(
            f"corpus.files: matches {bad[0]!r}, whose name is not UTF-8, so source_file and the manifest could not "
            "record it. Rename the file, or make corpus.files narrower"
        )


def _refuse_outputs(paths: Sequence[str], outputs: Mapping[str, str]) -> None:
    for setting, folder in outputs.items():
        inside = [path for path in paths if _identify(path).startswith(f"{_identify(folder).rstrip('/')}/")]
        if inside:
            raise ValueError(
                f"corpus.files: matches {inside[0]}, which is in {setting} ({folder}), so the job would read its own "
                "output. Put the output elsewhere, or make corpus.files narrower"
            )


def _has_hidden_part(path: str) -> bool:
    return any(part.startswith((".", "_")) for part in PurePosixPath(path).parts)


def _is_hidden_below(path: str, folder: str) -> bool:
    return _has_hidden_part(path[len(folder.rstrip("/")) + 1 :])


def _is_data(path: str, folder: str, corpus: Corpus) -> bool:
    """Returns whether a file below a folder is part of the corpus: not hidden, and of a known or the given format."""
    if _is_hidden_below(path, folder) and corpus.sample is None:
        return False
    return corpus.format != "auto" or corpus.sample is not None or find_format(path) is not None


def _has_unknown_type(path: str, folder: str, corpus: Corpus) -> bool:
    """Returns whether a file below a folder is skipped only because its format is unknown."""
    return corpus.sample is None and not (_is_data(path, folder, corpus) or _is_hidden_below(path, folder))


def _identify(path: str) -> str:
    """Returns the same string for every spelling of a local path; in an object store, each spelling is its own file."""
    return path if "://" in path else os.path.abspath(path)


def _inspect(metadata: StoredFile, corpus: Corpus, with_fingerprint: bool) -> SourceFile:
    path, num_bytes = metadata.path, int(metadata.num_bytes)
    given = "text" if corpus.sample else corpus.format
    name = find_format(path) if given == "auto" else given
    if name is None:
        raise ValueError(f"{path}: unknown file type; set corpus.format to parquet, jsonl or text")
    if "://" not in path and os.path.exists(path) and not os.path.isfile(path):
        raise ValueError(
            f"{path} is a pipe or a device, which cannot be read twice; save its content to a file, or leave it out"
        )
    contents, is_readable = FileContents(), True
    with files.open_raw(path) as file:
        fingerprint = fingerprint_file(file, num_bytes, corpus.fingerprint) if with_fingerprint else ""
        try:
            contents = FORMATS[name].inspect(file, path, num_bytes, corpus)
        except BadRowsError as error:
            if error.bad.policy(corpus) == "fail":
                raise
            is_readable = False
    return SourceFile(path, name, num_bytes, fingerprint, *contents, is_readable)
