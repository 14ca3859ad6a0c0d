"""Faults that public reports about other tools describe, tried on both jobs; `docs/faults.md` says what holds each."""

import ast
import base64
import errno
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from corpus_files import make_string_column, write_bytes, write_parquet
from resources import measure_peak_memory

from bpe_core import PreTokenizer, Tokenizer, count_words
from bpe_core.export import export_tokenizer
from pipelines.errors import BadInputError, PipelineError
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import plan_tasks
from pipelines.running.worker_processes import WorkerGroup
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.project_file import load_project
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.shard_writer import ShardWriter
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus
from pipelines.training.count_words import TOTALS, _CountTaskWords
from pipelines.training.train_tokenizer import train_tokenizer

ROOT = Path(__file__).parent.parent
END = 256
"""The id of the end token of a tokenizer without merges."""

Row = dict[str, Any]


class Result(NamedTuple):
    """What both jobs made of a corpus.

    Attributes:
        words: how often job 1 counted each word.
        totals: what job 1 counted besides words.
        tokenizer: what job 1 wrote.
        counts: what job 2 counted.
        rows: the rows of all shards, by source file, row and part.
    """

    words: dict[bytes, int]
    totals: dict[str, int]
    tokenizer: Tokenizer
    counts: dict[str, int]
    rows: list[Row]

    @property
    def texts(self) -> list[str]:
        """The texts of the rows, without special tokens."""
        ids = [row["input_ids"][: row["length"]] for row in self.rows]
        return [self.tokenizer.decode(of_row, skip_special_tokens=True) for of_row in ids]


def make_project(
    corpus: Path,
    output: Path,
    tokenizer: dict[str, Any] | None = None,
    shards: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    **options: Any,
) -> Project:
    """Returns the settings of both jobs, which write into folders of `output`; `options` are settings of the corpus."""
    learned = {"num_merges": 3, "special_tokens": {"eos": "<eos>", "unk": "<unk>"}, **(tokenizer or {})}
    return Project(
        corpus=Corpus(files=(str(corpus),), **options),
        tokenizer=TokenizerSettings(**learned),
        train=Train(output=str(output / "tokenizer"), num_partitions=2),
        shards=Shards(output=str(output / "shards"), **{"bucket_lengths": (8, 64), **(shards or {})}),
        run=Run(**{"workers": 1, "progress": False, **(run or {})}),
    )


def run_both_jobs(corpus: Path, output: Path, *settings: Any, **options: Any) -> Result:
    """Runs both jobs; the arguments are those of `make_project`."""
    project = make_project(corpus, output, *settings, **options)
    tokenizer = train_tokenizer(project)
    manifest = tokenize_corpus(project)
    tables = [pq.read_table(path) for path in sorted((output / "tokenizer" / "word_counts").glob("*.parquet"))]
    words = {row["word"]: row["count"] for table in tables for row in table.to_pylist()}
    totals = read_json(str(output / "tokenizer" / "word_counts" / "_manifest.json"))["totals"]
    return Result(words, totals, tokenizer, manifest["counts"], rows_in(output / "shards"))


def rows_in(output: Path) -> list[Row]:
    rows: list[Row] = [
        row for path in output.glob("bucket=*/*.parquet") for row in pq.ParquetFile(path).read().to_pylist()
    ]
    return sorted(rows, key=lambda row: (row["source_file"], row["source_row"], row["source_part"]))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def tokenize(texts: Sequence[str], folder: Path, **shards: Any) -> tuple[dict[str, Any], list[Row]]:
    """Tokenizes documents with one id per byte; returns the manifest and the rows."""
    if not (folder / "tokenizer").exists():
        Tokenizer.train(["x"], num_merges=0, special_tokens={"eos": "<eos>"}).save(folder / "tokenizer")
    corpus = write_parquet(folder / "corpus.parquet", {"text": pa.array(texts, pa.string())})
    settings = Shards(output=str(folder / "shards"), tokenizer=str(folder / "tokenizer"), **shards)
    run = Run(workers=1, progress=False)
    manifest = tokenize_corpus(Project(corpus=Corpus(files=(str(corpus),)), shards=settings, run=run))
    return manifest, rows_in(folder / "shards")


# The document.


