"""Job 2: what the shards and the manifest hold, what input it refuses, and runs on a finished output."""

import hashlib
import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from shard_outputs import (
    BUCKETS,
    Row,
    contents,
    documents,
    project,
    rows_in,
    shards_in,
    times,
    write_corpus,
    write_file,
)
from tokenizers_made_by_hand import make_word_level_content

from bpe_core.export import export_tokenizer
from bpe_core.tokenizer import Tokenizer
from pipelines.checking.verify_shards import check_shards
from pipelines.errors import BadInputError, PipelineError
from pipelines.rows.segments import read_job_tokenizer
from pipelines.settings.project import Project
from pipelines.settings.shards import Shards
from pipelines.storage.manifest import read_json
from pipelines.tokenizing import tokenize_corpus as job
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus
from pipelines.training.train_tokenizer import train_tokenizer

SPECIAL_TOKENS: dict[str, str | list[str]] = {"bos": "<bos>", "eos": "<eos>", "pad": "<pad>"}


def real_ids(row: Row) -> list[int]:
    """Returns the ids without padding, after checking that padding comes last."""
    size = sum(row["attention_mask"])
    assert row["attention_mask"] == [1] * size + [0] * (row["bucket"] - size)
    return list(row["input_ids"][:size])


def ids_by_document(rows: list[Row], overlap: int = 0) -> dict[tuple[str, int], list[int]]:
    """Returns the ids of each document: those of its rows, without the overlaps."""
    parts: dict[tuple[str, int], list[Row]] = defaultdict(list)
    for row in rows:
        parts[row["source_file"], row["source_row"]].append(row)
    ids = {}
    for place, of_document in parts.items():
        of_document.sort(key=lambda row: int(row["source_part"]))
        assert [row["source_part"] for row in of_document] == list(range(len(of_document)))
        for before, after in pairwise(of_document):
            assert overlap == 0 or real_ids(before)[-overlap:] == real_ids(after)[:overlap]
        ids[place] = [id_ for row in of_document for id_ in real_ids(row)[overlap if row["source_part"] else 0 :]]
    return ids


def texts_of(corpus: Path) -> dict[tuple[str, int], str]:
    """Returns the documents with text, by file and row."""
    return {
        (str(path), row): text
        for path in sorted(corpus.glob("*.parquet"))
        for row, text in enumerate(pq.read_table(path)["text"].to_pylist())
        if text
    }


def parts_of_documents(counts: dict[str, int]) -> int:
    names = ("documents_in_rows", "null_documents", "empty_documents", "skipped_documents", "dropped_documents")
    return sum(counts.get(name, 0) for name in names)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("tokenize") / "corpus")


@pytest.fixture(scope="module")
def tokenizer(corpus: Path) -> Path:
    folder = corpus.parent / "tokenizer"
    texts = list(texts_of(corpus).values())
    Tokenizer.train(texts, vocab_size=400, special_tokens=SPECIAL_TOKENS).save(folder)
    return folder


@pytest.fixture(scope="module")
def finished(corpus: Path, tokenizer: Path) -> Path:
    """A finished output, which tests must not change."""
    output = corpus.parent / "finished"
    tokenize_corpus(project(corpus, tokenizer, output))
    return output


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"begin_token": True},
        {"end_token": False},
        {"begin_token": True, "overlap": 5},
        {"overlap": 31, "labels": True},
        {"bucket_lengths": [1]},
        {"bucket_lengths": [3, 5, 10_000], "row_group_bytes": 1, "carry": ["lang", "id"]},
    ],
    ids=str,
)
def test_the_rows_of_a_document_joined_are_its_ids(
    corpus: Path, tokenizer: Path, tmp_path: Path, settings: dict[str, Any]
) -> None:
    manifest = tokenize_corpus(project(corpus, tokenizer, tmp_path, settings))
    loaded = Tokenizer.load(tokenizer)
    begin = [loaded.special_tokens["<bos>"]] if settings.get("begin_token") else []
    end = [loaded.special_tokens["<eos>"]] if settings.get("end_token", True) else []
    ids = ids_by_document(rows_in(tmp_path), settings.get("overlap", 0))
    texts = texts_of(corpus)
    assert {place: loaded.decode(ids[place], skip_special_tokens=True) for place in ids} == texts
    assert ids == {place: [*begin, *loaded.encode(text), *end] for place, text in texts.items()}
    assert manifest["counts"]["documents_in_rows"] == len(texts)
    assert manifest["counts"]["tokens"] == sum(map(len, ids.values()))


