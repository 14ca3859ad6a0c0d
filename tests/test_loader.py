"""The loader: each row once per epoch, an order that depends on the seed only, exact resuming, and errors."""

import json
import multiprocessing
import os
import random
import signal
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bpe_core.tokenizer import Tokenizer
from pipelines.loader import Batching, ShardBatches, ShardDataset, TrainingBatch
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus

Layout = dict[int, list[list[int]]]
"""For each bucket, the sizes of the row groups of each of its shards."""

LAYOUT: Layout = {4: [[3, 5], [7], [1, 1, 2]], 8: [[4], [6, 6]], 16: [[2]]}
NUM_ROWS = {4: 19, 8: 16, 16: 2}


def table(bucket: int, first: int, size: int) -> pa.Table:
    """Returns rows whose ids are the row's number, followed by 0; rows are numbered over all shards."""
    rows = range(first, first + size)
    lengths = [1 + row % bucket for row in rows]
    masks = [[1] * n + [0] * (bucket - n) for n in lengths]
    return pa.table(
        {
            "input_ids": pa.array(
                [[row * m for m in mask] for row, mask in zip(rows, masks, strict=True)], pa.list_(pa.int32())
            ),
            "attention_mask": pa.array(masks, pa.list_(pa.int8())),
            "length": pa.array(lengths, pa.int32()),
            "lang": pa.array([None if row % 3 == 0 else f"l{row}" for row in rows], pa.string()),
            "tags": pa.array([[row] * bucket for row in rows], pa.list_(pa.int64())),
            "source_row": pa.array(rows, pa.int64()),
        }
    )


def write_folder(folder: Path, layout: Layout) -> str:
    shards = []
    row = 1
    for bucket, of_bucket in layout.items():
        (folder / f"bucket={bucket}").mkdir(parents=True, exist_ok=True)
        for number, groups in enumerate(of_bucket):
            name = f"bucket={bucket}/part-{number:05d}.parquet"
            with pq.ParquetWriter(folder / name, table(bucket, 0, 0).schema) as writer:
                for size in groups:
                    writer.write_table(table(bucket, row, size), row_group_size=size)
                    row += size
            shards.append({"path": name, "bucket": bucket, "rows": sum(groups), "tokens": 0, "bytes": 0})
    manifest = {
        "tokenizer": "0",
        "settings": {"carried": {"lang": "string", "tags": "list<element: int64>"}},
        "buckets": {str(bucket): {} for bucket in layout},
        "shards": shards,
    }
    (folder / "_manifest.json").write_text(json.dumps(manifest))
    (folder / "_SUCCESS").write_text("")
    return str(folder)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_folder(tmp_path_factory.mktemp("shards"), LAYOUT)


def numbers(batch: TrainingBatch) -> list[int]:
    """Returns the numbers of a batch's rows, after checking that all columns belong to these rows."""
    rows = [int(row) for row in batch["input_ids"][:, 0]]
    bucket = batch["input_ids"].shape[1]
    lengths = [1 + row % bucket for row in rows]
    assert batch["length"].tolist() == lengths
    assert batch["attention_mask"].tolist() == [[1] * n + [0] * (bucket - n) for n in lengths]
    assert (batch["input_ids"] == batch["attention_mask"] * np.array(rows)[:, None]).all()
    return rows


def with_workers(batches: ShardBatches, num_workers: int) -> Iterator[TrainingBatch]:
    """Yields the rest of an epoch as a `DataLoader` does: a batch of each worker in turn."""
    workers = [batches.read(batches.epoch, batches.position + w, num_workers) for w in range(num_workers)]
    for turn in zip_longest(*workers):
        yield from (batch for batch in turn if batch is not None)