def list_tests(path: Path) -> set[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_the_document_names_each_fault_once_and_only_tests_that_exist() -> None:
    text = (ROOT / "docs" / "faults.md").read_text(encoding="utf-8")
    sizes = {"A": 8, "B": 12, "C": 4, "D": 13, "E": 9, "F": 7, "G": 7, "R": 10, "O": 9, "L": 13}
    expected = [f"{group}{number}" for group, size in sizes.items() for number in range(1, size + 1)]
    rows = re.findall(r"^\| ([A-Z]\d+) \|.*$", text, re.MULTILINE)
    assert rows == expected
    assert len(rows) == 92
    for row in re.findall(r"^\| [A-Z]\d+ \|.*$", text, re.MULTILINE):
        named = re.findall(r"`(tests/[\w/]+\.py)::(test_\w+)`", row)
        assert named or "cannot occur" in row, row
        assert [name for path, name in named if name not in list_tests(ROOT / path)] == []
        assert len(named) == row.count("::"), row


# Text (D).

BAD_ROW = 50


@pytest.mark.parametrize("policy", ["fail", "replace", "skip", "quarantine"])
def test_a_string_column_with_bytes_that_are_not_utf8_follows_the_policy_in_both_jobs(
    policy: str, tmp_path: Path
) -> None:
    texts = [b"good"] * 101
    texts[BAD_ROW] = b"\x61\xff\x62"
    corpus = write_parquet(tmp_path / "a.parquet", {"text": make_string_column(texts)}, row_group_size=30)
    if policy == "fail":
        project = make_project(corpus, tmp_path)
        Tokenizer.train(["x"], num_merges=0, special_tokens={"eos": "<eos>"}).save(tmp_path / "saved")
        shards = Shards(output=str(tmp_path / "shards"), tokenizer=str(tmp_path / "saved"))
        for run_job in (
            lambda: train_tokenizer(project),
            lambda: tokenize_corpus(project.model_copy(update={"shards": shards})),
        ):
            with pytest.raises(
                BadInputError, match=rf"a\.parquet, row {BAD_ROW}: the text is not UTF-8 .*Set corpus\.on"
            ):
                run_job()
        return
    result = run_both_jobs(corpus, tmp_path, on_invalid_utf8=policy)
    good = [row for row in range(101) if row != BAD_ROW]
    assert result.words[b"good"] == 100
    if policy == "replace":
        assert result.words == {b"good": 100, b"a": 1, "\ufffd".encode(): 1, b"b": 1}
        assert result.texts == ["good"] * BAD_ROW + ["a\ufffdb"] + ["good"] * 50
    else:
        assert [row["source_row"] for row in result.rows] == good
        assert result.texts == ["good"] * 100
    name = {"replace": "replaced_documents", "skip": "skipped_documents", "quarantine": "quarantined_documents"}[policy]
    assert result.counts[name] == result.totals[name] == 1
    if policy == "quarantine":
        listed = [pq.read_table(path).to_pylist() for path in sorted(tmp_path.rglob("_quarantine/*.parquet"))]
        assert [[(row["file"], row["row"]) for row in rows] for rows in listed] == [[(str(corpus), BAD_ROW)]] * 2


def test_lone_surrogates_are_replaced_and_pairs_are_repaired_in_both_jobs(tmp_path: Path) -> None:
    corpus = write_bytes(tmp_path / "a.jsonl", b'{"text": "\\ud83d ok"}\n{"text": "\\ud83d\\ude00"}\n')
    result = run_both_jobs(corpus, tmp_path)
    assert result.words == {"\ufffd".encode(): 1, b" ok": 1, "😀".encode(): 1}
    assert result.texts == ["\ufffd ok", "😀"]
    assert result.counts["surrogate_documents"] == result.totals["surrogate_documents"] == 1


ODD_TEXTS = [
    *("a\x00b", "a\x83b", "\ufeffhello", "hello", "p\n\n\nq", "p\r\nq\r\n", "one\u0085two\u2028three\x1cfour"),
    *("10\u00a0km 10 km", "!\u0085a", "👩\u200d👩 ක්\u200dෂ", "u\u0307e हिन्दी", "wait ?", "go \nhome"),
]


def test_odd_characters_are_counted_and_come_back_exactly_in_both_jobs(tmp_path: Path) -> None:
    corpus = write_parquet(tmp_path / "a.parquet", {"text": ODD_TEXTS})
    result = run_both_jobs(corpus, tmp_path, {"num_merges": 20})
    counted = count_words(ODD_TEXTS).to_pydict()
    assert result.words == dict(zip(counted["word"], counted["count"], strict=True))
    assert result.words["\ufeff".encode()] == result.words[b"\n\n"] == 1
    assert result.totals["documents"] == result.counts["documents"] == len(ODD_TEXTS)
    assert result.texts == ODD_TEXTS
    assert b"" not in result.tokenizer.token_bytes()


def test_control_characters_are_characters_of_kind_char(tmp_path: Path) -> None:
    corpus = write_parquet(tmp_path / "a.parquet", {"text": ["a\x00b", "a\x83b", "\ufeffhello"]})
    result = run_both_jobs(corpus, tmp_path, {"kind": "char"})
    assert result.words == {b"a\x00b": 1, "a\x83b".encode(): 1, "\ufeffhello".encode(): 1}
    assert result.texts == ["a\x00b", "a\x83b", "\ufeffhello"]
    assert b"" not in result.tokenizer.token_bytes()


def test_blank_documents_have_no_words_of_kind_char(tmp_path: Path) -> None:
    corpus = write_parquet(tmp_path / "a.parquet", {"text": ["", " ", "\u00a0", "a  b"]})
    result = run_both_jobs(corpus, tmp_path, {"kind": "char"})
    assert result.words == {b"a": 1, b"b": 1}
    assert result.texts == ["a b"]
    assert (result.counts["empty_documents"], result.counts["documents_in_rows"]) == (3, 1)


def test_with_nfc_both_jobs_treat_two_spellings_of_a_letter_alike(tmp_path: Path) -> None:
    corpus = write_parquet(tmp_path / "a.parquet", {"text": ["caf\u00e9", "cafe\u0301"]})
    result = run_both_jobs(corpus, tmp_path, {"unicode": "NFC"})
    assert result.words == {"caf\u00e9".encode(): 2}
    first, second = (row["input_ids"] for row in result.rows)
    assert first == second
    plain = run_both_jobs(corpus, tmp_path / "plain")
    assert plain.texts == ["caf\u00e9", "cafe\u0301"]


# Training (A, B, C, E).


def test_the_vocabulary_has_every_id_once_and_the_size_asked_for() -> None:
    texts = [bytes([a, b]).decode() for a in range(97, 110) for b in range(97, 110)]
    tokenizer = Tokenizer.train(texts, vocab_size=300, special_tokens={"eos": "<eos>"})
    assert (len(tokenizer.merges), tokenizer.vocab_size) == (43, 300)
    assert sorted(json.loads(tokenizer.files()["tokenizer.json"])["model"]["vocab"].values()) == list(range(300))


def test_every_token_lies_inside_a_word_and_is_joined_of_two_earlier_tokens() -> None:
    texts = ["do re\nmi fa"] * 50 + [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    tokenizer = Tokenizer.train(texts, vocab_size=900)
    words = b"\x00".join(count_words(texts, tokenizer.pre_tokenizer)["word"].to_pylist())
    made = set(range(256))
    tokens = tokenizer.token_bytes()
    for left, right, both in tokenizer.merges.tolist():
        assert {left, right} <= made
        assert tokens[left] + tokens[right] == tokens[both]
        assert tokens[both] in words
        made.add(both)
    assert made == set(range(900))
    assert tokenizer.encode_words(pa.array(tokens[256:], pa.binary())).to_pylist() == [[id_] for id_ in range(256, 900)]


def test_no_merge_makes_a_special_token_and_no_text_its_id(tmp_path: Path) -> None:
    corpus = write_parquet(tmp_path / "a.parquet", {"text": ["QRST<sep>UVWX"] * 100})
    settings = {"num_merges": 50, "pattern": r"[\s\S]+", "special_tokens": {"eos": "<eos>", "sep": "<sep>"}}
    result = run_both_jobs(corpus, tmp_path, settings)
    [sep] = [id_ for spelling, id_ in result.tokenizer.special_tokens.items() if spelling == "<sep>"]
    assert result.tokenizer.token_bytes().count(b"<sep>") == 1
    assert not any(sep in row["input_ids"] for row in result.rows)
    assert set(result.texts) == {"QRST<sep>UVWX"}
    assert result.counts["special_spellings"] == 100


@pytest.mark.parametrize("ties", ["smaller-pair", "lexicographic", "larger-pair", "first-seen"])
def test_the_order_of_documents_and_files_changes_no_byte_of_the_tokenizer(ties: str, tmp_path: Path) -> None:
    documents = ["ab ba ab ba cd dc", "qqq www eee", "ba cd", "dc ab"]
    outputs = []
    for number, order in enumerate([[0, 1, 2, 3], [3, 1, 0, 2], [2, 3, 1, 0]]):
        folder = tmp_path / str(number)
        (folder / "corpus").mkdir(parents=True)
        for name, index in enumerate(order):
            write_parquet(folder / "corpus" / f"{name}.parquet", {"text": [documents[index]]})
        project = make_project(folder / "corpus", folder, {"num_merges": 9, "ties": ties})
        tokenizer = train_tokenizer(project)
        (ranks,) = export_tokenizer(tokenizer, folder / "tiktoken", "tiktoken")
        outputs.append((tokenizer.files(), ranks.read_bytes()))
    assert outputs[0] == outputs[1] == outputs[2]


@pytest.mark.slow
def test_workers_and_hash_seeds_change_no_byte_of_the_tokenizer(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", {"text": ["ab ba ab ba cd dc", "ba cd"]}, row_group_size=1)
    write_parquet(tmp_path / "b.parquet", {"text": ["dc ab qqq www eee"]})
    written = set()
    for seed, workers in enumerate([1, 2, 4, 1]):
        config = tmp_path / f"{seed}.yaml"
        config.write_text(
            f"corpus: {{files: '{tmp_path}/*.parquet'}}\ntokenizer: {{num_merges: 9}}\n"
            f"train: {{output: {tmp_path}/{seed}}}\nrun: {{workers: {workers}, progress: false}}\n"
        )
        command = [sys.executable, "-m", "pipelines.cli", "train", "--config", str(config)]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": str(seed)}, cwd=ROOT, check=True)
        export_tokenizer(Tokenizer.load(tmp_path / str(seed)), tmp_path / str(seed), "tiktoken")
        written.add(
            tuple((tmp_path / str(seed) / name).read_bytes() for name in ("tokenizer.json", "tokenizer.tiktoken"))
        )
    assert len(written) == 1


def test_the_size_of_the_merge_loop_is_printed_before_it_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_tokenizer(make_project(write_parquet(tmp_path / "a.parquet", {"text": ["low lower"]}), tmp_path))
    lines = capsys.readouterr().err.replace("\n", " ")
    assert re.search(r"merging 2 different words with 9 symbols and 5 different pairs; memory: [\d.]+ MB", lines)
    assert lines.index("merging 2 different words") < lines.index("learned 3 merges")


def test_a_special_token_keeps_its_id_in_every_file(tmp_path: Path) -> None:
    tokenizer = Tokenizer.train(["x y xy"], num_merges=2, special_tokens={"sep": "<SEP>"})
    ids = tokenizer.encode("x<SEP>y", special="allow")
    assert ids.count(tokenizer.special_tokens["<SEP>"]) == 1
    tokenizer.save(tmp_path)
    vocab, merges = export_tokenizer(tokenizer, tmp_path, "vocab-and-merges")
    (ranks,) = export_tokenizer(tokenizer, tmp_path, "tiktoken")
    for read in (
        Tokenizer.load(tmp_path),
        Tokenizer.from_vocab_and_merges(vocab.read_text(), merges.read_text(), special_tokens={"sep": "<SEP>"}),
        Tokenizer.from_tiktoken(ranks.read_text(), pattern="gpt2", special_tokens=tokenizer.special_tokens),
    ):
        assert read.encode("x<SEP>y", special="allow") == ids
        assert read.encode("x<SEP>y") == tokenizer.encode("x<SEP>y")


def test_bytes_that_training_did_not_meet_are_kept() -> None:
    tokenizer = Tokenizer.train(["abc abd"], num_merges=5)
    assert tokenizer.decode(tokenizer.encode("abzé")) == "abzé"
    assert {bytes([byte]) for byte in range(256)} <= set(tokenizer.token_bytes())


def test_each_token_has_a_view_of_its_bytes() -> None:
    tokenizer = Tokenizer.train(["x"], num_merges=0)
    ids = tokenizer.encode("👍")
    assert b"".join(tokenizer.decode_bytes([id_]) for id_ in ids) == "👍".encode()
    assert [tokenizer.decode([id_]) for id_ in ids] == ["\ufffd"] * 4
    assert tokenizer.decode(ids) == "👍"


@pytest.mark.slow
def test_a_tokenizer_that_was_used_works_in_forked_processes() -> None:
    program = """
import multiprocessing
from bpe_core import Tokenizer
tokenizer = Tokenizer.train(["hug pug hugs"], num_merges=3)
expected = tokenizer.encode("hugs pug")
with multiprocessing.get_context("fork").Pool(4) as pool:
    assert pool.map(tokenizer.encode, ["hugs pug"] * 8) == [expected] * 8
"""
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=120)


# Parquet (G).


@pytest.mark.parametrize("names", [("a", "b"), ("b", "a")])
def test_a_file_whose_text_is_all_null_goes_with_one_of_strings(names: tuple[str, str], tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    nulls, strings = names
    write_parquet(tmp_path / "corpus" / f"{nulls}.parquet", {"text": pa.nulls(3), "lang": pa.nulls(3)})
    write_parquet(tmp_path / "corpus" / f"{strings}.parquet", {"text": ["one", "two"], "lang": ["en", None]})
    result = run_both_jobs(tmp_path / "corpus", tmp_path, None, {"carry": ("lang",)})
    assert result.words == {b"one": 1, b"two": 1}
    assert [(row["source_row"], row["lang"]) for row in result.rows] == [(0, "en"), (1, None)]
    assert result.counts["null_documents"] == result.totals["null_documents"] == 3


def test_files_with_other_types_of_text_and_more_columns_give_the_same_words(tmp_path: Path) -> None:
    (tmp_path / "corpus").mkdir()
    text = pa.array(["one two", "two"])
    columns: list[dict[str, Any]] = [
        *({"text": text.cast(kind)} for kind in (pa.string(), pa.large_string())),
        *({"text": text.dictionary_encode()}, {"more": [1, 2], "text": text}),
    ]
    for number, of_file in enumerate(columns):
        write_parquet(tmp_path / "corpus" / f"{number}.parquet", of_file)
    result = run_both_jobs(tmp_path / "corpus", tmp_path)
    assert result.words == {b"one": 4, b" two": 4, b"two": 4}
    assert result.texts == ["one two", "two"] * 4


def test_a_nested_column_beside_the_text_is_not_read(tmp_path: Path) -> None:
    nested = pa.array([[{"v": "x" * 1000}] * 50] * 20)
    path = write_parquet(tmp_path / "a.parquet", {"nested": nested, "text": ["one"] * 20}, use_dictionary=False)
    column = pq.read_metadata(path).row_group(0).column(0)
    content = bytearray(path.read_bytes())
    content[column.data_page_offset : column.data_page_offset + column.total_compressed_size] = bytes(
        column.total_compressed_size
    )
    path.write_bytes(content)
    with pytest.raises((OSError, pa.ArrowException)):
        pq.read_table(path)
    assert run_both_jobs(path, tmp_path).words == {b"one": 20}


# Beam (R).


def count_by_task(corpus: Path, folder: Path) -> list[tuple[int, pa.Table]]:
    """Returns what the tasks of job 1 emit for each partition, before it is added up; each row group is a task."""
    settings = Corpus(files=(str(corpus),))
    counting = _CountTaskWords(settings, PreTokenizer("gpt2"), 3, str(folder))
    tasks = plan_tasks(find_files(settings), 1)
    return [(key, pa.ipc.open_stream(counts).read_all()) for task in tasks for key, counts in counting.process(task)]


def test_each_task_emits_a_word_once_under_a_plain_key_and_no_document(tmp_path: Path) -> None:
    texts = [" ".join(["the"] * 95 + [f"w{row}"] * 5) for row in range(64)]
    corpus = write_parquet(tmp_path / "a.parquet", {"text": [*texts, "the " * 500_000]}, row_group_size=1)
    emitted = count_by_task(corpus, tmp_path)
    assert {type(key) for key, _ in emitted} == {int}
    words = [word for key, table in emitted if key != TOTALS for word in table["word"].to_pylist()]
    assert words.count(b" the") == 65
    assert max(table.nbytes for _, table in emitted) < 1000


def test_the_runner_is_chosen_by_us_unless_flags_name_one() -> None:
    options = beam.options.pipeline_options.PipelineOptions([])
    with WorkerGroup() as workers:
        assert type(workers.make_runner(options)) is FnApiRunner


@pytest.mark.slow
def test_blank_documents_are_counted_by_two_workers(tmp_path: Path) -> None:
    corpus = write_parquet(tmp_path / "a.parquet", {"text": ["", None, ""]}, row_group_size=1)
    with pytest.raises(ValueError, match="nothing to train on"):
        train_tokenizer(make_project(corpus, tmp_path, run={"workers": 2}))
    assert read_json(str(tmp_path / "tokenizer" / "word_counts" / "_manifest.json"))["totals"]["documents"] == 3


@pytest.mark.slow
def test_a_script_and_a_command_with_workers_give_the_same_bytes(tmp_path: Path) -> None:
    write_parquet(tmp_path / "a.parquet", {"text": ["low lower lowest"] * 9}, row_group_size=1)
    script = f"""
from pipelines.settings.project_file import load_project
from pipelines.training.train_tokenizer import train_tokenizer
class Ours: pass
pattern = __import__("re").compile("x")
train_tokenizer(load_project({str(tmp_path / "project.yaml")!r}, ["--train.output", {str(tmp_path / "script")!r}]))
"""
    (tmp_path / "project.yaml").write_text(
        f"corpus: {{files: {tmp_path}/a.parquet}}\ntokenizer: {{num_merges: 3}}\n"
        f"train: {{output: {tmp_path}/command}}\nrun: {{workers: 2, progress: false}}\n"
    )
    (tmp_path / "script.py").write_text(script)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, str(tmp_path / "script.py")], env=environment, cwd=tmp_path, check=True)
    command = [sys.executable, "-m", "pipelines.cli", "train", "--config", str(tmp_path / "project.yaml")]
    subprocess.run(command, cwd=ROOT, check=True)
    in_process = load_and_train(tmp_path)
    assert contents(tmp_path / "script") == contents(tmp_path / "command") == contents(in_process)


def load_and_train(folder: Path) -> Path:
    output = folder / "in_process"
    train_tokenizer(load_project(str(folder / "project.yaml"), ["--train.output", str(output), "--run.workers", "1"]))
    return output


MEASURED_JOB = """
import sys
import numpy as np, pyarrow as pa, pyarrow.parquet as pq
from bpe_core import Tokenizer
from pipelines.settings.project import Project
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus
folder, kind, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
Tokenizer.train(["the cat"], num_merges=3, special_tokens={"eos": "<eos>"}).save(folder + "/tokenizer")
with pq.ParquetWriter(folder + "/a.parquet", pa.schema([("text", pa.string())])) as writer:
    for group in range(size):
        if kind == "letters":
            texts = ["a"] * 100_000
        else:
            letters = np.random.default_rng(group).integers(97, 123, (5000, 2000), np.uint8)
            letters[:, ::6] = 32
            texts = [row.tobytes().decode() for row in letters]
        writer.write_table(pa.table({"text": texts}))
del texts
shards = {"output": folder + "/shards", "tokenizer": folder + "/tokenizer", "bucket_lengths": [16, 2048]}
run = {"workers": 1, "progress": False}
tokenize_corpus(Project.model_validate({"corpus": {"files": [folder + "/a.parquet"]}, "shards": shards, "run": run}))
"""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "sizes"), [("letters", (10, 30)), ("text", (4, 24))])
def test_the_memory_of_job_2_does_not_grow_with_the_corpus(kind: str, sizes: tuple[int, int], tmp_path: Path) -> None:
    peaks = []
    for size in sizes:
        (tmp_path / str(size)).mkdir()
        peaks.append(measure_peak_memory(MEASURED_JOB, tmp_path / str(size), kind, size))
    assert peaks[1] - peaks[0] < 150e6


