"""Exact duplicates: which documents both jobs leave out, and what their manifests say."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from bpe_core import PreTokenizer, Tokenizer
from pipelines.reading import deduplicate
from pipelines.reading.deduplicate import DuplicateSummary, HashFile, TaskDuplicates, compare_part, find_duplicates
from pipelines.reading.documents import read_task
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import Task, name_task, plan_tasks
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.project_file import load_project
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus
from pipelines.training.train_tokenizer import train_tokenizer
from pipelines.training.word_counts import read_word_counts

PLAIN = PreTokenizer(("x",))
TEXTS = ["the cat", "the cat ", "The cat", "größer", "gro\u0308ßer", "猫", "", " ", "\n", "a b c " * 30]


def write(path: Path, texts: list[str | None]) -> Path:
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), path, row_group_size=7)
    return path


def write_corpus(folder: Path) -> Path:
    chance = random.Random(5)
    for name in "cab":
        write(folder / f"{name}.parquet", [chance.choice([*TEXTS, None]) for _ in range(40)])
    (folder / "d.jsonl").write_text('{"text": "猫"}\n\n{"text": "only here"}\n{"text": "only here"}\n')
    return folder


def first_places(corpus: Path, pre_tokenizer: PreTokenizer = PLAIN) -> tuple[list[tuple[str, int]], Counter[str]]:
    """A slow reference: returns the places of the documents that stay, and the number left out of each file."""
    seen: set[str] = set()
    kept, left_out = [], Counter[str]()
    settings = Corpus(files=(str(corpus),))
    for task in plan_tasks(find_files(settings)):
        for batch in read_task(task, settings, Counter()):
            for row, text in zip(batch.rows.tolist(), batch.texts.to_pylist(), strict=True):
                if not text:
                    continue
                if pre_tokenizer.normalize(text) in seen:
                    left_out[batch.path] += 1
                else:
                    kept.append((batch.path, row))
                seen.add(pre_tokenizer.normalize(text))
    return kept, left_out


def find(
    corpus: Path, folder: Path, pre_tokenizer: PreTokenizer = PLAIN, workers: int = 1, task_bytes: int = 100
) -> tuple[dict[str, Task], DuplicateSummary]:
    settings = Corpus(files=(str(corpus),), deduplicate="exact")
    sources = find_files(settings)
    tasks = {name_task(task): task for task in plan_tasks(sources, task_bytes)}
    fingerprints = {source.path: source.fingerprint for source in sources}
    return tasks, find_duplicates(tasks, fingerprints, settings, pre_tokenizer, str(folder), Run(workers=workers))


def kept_places(corpus: Path, tasks: dict[str, Task], folder: Path) -> list[tuple[str, int]]:
    settings = Corpus(files=(str(corpus),), deduplicate="exact")
    counts: Counter[str] = Counter()
    return [
        (batch.path, row)
        for name, task in tasks.items()
        for batch in TaskDuplicates.read(settings, str(folder), name).drop_from(
            read_task(task, settings, counts), counts
        )
        for row, text in zip(batch.rows.tolist(), batch.texts.to_pylist(), strict=True)
        if text
    ]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("deduplicate") / "corpus")


@pytest.mark.parametrize(
    ("pre_tokenizer", "task_bytes"),
    [
        (PLAIN, 1),
        (PLAIN, 1 << 20),
        (PreTokenizer(("x",), unicode="NFC"), 150),
        (PreTokenizer(("x",), lowercase=True), 150),
    ],
    ids=str,
)
def test_the_first_document_in_the_order_of_files_and_rows_stays(
    corpus: Path, tmp_path: Path, pre_tokenizer: PreTokenizer, task_bytes: int
) -> None:
    kept, left_out = first_places(corpus, pre_tokenizer)
    tasks, found = find(corpus, tmp_path, pre_tokenizer, task_bytes=task_bytes)
    assert kept_places(corpus, tasks, tmp_path) == kept
    assert found.by_file == left_out
    assert found.to_json() == {"documents": left_out.total(), "by_file": dict(sorted(left_out.items()))}


def test_how_files_are_divided_into_tasks_does_not_matter(corpus: Path, tmp_path: Path) -> None:
    settings = Corpus(files=(str(corpus),), deduplicate="exact")
    sources = find_files(settings)
    file_slices = [file_slice for task in plan_tasks(sources, 1) for file_slice in task]
    random.Random(3).shuffle(file_slices)
    tasks = {f"t{n}": tuple(file_slices[n::4]) for n in range(4)}
    fingerprints = {source.path: source.fingerprint for source in sources}
    found = find_duplicates(tasks, fingerprints, settings, PLAIN, str(tmp_path), Run(workers=1))
    kept, left_out = first_places(corpus)
    assert sorted(kept_places(corpus, tasks, tmp_path)) == kept
    assert found.by_file == left_out


def test_normalisation_decides_what_is_equal(corpus: Path) -> None:
    plain, composed, lower = (
        first_places(corpus, words)[1].total()
        for words in (PLAIN, PreTokenizer(("x",), unicode="NFC"), PreTokenizer(("x",), lowercase=True))
    )
    assert plain < composed
    assert plain < lower


@pytest.mark.slow
def test_workers_do_not_matter(corpus: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        find(corpus, tmp_path / str(workers), workers=workers)
    one, two = ({path.name: path.read_bytes() for path in (tmp_path / n).iterdir()} for n in ("1", "2"))
    assert one == two
    assert {name.partition(".")[2] for name in one} == {"hashes", "parquet"}


@pytest.mark.parametrize("num_parts", [2, 3, 64])
def test_all_parts_together_find_all_duplicates(corpus: Path, tmp_path: Path, num_parts: int) -> None:
    tasks, _ = find(corpus, tmp_path)
    order = sorted({file_slice.path for task in tasks.values() for file_slice in task})
    hashed = {
        name: HashFile(
            next(tmp_path.glob(f"{name}-*.hashes")).name, tuple(order.index(file_slice.path) for file_slice in task)
        )
        for name, task in tasks.items()
    }

    def places(num_parts: int) -> dict[str, list[Any]]:
        found: dict[str, list[Any]] = {}
        for part in range(num_parts):
            for name, raw in compare_part(part, num_parts, str(tmp_path), hashed):
                found.setdefault(name, []).extend(np.frombuffer(raw, deduplicate._SLICE_ROW).tolist())
        return {name: sorted(found[name]) for name in sorted(found)}

    assert places(1)
    assert places(num_parts) == places(1)


@pytest.mark.slow
def test_a_large_corpus_is_compared_in_many_parts(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = find(corpus, tmp_path / "one")[1]
    seen = tmp_path / "seen"  # The function is pickled for the workers, so it writes to a folder.

    def compare(part: int, num_parts: int, *rest: Any) -> Any:
        with seen.open("a") as file:
            file.write(f"{num_parts}\n")
        return compare_part(part, num_parts, *rest)

    monkeypatch.setattr(deduplicate, "compare_part", compare)
    monkeypatch.setattr(deduplicate, "_TEXT_BYTES_PER_PART", 300)
    assert find(corpus, tmp_path / "many")[1] == whole
    lines = seen.read_text().splitlines()
    assert lines == [str(len(lines))] * len(lines)
    assert len(lines) > 3


@pytest.mark.slow
def test_hashes_are_kept_until_their_file_or_the_normalisation_changes(tmp_path: Path) -> None:
    corpus, folder = write_corpus(tmp_path / "corpus"), tmp_path / "found"

    def hashes() -> dict[str, int]:
        return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.hashes")}

    find(corpus, folder, task_bytes=1)
    before = hashes()
    find(corpus, folder, task_bytes=1)
    assert hashes() == before
    write(corpus / "b.parquet", ["the cat"])
    find(corpus, folder, task_bytes=1)
    after = hashes()
    of_b = sum(path.endswith("b.parquet") for path in map(str, corpus.iterdir()))
    assert before.items() & after.items() == {item for item in before.items() if item[0] in after}
    assert len(after.keys() - before.keys()) == of_b
    find(corpus, folder, PreTokenizer(("x",), lowercase=True), task_bytes=1)
    assert not hashes().keys() & after.keys()


def test_a_document_comes_back_if_the_first_one_is_removed(tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    write(corpus / "a.parquet", ["x", "y"])
    write(corpus / "b.parquet", ["y", "z"])
    tasks, before = find(corpus, tmp_path / "found", task_bytes=1)
    assert kept_places(corpus, tasks, tmp_path / "found")[2:] == [(str(corpus / "b.parquet"), 1)]
    (corpus / "a.parquet").unlink()
    tasks, after = find(corpus, tmp_path / "found", task_bytes=1)
    assert kept_places(corpus, tasks, tmp_path / "found") == [(str(corpus / "b.parquet"), row) for row in (0, 1)]
    (name,) = tasks
    assert before.by_task[name] != ""
    assert after.by_task == {name: ""}
    assert after.by_file == {}


# In the jobs.


def tokenizing(corpus: Path, output: Path, **shards: Any) -> Project:
    settings = {"bucket_lengths": (8, 16, 256), "task_bytes": 100, **shards}
    return Project(
        corpus=Corpus(files=(str(corpus),), deduplicate="exact"),
        shards=Shards(output=str(output), tokenizer=str(output.parent / "tokenizer"), **settings),
        run=Run(workers=1, progress=False),
    )


@pytest.fixture
def tokenizer(tmp_path: Path) -> Tokenizer:
    trained = Tokenizer.train(TEXTS, vocab_size=270, special_tokens={"eos": "<eos>"})
    trained.save(tmp_path / "tokenizer")
    return trained


def places_in(output: Path) -> list[tuple[str, int]]:
    tables = [pq.ParquetFile(path).read() for path in output.glob("bucket=*/*.parquet")]
    return sorted((row["source_file"], row["source_row"]) for table in tables for row in table.to_pylist())


def test_job_2_leaves_out_duplicates_and_counts_them(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    kept, left_out = first_places(corpus)
    manifest = tokenize_corpus(tokenizing(corpus, tmp_path / "shards"))
    assert places_in(tmp_path / "shards") == sorted(kept)
    assert manifest["counts"]["duplicate_documents"] == left_out.total()
    assert manifest["duplicates"] == {"documents": left_out.total(), "by_file": dict(sorted(left_out.items()))}


def test_nothing_is_left_out_by_default(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    project = tokenizing(corpus, tmp_path / "shards")
    manifest = tokenize_corpus(project.model_copy(update={"corpus": Corpus(files=(str(corpus),))}))
    kept, left_out = first_places(corpus)
    assert len(places_in(tmp_path / "shards")) == len(kept) + left_out.total()
    assert manifest["duplicates"] is None
    assert "duplicate_documents" not in manifest["counts"]
    assert not (tmp_path / "shards" / "_duplicates").exists()


def test_the_old_document_stays_in_a_later_run(tmp_path: Path, tokenizer: Tokenizer) -> None:
    corpus, output = tmp_path / "corpus", tmp_path / "shards"
    old = write(corpus / "b.parquet", ["the cat", "猫", "the cat"])
    tokenize_corpus(tokenizing(corpus, output))
    shards = {path: path.stat().st_mtime_ns for path in output.glob("bucket=*/*")}
    new = write(corpus / "a.parquet", ["new", "猫", "new"])  # Sorts before the old file by name.
    manifest = tokenize_corpus(tokenizing(corpus, output))
    assert places_in(output) == [(str(new), 0), (str(old), 0), (str(old), 1)]
    assert shards.items() <= {path: path.stat().st_mtime_ns for path in output.glob("bucket=*/*")}.items()
    assert manifest["duplicates"] == {"documents": 3, "by_file": {str(new): 2, str(old): 1}}


def test_a_lost_shard_is_written_again_without_duplicates(corpus: Path, tmp_path: Path, tokenizer: Tokenizer) -> None:
    output = tmp_path / "shards"
    manifest = tokenize_corpus(tokenizing(corpus, output))
    before = {path: path.read_bytes() for path in output.glob("bucket=*/*")}
    min(before).unlink()
    assert tokenize_corpus(tokenizing(corpus, output)) == manifest
    assert {path: path.read_bytes() for path in output.glob("bucket=*/*")} == before


def test_job_1_counts_each_document_once(corpus: Path, tmp_path: Path) -> None:
    project = Project(
        corpus=Corpus(files=(str(corpus),), deduplicate="exact"),
        tokenizer=TokenizerSettings(num_merges=5, unicode="NFC"),
        train=Train(output=str(tmp_path)),
        run=Run(workers=1, progress=False),
    )
    train_tokenizer(project)
    pre_tokenizer = TokenizerSettings(num_merges=5, unicode="NFC").pre_tokenizer
    kept, left_out = first_places(corpus, pre_tokenizer)
    texts = {pre_tokenizer.normalize(text) for text in [*TEXTS, "only here"]}
    expected = Counter(word.encode() for text in texts for word in pre_tokenizer.split(text))
    counted, _ = read_word_counts(str(tmp_path / "word_counts"))
    assert dict(zip(counted["word"].to_pylist(), counted["count"].to_pylist(), strict=True)) == expected
    assert len(kept) == len(texts - {""})
    said = read_json(str(tmp_path / "_manifest.json"))["corpus"]
    assert said["duplicates"] == {"documents": left_out.total(), "by_file": dict(sorted(left_out.items()))}
    assert said["duplicate_documents"] == left_out.total()
    assert {path.suffix for path in (tmp_path / "word_counts" / "_duplicates").iterdir()} == {".parquet"}


def test_off_may_be_written_without_quotes_in_yaml(tmp_path: Path) -> None:
    for value in ("off", "exact"):
        path = tmp_path / "project.yaml"
        path.write_text(f"corpus: {{files: x, deduplicate: {value}}}\n")
        assert load_project(str(path)).corpus.deduplicate == value
    path.write_text(yaml.safe_dump({"corpus": {"files": "x", "deduplicate": "fuzzy"}}))
    with pytest.raises(ValueError, match=r"corpus.deduplicate: .*'off' or 'exact'"):
        load_project(str(path))