def forkserver() -> Any:
    """Starts processes quickly: a fork of this process with threads may hang, and repeating all imports is slow."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pipelines.loader", "pipelines.tokenizing.tokenize_corpus", "hypothesis", "pytest"])
    return context


# Each row once.


@given(
    layout=st.dictionaries(
        st.sampled_from([1, 4, 8]),
        st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=4),
        max_size=3,
    ),
    size=st.sampled_from([{"batch_size": 1}, {"batch_size": 3}, {"batch_size": 50}, {"max_tokens": 17}]),
    world_size=st.integers(1, 4),
    streams=st.integers(1, 3),
    window_tokens=st.sampled_from([1, 24, 100, 1 << 20]),
    shuffle=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_every_row_comes_once_in_an_epoch_over_all_ranks(
    tmp_path_factory: pytest.TempPathFactory,
    layout: Layout,
    size: dict[str, Any],
    world_size: int,
    streams: int,
    window_tokens: int,
    shuffle: bool,
) -> None:
    folder = write_folder(tmp_path_factory.mktemp("shards"), layout)
    seen: list[int] = []
    rows_of_rank = []
    for rank in range(world_size):
        batching = Batching(
            **size,
            rank=rank,
            world_size=world_size,
            streams=streams,
            window_tokens=window_tokens,
            shuffle=shuffle,
            seed=3,
        )
        batches = ShardBatches(folder, batching)
        found = list(batches)
        assert (len(batches), batches.epoch, batches.position) == (len(found), 1, 0)
        partial = Counter(b["input_ids"].shape[1] for b in found if len(b["length"]) < full(size, b))
        assert all(count <= streams for count in partial.values())
        assert all(len(b["length"]) <= full(size, b) for b in found)
        rows = [row for batch in found for row in numbers(batch)]
        assert len(rows) == batches.num_rows
        rows_of_rank.append(len(rows))
        seen += rows
    assert sorted(seen) == list(range(1, 1 + sum(sum(map(sum, shards)) for shards in layout.values())))
    assert max(rows_of_rank) - min(rows_of_rank) <= 1


def full(size: dict[str, int], batch: TrainingBatch) -> int:
    return size.get("batch_size") or size["max_tokens"] // int(batch["input_ids"].shape[1])


@pytest.mark.filterwarnings("ignore:.*drop_last never reads any row")
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("streams", [1, 2])
@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_resuming_at_any_batch_continues_the_epoch(
    folder: str, num_workers: int, streams: int, drop_last: bool
) -> None:
    chance = random.Random(num_workers)
    for trial in range(8):
        seen: list[int] = []
        for rank in range(2):
            batching = Batching(
                batch_size=2,
                seed=trial,
                rank=rank,
                world_size=2,
                streams=streams,
                window_tokens=40,
                drop_last=drop_last,
            )
            whole = [numbers(batch) for epoch in range(2) for batch in ShardBatches(folder, batching).read(epoch)]
            resumed: list[list[int]] = []
            saved = ShardBatches(folder, batching).state_dict()
            while saved["epoch"] < 2:
                batches = ShardBatches(folder, batching)
                batches.load_state_dict(json.loads(json.dumps(saved)))
                lives = chance.randrange(1, 9)
                for number, batch in enumerate(with_workers(batches, num_workers), 1):
                    resumed.append(numbers(batch))
                    saved = {**saved, "position": saved["position"] + 1}
                    if number == lives:
                        break
                if saved["position"] == len(batches):
                    saved = {**saved, "epoch": saved["epoch"] + 1, "position": 0}
            assert resumed == whole
            seen += [row for rows in whole for row in rows]
        if not drop_last:
            assert Counter(seen) == dict.fromkeys(range(1, 38), 2)


def train_until_killed(folder: str, batching: Batching, log: Path, lives: int) -> None:
    """Resumes from the last line of `log`, appends a line with each batch and the state after it, and is killed."""
    batches = ShardBatches(folder, batching)
    if log.exists():
        batches.load_state_dict(json.loads(log.read_text().splitlines()[-1])["state"])
    with log.open("a") as lines:
        for _ in range(2):
            for batch in batches:
                lines.write(json.dumps({"rows": numbers(batch), "state": batches.state_dict()}) + "\n")
                lines.flush()
                lives -= 1
                if not lives:
                    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_process_continues_a_killed_one(folder: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    for rank in range(2):
        batching = Batching(batch_size=2, seed=2, rank=rank, world_size=2)
        log = tmp_path / f"{rank}.jsonl"
        for lives in (chance.randrange(1, 12), chance.randrange(1, 12), 0):
            process = forkserver().Process(target=train_until_killed, args=(folder, batching, log, lives))
            process.start()
            process.join()
            assert process.exitcode == (-signal.SIGKILL if lives else 0)
        found = [json.loads(line)["rows"] for line in log.read_text().splitlines()]
        whole = [numbers(batch) for epoch in range(3) for batch in ShardBatches(folder, batching).read(epoch)]
        assert len(found) >= 2 * len(ShardBatches(folder, batching))
        assert found == whole[: len(found)]


def test_the_iterator_counts_batches_and_continues_with_the_next_epoch(folder: str) -> None:
    batching = Batching(batch_size=4, seed=5)
    whole = [numbers(batch) for epoch in range(2) for batch in ShardBatches(folder, batching).read(epoch)]
    for stop in range(len(whole)):
        first = ShardBatches(folder, batching)
        found: list[list[int]] = []
        while len(found) <= stop:
            for batch in first:
                found.append(numbers(batch))
                if len(found) > stop:
                    break
        second = ShardBatches(folder, batching)
        second.load_state_dict(first.state_dict())
        while second.epoch < 2:
            found += [numbers(batch) for batch in second]
        assert found == whole


@pytest.mark.filterwarnings("ignore:.*drop_last never reads any row")
def test_drop_last_gives_all_ranks_full_batches_of_one_bucket_at_each_step(folder: str) -> None:
    ranks = [
        ShardBatches(folder, Batching(batch_size=2, drop_last=True, rank=rank, world_size=3, seed=1))
        for rank in range(3)
    ]
    found = [[batch["input_ids"].shape for batch in batches] for batches in ranks]
    assert found[0] == found[1] == found[2]
    assert Counter(found[0]) == {(2, 4): NUM_ROWS[4] // 6, (2, 8): NUM_ROWS[8] // 6}
    left_out = []
    for epoch in range(6):
        seen = [row for batches in ranks for batch in batches.read(epoch) for row in numbers(batch)]
        assert len(seen) == len(set(seen)) == 18 + 12
        left_out.append(frozenset(range(1, 36)) - set(seen))
    assert len(set(left_out)) > 1  # Not the same rows in every epoch.


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("layout", [{4: [[19]]}, {4: [[7, 5], [4, 3]], 8: [[13]]}])
def test_drop_last_leaves_out_other_rows_in_each_epoch(tmp_path: Path, layout: Layout, shuffle: bool) -> None:
    folder = write_folder(tmp_path, layout)
    num_rows = sum(sum(map(sum, shards)) for shards in layout.values())
    missed: list[int] = []
    for epoch in range(40):
        seen = []
        for rank in range(2):
            batching = Batching(batch_size=4, world_size=2, rank=rank, drop_last=True, shuffle=shuffle)
            seen += [row for batch in ShardBatches(folder, batching).read(epoch) for row in numbers(batch)]
        assert len(seen) == len(set(seen))
        missed += set(range(1, num_rows + 1)) - set(seen)
    assert set(missed) == set(range(1, num_rows + 1))
    # No row is left out much more often than others.
    assert max(Counter(missed).values()) < (3 if shuffle else 1.5) * len(missed) / num_rows + 5


def test_drop_last_names_the_buckets_that_it_never_reads(folder: str) -> None:
    with pytest.warns(
        UserWarning, match=r"never reads any row of the buckets 16 \(2 rows\), because each of the 2 stre"
    ):
        ShardBatches(folder, Batching(batch_size=2, world_size=2, drop_last=True))


@given(
    layout=st.dictionaries(
        st.sampled_from([1, 4, 8]),
        st.lists(st.lists(st.integers(1, 9), min_size=1, max_size=3), min_size=1, max_size=4),
        min_size=1,
        max_size=3,
    ),
    size=st.sampled_from([{"batch_size": 1}, {"batch_size": 3}, {"max_tokens": 17}]),
    parts=st.lists(
        st.tuples(st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(0, 6)), min_size=2, max_size=4
    ),
    window_tokens=st.sampled_from([1, 24, 1 << 20]),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    epoch=st.integers(0, 2),
    seed=st.integers(0, 3),
)
@example(  # The second part has more streams than `drop_last` can fill.
    layout={1: [[1, 1, 1]]},
    size={"batch_size": 3},
    parts=[(1, 1, 1, 0), (1, 2, 1, 0)],
    window_tokens=1,
    shuffle=False,
    drop_last=True,
    epoch=0,
    seed=0,
)
@settings(max_examples=80, deadline=None)
@pytest.mark.filterwarnings("ignore:.*drop_last never reads any row")
@pytest.mark.slow
def test_an_epoch_continued_with_other_ranks_streams_and_workers_gives_each_row_once(
    tmp_path_factory: pytest.TempPathFactory,
    layout: Layout,
    size: dict[str, Any],
    parts: list[tuple[int, int, int, int]],
    window_tokens: int,
    shuffle: bool,
    drop_last: bool,
    epoch: int,
    seed: int,
) -> None:
    folder = write_folder(tmp_path_factory.mktemp("shards"), layout)
    rows = {b: sum(map(sum, shards)) for b, shards in layout.items()}
    seen: list[int] = []
    state: dict[str, Any] | None = None
    for number, (world_size, streams, num_workers, steps) in enumerate(parts, 1):
        rank_states, rank_shapes, rank_rows = [], [], []
        for rank in range(world_size):
            batching = Batching(
                **size,
                seed=seed,
                rank=rank,
                world_size=world_size,
                streams=streams,
                window_tokens=window_tokens,
                shuffle=shuffle,
                drop_last=drop_last,
            )
            if drop_last and all(count < world_size * streams * batching.num_rows(b) for b, count in rows.items()):
                with pytest.raises(
                    ValueError, match=r"leaves no batch.*A saved state can only be continued with fewer"
                ):
                    ShardBatches(folder, batching)
                return
            batches = ShardBatches(folder, batching)
            if state is None:
                batches.epoch = epoch
            else:
                batches.load_state_dict(json.loads(json.dumps(state)))
            length = max(0, len(batches) - batches.position)
            found = list(islice(with_workers(batches, num_workers), None if number == len(parts) else steps))
            if number == len(parts):
                assert len(found) == length
            seen += [row for batch in found for row in numbers(batch)]
            rank_states.append(batches.make_state(batches.epoch, batches.position + steps))
            rank_shapes.append([batch["input_ids"].shape for batch in found])
            rank_rows.append(batches.num_rows)
        assert all(one == rank_states[0] for one in rank_states)
        if drop_last:
            assert all(one == rank_shapes[0] for one in rank_shapes)
        assert max(rank_rows) - min(rank_rows) <= (0 if drop_last else 1)
        state = rank_states[0]
    assert len(seen) == len(set(seen))
    streams_at_end = parts[-1][0] * parts[-1][1]
    if drop_last:
        bucket_of = [b for b, count in rows.items() for _ in range(count)]
        left_out = Counter(bucket_of[row - 1] for row in set(range(1, 1 + len(bucket_of))) - set(seen))
        assert all(left_out[b] < streams_at_end * (size.get("batch_size") or size["max_tokens"] // b) for b in rows)
    else:
        assert sorted(seen) == list(range(1, 1 + sum(rows.values())))


def test_a_continued_epoch_is_followed_by_a_whole_one(folder: str) -> None:
    first = ShardBatches(folder, Batching(batch_size=2, world_size=2))
    first.position = 5
    states = []
    for rank in range(3):
        batches = ShardBatches(folder, Batching(batch_size=2, world_size=3, rank=rank))
        batches.load_state_dict(first.state_dict())
        assert 0 < len(list(batches)) < len(batches)
        assert (batches.epoch, batches.position) == (1, 0)
        assert "earlier" not in batches.state_dict()
        states.append(batches.state_dict())
        whole = ShardBatches(folder, Batching(batch_size=2, world_size=3, rank=rank))
        assert [numbers(batch) for batch in batches] == [numbers(batch) for batch in whole.read(1)]
    assert states[0] == states[1] == states[2]


# Order.


def test_the_order_never_changes(folder: str) -> None:
    batches = ShardBatches(folder, Batching(buckets=(4, 8), batch_size=5, seed=7, window_tokens=48))
    assert [numbers(batch) for batch in batches] == [
        [17, 8, 7, 1, 16],
        [33, 32, 31, 30, 34],
        [26, 35, 24, 25, 27],
        [28, 21, 22, 20, 29],
        [6, 5, 3, 4, 2],
        [23],
        [19, 14, 13, 9, 12],
        [15, 11, 18, 10],
    ]


def test_without_shuffle_rows_come_in_the_order_of_the_shards(folder: str) -> None:
    batches = ShardBatches(folder, Batching(batch_size=4, shuffle=False))
    for _ in range(2):
        assert [row for batch in batches for row in numbers(batch)] == list(range(1, 38))


def test_the_order_depends_on_the_epoch_and_the_settings_only(folder: str) -> None:
    def order(epoch: int, **others: Any) -> list[list[int]]:
        return [numbers(batch) for batch in ShardBatches(folder, Batching(batch_size=4, **others)).read(epoch)]

    assert order(0) == order(0)
    orders = [
        order(0),
        order(1),
        order(0, seed=1),
        order(0, window_tokens=32),
        order(0, streams=2),
        order(0, shuffle=False),
    ]
    assert len({json.dumps(found) for found in orders}) == len(orders)


def test_rows_are_shuffled_within_a_window_only(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {4: [[30]]})
    rows = [row for batch in ShardBatches(folder, Batching(batch_size=2, window_tokens=24)) for row in numbers(batch)]
    windows = [rows[first : first + 6] for first in range(0, 30, 6)]
    assert [sorted(window) for window in windows] == [list(range(f, f + 6)) for f in range(1, 31, 6)]
    assert all(window != sorted(window) for window in windows)


def test_a_row_group_in_several_windows_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path, {4: [[30, 20], [10]]})
    batches = ShardBatches(folder, Batching(batch_size=2, window_tokens=24))
    read = []
    original = pq.ParquetFile.read_row_group

    def counted(self: Any, index: int, **options: Any) -> Any:
        read.append(index)
        return original(self, index, **options)

    monkeypatch.setattr(pq.ParquetFile, "read_row_group", counted)
    assert len(list(batches)) == 30
    assert sorted(read) == [0, 0, 1]


def test_each_worker_reads_streams_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_folder(tmp_path, {4: [[6]] * 8})
    batches = ShardBatches(folder, Batching(batch_size=3, streams=4, seed=1))
    read = []
    original = pq.ParquetFile

    def counted(file: Any) -> Any:
        read.append(file.name)
        return original(file)

    monkeypatch.setattr(pq, "ParquetFile", counted)
    for first in (0, 5):
        read.clear()
        for worker in range(2):
            assert len(list(batches.read(0, first + worker, 2))) in ((16 - first) // 2, (17 - first) // 2)
        assert len(read) == len(set(read)) == 8


# Columns.


def test_list_columns_are_arrays_as_stored_and_carried_ones_stay_lists(folder: str) -> None:
    names = ("input_ids", "attention_mask", "length", "lang", "tags", "source_row")
    batch = next(iter(ShardBatches(folder, Batching(batch_size=3, shuffle=False, columns=names))))
    kinds = {name: column.dtype for name, column in batch.items() if isinstance(column, np.ndarray)}
    assert kinds == {"input_ids": np.int32, "attention_mask": np.int8, "length": np.int32, "source_row": np.int64}
    assert batch["source_row"].tolist() == [1, 2, 3]
    assert batch["lang"] == ["l1", "l2", None]
    assert batch["tags"] == [[1] * 4, [2] * 4, [3] * 4]
    default = next(iter(ShardBatches(folder, Batching(batch_size=3, shuffle=False))))
    assert list(default) == ["input_ids", "attention_mask", "length"]


def test_any_list_column_of_the_buckets_length_is_stacked(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {4: [[6]]})
    path = tmp_path / "bucket=4" / "part-00000.parquet"
    packed = pq.read_table(path)
    for name in ("position_ids", "segment_ids"):
        packed = packed.append_column(name, pa.array([[row] * 4 for row in range(6)], pa.list_(pa.int16())))
    pq.write_table(packed, path)
    batch = next(iter(ShardBatches(folder, Batching(batch_size=6, shuffle=False))))
    for name in ("position_ids", "segment_ids"):
        assert batch[name].dtype == np.int16
        assert batch[name].tolist() == [[row] * 4 for row in range(6)]


# Errors.


@pytest.mark.parametrize(
    ("batching", "message"),
    [
        ({}, "batch_size is None and max_tokens None; give one of the two"),
        ({"batch_size": 0}, "batch_size is 0; it must be a whole number of at least 1"),
        ({"batch_size": 1, "seed": -1}, "seed is -1; it must be a whole number of at least 0"),
        ({"batch_size": 2.5}, "batch_size is 2.5; it must be a whole number"),
        ({"batch_size": 1, "streams": None}, "streams is None; it must be a whole number"),
        ({"batch_size": 1, "buckets": ()}, "buckets is empty; name at least one bucket"),
        ({"batch_size": 1, "columns": "length"}, "columns is 'length'; it must be a list"),
        ({"batch_size": 1, "max_tokens": 8}, "batch_size is 1 and max_tokens 8; give one of the two"),
        ({"batch_size": 1, "rank": 2, "world_size": 2}, "rank 2 is not below world_size 2"),
        ({"max_tokens": 15}, "max_tokens 15 does not hold one row of bucket 16"),
        ({"batch_size": 1, "buckets": (4, 32)}, r"has no rows in bucket 32; its buckets are \[4, 8, 16\]"),
        ({"batch_size": 1, "columns": ("labels",)}, "has no column 'labels'; its columns are input_ids, attention"),
        (
            {"batch_size": 10, "world_size": 2, "drop_last": True, "buckets": (4, 8)},
            r"drop_last leaves no batch: the buckets have \{4: 19, 8: 16\} rows, and the 2 streams of all ranks need "
            r"\{4: 20, 8: 20\}",
        ),
    ],
)
def test_impossible_settings_are_refused(folder: str, batching: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ShardBatches(folder, Batching(**batching))


def test_an_unfinished_folder_is_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {4: [[2]]})
    (tmp_path / "_SUCCESS").unlink()
    with pytest.raises(ValueError, match="has no _SUCCESS: job 2 did not finish there"):
        ShardBatches(folder, Batching(batch_size=1))


@pytest.mark.filterwarnings("ignore:.*drop_last never reads any row")
def test_a_state_of_another_order_is_refused(folder: str, tmp_path: Path) -> None:
    state = ShardBatches(folder, Batching(batch_size=2, world_size=2)).state_dict()
    ShardBatches(folder, Batching(batch_size=2, world_size=2, rank=1, columns=("length",))).load_state_dict(state)
    others: list[tuple[dict[str, Any], str]] = [
        ({"seed": 9}, "settings.seed: 0 before, 9 now"),
        ({"batch_size": 3}, "settings.batch_size: 2 before, 3 now"),
        ({"shuffle": False}, "settings.shuffle: true before, false now"),
        ({"window_tokens": 5}, "settings.window_tokens: 8388608 before, 5 now"),
        ({"drop_last": True}, "settings.drop_last: false before, true now"),
        ({"buckets": (4,)}, 'shards.8: {"shards": 2, "rows": 16, .* before, null now'),
    ]
    for changed, message in others:
        batches = ShardBatches(folder, Batching(**{"batch_size": 2, "world_size": 2, **changed}))
        with pytest.raises(ValueError, match=message):
            batches.load_state_dict(state)
    more = write_folder(tmp_path, {**LAYOUT, 8: [[4], [6, 7]]})
    with pytest.raises(ValueError, match=r"shards\.8\.rows: 16 before, 17 now; shards\.8\.fingerprint: "):
        ShardBatches(more, Batching(batch_size=2, world_size=2)).load_state_dict(state)


def spoilt(tmp_path: Path, column: str | None, values: Sequence[Any], num_rows: int = 3) -> ShardBatches:
    folder = write_folder(tmp_path, {4: [[3]]})
    rows = table(4, 1, num_rows)
    if column is not None:
        index = rows.schema.get_field_index(column)
        rows = rows.set_column(index, column, pa.array(values, rows.schema.field(column).type))
    pq.write_table(rows, tmp_path / "bucket=4" / "part-00000.parquet")
    return ShardBatches(folder, Batching(batch_size=1))


def test_shards_that_were_changed_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"part-00000\.parquet has 2 rows, but 3 in _manifest\.json"):
        list(spoilt(tmp_path, None, [], num_rows=2))
    with pytest.raises(ValueError, match="column 'input_ids' has a row of 3 values in bucket 4"):
        list(spoilt(tmp_path, "input_ids", [[1] * 4, [1] * 3, [1] * 4]))
    with pytest.raises(ValueError, match="column 'length' holds nulls"):
        list(spoilt(tmp_path, "length", [1, None, 1]))
    batches = spoilt(tmp_path, None, [])
    path = tmp_path / "bucket=4" / "part-00000.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"part-00000\.parquet: cannot be read: "):
        list(batches)
    path.unlink()
    with pytest.raises(ValueError, match=r"part-00000\.parquet: cannot be read: .*no such file"):
        list(batches)


# With job 2.


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("job")
    texts = [("the cat sat on the mat " * (1 + row % 7))[: 5 + 3 * row] for row in range(40)]
    pq.write_table(pa.table({"text": texts, "lang": [f"l{row}" for row in range(40)]}), folder / "corpus.parquet")
    tokenizer = Tokenizer.train(texts, num_merges=10, special_tokens={"eos": "<eos>", "pad": "<pad>"})
    tokenizer.save(str(folder / "tokenizer"))
    project = Project(
        corpus=Corpus(files=(str(folder / "corpus.parquet"),)),
        shards=Shards(
            output=str(folder / "shards"),
            tokenizer=str(folder / "tokenizer"),
            bucket_lengths=(16, 32, 64),
            labels=True,
            carry=("lang",),
            row_group_bytes=512,
        ),
        run=Run(workers=1, progress=False),
    )
    tokenize_corpus(project)
    return folder / "shards"


def rows_of(finished: Path) -> dict[int, list[dict[str, Any]]]:
    """Returns the rows of the shards by bucket."""
    paths = sorted(finished.glob("bucket=*/*.parquet"))
    return {int(path.parent.name.split("=")[1]): pq.ParquetFile(path).read().to_pylist() for path in paths}


def test_the_loader_yields_the_rows_that_job_2_wrote(finished: Path) -> None:
    names = ("input_ids", "attention_mask", "labels", "length", "lang", "source_file", "source_row", "source_part")
    loaded = []
    for batch in ShardBatches(str(finished), Batching(max_tokens=128, columns=names)):
        columns = [column.tolist() if isinstance(column, np.ndarray) else column for column in batch.values()]
        loaded += [dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True)]
    rows = [row for of_bucket in rows_of(finished).values() for row in of_bucket]
    assert len(rows_of(finished)) == 3
    assert sorted(loaded, key=lambda row: int(row["source_row"])) == sorted(rows, key=lambda row: row["source_row"])
    batch = next(iter(ShardBatches(str(finished), Batching(batch_size=2))))
    assert list(batch) == ["input_ids", "attention_mask", "labels", "length"]


def test_the_dataset_card_lets_datasets_load_a_bucket(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    datasets = pytest.importorskip("datasets", reason="datasets is not installed (pip install -e .[dev])")
    datasets.disable_progress_bars()
    for bucket, rows in rows_of(finished).items():
        loaded = datasets.load_dataset(
            str(finished), f"bucket={bucket}", split="train", cache_dir=str(tmp_path / "cache")
        )
        assert list(loaded) == rows
    assert datasets.get_dataset_config_names(str(finished)) == ["bucket=16", "bucket=32", "bucket=64"]


# PyTorch.


def test_without_pytorch_the_message_says_what_to_install(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.loader.torch_dataset.torch", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'tokenmill\[torch\]'"):
        ShardDataset(ShardBatches(folder, Batching(batch_size=2)))


def test_only_the_extra_torch_asks_for_pytorch() -> None:
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    assert [extra for extra, needed in extras.items() if any(name.startswith("torch") for name in needed)] == ["torch"]
    assert not any(name.startswith("torch") for name in project["dependencies"])


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch", reason="PyTorch is not installed (pip install -e .[torch]); it is large")


def loader_of(torch: Any, dataset: Any, num_workers: int, **options: Any) -> Any:
    context = forkserver() if num_workers else None
    return torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=num_workers, multiprocessing_context=context, **options
    )


@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_the_data_loader_resumed_gives_the_batches_of_the_iterator(torch: Any, folder: str, num_workers: int) -> None:
    chance = random.Random(num_workers)
    seen: list[int] = []
    for rank in range(2):
        batching = Batching(batch_size=3, seed=4, rank=rank, world_size=2, streams=max(1, num_workers - 1))
        expected = [numbers(batch) for epoch in (0, 1) for batch in ShardBatches(folder, batching).read(epoch)]
        found: list[list[int]] = []
        state = ShardBatches(folder, batching).state_dict()
        while len(found) < len(expected):
            dataset = ShardDataset(ShardBatches(folder, batching))
            dataset.load_state_dict(json.loads(json.dumps(state)))
            lives = chance.randrange(2, 9)
            for epoch in range(dataset.epoch, 2):
                dataset.set_epoch(epoch)
                for num_batches, batch in enumerate(loader_of(torch, dataset, num_workers), 1):
                    assert {column.dtype for column in batch.values()} == {torch.int64}
                    found.append(numbers({name: column.numpy() for name, column in batch.items()}))
                    state = dataset.state_after(num_batches)
                    lives -= 1
                    if not lives:
                        break
                if not lives:
                    break
        assert found == expected
        seen += [row for rows in found for row in rows]
    assert Counter(seen) == dict.fromkeys(range(1, 38), 2)


@pytest.mark.slow
def test_workers_that_outlive_an_epoch_see_the_next_one(torch: Any, folder: str) -> None:
    batching = Batching(batch_size=5, seed=4)
    dataset = ShardDataset(ShardBatches(folder, batching))
    batches = loader_of(torch, dataset, 2, persistent_workers=True)
    assert len(batches) == len(ShardBatches(folder, batching))
    for epoch in range(3):
        dataset.set_epoch(epoch)
        found = [batch["input_ids"][:, 0].tolist() for batch in batches]
        assert found == [numbers(batch) for batch in ShardBatches(folder, batching).read(epoch)]


@pytest.mark.slow
def test_the_data_loader_continues_an_epoch_with_other_ranks_and_workers(torch: Any, folder: str) -> None:
    seen: list[int] = []
    for rank in range(2):
        dataset = ShardDataset(ShardBatches(folder, Batching(batch_size=2, rank=rank, world_size=2, streams=2)))
        found = list(islice(loader_of(torch, dataset, 2), 4))
        seen += [row for rows in rows_of_tensors(found) for row in rows]
        state = dataset.state_after(4)
    for rank in range(3):
        dataset = ShardDataset(ShardBatches(folder, Batching(batch_size=2, rank=rank, world_size=3)))
        old = loader_of(torch, dataset, 1, persistent_workers=True)
        next(iter(old))
        dataset.load_state_dict(json.loads(json.dumps(state)))
        with pytest.raises(RuntimeError, match="make a new DataLoader after load_state_dict"):
            next(iter(old))
        loader = loader_of(torch, dataset, 1)
        found = list(loader)
        assert len(found) == len(dataset)
        seen += [row for rows in rows_of_tensors(found) for row in rows]
    assert sorted(seen) == list(range(1, 38))


def test_columns_of_text_stay_lists(torch: Any, folder: str) -> None:
    batching = Batching(batch_size=3, shuffle=False, columns=("lang", "length"))
    (batch, *_) = ShardDataset(ShardBatches(folder, batching))
    assert batch["lang"] == ["l1", "l2", None]
    assert batch["length"].tolist() == [2, 3, 4]


def first_rows(folder: str, rank: int, num_batches: int) -> list[int]:
    """Returns the numbers of the rows of one of two ranks' first batches of 2 rows."""
    batches = ShardBatches(folder, Batching(batch_size=2, world_size=2, rank=rank))
    return [row for batch in islice(batches, num_batches) for row in numbers(batch)]