# Output (O).


def test_one_row_is_one_file_with_one_row(tmp_path: Path) -> None:
    manifest, rows = tokenize(["one"], tmp_path, bucket_lengths=(4, 8, 16))
    [shard] = manifest["shards"]
    assert [path.name for path in (tmp_path / "shards").rglob("*.parquet") if "bucket" in path.parent.name] == [
        "part-00000.parquet"
    ]
    assert (shard["rows"], len(rows), pq.read_metadata(tmp_path / "shards" / shard["path"]).num_rows) == (1, 1, 1)


def test_a_document_longer_than_a_row_is_a_few_rows_of_one_file(tmp_path: Path) -> None:
    manifest, rows = tokenize(["x" * 5000], tmp_path, bucket_lengths=(1000,))
    assert len(manifest["shards"]) == 1
    assert [row["length"] for row in rows] == [1000] * 5 + [1]


def test_a_rerun_with_other_shards_never_leaves_the_old_rows_beside_the_new(tmp_path: Path) -> None:
    texts = [f"row {number}" for number in range(9)]
    corpus = write_parquet(tmp_path / "a.parquet", {"text": texts}, row_group_size=1)
    run_both_jobs(corpus, tmp_path, None, {"task_bytes": 1})
    before = contents(tmp_path)
    assert len(list((tmp_path / "shards").glob("bucket=*/*.parquet"))) == 9
    other = make_project(corpus, tmp_path, {"num_merges": 2}, {"task_bytes": 10**9})
    for run_job in (train_tokenizer, tokenize_corpus):
        with pytest.raises(
            ValueError, match=r"was made (from another corpus or )?with (another tokenizer or )?other settings"
        ):
            run_job(other)
    assert contents(tmp_path) == before
    again = run_both_jobs(corpus, tmp_path, {"num_merges": 2}, {"task_bytes": 10**9}, {"overwrite": True})
    run_both_jobs(corpus, tmp_path / "fresh", {"num_merges": 2}, {"task_bytes": 10**9})
    assert again.texts == texts
    assert len(list((tmp_path / "shards").glob("bucket=*/*.parquet"))) == 1
    for folder in ("shards", "tokenizer"):
        assert contents(tmp_path / folder) == contents(tmp_path / "fresh" / folder)