def test_padding_labels_and_length(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    tokenize_corpus(project(corpus, tokenizer, tmp_path, {"labels": True}))
    pad_id = Tokenizer.load(tokenizer).special_tokens["<pad>"]
    rows = rows_in(tmp_path)
    assert {row["bucket"] for row in rows} == set(BUCKETS)
    for row in rows:
        size = row["length"]
        assert len(row["input_ids"]) == len(row["attention_mask"]) == len(row["labels"]) == row["bucket"]
        assert sum(row["attention_mask"]) == size > 0
        assert row["input_ids"][size:] == [pad_id] * (row["bucket"] - size)
        assert row["labels"] == row["input_ids"][:size] + [-100] * (row["bucket"] - size)
        assert row["bucket"] == min(bucket for bucket in BUCKETS if bucket >= size)


def test_the_end_token_pads_if_there_is_no_pad_token(corpus: Path, tmp_path: Path) -> None:
    loaded = Tokenizer.train(["the cat"], num_merges=4, special_tokens={"eos": "<eos>"})
    loaded.save(tmp_path / "tokenizer")
    tokenize_corpus(project(corpus, tmp_path / "tokenizer", tmp_path / "out", {"labels": True}))
    end = loaded.special_tokens["<eos>"]
    for row in rows_in(tmp_path / "out"):
        size = row["length"]
        assert row["input_ids"][size:] == [end] * (row["bucket"] - size)
        assert row["labels"][size:] == [-100] * (row["bucket"] - size)
        assert end not in row["input_ids"][: size - 1]


@pytest.mark.slow
def test_columns_and_their_types(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    tokenize_corpus(project(corpus, tokenizer, tmp_path, {"labels": True, "carry": ["lang", "id"]}))
    expected = [
        ("input_ids", pa.list_(pa.int32())),
        ("attention_mask", pa.list_(pa.int8())),
        ("labels", pa.list_(pa.int32())),
        ("length", pa.int32()),
        ("lang", pa.string()),
        ("id", pa.int64()),
        ("source_file", pa.string()),
        ("source_row", pa.int64()),
        ("source_part", pa.int32()),
    ]
    for path in tmp_path.glob("bucket=*/*.parquet"):
        schema = pq.read_schema(path)
        found = [(field.name, field.type) for field in schema]
        assert [(name, str(kind).replace("element", "item")) for name, kind in found] == [
            (name, str(kind).replace("element", "item")) for name, kind in expected
        ]


def test_carried_columns_are_those_of_the_source_row(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    tokenize_corpus(project(corpus, tokenizer, tmp_path, {"carry": ["id", "lang"]}))
    sources = {str(path): pq.read_table(path).to_pylist() for path in corpus.glob("*.parquet")}
    rows = rows_in(tmp_path)
    assert len(rows) > 100
    for row in rows:
        source = sources[row["source_file"]][row["source_row"]]
        assert (row["id"], row["lang"]) == (source["id"], source["lang"])


def test_a_carried_column_has_one_type_in_all_shards(tokenizer: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    carry = {"carry": ["n"]}
    pq.write_table(pa.table({"text": ["one"], "n": pa.array([1], pa.int64())}), corpus / "b.parquet")
    pq.write_table(pa.table({"text": ["two"], "n": pa.array([2], pa.int8())}), corpus / "c.parquet")
    tokenize_corpus(project(corpus, tokenizer, tmp_path / "out", carry))
    assert [row["n"] for row in rows_in(tmp_path / "out")] == [1, 2]
    pq.write_table(pa.table({"text": ["three"], "n": ["x"]}), corpus / "d.parquet")
    message = r"d\.parquet: the column 'n' is string here and int64 in .*b\.parquet; no type holds both\. Write both"
    with pytest.raises(ValueError, match=message):
        tokenize_corpus(project(corpus, tokenizer, tmp_path / "out", carry))


def test_rows_are_in_the_order_of_their_documents(finished: Path) -> None:
    for path in finished.glob("bucket=*/*.parquet"):
        places = [
            (row["source_file"], row["source_row"], row["source_part"])
            for row in pq.ParquetFile(path).read().to_pylist()
        ]
        assert places == sorted(places)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"on_overflow": "split"}, {"split_documents": 3}),
        ({"on_overflow": "truncate"}, {"truncated_documents": 3}),
        ({"on_overflow": "drop"}, {"dropped_documents": 3}),
    ],
)
def test_long_documents_are_split_truncated_or_dropped(
    corpus: Path, tokenizer: Path, tmp_path: Path, settings: dict[str, Any], expected: dict[str, int]
) -> None:
    longest = 100
    manifest = tokenize_corpus(project(corpus, tokenizer, tmp_path, {"bucket_lengths": [32, longest], **settings}))
    loaded = Tokenizer.load(tokenizer)
    whole = {place: [*loaded.encode(t), loaded.special_tokens["<eos>"]] for place, t in texts_of(corpus).items()}
    over = {place: ids for place, ids in whole.items() if len(ids) > longest}
    assert len(over) == 3
    ids = ids_by_document(rows_in(tmp_path))
    counts = manifest["counts"]
    if settings["on_overflow"] == "split":
        assert ids == whole
    elif settings["on_overflow"] == "truncate":
        assert ids == {place: ids[:longest] for place, ids in whole.items()}
        assert counts["truncated_tokens"] == sum(len(ids) - longest for ids in over.values())
    else:
        assert ids == {place: ids for place, ids in whole.items() if place not in over}
        assert counts["dropped_tokens"] == sum(map(len, over.values()))
    about_overflow = ("split_documents", "truncated_documents", "dropped_documents")
    assert {name: counts[name] for name in about_overflow if counts.get(name)} == expected
    assert counts["documents"] == 105 == parts_of_documents(counts)
    assert counts["null_documents"] == 6
    assert counts["empty_documents"] == 3


def test_invalid_utf8_stops_the_job_naming_file_and_row(tokenizer: Path, tmp_path: Path) -> None:
    write_file(tmp_path / "corpus" / "a.parquet", [b"one", b"two", b"bad \xff", b"three"], row_group_size=1)
    with pytest.raises(BadInputError, match=r"corpus/a\.parquet, row 2: the text is not UTF-8 .* Set corpus\.on_inv"):
        tokenize_corpus(project(tmp_path / "corpus", tokenizer, tmp_path / "out", {"task_bytes": 1}))
    assert not {"_manifest.json", "_SUCCESS"} & set(contents(tmp_path / "out"))


@pytest.mark.parametrize(("choice", "texts"), [("replace", ["one", "bad \ufffd", "three"]), ("skip", ["one", "three"])])
def test_invalid_utf8_is_replaced_or_skipped(tokenizer: Path, tmp_path: Path, choice: str, texts: list[str]) -> None:
    path = write_file(tmp_path / "a.parquet", [b"one", b"bad \xff", b"three"])
    settings = project(path, tokenizer, tmp_path / "out", {"carry": ["id"]}, on_invalid_utf8=choice)
    counts = tokenize_corpus(settings)["counts"]
    rows = sorted(rows_in(tmp_path / "out"), key=lambda row: int(row["source_row"]))
    loaded = Tokenizer.load(tokenizer)
    assert [loaded.decode(real_ids(row), skip_special_tokens=True) for row in rows] == texts
    assert [row["id"] for row in rows] == [row["source_row"] for row in rows] == [0, 1, 2][:: 3 - len(texts) + 1]
    assert counts["skipped_documents" if choice == "skip" else "replaced_documents"] == 1
    assert counts["documents"] == 3 == parts_of_documents(counts)