def rows_of_tensors(batches: Iterable[Any]) -> list[list[int]]:
    """Returns the numbers of each batch's rows, after checking that all columns belong to these rows."""
    return [numbers({name: column.numpy() for name, column in batch.items()}) for batch in batches]


@pytest.mark.slow
def test_workers_that_outlive_an_iteration_start_at_a_loaded_state(torch: Any, folder: str) -> None:
    batching = Batching(batch_size=3, seed=4, streams=2)
    whole = {epoch: [numbers(batch) for batch in ShardBatches(folder, batching).read(epoch)] for epoch in (0, 1)}
    dataset = ShardDataset(ShardBatches(folder, batching))
    loader = loader_of(torch, dataset, 2, persistent_workers=True)
    assert rows_of_tensors(islice(loader, 3)) == whole[0][:3]  # The workers have read ahead.
    state = dataset.state_after(2)
    dataset.set_epoch(1)
    assert rows_of_tensors(loader) == whole[1]
    dataset.load_state_dict(state)
    assert len(loader) == len(whole[0]) - 2
    assert rows_of_tensors(loader) == whole[0][2:]
    assert dataset.state_after(len(loader)) == ShardBatches(folder, batching).make_state(0, len(whole[0]))
    dataset.set_epoch(1)
    assert len(loader) == len(whole[1])  # PyTorch warns if there are more batches than it was told last.
    assert rows_of_tensors(loader) == whole[1]