def test_a_write_error_keeps_the_finished_tasks_and_a_rerun_equals_an_unbroken_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "corpus").mkdir()
    for number in range(10):
        write_parquet(tmp_path / "corpus" / f"{number}.parquet", {"text": [f"file {number}", "more"]})
    settings: dict[str, Any] = {"task_bytes": 1, "bucket_lengths": (16,)}
    run_both_jobs(tmp_path / "corpus", tmp_path / "unbroken", None, settings)
    project = make_project(tmp_path / "corpus", tmp_path, None, settings)
    train_tokenizer(project)
    with monkeypatch.context() as patch:
        write_group, written = ShardWriter._write_group, []

        def fail_in_the_sixth_file(self: ShardWriter, num_rows: int) -> None:
            written.append(num_rows)
            if len(written) == 6:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write_group(self, num_rows)

        patch.setattr(ShardWriter, "_write_group", fail_in_the_sixth_file)
        with pytest.raises(PipelineError, match="No space left on device"):
            tokenize_corpus(project)
    output = tmp_path / "shards"
    kept = {path: path.stat().st_mtime_ns for path in output.glob("bucket=16/*.parquet")}
    assert len(kept) == len(list(output.glob("_tasks/*.json"))) == 5
    assert not (output / "_SUCCESS").exists()
    assert not list(output.rglob("_temporary/*/*"))
    tokenize_corpus(project)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert contents(output) == contents(tmp_path / "unbroken" / "shards")


