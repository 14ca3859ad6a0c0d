"""Are training shards right? Everything in a finished output is read again and held against its manifest, its own
columns, the corpus and the tokenizer."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bpe_core.kernels import Int64s
from bpe_core.tokenizer import Tokenizer
from pipelines.checking.check import Check, Status
from pipelines.checking.row_checks import ROW_ARRAYS, ROW_CHECKS, Bools, RowGroup
from pipelines.reading.documents import read_task
from pipelines.reading.fingerprints import compute_sha256
from pipelines.reading.formats.raw_rows import FileSlice
from pipelines.reading.random_order import draw
from pipelines.reading.source_files import SourceFile, find_files
from pipelines.settings.corpus import Corpus
from pipelines.settings.shards import Shards
from pipelines.storage import files
from pipelines.storage.manifest import read_json
from pipelines.storage.output_files import MANIFEST, PLAN, PROVENANCE_COLUMNS, SUCCESS, TOKEN_COUNTS
from pipelines.tokenizing.bucket_choice import use_chosen_buckets
from pipelines.tokenizing.token_counts import read_token_counts

_AGAIN = "tokenmill tokenize makes them again"
_FIELDS = ("tokenizer", "settings", "vocabulary", "inputs", "counts", "buckets", "shards")

Document = tuple[str, int]
"""A file of the corpus and a row of it."""


def check_shards(
    folder: str,
    tokenizer: Tokenizer | None = None,
    *,
    sample: int = 1000,
    seed: int = 0,
    sources_may_be_gone: bool = False,
) -> Iterator[Check]:
    """Yields each check of a finished output of job 2; all shards are read, one row group at a time.

    A shard whose bytes are not those that were written fails `checksums`, and is not looked into.

    Args:
        tokenizer: that of the shards; without it nothing is encoded again.
        sample: documents that are encoded again, about; which ones depends on `seed` alone.
        sources_may_be_gone: a file of the corpus that is no longer there is no failure; its rows are not encoded again.
    """
    manifest = read_json(files.join(folder, MANIFEST))
    if manifest is None or not files.exists(files.join(folder, SUCCESS)):
        missing = MANIFEST if manifest is None else SUCCESS
        yield Check("manifest", "fail", f"{folder} holds no {missing}: it is not the finished output of job 2")
        return
    absent = [name for name in _FIELDS if name not in manifest]
    if absent:
        yield Check("manifest", "fail", f"{MANIFEST} has no {absent[0]!r}: another version wrote it, or it is damaged")
        return
    yield Check("manifest", "pass", f"{len(manifest['shards']):,} shards, {manifest['counts'].get('rows', 0):,} rows")
    output = _Output(folder, manifest)
    there = {m.path: int(m.num_bytes) for m in files.match(files.join(folder, "bucket=*", "**")) if m.path != folder}
    yield _check_files(output, there)
    read = _ReadShards(output, _Sample.of(manifest, sample, seed))
    checksums = _Tally()
    for shard in manifest["shards"]:
        if output.path(shard) in there:
            changed = [_has_changed(output, shard)] if "sha256" in shard else []
            if checksums.add(changed, shard["path"]):
                read.add(shard)
    yield _check_checksums(output, checksums)
    yield read.checked_counts().check("counts", "shards and buckets")
    for name, tally in read.rows.items():
        absent = [column for column in ROW_CHECKS[name].columns if column in output.absent_columns]
        yield tally.check(name, "rows", *[f"the shards have no column {column}" for column in absent[:1]])
    yield _check_token_counts(output, read)
    sources = _Sources(output)
    yield _check_provenance(read, sources, sources_may_be_gone)
    yield _check_encoding(output, read, sources, tokenizer)


class _Output:
    """A finished output: its folder, manifest and settings."""

    def __init__(self, folder: str, manifest: Mapping[str, Any]) -> None:
        self.folder = folder
        self.manifest = manifest
        given = dict(manifest["settings"]["shards"])
        if given.get("buckets") or given.get("row_length"):
            given.pop("bucket_lengths", None)  # There by default only.
        settings = Shards(**given, output=folder)
        self.settings = use_chosen_buckets(settings, manifest["bucket_choice"]) if settings.buckets else settings
        self.vocab_size = int(manifest["vocabulary"]["size"])
        self.pad_id = int(manifest["vocabulary"]["pad_id"])
        self.absent_columns = set() if settings.labels else {"labels"}
        if settings.layout == "padded":
            self.absent_columns |= {"position_ids", "segment_ids"}

    def path(self, shard: Mapping[str, Any]) -> str:
        """Returns where a shard of the manifest is."""
        return files.join(self.folder, *shard["path"].split("/"))

    def shorter(self, bucket: int) -> int:
        """Returns the next smaller bucket; 0 where there is none, or rows are packed."""
        smaller = [length for length in self.settings.bucket_lengths if length < bucket]
        return max(smaller, default=0) if self.settings.layout == "padded" else 0


@dataclass
class _Tally:
    """How many things were looked at, how many are wrong, and where the first of those is."""

    number: int = 0
    wrong: int = 0
    first: str = ""

    def add(self, wrong: npt.ArrayLike, shard: str, first_row: int | None = None) -> bool:
        """Takes for each thing whether it is wrong; returns whether all are right."""
        found = np.asarray(wrong, bool)
        if found.any() and not self.first:
            self.first = shard if first_row is None else f"{shard}, row {first_row + int(found.argmax())}"
        self.number += found.size
        self.wrong += int(found.sum())
        return not found.any()

    def check(self, name: str, things: str, nothing: str = "no shard could be read") -> Check:
        """Returns the check; `nothing` says why there was nothing to look at."""
        values = {things: self.number, "wrong": self.wrong}
        if not self.number:
            return Check(name, "skip", nothing, values)
        if self.wrong:
            return Check(name, "fail", f"{self.wrong:,} of {self.number:,} {things}; the first is {self.first}", values)
        return Check(name, "pass", f"{self.number:,} {things}", values)


def _check_files(output: _Output, there: Mapping[str, int]) -> Check:
    """The folders of buckets hold the shards of the manifest, and nothing else."""
    listed = {output.path(shard) for shard in output.manifest["shards"]}
    missing, unlisted = sorted(listed - set(there)), sorted(set(there) - listed)
    values = {"files": len(there), "missing": len(missing), "unlisted": len(unlisted)}
    if not missing and not unlisted:
        return Check("files", "pass", f"{len(there):,} files, as the manifest lists them", values)
    parts = [f"{len(missing):,} are missing, the first is {missing[0]}; {_AGAIN}"] if missing else []
    parts += [f"{len(unlisted):,} are not in the manifest, the first is {unlisted[0]}"] if unlisted else []
    return Check("files", "fail", "; ".join(parts), values)


def _check_checksums(output: _Output, tally: _Tally) -> Check:
    recorded = any("sha256" in shard for shard in output.manifest["shards"])
    check = tally.check("checksums", "shards", "no shard is there" if recorded else "the manifest has no checksums")
    if check.status == "fail":
        return replace(check, summary=f"{check.summary}; delete each such file, then {_AGAIN}")
    return check


def _has_changed(output: _Output, shard: Mapping[str, Any]) -> bool:
    with files.open_raw(output.path(shard)) as file:
        return compute_sha256(file) != str(shard["sha256"])


class _ReadShards:
    """What reading all shards found."""

    def __init__(self, output: _Output, sample: "_Sample") -> None:
        self._output = output
        self.sample = sample
        self.counts = _Tally()
        self.rows = {name: _Tally() for name in ROW_CHECKS}
        self.token_counts = np.zeros(output.vocab_size, np.int64)
        self.last_rows: dict[str, int] = {}
        self.num_shards = 0
        self.totals: dict[int, Counter[str]] = defaultdict(Counter)
        self.unknown_sources = _Tally()

    def add(self, shard: Mapping[str, Any]) -> None:
        """Reads one shard of the manifest."""
        self.num_shards += 1
        num_rows = num_tokens = 0
        with files.open_raw(self._output.path(shard)) as file:
            parquet = pq.ParquetFile(file)
            for group in range(parquet.num_row_groups):
                table = parquet.read_row_group(group)
                self._add_rows(table, shard, num_rows)
                num_rows += table.num_rows
                num_tokens += int(np.asarray(table["length"]).sum())
        self.counts.add([(num_rows, num_tokens) != (shard["rows"], shard["tokens"])], shard["path"])
        self.totals[shard["bucket"]].update(rows=num_rows, tokens=num_tokens)

    def checked_counts(self) -> _Tally:
        """Returns the counts of shards and, where all could be read, of buckets and of all rows held against them."""
        manifest = self._output.manifest
        if self.num_shards == len(manifest["shards"]):
            for bucket, facts in manifest["buckets"].items():
                found = self.totals[int(bucket)]
                self.counts.add([any(found[key] != facts[key] for key in ("rows", "tokens"))], f"bucket {bucket}")
            rows, tokens = (sum(found[key] for found in self.totals.values()) for key in ("rows", "tokens"))
            counts = Counter(manifest["counts"])
            self.counts.add([(rows, tokens) != (counts["rows"], counts["row_tokens"])], "the sum of all")
        return self.counts

    def _add_rows(self, table: pa.Table, shard: Mapping[str, Any], first_row: int) -> None:
        output, bucket, path = self._output, int(shard["bucket"]), str(shard["path"])
        lists = [name for name in ROW_ARRAYS if name in table.column_names]
        misfits = np.any([_list_sizes(table, name) != bucket for name in lists], axis=0)
        if misfits.any():
            self.rows["bucket"].add(misfits, path, first_row)
            return
        columns = {name: np.asarray(table[name].combine_chunks().flatten()).reshape(-1, bucket) for name in lists}
        lengths = np.asarray(table["length"]).astype(np.int64)
        has_provenance = PROVENANCE_COLUMNS[0] in table.column_names
        per_row = None
        if has_provenance and output.settings.layout == "packed":
            per_row = _list_sizes(table, PROVENANCE_COLUMNS[0])
        rows = RowGroup(bucket, output.shorter(bucket), output.vocab_size, output.pad_id, lengths, columns, per_row)
        for name, check in ROW_CHECKS.items():
            if set(check.columns) <= set(columns):
                self.rows[name].add(check.wrong(rows), path, first_row)
        ids = columns["input_ids"][rows.is_token]
        known = ids[(ids >= 0) & (ids < output.vocab_size)]
        self.token_counts += np.bincount(known, minlength=output.vocab_size)
        if has_provenance:
            self._add_provenance(table, rows, path, first_row)

    def _add_provenance(self, table: pa.Table, rows: RowGroup, path: str, first_row: int) -> None:
        sources, source_rows, parts = (table[name].combine_chunks() for name in PROVENANCE_COLUMNS)
        if rows.segments_in_row is not None:
            sources, source_rows, parts = sources.flatten(), source_rows.flatten(), parts.flatten()
        encoded = sources.dictionary_encode()
        names, of = encoded.dictionary.to_pylist(), np.asarray(encoded.indices)
        numbers, part_numbers = np.asarray(source_rows), np.asarray(parts)
        unknown = np.array([name not in self._output.manifest["inputs"] for name in names], bool)[of]
        at_row = np.repeat(np.arange(rows.lengths.size), 1 if rows.segments_in_row is None else rows.segments_in_row)
        self.unknown_sources.add(np.bincount(at_row, unknown | (numbers < 0), rows.lengths.size) > 0, path, first_row)
        for index, name in enumerate(names):
            self.last_rows[name] = max(self.last_rows.get(name, -1), int(numbers[of == index].max()))
        chosen = np.flatnonzero(self.sample.chooses(names, of, numbers))
        if chosen.size:
            ids = rows.columns["input_ids"]
            starts, stops = rows.segment_bounds
            for at in chosen[chosen < starts.size].tolist():
                document = names[of[at]], int(numbers[at])
                self.sample.add(document, int(part_numbers[at]), ids.reshape(-1)[starts[at] : stops[at]].tolist())


def _list_sizes(table: pa.Table, name: str) -> Int64s:
    return np.diff(np.asarray(table[name].combine_chunks().offsets)).astype(np.int64)


@dataclass
class _Sample:
    """Documents to encode again, drawn by file, row and seed, so that all rows of one are met.

    Attributes:
        weighted: a document may occur several times.
        below: documents with a smaller hash are in the sample.
        found: the ids of each part of a document.
    """

    below: int
    seed: int
    weighted: bool
    found: dict[Document, dict[int, list[int]]] = field(default_factory=lambda: defaultdict(dict))
    repeated: set[Document] = field(default_factory=set)

    @classmethod
    def of(cls, manifest: Mapping[str, Any], size: int, seed: int) -> "_Sample":
        """Returns an empty sample of about `size` of the documents in the shards."""
        below = min(1 << 64, (size << 64) // max(1, manifest["counts"].get("documents_in_rows", 0)))
        return cls(below, seed, bool(manifest["counts"].get("repeated_documents")))

    def chooses(self, names: list[str], of: npt.NDArray[Any], rows: npt.NDArray[Any]) -> Bools:
        """Returns which documents are in the sample; `of` says which of `names` each is in."""
        if self.below >= 1 << 64:
            return np.ones(rows.size, bool)
        drawn = np.zeros(rows.size, np.uint64)
        for index, name in enumerate(names):
            drawn[of == index] = draw(self.seed, "verify", name, rows[of == index])
        return drawn < np.uint64(self.below)

    def add(self, document: Document, part: int, ids: list[int]) -> None:
        """Takes a part of a document."""
        if part in self.found[document] and not (self.weighted and self.found[document][part] == ids):
            self.repeated.add(document)
        self.found[document][part] = ids


def _check_token_counts(output: _Output, read: _ReadShards) -> Check:
    """The counts by id are those of the shards."""
    name, path = "token counts", files.join(output.folder, TOKEN_COUNTS)
    if read.num_shards < len(output.manifest["shards"]) or read.rows["vocabulary"].wrong:
        return Check(name, "skip", "not all shards could be read, or ids are not of the vocabulary")
    if not files.exists(path):
        return Check(name, "fail", f"{path} is missing")
    kept = read_token_counts(path)
    values = {"ids": output.vocab_size, "tokens": int(read.token_counts.sum())}
    if kept.shape != read.token_counts.shape:
        return Check(
            name, "fail", f"{TOKEN_COUNTS} is of shape {kept.shape}, and there are {output.vocab_size} ids", values
        )
    wrong = np.flatnonzero(kept != read.token_counts)
    if wrong.size:
        id_ = int(wrong[0])
        summary = f"{wrong.size:,} ids; the first is {id_}: {kept[id_]:,} kept, {read.token_counts[id_]:,} in shards"
        return Check(name, "fail", summary, values)
    unused = int((kept == 0).sum())
    return Check(name, "pass", f"{values['tokens']:,} tokens, {unused:,} of {kept.size:,} ids do not occur", values)


# The corpus.


class _Sources:
    """The files of the corpus, as they are now."""

    def __init__(self, output: _Output) -> None:
        plan = read_json(files.join(output.folder, PLAN)) or {"tasks": {}}
        formats = {file_slice["path"]: file_slice["format"] for task in plan["tasks"].values() for file_slice in task}
        given = output.manifest["settings"]["corpus"]
        self._settings = {name: value for name, value in given.items() if not name.startswith("weight")}
        self.are_named = output.settings.provenance
        self.found: dict[str, SourceFile] = {}
        self.gone: list[str] = []
        self.unreadable: list[str] = []
        self.changed: list[str] = []
        for path, recorded in output.manifest["inputs"].items():
            try:
                [source] = find_files(self.corpus(path, formats.get(path, "auto")))
            except FileNotFoundError:
                self.gone.append(path)
                continue
            except ValueError as error:
                self.unreadable.append(str(error))
                continue
            self.found[path] = source
            if source.fingerprint != recorded["fingerprint"]:
                self.changed.append(path)

    def corpus(self, path: str, format: str) -> Corpus:
        """Returns the settings to read one file as the job read it."""
        if format == "known-answers":
            return Corpus(**{**self._settings, "sample": format})
        return Corpus(**{**self._settings, "files": path, "format": format})

    def texts(self, path: str, rows: Iterable[int]) -> Iterator[tuple[int, str]]:
        """Yields the texts of some rows of a file, with their rows; rows that are not there are passed over."""
        source, wanted = self.found[path], np.array(sorted(rows))
        for file_slice in _slices_with_rows(source, wanted):
            for batch in read_task((file_slice,), self.corpus(path, source.format), Counter()):
                at = np.isin(batch.rows, wanted)
                texts = batch.texts.filter(pa.array(at)).to_pylist()
                yield from zip(batch.rows[at].tolist(), texts, strict=True)

    def num_rows(self, path: str) -> int:
        """Returns how many rows a file has: of Parquet, or up to the last document of another file."""
        source = self.found[path]
        if source.format == "parquet":
            return sum(rows for rows, _ in source.row_groups or ())
        file_slices = _slices_with_rows(source, np.zeros(0, np.int64))
        batches = read_task(tuple(file_slices), self.corpus(path, source.format), Counter())
        return 1 + max((int(batch.rows[-1]) for batch in batches), default=-1)


def _slices_with_rows(source: SourceFile, wanted: Int64s) -> Iterator[FileSlice]:
    """Yields the row groups that hold some of the rows wanted, or all of a file that is not Parquet."""
    if source.format != "parquet":
        yield FileSlice(source.path, source.format, None, 0, source.num_bytes)
    first = 0
    for index, (num_rows, num_bytes) in enumerate(source.row_groups or ()):
        if ((wanted >= first) & (wanted < first + num_rows)).any():
            yield FileSlice(source.path, "parquet", (index, index + 1), first, num_bytes)
        first += num_rows


def _check_provenance(read: _ReadShards, sources: _Sources, may_be_gone: bool) -> Check:
    """Every row comes from a row of a file of the corpus, and these files are there as they were."""
    tally = read.unknown_sources
    values = {"rows": tally.number, "files": len(sources.found), "gone": len(sources.gone), "wrong": tally.wrong}
    if not tally.number:
        nothing = "the shards do not name their sources (shards.provenance)"
        return Check("provenance", "skip", "no shard could be read" if sources.are_named else nothing, values)
    wrong = []
    gone = f"{len(sources.gone):,} files are not there, the first is {sources.gone[0]}" if sources.gone else ""
    if gone and not may_be_gone:
        wrong.append(gone)
    if sources.unreadable:
        wrong.append(f"{len(sources.unreadable):,} files cannot be read: {sources.unreadable[0]}")
    if sources.changed:
        wrong.append(f"{len(sources.changed):,} files have changed, the first is {sources.changed[0]}")
    if tally.wrong:
        wrong.append(f"{tally.wrong:,} rows name no row of a file of the corpus; the first is {tally.first}")
    for path, last in sorted(read.last_rows.items()):
        if path in sources.found and path not in sources.changed and last >= sources.num_rows(path):
            wrong.append(f"{path} has {sources.num_rows(path):,} rows, and there are shards with row {last:,} of it")
    status: Status = "fail" if wrong else "pass"
    right = [f"{tally.number:,} rows, {len(sources.found):,} files as they were", *([gone] if gone else [])]
    return Check("provenance", status, "; ".join(wrong or right), values)


def _check_encoding(output: _Output, read: _ReadShards, sources: _Sources, tokenizer: Tokenizer | None) -> Check:
    """The documents of the sample, encoded again and cut, are their rows."""
    name, sample = "re-encoding", read.sample
    if tokenizer is None:
        return Check(name, "skip", "no tokenizer was given")
    recorded = output.manifest["tokenizer"]
    if tokenizer.fingerprint != recorded:
        summary = f"the tokenizer is {tokenizer.fingerprint[:12]}, and the shards were written with {recorded[:12]}"
        return Check(name, "fail", summary)
    wanted: dict[str, list[int]] = defaultdict(list)
    for path, row in sample.found:
        if path in sources.found and path not in sources.changed:
            wanted[path].append(row)
    number, wrong = 0, set(sample.repeated)
    for path in sorted(wanted):
        try:
            for row, text in sources.texts(path, wanted[path]):
                number += 1
                parts = dict(enumerate(_cut(_encode(text, tokenizer, output.settings), output.settings)))
                if sample.found[path, row] != parts:
                    wrong.add((path, row))
        except ValueError as error:
            return Check(name, "fail", f"{path} cannot be read: {error}")
    values = {"documents": number, "wrong": len(wrong)}
    if not number:
        return Check(name, "skip", "no document was chosen, or its file is not there", values)
    if wrong:
        path, row = min(wrong)
        return Check(name, "fail", f"{len(wrong):,} of {number:,} documents; the first is {path}, row {row}", values)
    return Check(name, "pass", f"{number:,} documents give the same rows", values)


def _encode(text: str, tokenizer: Tokenizer, settings: Shards) -> list[int]:
    ids = tokenizer.encode(text, special=settings.special_in_text)
    begin = [tokenizer.special_id("bos")] if settings.begin_token else []
    end = [tokenizer.special_id("eos")] if settings.end_token else []
    return [id_ for id_ in [*begin, *ids, *end] if id_ is not None] if ids else []


def _cut(ids: list[int], settings: Shards) -> list[list[int]]:
    """Returns the rows of a document, written out plainly: not by what is being checked."""
    longest, overlap = settings.longest_row, settings.overlap
    if len(ids) <= longest:
        return [ids] if ids else []
    if settings.on_overflow != "split":
        return [ids[:longest]] if settings.on_overflow == "truncate" else []
    return [ids[start : start + longest] for start in range(0, len(ids) - overlap, longest - overlap)]