@pytest.mark.slow
def test_workers_that_outlive_a_continued_epoch_see_the_next_one(torch: Any, folder: str) -> None:
    state = ShardBatches(folder, Batching(batch_size=2, world_size=2)).make_state(0, 3)
    seen = [row for rank in range(2) for row in first_rows(folder, rank, 3)]
    others = Batching(batch_size=2, streams=2)
    dataset = ShardDataset(ShardBatches(folder, others))
    dataset.load_state_dict(state)
    loader = loader_of(torch, dataset, 2, persistent_workers=True)
    assert sorted(seen + [row for rows in rows_of_tensors(loader) for row in rows]) == list(range(1, 38))
    dataset.set_epoch(1)
    assert rows_of_tensors(loader) == [numbers(batch) for batch in ShardBatches(folder, others).read(1)]
    dataset.load_state_dict(ShardBatches(folder, others).make_state(0, 0))
    with pytest.raises(RuntimeError, match="make a new DataLoader after load_state_dict"):
        next(iter(loader))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:This DataLoader will create 3 worker processes")
def test_more_workers_than_batches_yield_each_batch_once(torch: Any, tmp_path: Path) -> None:
    dataset = ShardDataset(ShardBatches(write_folder(tmp_path, {4: [[3]]}), Batching(batch_size=2)))
    loader = loader_of(torch, dataset, 3, persistent_workers=True)
    for epoch in range(2):
        dataset.set_epoch(epoch)
        assert sorted(row for rows in rows_of_tensors(loader) for row in rows) == [1, 2, 3]
    dataset.load_state_dict(dataset.state_after(2))
    assert rows_of_tensors(loader) == []


@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
def test_an_error_in_a_worker_reaches_the_training_loop(torch: Any, tmp_path: Path, persistent: bool) -> None:
    dataset = ShardDataset(spoilt(tmp_path, "length", [1, None, 1]))
    with pytest.raises(ValueError, match="column 'length' holds nulls"):
        list(loader_of(torch, dataset, 2, persistent_workers=persistent))