def test_the_next_step_stops_at_an_output_that_is_not_finished(tmp_path: Path) -> None:
    corpus = write_parquet(tmp_path / "a.parquet", {"text": ["one"]})
    project = make_project(corpus, tmp_path)
    with pytest.raises(FileNotFoundError, match=r"tokenizer\.json: no such file; train the tokenizer first"):
        tokenize_corpus(project)
    train_tokenizer(project)
    (part, *_) = (tmp_path / "tokenizer" / "word_counts").glob("*.parquet")
    part.unlink()
    assert project.train is not None
    train = project.train.model_copy(update={"from_counts": project.train.counts_folder, "output": str(tmp_path / "t")})
    with pytest.raises(ValueError, match=rf"{part.name} is either missing or not listed in _manifest\.json"):
        train_tokenizer(project.model_copy(update={"train": train}))


def test_a_number_in_place_of_text_is_named_or_left_out_and_counted(tmp_path: Path) -> None:
    corpus = write_bytes(tmp_path / "a.jsonl", b'{"text": "one"}\n{"text": 7}\n{"text": "two"}\n')
    with pytest.raises(BadInputError, match=r"a\.jsonl, line 2: 'text' is 7, not a string"):
        train_tokenizer(make_project(corpus, tmp_path))
    result = run_both_jobs(corpus, tmp_path / "out", on_wrong_type="quarantine")
    assert result.texts == ["one", "two"]
    assert result.counts["quarantined_documents"] == result.totals["quarantined_documents"] == 1


