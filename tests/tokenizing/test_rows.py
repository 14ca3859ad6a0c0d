"""Rows in the shards of job 2: chosen buckets, packed rows, shuffled rows, and rows of weighted sources."""

import random
from collections import Counter
from collections.abc import Sequence
from itertools import groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bpe_core.tokenizer import Tokenizer
from pipelines.loader import Batching, ShardBatches
from pipelines.reading.formats.raw_rows import FileSlice
from pipelines.reading.random_order import draw, number_copies
from pipelines.reading.source_files import SourceFile, find_files
from pipelines.reading.tasks import Task, plan_tasks
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.shards import BucketChoice, Shards
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.bucket_choice import describe_choice
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus
from pipelines.training.train_tokenizer import train_tokenizer
from pipelines.training.word_counts import read_word_counts

Row = dict[str, Any]

ROW_LENGTH = 48


def document(chance: random.Random, num_words: int) -> str:
    return " ".join(chance.choice(["the", "cat", "sat", "on", "größer", "猫坐在", "x=1"]) for _ in range(num_words))


def write_corpus(folder: Path, names: Sequence[str] = ("a", "b"), num_documents: int = 40) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for seed, name in enumerate(names):
        chance = random.Random(seed)
        texts = [document(chance, chance.choice([1, 2, 3, 8, 20, 60])) for _ in range(num_documents)]
        texts[3:5] = [None, ""]  # type: ignore[list-item]
        table = pa.table({"text": texts, "id": [f"{name}{row}" for row in range(num_documents)]})
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=8)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("rows") / "corpus")


@pytest.fixture(scope="module")
def tokenizer(corpus: Path) -> Path:
    texts = [text for path in corpus.glob("*.parquet") for text in pq.read_table(path)["text"].to_pylist() if text]
    folder = corpus.parent / "tokenizer"
    Tokenizer.train(texts, num_merges=20, special_tokens={"bos": "<bos>", "eos": "<eos>", "pad": "<pad>"}).save(folder)
    return folder


def run(
    corpus: Path | Sequence[str], tokenizer: Path, output: Path, *, workers: int = 1, weights: Any = None, **shards: Any
) -> dict[str, Any]:
    """Runs job 2 and returns its manifest."""
    patterns = (str(corpus),) if isinstance(corpus, Path) else tuple(corpus)
    mix = {} if weights is None else {"weights": weights}
    return tokenize_corpus(
        Project(
            corpus=Corpus(files=patterns, **mix),
            shards=Shards(output=str(output), tokenizer=str(tokenizer), **{"task_bytes": 1500, **shards}),
            run=Run(workers=workers, progress=False),
        )
    )


def shards_in(output: Path) -> dict[str, list[Row]]:
    """Returns the rows of each shard by its path."""
    paths = sorted(output.glob("bucket=*/*.parquet"))
    return {str(path.relative_to(output)): pq.ParquetFile(path).read().to_pylist() for path in paths}


def rows_in(output: Path) -> list[Row]:
    return [row for rows in shards_in(output).values() for row in rows]


def place(row: Row) -> tuple[str, int, int]:
    return row["source_file"], row["source_row"], row["source_part"]


def bytes_in(output: Path) -> dict[str, bytes]:
    return {str(path.relative_to(output)): path.read_bytes() for path in output.glob("bucket=*/*.parquet")}


# Chosen buckets.

CHOICE = {"count": 4, "max_length": 64, "multiple_of": 4}


def chosen_for(lengths: list[int], choice: dict[str, int]) -> dict[str, Any]:
    num_rows = np.bincount(np.array(lengths), minlength=choice["max_length"] + 1)
    return describe_choice(num_rows, BucketChoice(**choice))


@pytest.mark.parametrize("on_overflow", ["split", "truncate", "drop"])
def test_buckets_are_chosen_for_the_rows_that_are_written(
    corpus: Path, tokenizer: Path, tmp_path: Path, on_overflow: str
) -> None:
    manifest = run(corpus, tokenizer, tmp_path, buckets=CHOICE, on_overflow=on_overflow, workers=2)
    rows = rows_in(tmp_path)
    choice = manifest["bucket_choice"]
    assert choice == chosen_for([row["length"] for row in rows], CHOICE)
    assert [int(bucket) for bucket in manifest["buckets"]] == choice["bucket_lengths"]
    assert len(choice["bucket_lengths"]) == 4
    places = sum(int(bucket) * of["rows"] for bucket, of in manifest["buckets"].items())
    assert choice["padding_share"] == round(1 - choice["tokens"] / places, 6)
    assert choice["padding_share"] < choice["equal_width"]["padding_share"]
    assert not list(tmp_path.glob("_temporary*"))