SETTINGS: list[dict[str, Any]] = [
    {"bucket_lengths": (8, 16)},
    {"on_overflow": "truncate"},
    {"on_overflow": "drop"},
    {"overlap": 1},
    {"begin_token": True},
    {"end_token": False},
    {"labels": True},
    {"token_type_ids": True},
    {"layout": "packed"},
    {"shuffle_seed": 1},
    {"carry": ("id",)},
    {"provenance": False},
    {"task_bytes": 2500},
    {"row_group_bytes": 100},
    {"compression_level": 19},
]


@pytest.mark.slow
@pytest.mark.parametrize("changed", SETTINGS, ids=str)
def test_every_setting_has_an_effect(
    corpus: Path, tokenizer: Path, tmp_path: Path, finished: Path, changed: dict[str, Any]
) -> None:
    tokenize_corpus(project(corpus, tokenizer, tmp_path, changed))
    assert shards_in(tmp_path) != shards_in(finished)
    if {"task_bytes", "row_group_bytes", "compression_level"} & set(changed):
        assert ids_by_document(rows_in(tmp_path)) == ids_by_document(rows_in(finished))


def test_every_setting_is_tried_above() -> None:
    # For the settings tried elsewhere, see test_plan.py, test_bucket_choice.py and test_packed_rows.py.
    tried_elsewhere = {
        *("special_in_text", "repeated_ends", "on_changed", "on_removed", "buckets", "row_length", "unicode"),
    }
    tried = {name for changed in SETTINGS for name in changed} | tried_elsewhere
    assert tried == set(Shards.model_fields) - {"output", "tokenizer", "pattern", "special_tokens", "engine"}


def test_special_tokens_spelled_in_texts_are_what_the_setting_says(tokenizer: Path, tmp_path: Path) -> None:
    loaded = Tokenizer.load(tokenizer)
    end = loaded.special_roles["eos"]
    text = f"one {end} two{end}"
    path = write_file(tmp_path / "a.parquet", ["plain", text])
    for choice in ("plain", "allow"):
        settings = project(path, tokenizer, tmp_path / choice, {"special_in_text": choice})
        counts = tokenize_corpus(settings)["counts"]
        rows = {row["source_row"]: real_ids(row) for row in rows_in(tmp_path / choice)}
        assert rows[1] == [*loaded.encode(text, special=choice), loaded.special_id("eos")]
        assert rows[1].count(loaded.special_tokens[str(end)]) == (3 if choice == "allow" else 1)
        assert counts["special_spellings"] == 2
    with pytest.raises(
        BadInputError, match=rf"a\.parquet, rows 0 to 1: text 1 spells the special token '{re.escape(str(end))}'"
    ):
        tokenize_corpus(project(path, tokenizer, tmp_path / "refuse", {"special_in_text": "refuse"}))


@pytest.mark.parametrize("bos", ["<s>", "</s>"])
def test_ends_that_a_text_spells_itself_are_kept_or_dropped_and_counted(
    tmp_path: Path, bos: str, capsys: pytest.CaptureFixture[str]
) -> None:
    special = {"bos": bos, "eos": "</s>"} if bos == "<s>" else {"bos": bos, "eos": bos}
    trained = Tokenizer.train(["hug"], vocab_size=256 + len(set(special.values())), special_tokens=special)
    trained.save(tmp_path / "tokenizer")
    begin, end = trained.special_id("bos"), trained.special_id("eos")
    texts = ["a", f"{bos}a</s>", f"{bos}a", "a</s>", bos, f"{bos}{bos}a", "a</s>b"]
    path = write_file(tmp_path / "a.parquet", texts)
    rows = {}
    for choice in ("keep", "drop"):
        options = {"special_in_text": "allow", "begin_token": True, "repeated_ends": choice}
        settings = project(path, tmp_path / "tokenizer", tmp_path / choice, options)
        counts = tokenize_corpus(settings)["counts"]
        rows[choice] = [real_ids(row) for row in sorted(rows_in(tmp_path / choice), key=lambda row: row["source_row"])]
        assert (counts["texts_with_begin_token"], counts["texts_with_end_token"]) == (4, 2)
        said = capsys.readouterr().err
        assert "4 texts begin with the begin token that is added to them; see shards.repeated_ends" in said
        assert "2 texts end with the end token that is added to them; see shards.repeated_ends" in said
        shards = tmp_path / choice
        assert all(check.status != "fail" for check in check_shards(str(shards), trained))
    ids = [trained.encode(text, special="allow") for text in texts]
    assert rows["keep"] == [[begin, *of_text, end] for of_text in ids]
    a, b = ord("a"), ord("b")
    assert rows["drop"] == [
        *([begin, a, end] for _ in range(4)),
        [begin, end],
        [begin, begin, a, end],
        [begin, a, end, b, end],
    ]


def test_dropping_repeated_ends_needs_special_tokens_in_texts(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="repeated_ends: drop has no effect with special_in_text: plain"):
        Shards(output="o", repeated_ends="drop")
    with pytest.raises(ValueError, match="repeated_ends: drop has no effect without begin_token and end_token"):
        Shards(output="o", repeated_ends="drop", special_in_text="allow", end_token=False)