# Rows (L).


def test_the_end_token_that_also_pads_keeps_its_label_and_mask(tmp_path: Path) -> None:
    _, [row] = tokenize(["AB"], tmp_path, bucket_lengths=(5,), labels=True)
    assert row["input_ids"] == [65, 66, END, END, END]
    assert row["attention_mask"] == [1, 1, 1, 0, 0]
    assert row["labels"] == [65, 66, END, -100, -100]


@pytest.mark.parametrize(
    ("on_overflow", "expected"),
    [
        ("split", [[65, 66, 67, 68], [69, 70, 71, 72], [73, 74, END]]),
        ("truncate", [[65, 66, 67, 68]]),
        ("drop", []),
    ],
)
def test_only_the_true_end_of_a_document_has_the_end_token(
    on_overflow: str, expected: list[list[int]], tmp_path: Path
) -> None:
    manifest, rows = tokenize(["ABCDEFGHIJ"], tmp_path, bucket_lengths=(4,), on_overflow=on_overflow)
    assert [row["input_ids"][: row["length"]] for row in rows] == expected
    counts = manifest["counts"]
    left_out = counts.get("truncated_tokens", 0) + counts.get("dropped_tokens", 0)
    assert counts["tokens"] == 11 == sum(map(len, expected)) + left_out