def test_a_later_run_keeps_the_chosen_buckets(
    tokenizer: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = write_corpus(tmp_path / "corpus", ["a"])
    short = pa.table({"text": ["the cat", "on"], "id": ["s", "t"]})
    pq.write_table(short, corpus / "a.parquet")
    first = run(corpus, tokenizer, tmp_path / "out", buckets=CHOICE)
    assert "buckets [4], chosen for 2 rows" in capsys.readouterr().err
    write_corpus(corpus, ["b"])
    again = run(corpus, tokenizer, tmp_path / "out", buckets=CHOICE)
    assert "chosen by the first run on this output" in capsys.readouterr().err
    assert again["bucket_choice"] == first["bucket_choice"]
    # Rows longer than any in the first run get the maximum length as one more bucket.
    assert [int(bucket) for bucket in again["buckets"]] == [*first["bucket_choice"]["bucket_lengths"], 64]
    assert max(row["length"] for row in rows_in(tmp_path / "out")) == 64


def test_choosing_buckets_is_refused_if_the_output_has_given_buckets(
    corpus: Path, tokenizer: Path, tmp_path: Path
) -> None:
    run(corpus, tokenizer, tmp_path, bucket_lengths=[8, 64])
    with pytest.raises(ValueError, match=r"settings\.shards\.bucket_lengths: \[8, 64\] before, null now"):
        run(corpus, tokenizer, tmp_path, buckets=CHOICE)


def test_a_corpus_without_text_gets_no_buckets(tokenizer: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": pa.array([None], pa.string())}), tmp_path / "a.parquet")
    manifest = run(tmp_path / "a.parquet", tokenizer, tmp_path / "out", buckets=CHOICE)
    assert manifest["bucket_choice"]["bucket_lengths"] == []
    assert manifest["buckets"] == {}


def test_duplicates_do_not_count_in_the_choice(tokenizer: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", ["a", "b"])
    pq.write_table(pq.read_table(corpus / "a.parquet"), corpus / "c.parquet")
    project = Project(
        corpus=Corpus(files=(str(corpus),), deduplicate="exact"),
        shards=Shards(output=str(tmp_path / "out"), tokenizer=str(tokenizer), buckets=BucketChoice(**CHOICE)),
        run=Run(workers=1, progress=False),
    )
    choice = tokenize_corpus(project)["bucket_choice"]
    assert choice == chosen_for([row["length"] for row in rows_in(tmp_path / "out")], CHOICE)


# Packed rows.


def segments_of(row: Row) -> list[list[int]]:
    """Returns the ids of each segment of a packed row; checks its mask, positions and segment numbers."""
    size = row["length"]
    assert row["attention_mask"] == [1] * size + [0] * (ROW_LENGTH - size)
    numbers = [number for number, _ in groupby(row["segment_ids"][:size])]
    assert numbers == list(range(1, len(numbers) + 1))
    segments = [[row["input_ids"][at] for at in range(size) if row["segment_ids"][at] == number] for number in numbers]
    assert row["position_ids"][:size] == [position for segment in segments for position in range(len(segment))]
    for name in ("segment_ids", "position_ids"):
        assert row[name][size:] == [0] * (ROW_LENGTH - size)
    return segments


def by_segment(row: Row) -> list[Row]:
    """Returns a packed row as one row for each of its segments."""
    names = ("source_file", "source_row", "source_part", "id")
    segments = segments_of(row)
    assert {len(row[name]) for name in names} == {len(segments)}
    return [{"ids": ids, **{name: row[name][n] for name in names}} for n, ids in enumerate(segments)]


@pytest.mark.parametrize("options", [{}, {"on_overflow": "truncate"}, {"overlap": 5}], ids=str)
def test_packed_rows_hold_the_segments_of_padded_rows(
    corpus: Path, tokenizer: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    options = {"carry": ("id",), "labels": True, "begin_token": True, **options}
    packed = run(corpus, tokenizer, tmp_path / "packed", layout="packed", row_length=ROW_LENGTH, **options)
    padded = run(corpus, tokenizer, tmp_path / "padded", bucket_lengths=[8, ROW_LENGTH], **options)
    segments = [segment for row in rows_in(tmp_path / "packed") for segment in by_segment(row)]
    rows = [
        {"ids": row["input_ids"][: row["length"]], **{name: row[name] for name in segments[0] if name != "ids"}}
        for row in rows_in(tmp_path / "padded")
    ]
    assert sorted(segments, key=place) == sorted(rows, key=place)
    for row in rows_in(tmp_path / "packed"):
        assert row["labels"] == [*row["input_ids"][: row["length"]], *[-100] * (ROW_LENGTH - row["length"])]
    counts = {**padded["counts"], "rows": len(rows_in(tmp_path / "packed"))}
    assert packed["counts"] == counts
    assert list(packed["buckets"]) == [str(ROW_LENGTH)]
    assert packed["buckets"][str(ROW_LENGTH)]["tokens"] == counts["row_tokens"]
    assert counts["rows"] < padded["counts"]["rows"]


def test_packed_rows_are_as_long_as_the_longest_bucket_or_as_set(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    by_bucket = run(corpus, tokenizer, tmp_path / "a", layout="packed", bucket_lengths=[8, ROW_LENGTH])
    by_length = run(corpus, tokenizer, tmp_path / "b", layout="packed", row_length=ROW_LENGTH)
    assert bytes_in(tmp_path / "a") == bytes_in(tmp_path / "b")
    assert "bucket_lengths" in by_bucket["settings"]["shards"]
    assert "bucket_lengths" not in by_length["settings"]["shards"]


def test_packed_rows_are_the_same_with_any_number_of_workers(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    for workers in (1, 2):
        run(corpus, tokenizer, tmp_path / str(workers), workers=workers, layout="packed", row_length=ROW_LENGTH)
    assert bytes_in(tmp_path / "1") == bytes_in(tmp_path / "2")


def test_packed_rows_without_provenance(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    run(corpus, tokenizer, tmp_path, layout="packed", row_length=ROW_LENGTH, provenance=False)
    names = ["input_ids", "attention_mask", "position_ids", "segment_ids", "length"]
    assert [list(row) for row in rows_in(tmp_path)] == [names] * len(rows_in(tmp_path))


def test_the_loader_reads_packed_rows(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    run(
        corpus,
        tokenizer,
        tmp_path,
        layout="packed",
        row_length=ROW_LENGTH,
        carry=("id",),
        labels=True,
        row_group_bytes=999,
    )
    rows = rows_in(tmp_path)
    batches = list(ShardBatches(str(tmp_path), Batching(batch_size=4)))
    by_token = ["input_ids", "attention_mask", "labels", "position_ids", "segment_ids"]
    assert list(batches[0]) == [*by_token, "length"]
    assert {batch[name].shape for batch in batches[:-1] for name in by_token} == {(4, ROW_LENGTH)}
    everything = Batching(batch_size=4, columns=(*rows[0],))
    loaded = []
    for batch in ShardBatches(str(tmp_path), everything):
        columns = [column.tolist() if isinstance(column, np.ndarray) else column for column in batch.values()]
        loaded += [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
    assert sorted(loaded, key=str) == sorted(rows, key=str)
    # Each token may attend to the tokens before it in its segment, as many as its position says.
    batch = batches[0]
    same = (batch["segment_ids"][:, :, None] == batch["segment_ids"][:, None, :]) & batch["attention_mask"][
        :, None, :
    ] == 1
    for row, positions in enumerate(batch["position_ids"]):
        reach = np.tril(same[row]).sum(axis=1)[: batch["length"][row]]
        assert reach.tolist() == (positions[: batch["length"][row]] + 1).tolist()


# Shuffled rows.


def test_shuffling_changes_only_the_order_of_rows(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    plain, shuffled, other = (tmp_path / name for name in ("plain", "shuffled", "other"))
    options: dict[str, Any] = {"bucket_lengths": [ROW_LENGTH], "task_bytes": 3000, "carry": ("id",)}
    run(corpus, tokenizer, plain, **options)
    run(corpus, tokenizer, shuffled, shuffle_seed=0, **options)
    run(corpus, tokenizer, other, shuffle_seed=1, **options)
    assert sorted(rows_in(shuffled), key=place) == sorted(rows_in(plain), key=place)
    assert sorted(rows_in(other), key=place) == sorted(rows_in(plain), key=place)
    orders = [[[place(row) for row in rows] for rows in shards_in(output).values()] for output in (shuffled, other)]
    assert orders[0] != orders[1]
    # Rows are shuffled within a shard, and row groups over the shards.
    for shards in orders:
        assert any(places != sorted(places) for places in shards)
        groups = [{(path, row // 8) for path, row, _ in places} for places in shards]
        assert any({path for path, _ in group} == {str(p) for p in corpus.glob("*.parquet")} for group in groups)
        assert sum(map(len, groups)) == len(set.union(*groups))


def test_shuffling_does_not_depend_on_workers_or_the_order_of_files(
    corpus: Path, tokenizer: Path, tmp_path: Path
) -> None:
    patterns = [str(corpus / "a.parquet"), str(corpus / "b.parquet")]
    for layout in ("padded", "packed"):
        options: dict[str, Any] = {"layout": layout, "bucket_lengths": [ROW_LENGTH], "shuffle_seed": 5}
        run(patterns, tokenizer, tmp_path / layout / "1", **options)
        run(patterns[::-1], tokenizer, tmp_path / layout / "2", workers=2, **options)
        assert bytes_in(tmp_path / layout / "1") == bytes_in(tmp_path / layout / "2")


def test_the_order_of_a_document_depends_on_no_other(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"bucket_lengths": [ROW_LENGTH], "shuffle_seed": 5, "task_bytes": 10**9}
    run(corpus / "a.parquet", tokenizer, tmp_path / "one", **options)
    run(corpus, tokenizer, tmp_path / "two", **options)
    both = [place(row) for row in rows_in(tmp_path / "two") if row["source_file"].endswith("a.parquet")]
    assert both == [place(row) for row in rows_in(tmp_path / "one")]


def test_tasks_of_shuffled_row_groups_know_their_first_rows() -> None:
    source = SourceFile("a", "parquet", 1, "f", ((10, 100),) * 6)
    tasks = plan_tasks([source], 250, shuffle_seed=3)

    def groups(task: Task) -> list[int]:
        return [group for file_slice in task for group in range(*(file_slice.row_groups or (0, 0)))]

    order = [group for task in tasks for group in groups(task)]
    assert sorted(order) == list(range(6))
    assert order != sorted(order)
    for file_slice in (file_slice for task in tasks for file_slice in task):
        assert file_slice.row_groups is not None
        assert file_slice.first_row == 10 * file_slice.row_groups[0]
        assert file_slice.num_bytes == 100 * (file_slice.row_groups[1] - file_slice.row_groups[0])
    assert plan_tasks([source], 250) == [(FileSlice("a", "parquet", (n, n + 2), 10 * n, 200),) for n in (0, 2, 4)]


def test_random_numbers_are_fixed_and_uniform() -> None:
    rows = np.arange(100_000)
    drawn = draw(1, "row", "a.parquet", rows)
    assert drawn.dtype == np.uint64
    # These numbers decide the order of rows in existing shards, so they must never change.
    assert draw(1, "row", "a.parquet", np.arange(2)).tolist() == [1375318670047632944, 10409956338454206553]
    assert len(set(drawn.tolist())) == rows.size
    counts = np.bincount((drawn >> np.uint64(60)).astype(np.int64), minlength=16)
    assert abs(counts - rows.size / 16).max() < 400
    for other in (draw(2, "row", "a.parquet", rows), draw(1, "x", "a.parquet", rows), draw(1, "row", "b", rows)):
        assert not (drawn == other).any()
    assert not (drawn == draw(1, "row", "a.parquet", rows, rows)).any()


def test_copies_of_a_row_are_numbered() -> None:
    assert number_copies(np.array([0, 0, 3, 4, 4, 4])).tolist() == [0, 1, 0, 0, 1, 2]
    assert number_copies(np.empty(0, np.int64)).tolist() == []


# Weighted sources.


@pytest.fixture(scope="module")
def two_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mix")
    write_corpus(folder / "a", ["a"], num_documents=400)
    write_corpus(folder / "b", ["b"], num_documents=400)
    return folder


def occurrences(output: Path, source: Path) -> Counter[int]:
    """Returns how often each row of a source occurs."""
    starts = [row for row in rows_in(output) if row["source_part"] == 0]
    return Counter(row["source_row"] for row in starts if Path(row["source_file"]).parent == source)


def test_documents_occur_as_often_as_the_weights_of_their_sources_say(
    two_sources: Path, tokenizer: Path, tmp_path: Path
) -> None:
    a, b = two_sources / "a", two_sources / "b"
    manifest = run([str(b), str(a)], tokenizer, tmp_path, weights=(0.25, 2.5), bucket_lengths=[ROW_LENGTH])
    of_a, of_b = occurrences(tmp_path, a), occurrences(tmp_path, b)
    assert set(of_a.values()) == {2, 3}
    assert set(of_b.values()) == {1}
    assert len(of_a) == 398  # One is null and one empty.
    assert 160 < sum(times == 3 for times in of_a.values()) < 240
    assert 70 < len(of_b) < 130
    sources = manifest["sources"]
    assert {source: of["weight"] for source, of in sources.items()} == {str(a): 2.5, str(b): 0.25}
    counts = manifest["counts"]
    assert counts["documents"] == 800
    assert counts["documents_in_rows"] == of_a.total() + of_b.total()
    occurring = sum(of["occurrences"] for of in sources.values())
    assert occurring == counts["documents_in_rows"] + counts["empty_documents"]
    assert occurring == 798 + counts["repeated_documents"] - counts["unsampled_documents"]
    assert not [name for name in counts if str(two_sources) in name]


def test_text_counts_as_often_as_it_occurs(two_sources: Path, tokenizer: Path, tmp_path: Path) -> None:
    once = run(two_sources / "a", tokenizer, tmp_path / "once", bucket_lengths=[ROW_LENGTH])
    twice = run([str(two_sources / "a")], tokenizer, tmp_path / "twice", weights=(2,), bucket_lengths=[ROW_LENGTH])
    assert twice["counts"]["text_bytes"] == 2 * once["counts"]["text_bytes"]
    assert twice["counts"]["tokens"] == 2 * once["counts"]["tokens"]
    rows = sorted(rows_in(tmp_path / "twice"), key=place)
    assert rows[::2] == rows[1::2] == sorted(rows_in(tmp_path / "once"), key=place)


def test_weights_do_not_depend_on_workers_or_the_order_of_files_but_on_the_seed(
    two_sources: Path, tokenizer: Path, tmp_path: Path
) -> None:
    a, b = str(two_sources / "a"), str(two_sources / "b")
    options: dict[str, Any] = {"bucket_lengths": [ROW_LENGTH], "shuffle_seed": 2}
    run([a, b], tokenizer, tmp_path / "1", weights=(0.5, 1.5), **options)
    run([b, a], tokenizer, tmp_path / "2", weights=(1.5, 0.5), workers=2, **options)
    assert bytes_in(tmp_path / "1") == bytes_in(tmp_path / "2")
    corpus = Corpus(files=(a, b), weights=(0.5, 1.5), weight_seed=1)
    shards = Shards(output=str(tmp_path / "3"), tokenizer=str(tokenizer), bucket_lengths=(ROW_LENGTH,))
    tokenize_corpus(Project(corpus=corpus, shards=shards, run=Run(workers=1, progress=False)))
    for source in (two_sources / "a", two_sources / "b"):
        assert occurrences(tmp_path / "3", source) != occurrences(tmp_path / "1", source)


def test_copies_are_shuffled_apart(two_sources: Path, tokenizer: Path, tmp_path: Path) -> None:
    run(
        [str(two_sources / "a")],
        tokenizer,
        tmp_path,
        weights=(3,),
        bucket_lengths=[ROW_LENGTH],
        shuffle_seed=0,
        task_bytes=10**9,
    )
    places = [place(row) for row in rows_in(tmp_path)]
    assert set(Counter(places).values()) == {3}
    assert sum(one == next_ for one, next_ in pairwise(places)) < 10


def test_buckets_are_chosen_for_weighted_documents(two_sources: Path, tokenizer: Path, tmp_path: Path) -> None:
    sources = [str(two_sources / "a"), str(two_sources / "b")]
    manifest = run(sources, tokenizer, tmp_path, weights=(0.1, 3), buckets=CHOICE)
    assert manifest["bucket_choice"] == chosen_for([row["length"] for row in rows_in(tmp_path)], CHOICE)


def test_a_changed_weight_is_refused(two_sources: Path, tokenizer: Path, tmp_path: Path) -> None:
    run([str(two_sources / "a")], tokenizer, tmp_path, weights=(2,))
    with pytest.raises(ValueError, match=r"a\.parquet\.weight: 2\.0 before, 3\.0 now"):
        run([str(two_sources / "a")], tokenizer, tmp_path, weights=(3,))


def test_a_file_of_two_weights_is_refused(two_sources: Path) -> None:
    patterns = (str(two_sources / "a"), str(two_sources / "**"))
    with pytest.raises(
        ValueError, match=r"a\.parquet is matched by '.*a' with weight 1\.0 and by '.*' with weight 2\.0"
    ):
        find_files(Corpus(files=patterns, weights=(1, 2)))
    assert len(find_files(Corpus(files=patterns, weights=(2, 2)))) == 2


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        (
            {"files": ("a", "b"), "weights": (1,)},
            "weights has 1 numbers and files has 2 entries; give one weight for each entry",
        ),
        (
            {"files": ("a", "a"), "weights": (1, 2)},
            "names an entry twice, but each entry has its own weight; name it once",
        ),
        ({"files": ("a",), "weights": (0,)}, "Input should be greater than 0"),
    ],
)
def test_contradictory_weights_are_refused(corpus: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Corpus(**corpus)


def test_job_1_counts_words_by_the_same_weights(two_sources: Path, tokenizer: Path, tmp_path: Path) -> None:
    def counted(weight: float) -> tuple[dict[str, int], dict[str, Any]]:
        output = tmp_path / str(weight)
        project = Project(
            corpus=Corpus(files=(str(two_sources / "a"),), weights=(weight,)),
            tokenizer=TokenizerSettings(num_merges=1),
            train=Train(output=str(output)),
            run=Run(workers=1, progress=False),
        )
        train_tokenizer(project)
        counts, _ = read_word_counts(str(output / "word_counts"))
        manifest = read_json(str(output / "word_counts" / "_manifest.json"))
        return dict(zip(counts["word"].to_pylist(), counts["count"].to_pylist(), strict=True)), manifest

    once, _ = counted(1)
    twice, manifest = counted(2)
    assert twice == {word: 2 * count for word, count in once.items()}
    assert manifest["sources"] == {str(two_sources / "a"): {"weight": 2.0, "occurrences": 2 * 399}}


# Settings.


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({"row_length": 8}, "row_length is 8, which applies only to layout: packed, not padded"),
        (
            {"layout": "packed", "buckets": CHOICE},
            "buckets applies only to layout: padded, but layout is packed; give row_length",
        ),
        ({"buckets": CHOICE, "bucket_lengths": (4, 8)}, "bucket_lengths and buckets are both given; remove one"),
        (
            {"layout": "packed", "row_length": 8, "bucket_lengths": (4, 8)},
            "bucket_lengths and row_length are both given; remove one",
        ),
        (
            {"buckets": {"max_length": 20, "multiple_of": 8}},
            "max_length is 20, which is not a multiple of multiple_of, 8",
        ),
        ({"buckets": CHOICE, "overlap": 64}, "overlap is 64; it must be less than the longest row, 64"),
        ({"layout": "packed", "row_length": 8, "overlap": 8}, "overlap is 8; it must be less than the longest row, 8"),
        ({"carry": ("segment_ids",)}, "carry names 'segment_ids', which is a column of the shards themselves"),
    ],
)
def test_settings_of_rows_that_contradict_each_other_are_refused(shards: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Shards(output="o", **shards)