def test_shards_are_written_with_a_tiktoken_file_and_a_pattern(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    trained = Tokenizer.train(texts_of(corpus).values(), vocab_size=300, special_tokens={"eos": "<end>"})
    trained.save(tmp_path / "saved")
    (ranks,) = export_tokenizer(trained, tmp_path, "tiktoken")
    special = {"pattern": "gpt2", "special_tokens": {"eos": {"<end>": 299}}}
    tokenize_corpus(project(corpus, ranks, tmp_path / "ranks", special))
    tokenize_corpus(project(corpus, tmp_path / "saved", tmp_path / "merges"))
    assert rows_in(tmp_path / "ranks") == rows_in(tmp_path / "merges")
    with pytest.raises(ValueError, match=r"tokenizer\.tiktoken has no eos or sep token; its roles are none"):
        tokenize_corpus(project(corpus, ranks, tmp_path / "none", {"pattern": "gpt2"}))


def test_shards_of_a_tiktoken_file_are_normalized_if_the_settings_say_so(tokenizer: Path, tmp_path: Path) -> None:
    (ranks,) = export_tokenizer(Tokenizer.train(["cafe"], vocab_size=258), tmp_path, "tiktoken")
    corpus = write_file(tmp_path / "a.parquet", ["caf\u00e9", "cafe\u0301"])
    ids = {}
    for unicode in ("none", "NFC"):
        settings = {"pattern": "gpt2", "unicode": unicode, "special_tokens": {"eos": {"<end>": 258}}}
        tokenize_corpus(project(corpus, ranks, tmp_path / unicode, settings))
        ids[unicode] = [real_ids(row) for row in sorted(rows_in(tmp_path / unicode), key=lambda row: row["source_row"])]
    assert ids["none"][0] != ids["none"][1]
    assert ids["NFC"] == [ids["none"][0]] * 2
    with pytest.raises(ValueError, match="already contains the pattern and the normalization"):
        tokenize_corpus(project(corpus, tokenizer, tmp_path / "own", {"unicode": "NFC"}))


def test_a_tokenizer_of_the_library_gives_shards_with_the_tokens_that_the_settings_name(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="pip install tokenmill[hf]")
    content = make_word_level_content(normalizer=None)
    del content["added_tokens"][2]  # [SEP] is in the vocabulary only, and no file gives it a role.
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    corpus = write_file(tmp_path / "a.parquet", ["hug pug!", "pug", "", "hug [SEP] x", "hug pug!"])
    named = {"special_tokens": {"eos": {"[SEP]": 2}, "pad": {"[PAD]": 7}}}
    with pytest.raises(ValueError, match=r"has no eos or sep token; .* or name the token in shards\.special_tokens"):
        tokenize_corpus(project(corpus, tmp_path / "tokenizer.json", tmp_path / "none"))
    settings = project(corpus, tmp_path / "tokenizer.json", tmp_path / "out", named, deduplicate="exact")
    tokenize_corpus(settings)
    rows = sorted(rows_in(tmp_path / "out"), key=lambda row: row["source_row"])
    assert [real_ids(row) for row in rows] == [[3, 4, 6, 2], [4, 2], [3, 0, 0, 0, 0, 2]]
    assert {row["input_ids"][-1] for row in rows} == {7}
    checks = check_shards(str(tmp_path / "out"), read_job_tokenizer(cast(Shards, settings.shards)))
    assert {check.status for check in checks} <= {"pass", "skip"}


def test_row_groups_are_as_large_as_asked(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    settings = {"bucket_lengths": [16], "row_group_bytes": 16 * 4 * 7, "task_bytes": 10**9}
    tokenize_corpus(project(corpus, tokenizer, tmp_path, settings))
    [path] = tmp_path.glob("bucket=16/*.parquet")
    metadata = pq.read_metadata(path)
    sizes = [metadata.row_group(index).num_rows for index in range(metadata.num_row_groups)]
    assert len(sizes) > 10
    assert set(sizes[:-1]) == {7}
    assert 0 < sizes[-1] <= 7


def test_the_manifest_lists_the_files_on_disk_with_what_they_hold(finished: Path, corpus: Path) -> None:
    manifest = read_json(f"{finished}/_manifest.json")
    listed = [shard["path"] for shard in manifest["shards"]]
    assert sorted(listed) == sorted(shards_in(finished))
    tasks = read_json(f"{finished}/_plan.json")["tasks"]
    assert len(tasks) > 5
    entries = {f"_tasks/{name}.{what}" for name in tasks for what in ("json", "token_counts.parquet")}
    assert set(contents(finished)) == {
        *listed,
        *entries,
        ".huggingface.yaml",
        "_manifest.json",
        "_plan.json",
        "_SUCCESS",
        "_token_counts.npy",
    }
    assert {path.name for path in finished.rglob("*") if path.is_dir()} == {*(f"bucket={n}" for n in BUCKETS), "_tasks"}
    for shard in manifest["shards"]:
        table = pq.ParquetFile(finished / shard["path"]).read()
        assert shard["path"].startswith(f"bucket={shard['bucket']}/part-")
        assert shard["rows"] == table.num_rows
        assert shard["tokens"] == sum(table["length"].to_pylist())
        assert shard["bytes"] == (finished / shard["path"]).stat().st_size
        assert shard["sha256"] == hashlib.sha256((finished / shard["path"]).read_bytes()).hexdigest()
    for bucket, facts in manifest["buckets"].items():
        of_bucket = [shard for shard in manifest["shards"] if shard["bucket"] == int(bucket)]
        rows, tokens = (sum(shard[key] for shard in of_bucket) for key in ("rows", "tokens"))
        padding = facts.pop("padding_share")
        assert facts == {"shards": len(of_bucket), "rows": rows, "tokens": tokens}
        masks = [m for row in rows_in(finished) if row["bucket"] == int(bucket) for m in row["attention_mask"]]
        assert padding == pytest.approx(masks.count(0) / len(masks), abs=1e-6)
    counts = manifest["counts"]
    assert counts["documents"] == 105 == parts_of_documents(counts)
    assert counts["rows"] == len(rows_in(finished)) == sum(shard["rows"] for shard in manifest["shards"])
    assert counts["row_tokens"] == counts["tokens"] == sum(shard["tokens"] for shard in manifest["shards"])
    assert counts["text_bytes"] == sum(len(text.encode()) for text in texts_of(corpus).values())


def test_the_manifest_names_the_tokenizer_and_the_inputs(finished: Path, corpus: Path, tokenizer: Path) -> None:
    manifest = read_json(f"{finished}/_manifest.json")
    assert manifest["tokenizer"] == Tokenizer.load(tokenizer).fingerprint
    assert {path: facts["bytes"] for path, facts in manifest["inputs"].items()} == {
        str(path): path.stat().st_size for path in corpus.glob("*.parquet")
    }


def test_pyarrow_and_polars_read_the_folder(finished: Path) -> None:
    rows = rows_in(finished)
    expected = Counter((row["bucket"], tuple(row["input_ids"]), row["source_row"]) for row in rows)
    table = ds.dataset(finished, partitioning="hive", format="parquet").to_table()
    frame = pl.scan_parquet(finished / "bucket=*" / "*.parquet", hive_partitioning=True).collect()
    for found in (table.to_pylist(), frame.to_dicts()):
        assert Counter((row["bucket"], tuple(row["input_ids"]), row["source_row"]) for row in found) == expected
    assert ds.dataset(finished, partitioning="hive").count_rows(filter=ds.field("bucket") == 8) == sum(
        row["bucket"] == 8 for row in rows
    )


def test_hugging_face_datasets_reads_the_folder(
    finished: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    datasets = pytest.importorskip("datasets", reason="datasets is not installed (pip install -e .[dev])")
    datasets.disable_progress_bars()
    files = str(finished / "bucket=*" / "*.parquet")
    loaded = datasets.load_dataset("parquet", data_files=files, split="train", cache_dir=str(tmp_path / "cache"))
    rows = rows_in(finished)
    assert Counter(tuple(row["input_ids"]) for row in loaded) == Counter(tuple(row["input_ids"]) for row in rows)
    assert set(loaded.column_names) == set(rows[0]) - {"bucket"}


@pytest.mark.parametrize(
    ("special_tokens", "settings", "message"),
    [
        ({"pad": "<pad>"}, {}, r"shards\.end_token is true, but .*tok has no eos or sep token; its roles are \{'pad'"),
        ({"eos": "<eos>"}, {"begin_token": True}, r"shards\.begin_token is true, but .*tok has no bos or cls token"),
        ({"bos": "<bos>"}, {"end_token": False}, r"tok has neither a pad nor an eos token to pad rows with"),
        ({}, {"end_token": False}, r"tok has neither a pad nor an eos token to pad rows with"),
    ],
)
def test_missing_special_tokens_are_named_before_anything_is_written(
    corpus: Path, tmp_path: Path, special_tokens: Any, settings: Any, message: str
) -> None:
    Tokenizer.train(["the cat"], num_merges=1, special_tokens=special_tokens).save(tmp_path / "tok")
    with pytest.raises(ValueError, match=message):
        tokenize_corpus(project(corpus, tmp_path / "tok", tmp_path / "out", settings))
    assert not (tmp_path / "out").exists()


def test_missing_inputs_fail_before_anything_is_written(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        tokenize_corpus(project(corpus / "*.txt", tokenizer, tmp_path / "out"))
    with pytest.raises(FileNotFoundError, match=r"no/tokenizer\.json: no such file"):
        tokenize_corpus(project(corpus, tmp_path / "no", tmp_path / "out"))
    with pytest.raises(ValueError, match="no column 'url' to carry"):
        tokenize_corpus(project(corpus, tokenizer, tmp_path / "out", {"carry": ["url"]}))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("placement", ["apart", "glued"])
def test_kind_char_decodes_to_words_with_one_space_between(corpus: Path, tmp_path: Path, placement: Any) -> None:
    texts = {place: " ".join(text.split()) for place, text in texts_of(corpus).items()}
    special = {**SPECIAL_TOKENS, "unk": "<unk>"}
    loaded = Tokenizer.train(
        texts.values(), kind="char", num_merges=80, special_tokens=special, end_of_word_placement=placement
    )
    loaded.save(tmp_path / "tok")
    counts = tokenize_corpus(project(corpus, tmp_path / "tok", tmp_path / "out", {"begin_token": True}))["counts"]
    ids = ids_by_document(rows_in(tmp_path / "out"))
    begin, end = loaded.special_tokens["<bos>"], loaded.special_tokens["<eos>"]
    assert {(found[0], found[-1]) for found in ids.values()} == {(begin, end)}
    assert {place: loaded.decode(found[1:-1]) for place, found in ids.items()} == {
        place: text for place, text in texts.items() if text
    }
    assert counts["unknown_tokens"] == 0
    assert counts["empty_documents"] == 6  # Three are empty, and three hold only a line feed.


def test_characters_without_a_symbol_become_unk_and_are_counted(tmp_path: Path) -> None:
    special = {**SPECIAL_TOKENS, "unk": "<unk>"}
    loaded = Tokenizer.train(["the cat"], kind="char", num_merges=2, special_tokens=special)
    loaded.save(tmp_path / "tok")
    path = write_file(tmp_path / "a.parquet", ["the cat", "the dog!"])
    counts = tokenize_corpus(project(path, tmp_path / "tok", tmp_path / "out"))["counts"]
    assert counts["unknown_tokens"] == len("dog!")
    Tokenizer.train(["the cat"], kind="char", num_merges=2, special_tokens=SPECIAL_TOKENS).save(tmp_path / "tok2")
    with pytest.raises(
        BadInputError, match=r"a\.parquet, rows 0 to 1: the character 'd' \(U\+0064\) is not in the vocabulary"
    ):
        tokenize_corpus(project(path, tmp_path / "tok2", tmp_path / "out2"))


def test_json_lines_and_text_are_tokenized(tokenizer: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "a.jsonl").write_text('{"text": "first\\n"}\n\n{"text": null}\n{"text": "größer"}\n', encoding="utf-8")
    (corpus / "b.txt").write_text("one\ntwo\n\nthree", encoding="utf-8")
    loaded = Tokenizer.load(tokenizer)
    tokenize_corpus(project(corpus, tokenizer, tmp_path / "out", text_document="line"))
    ids = ids_by_document(rows_in(tmp_path / "out"))
    assert {place: loaded.decode(found, skip_special_tokens=True) for place, found in ids.items()} == {
        (f"{corpus}/a.jsonl", 0): "first\n",
        (f"{corpus}/a.jsonl", 3): "größer",
        (f"{corpus}/b.txt", 0): "one",
        (f"{corpus}/b.txt", 1): "two",
        (f"{corpus}/b.txt", 3): "three",
    }


def test_json_values_are_carried_as_text(tokenizer: Path, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a", "n": 1}\n{"text": "b", "n": null}\n{"text": "c", "n": "x"}\n')
    tokenize_corpus(project(tmp_path / "a.jsonl", tokenizer, tmp_path / "out", {"carry": ["n"]}))
    assert {row["source_row"]: row["n"] for row in rows_in(tmp_path / "out")} == {0: "1", 1: None, 2: "x"}


def test_files_of_the_same_name_do_not_collide(tokenizer: Path, tmp_path: Path) -> None:
    first = write_file(tmp_path / "x" / "part.parquet", ["from x"] * 3)
    second = write_file(tmp_path / "y" / "part.parquet", ["from y"] * 3)
    tokenize_corpus(project((first, second), tokenizer, tmp_path / "out", {"task_bytes": 1}))
    loaded = Tokenizer.load(tokenizer)
    ids = ids_by_document(rows_in(tmp_path / "out"))
    assert {place: loaded.decode(found, skip_special_tokens=True) for place, found in ids.items()} == {
        **{(str(first), row): "from x" for row in range(3)},
        **{(str(second), row): "from y" for row in range(3)},
    }


def test_one_large_document_among_short_ones(tokenizer: Path, tmp_path: Path) -> None:
    large = " ".join(["the cat sat on größer mat"] * 120_000)
    assert len(large.encode()) > 3_000_000
    path = write_file(tmp_path / "a.parquet", ["the cat", large, "the mat"])
    tokenize_corpus(project(path, tokenizer, tmp_path / "out", {"bucket_lengths": [8, 2048]}))
    loaded = Tokenizer.load(tokenizer)
    table = ds.dataset(tmp_path / "out" / "bucket=2048").to_table().sort_by("source_part")
    assert set(table["length"].to_pylist()[:-1]) == {2048}
    ids = table["input_ids"].combine_chunks().flatten()
    kept = ids.filter(pa.array(np.asarray(table["attention_mask"].combine_chunks().flatten()) == 1))
    assert loaded.decode(kept.to_pylist(), skip_special_tokens=True) == large
    assert [row["source_row"] for row in rows_in(tmp_path / "out") if row["bucket"] == 8] == [0, 2]


@pytest.mark.slow
def test_many_documents_of_one_letter(tokenizer: Path, tmp_path: Path) -> None:
    letters = [chr(ord("a") + number % 26) for number in range(20_000)]
    path = write_file(tmp_path / "a.parquet", letters, row_group_size=20_000)
    manifest = tokenize_corpus(project(path, tokenizer, tmp_path / "out", {"task_bytes": 10**9}))
    [shard] = manifest["shards"]
    table = pq.ParquetFile(tmp_path / "out" / shard["path"]).read()
    assert table["source_row"].to_pylist() == list(range(20_000))
    loaded = Tokenizer.load(tokenizer)
    end = loaded.special_tokens["<eos>"]
    assert [ids[:2] for ids in table["input_ids"].to_pylist()] == [[*loaded.encode(letter), end] for letter in letters]
    assert manifest["buckets"] == {"8": {"shards": 1, "rows": 20_000, "tokens": 40_000, "padding_share": 0.75}}


@pytest.mark.slow
def test_ids_above_65535_are_kept(tmp_path: Path) -> None:
    chance = random.Random(1)
    words = ["".join(chance.choices("abcdefghijklmnopqrstuvwxyz", k=12)) for _ in range(14_000)]
    loaded = Tokenizer.train(words, num_merges=70_000, special_tokens=SPECIAL_TOKENS)
    loaded.save(tmp_path / "tok")
    path = write_file(tmp_path / "a.parquet", words[:1000])
    tokenize_corpus(project(path, tmp_path / "tok", tmp_path / "out", {"labels": True}))
    rows = sorted(rows_in(tmp_path / "out"), key=lambda row: int(row["source_row"]))
    assert sum(max(loaded.encode(word)) > 65_535 for word in words[:1000]) > 10
    expected = [[*loaded.encode(word), loaded.special_tokens["<eos>"]] for word in words[:1000]]
    assert [real_ids(row) for row in rows] == expected
    assert [row["labels"][: row["length"]] for row in rows] == expected
    assert {row["input_ids"][-1] for row in rows} == {loaded.special_tokens["<pad>"]}


@pytest.mark.parametrize("texts", [[], [None, None], ["", ""]])
def test_a_corpus_without_text_gives_no_shards(tokenizer: Path, tmp_path: Path, texts: list[str | None]) -> None:
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), tmp_path / "a.parquet")
    manifest = tokenize_corpus(project(tmp_path / "a.parquet", tokenizer, tmp_path / "out"))
    assert manifest["counts"].get("documents", 0) == len(texts) == parts_of_documents(manifest["counts"])
    assert (manifest["buckets"], manifest["shards"]) == ({}, [])
    assert set(contents(tmp_path / "out")) == {
        *(".huggingface.yaml", "_SUCCESS", "_manifest.json", "_plan.json", "_token_counts.npy"),
        *("_tasks/00000.json", "_tasks/00000.token_counts.parquet"),
    }


def test_progress_is_shown_and_changes_nothing(
    corpus: Path, tokenizer: Path, tmp_path: Path, finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenize_corpus(project(corpus, tokenizer, tmp_path, run={"progress": True}))
    assert "tokenizing" in capsys.readouterr().err
    assert contents(tmp_path) == contents(finished)


@pytest.mark.slow
def test_two_workers_give_the_same_bytes_as_one(corpus: Path, tokenizer: Path, tmp_path: Path, finished: Path) -> None:
    tokenize_corpus(project(corpus, tokenizer, tmp_path, run={"workers": 2}))
    assert contents(tmp_path) == contents(finished)


def no_pipeline(*_: Any) -> None:
    raise AssertionError("a pipeline was run")


def test_a_finished_output_is_left_as_it_is(
    corpus: Path,
    tokenizer: Path,
    finished: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    before = times(finished)
    monkeypatch.setattr(job, "run_pipeline", no_pipeline)
    manifest = tokenize_corpus(project(corpus, tokenizer, finished, run={"workers": 2}))
    assert capsys.readouterr().err.startswith("nothing to do: ")
    assert manifest == read_json(f"{finished}/_manifest.json")
    assert times(finished) == before


def cut_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("bucket=16/part-00003.parquet", Path.unlink),
        ("bucket=16/part-00003.parquet", cut_short),
        ("_tasks/00003.json", Path.unlink),
        ("_tasks/00003.json", cut_short),
        ("_tasks/00003.json", lambda path: path.write_text("[]")),
        ("_tasks/00003.token_counts.parquet", Path.unlink),
    ],
)
def test_only_the_task_with_a_missing_or_damaged_file_is_repeated(
    corpus: Path, tokenizer: Path, tmp_path: Path, finished: Path, name: str, damage: Callable[[Path], None]
) -> None:
    tokenize_corpus(project(corpus, tokenizer, tmp_path))
    before = times(tmp_path)
    damage(tmp_path / name)
    tokenize_corpus(project(corpus, tokenizer, tmp_path))
    assert contents(tmp_path) == contents(finished)
    after = times(tmp_path)
    again = {path for path in before if after[path] != before[path]}
    shards = {shard["path"] for shard in read_json(f"{tmp_path}/_tasks/00003.json")["shards"]}
    assert again == {
        *(*shards, "_tasks/00003.json", "_tasks/00003.token_counts.parquet"),
        *("_plan.json", "_manifest.json", "_token_counts.npy", ".huggingface.yaml", "_SUCCESS"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("_manifest.json", Path.unlink),
        ("_SUCCESS", Path.unlink),
        ("_plan.json", Path.unlink),
        ("_manifest.json", cut_short),
        ("_plan.json", lambda path: path.write_text("{")),
    ],
)
def test_a_missing_or_damaged_file_about_the_output_is_written_again(
    corpus: Path,
    tokenizer: Path,
    tmp_path: Path,
    finished: Path,
    name: str,
    damage: Callable[[Path], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenize_corpus(project(corpus, tokenizer, tmp_path))
    damage(tmp_path / name)
    monkeypatch.setattr(job, "run_pipeline", no_pipeline)  # No task is repeated.
    manifest = tokenize_corpus(project(corpus, tokenizer, tmp_path))
    assert contents(tmp_path) == contents(finished)
    assert manifest == read_json(f"{finished}/_manifest.json")


@pytest.mark.slow
def test_leftovers_of_a_failed_run_are_deleted(tokenizer: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus"
    write_file(corpus / "a.parquet", [b"one", b"two", b"bad \xff", b"three"], row_group_size=1)
    settings = {"task_bytes": 1, "bucket_lengths": [8]}
    with pytest.raises(BadInputError):
        tokenize_corpus(project(corpus, tokenizer, tmp_path / "out", settings))
    assert not list((tmp_path / "out").rglob("_temporary/*/*"))
    write_file(corpus / "a.parquet", [b"one", b"two", b"good", b"three"], row_group_size=1)
    with pytest.raises(ValueError, match="from files that have changed"):
        tokenize_corpus(project(corpus, tokenizer, tmp_path / "out", settings))
    (tmp_path / "out" / "_temporary" / "00000-old").mkdir(parents=True, exist_ok=True)
    (tmp_path / "out" / "_temporary" / "00000-old" / "8.parquet").write_bytes(b"PAR1")
    tokenize_corpus(project(corpus, tokenizer, tmp_path / "out", settings, {"overwrite": True}))
    tokenize_corpus(project(corpus, tokenizer, tmp_path / "fresh", settings))
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")
    assert not list((tmp_path / "out").rglob("_temporary"))


@pytest.mark.slow
def test_new_files_become_new_tasks_and_old_shards_stay(tokenizer: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    tokenize_corpus(project(corpus, tokenizer, tmp_path / "out"))
    before, written = contents(tmp_path / "out"), times(tmp_path / "out")
    write_file(corpus / "0.parquet", documents(7))
    manifest = tokenize_corpus(project(corpus, tokenizer, tmp_path / "out"))
    after = contents(tmp_path / "out")
    kept = [name for name in before if name.startswith(("bucket=", "_tasks"))]
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert {name: times(tmp_path / "out")[name] for name in kept} == {name: written[name] for name in kept}
    assert len(shards_in(tmp_path / "out")) > len([name for name in kept if name.startswith("bucket=")])
    assert sorted(shard["path"] for shard in manifest["shards"]) == sorted(shards_in(tmp_path / "out"))
    assert set(manifest["inputs"]) == {str(path) for path in corpus.glob("*.parquet")}
    loaded = Tokenizer.load(tokenizer)
    ids = ids_by_document(rows_in(tmp_path / "out"))
    texts = {place: loaded.decode(found, skip_special_tokens=True) for place, found in ids.items()}
    assert texts == texts_of(corpus)
    assert manifest["counts"]["documents"] == 4 * 35


def test_another_tokenizer_or_other_settings_are_refused(
    corpus: Path, tokenizer: Path, tmp_path: Path, finished: Path
) -> None:
    before = contents(finished)
    other = Tokenizer.train(["the cat"], vocab_size=262, special_tokens=SPECIAL_TOKENS)
    other.save(tmp_path)
    was = Tokenizer.load(tokenizer).fingerprint
    for settings, message in [
        (project(corpus, tmp_path, finished), f'tokenizer: "{was}" before, "{other.fingerprint}" now'),
        (project(corpus, tokenizer, finished, {"overlap": 2}), "settings.shards.overlap: 0 before, 2 now"),
        (
            project(corpus, tokenizer, finished, {"bucket_lengths": [8]}),
            "settings.shards.bucket_lengths: [8, 16, 32] before, [8] now",
        ),
        (
            project(corpus, tokenizer, finished, on_invalid_utf8="skip"),
            'settings.corpus.on_invalid_utf8: "fail" before, "skip" now',
        ),
    ]:
        with pytest.raises(ValueError, match="was made with another tokenizer or other settings") as caught:
            tokenize_corpus(settings)
        assert message in str(caught.value)
        assert "--run.overwrite true" in str(caught.value)
    assert contents(finished) == before


def test_changed_or_removed_files_are_refused(tokenizer: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    tokenize_corpus(project(corpus, tokenizer, tmp_path / "out"))
    before = contents(tmp_path / "out")
    old = read_json(f"{tmp_path}/out/_plan.json")["inputs"][f"{corpus}/b.parquet"]
    path = write_file(corpus / "b.parquet", ["changed"])
    with pytest.raises(ValueError, match="from files that have changed") as caught:
        tokenize_corpus(project(corpus, tokenizer, tmp_path / "out"))
    assert f"{path}.bytes: {old['bytes']} before, {path.stat().st_size} now" in str(caught.value)
    assert f'{path}.fingerprint: "{old["fingerprint"]}" before, "' in str(caught.value)
    path.unlink()
    with pytest.raises(ValueError, match=r'b\.parquet: \{"bytes": .* before, null now'):
        tokenize_corpus(project(corpus, tokenizer, tmp_path / "out"))
    assert contents(tmp_path / "out") == before


@pytest.mark.slow
def test_overwrite_replaces_what_the_job_wrote_and_nothing_else(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    tokenize_corpus(project(corpus, tokenizer, tmp_path / "out", {"bucket_lengths": [4, 8, 50]}))
    (tmp_path / "out" / "README.md").write_text("mine")
    (tmp_path / "out" / "bucket=8" / "notes.txt").write_text("mine")
    tokenize_corpus(project(corpus, tokenizer, tmp_path / "out", run={"overwrite": True}))
    tokenize_corpus(project(corpus, tokenizer, tmp_path / "fresh"))
    mine = {"README.md": b"mine", "bucket=8/notes.txt": b"mine"}
    assert contents(tmp_path / "out") == {**contents(tmp_path / "fresh"), **mine}


def test_overwrite_deletes_nothing_when_an_input_is_wrong(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    tokenize_corpus(project(corpus, tokenizer, tmp_path))
    before = contents(tmp_path)
    overwrite = {"overwrite": True}
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        tokenize_corpus(project(corpus / "*.txt", tokenizer, tmp_path, run=overwrite))
    with pytest.raises(FileNotFoundError, match="no such file"):
        tokenize_corpus(project(corpus, corpus, tmp_path, run=overwrite))
    with pytest.raises(ValueError, match="no column 'url' to carry"):
        tokenize_corpus(project(corpus, tokenizer, tmp_path, {"carry": ["url"]}, overwrite))
    assert contents(tmp_path) == before


def test_a_task_that_did_not_finish_is_named(
    corpus: Path, tokenizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job, "run_pipeline", lambda *_: None)
    with pytest.raises(
        PipelineError, match=r"\d+ tasks did not finish, the first is 00000; run the same command again"
    ):
        tokenize_corpus(project(corpus, tokenizer, tmp_path))
    assert set(contents(tmp_path)) == {"_plan.json"}


def test_a_tokenizer_and_shards_cannot_share_a_folder(tokenizer: Path, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus")
    for again in ({}, {"overwrite": True}):
        with pytest.raises(ValueError, match=r"holds a tokenizer; choose another shards\.output"):
            tokenize_corpus(project(corpus, tokenizer, tokenizer, run=again))
    output = tmp_path / "out"
    tokenize_corpus(project(corpus, tokenizer, output))
    before = sorted(output.rglob("*"))
    content = {"corpus": {"files": [str(corpus)]}, "tokenizer": {"vocab_size": 300}, "train": {"output": str(output)}}
    for overwrite in (False, True):
        with pytest.raises(ValueError, match=r"holds training shards; choose another train\.output"):
            train_tokenizer(Project.model_validate({**content, "run": {"overwrite": overwrite}}))
    assert sorted(output.rglob("*")) == before