@pytest.mark.parametrize("on_overflow", ["split", "truncate", "drop"])
@pytest.mark.parametrize("layout", ["padded", "packed"])
def test_every_document_is_in_a_row_or_was_counted_as_left_out(layout: str, on_overflow: str, tmp_path: Path) -> None:
    texts = ["x" * (length - 1) for length in (3, 3, 9, 200)]
    manifest, rows = tokenize(texts, tmp_path, bucket_lengths=(8, 64), on_overflow=on_overflow, layout=layout)
    counts = manifest["counts"]
    held = [row for of in rows for row in (of["source_row"] if layout == "packed" else [of["source_row"]])]
    assert sorted(set(held)) == ([0, 1, 2] if on_overflow == "drop" else [0, 1, 2, 3])
    assert counts["documents"] == 4 == counts["documents_in_rows"] + counts.get("dropped_documents", 0)
    assert (
        sum(row["length"] for row in rows)
        == counts["row_tokens"]
        == {"split": 215, "truncate": 79, "drop": 15}[on_overflow]
    )
    assert sum(shard["tokens"] for shard in manifest["shards"]) == counts["row_tokens"]


def test_an_empty_first_document_is_counted_and_has_no_row(tmp_path: Path) -> None:
    manifest, [row] = tokenize(["", "a"], tmp_path, bucket_lengths=(4,))
    assert (row["source_row"], row["length"], row["input_ids"]) == (1, 2, [97, END, END, END])
    assert manifest["counts"]["empty_documents"] == 1


def test_lengths_include_the_end_token(tmp_path: Path) -> None:
    _, rows = tokenize(["abc", "abcd"], tmp_path, bucket_lengths=(4, 8))
    assert [(row["length"], len(row["input_ids"])) for row in rows] == [(4, 4), (5, 8)]


def test_packed_documents_have_separators_and_stored_boundaries(tmp_path: Path) -> None:
    _, rows = tokenize(
        ["ABCDEFGHIJ", "xyz"], tmp_path, layout="packed", row_length=6, on_overflow="truncate", end_token=False
    )
    pieces = {}
    for row in rows:
        numbers = np.array(row["segment_ids"])
        for number, source in enumerate(row["source_row"], 1):
            pieces[source] = np.array(row["input_ids"])[numbers == number].tolist()
    assert pieces == {0: [*b"ABCDEF"], 1: [*b"xyz"]}
    (tmp_path / "ends").mkdir()
    _, [row] = tokenize(["ab", "c"], tmp_path / "ends", layout="packed", row_length=6)
    assert row["input_ids"] == [97, 98, END, 99, END, END]
    assert row["segment_ids"] == [1, 1, 1, 2, 2, 0]


def test_the_last_row_group_is_written_when_it_is_not_full(tmp_path: Path) -> None:
    manifest, rows = tokenize(["a"] * 1001, tmp_path, bucket_lengths=(2,), row_group_bytes=8 * 1000)
    [shard] = manifest["shards"]
    metadata = pq.read_metadata(tmp_path / "shards" / shard["path"])
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [1000, 1]
    assert len(rows) == 1001


@pytest.mark.parametrize("vocab_size", [1000, 65_536, 65_537])
def test_ids_are_32_bits_wide_whatever_the_size_of_the_vocabulary(vocab_size: int, tmp_path: Path) -> None:
    tokens = [bytes([byte]) for byte in range(256)] + [b"%06d" % number for number in range(256, vocab_size - 1)]
    lines = [f"{base64.b64encode(token).decode()} {rank}\n" for rank, token in enumerate(tokens)]
    ranks = write_bytes(tmp_path / "a.tiktoken", "".join(lines).encode())
    corpus = write_parquet(tmp_path / "a.parquet", {"text": ["a", tokens[-1].decode()]})
    settings = {
        "tokenizer": str(ranks),
        "pattern": "[a-z0-9]+",
        "special_tokens": {"eos": {"<eos>": vocab_size - 1}},
        "bucket_lengths": (4,),
        "labels": True,
    }
    tokenize_corpus(make_project(corpus, tmp_path, None, settings))
    first, second = rows_in(tmp_path / "shards")
    assert first["input_ids"] == [97] + [vocab_size - 1] * 3
    assert first["labels"] == [97, vocab_size - 1, -100, -100]
    assert second["input_ids"][:2] == [vocab_size - 2, vocab_size - 1]
    schema = pq.read_schema(tmp_path / "shards" / "bucket=4" / "part-00000.parquet")
    assert {schema.field(name).type.value_type for name in ("input_ids", "labels")} == {pa.int32()}


def test_random_texts_of_any_kind_come_back(tmp_path: Path) -> None:
    chance = random.Random(5)
    letters = "ab \n\r\u0301\u200d\u00a0的👍<|>'1._\t"
    texts = ["".join(chance.choices(letters, k=chance.randrange(1, 30))) for _ in range(1000)]
    result = run_both_jobs(write_parquet(tmp_path / "a.parquet", {"text": texts}), tmp_path, {"num_merges": 30})
    whole: dict[int, str] = {}
    for text, row in zip(result.texts, result.rows, strict=True):
        whole[row["source_row"]] = whole.get(row["source_row"], "") + text
    assert [whole[row] for row in range(1000)] == texts
