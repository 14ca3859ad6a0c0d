"""Job 1: what it writes, and how it resumes, refuses and replaces an output."""

import json
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bpe_core.merging.merges import learn_merges
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.pretokenize.word_counting import WordCounter, count_words
from bpe_core.tokenizer import Tokenizer
from pipelines.errors import BadInputError, LockLostError, OutputLockedError
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import TrainingJob
from pipelines.settings.project import Project
from pipelines.settings.project_file import load_project
from pipelines.settings.run import Run
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage.lock import OutputLock
from pipelines.storage.manifest import read_json, write_json
from pipelines.storage.output_files import LOCK_FOLDER
from pipelines.training import checkpointed_learning, count_corpus
from pipelines.training import train_tokenizer as job
from pipelines.training.train_tokenizer import train_tokenizer

TOKENIZER_FILES = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"}
SPECIAL_TOKENS: dict[str, str | list[str]] = {"eos": "<eos>", "pad": "<pad>"}
WORDS = (
    "the cat sat on mat and then the other cats don't sit der Hund läuft über die Straße größer Ähre été "
    "猫坐在垫子上 坐在 猫 кошка сидит на коврике Кошка قطة على السجادة 🙂 👩‍👩‍👧 12 345 x=1; The İstanbul ﬁne é"
).split(" ")


def document(chance: random.Random, num_words: int) -> str:
    gaps = [" ", " ", " ", " ", "  ", "\n", ", ", ". "]
    return "".join(chance.choice(WORDS) + chance.choice(gaps) for _ in range(num_words))


def documents(seed: int) -> list[str | None]:
    chance = random.Random(seed)
    texts: list[str | None] = [document(chance, chance.randrange(1, 40)) for _ in range(30)]
    return [*texts[:10], None, "", document(chance, 1500), *texts[10:], None]


def write_corpus(folder: Path, *names: str) -> Path:
    """Writes a Parquet file of several row groups under each name."""
    folder.mkdir(parents=True)
    for seed, name in enumerate(names):
        texts = documents(seed)
        table = pa.table({"id": range(len(texts)), "lang": ["xx"] * len(texts), "text": pa.array(texts, pa.string())})
        pq.write_table(table, folder / name, row_group_size=8)
    return folder


def texts_of(corpus: Path) -> list[str]:
    tables = [pq.read_table(path, columns=["text"]) for path in sorted(corpus.glob("*.parquet"))]
    return [text for table in tables for text in table["text"].to_pylist() if text is not None]


def project(
    corpus: Path | str,
    output: Path,
    tokenizer: dict[str, Any] | None = None,
    train: dict[str, Any] | None = None,
    run: dict[str, Any] | None = None,
    **options: Any,
) -> Project:
    settings = {"special_tokens": SPECIAL_TOKENS, **(tokenizer or {})}
    if not {"vocab_size", "num_merges"} & set(settings):
        settings["vocab_size"] = 400
    return Project(
        corpus=Corpus(files=(str(corpus),), **options),
        tokenizer=TokenizerSettings(**settings),
        train=Train(output=str(output), **{"num_partitions": 3, **(train or {})}),
        run=Run(**{"workers": 1, "progress": False, **(run or {})}),
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def word_counts_in(folder: Path) -> dict[bytes, int]:
    rows = [row for path in sorted(folder.glob("part-*.parquet")) for row in pq.read_table(path).to_pylist()]
    assert len({row["word"] for row in rows}) == len(rows)
    return {row["word"]: row["count"] for row in rows}


def as_dict(word_counts: pa.Table) -> dict[bytes, int]:
    return dict(zip(word_counts["word"].to_pylist(), word_counts["count"].to_pylist(), strict=True))


@pytest.fixture(scope="module", autouse=True)
def many_tasks() -> Iterator[None]:
    """Divides the small corpus into several tasks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pipelines.reading.tasks._MIN_TASK_BYTES", 6000)
        yield


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("train") / "corpus", "a.parquet", "b.parquet", "c.parquet")


@pytest.fixture(scope="module")
def trained(corpus: Path) -> Path:
    """A finished output, which tests must not change."""
    output = corpus.parent / "trained"
    train_tokenizer(project(corpus, output))
    return output


class Interrupted(Exception):
    """Raised in place of a killed process."""


def interrupt(*_: Any) -> None:
    raise Interrupted


def train_until(function: str, settings: Project, module: ModuleType = job) -> None:
    """Trains until a module of the job calls one of its functions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, function, interrupt)
        with pytest.raises(Interrupted):
            train_tokenizer(settings)


def train_until_checkpoint(settings: Project) -> int:
    """Trains until the first checkpoint is written, and returns how many merges it holds."""

    def write_and_stop(path: str, content: Any) -> None:
        write_json(path, content)
        if path.endswith("_checkpoint.json"):
            raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpointed_learning, "write_json", write_and_stop)
        with pytest.raises(Interrupted):
            train_tokenizer(settings)
    return len(read_json(f"{TrainingJob.of(settings).output}/_checkpoint.json")["pairs"]) // 2


def no_pipeline(*_: Any) -> None:
    raise AssertionError("the corpus was counted")


# The files of an output.


def test_the_output_is_the_tokenizer_its_word_counts_and_their_manifests(trained: Path) -> None:
    parts = {f"word_counts/part-{n:05d}-of-00003.parquet" for n in range(3)}
    assert set(contents(trained)) == {*TOKENIZER_FILES, "_manifest.json", "word_counts/_manifest.json", *parts}
    assert {path.name for path in trained.rglob("*") if path.is_dir()} == {"word_counts"}
    assert read_json(f"{trained}/word_counts/_manifest.json")["files"] == sorted(path[12:] for path in parts)
    assert Tokenizer.load(trained).vocab_size == 400


def test_word_counts_are_those_of_the_corpus(corpus: Path, trained: Path) -> None:
    texts = texts_of(corpus)
    expected = as_dict(count_words(texts))
    assert word_counts_in(trained / "word_counts") == expected
    totals = read_json(f"{trained}/word_counts/_manifest.json")["totals"]
    assert totals == {
        "documents": 102,
        "null_documents": 6,
        "text_bytes": sum(len(text.encode()) for text in texts),
        "words": sum(len(PreTokenizer("gpt2").split(text)) for text in texts),
    }
    assert sum(expected.values()) == totals["words"]
    for path in (trained / "word_counts").glob("*.parquet"):
        words = pq.read_table(path)["word"].to_pylist()
        assert words == sorted(words)


def test_the_manifest_says_what_the_tokenizer_came_from(corpus: Path, trained: Path) -> None:
    manifest = read_json(f"{trained}/_manifest.json")
    word_counts = count_words(texts_of(corpus))
    merges = learn_merges(word_counts, vocab_size=400, special_tokens=["<eos>", "<pad>"])
    assert manifest["settings"]["tokenizer"]["vocab_size"] == 400
    assert {path: facts["bytes"] for path, facts in manifest["inputs"].items()} == {
        str(path): path.stat().st_size for path in corpus.glob("*.parquet")
    }
    tokenizer = Tokenizer.load(trained)
    assert manifest["tokenizer"] == {"fingerprint": tokenizer.fingerprint, "vocab_size": 400}
    assert manifest["corpus"]["distinct_words_trained_on"] == word_counts.num_rows
    assert manifest["corpus"]["pruned_by_min_count"] == {"words": 0, "occurrences": 0}
    assert manifest["merges"] == {
        "made": 142,
        "ended_by": "size",
        "base_symbols": 256,
        "symbols": 398,
        "dropped_by_limit_alphabet": {"characters": 0, "occurrences": 0},
        "counts": merges.counts.tolist(),
    }


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ties": "smaller-pair"},
        {"ties": "lexicographic"},
        {"ties": "larger-pair", "vocab_order": "gpt2"},
        {"kind": "char", "num_merges": 120},
        {"kind": "char", "num_merges": 120, "end_of_word_placement": "glued", "limit_alphabet": 40},
        {"num_merges": 100, "unicode": "NFKC", "lowercase": True, "pattern": r"\p{L}+"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "defaults",
)
def test_the_tokenizer_is_the_one_trained_in_memory(corpus: Path, tmp_path: Path, settings: dict[str, Any]) -> None:
    returned = train_tokenizer(project(corpus, tmp_path / "out", settings))
    size: dict[str, Any] = {} if "num_merges" in settings else {"vocab_size": 400}
    expected = Tokenizer.train(texts_of(corpus), special_tokens=SPECIAL_TOKENS, **size, **settings)
    assert returned.files() == expected.files()
    assert Tokenizer.load(tmp_path / "out").files() == expected.files()
    assert {name: (tmp_path / "out" / name).read_bytes().decode() for name in TOKENIZER_FILES} == expected.files()


def test_ties_by_first_seen_follow_the_order_of_word_counts(corpus: Path, tmp_path: Path) -> None:
    counts = as_dict(count_words(texts_of(corpus)))
    ordered = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    expected = learn_merges(ordered, vocab_size=400, ties="first-seen", special_tokens=["<eos>", "<pad>"])
    unlike = learn_merges(dict(sorted(counts.items())), vocab_size=400, ties="first-seen")
    tokenizer = train_tokenizer(project(corpus, tmp_path, {"ties": "first-seen"}))
    assert tokenizer.files() == (
        Tokenizer.from_merges(expected, pre_tokenizer=PreTokenizer("gpt2"), special_tokens=SPECIAL_TOKENS).files()
    )
    assert unlike[:100] != expected[:100]


@pytest.mark.slow
def test_two_workers_give_the_same_bytes_as_one(corpus: Path, tmp_path: Path, trained: Path) -> None:
    train_tokenizer(project(corpus, tmp_path / "out", run={"workers": 2}))
    assert contents(tmp_path / "out") == contents(trained)


@pytest.mark.parametrize("ties", ["smaller-pair", "first-seen"])
def test_the_order_of_the_files_does_not_matter(corpus: Path, tmp_path: Path, ties: str) -> None:
    train_tokenizer(project(corpus, tmp_path / "out", {"ties": ties}))
    (tmp_path / "corpus").mkdir()
    for name, other in {"a": "z", "b": "b", "c": "0"}.items():
        (tmp_path / "corpus" / f"{other}.parquet").write_bytes((corpus / f"{name}.parquet").read_bytes())
    train_tokenizer(project(tmp_path / "corpus", tmp_path / "renamed", {"ties": ties}))
    first, second = contents(tmp_path / "out"), contents(tmp_path / "renamed")
    manifests = {"_manifest.json", "word_counts/_manifest.json"}
    assert {name: first[name] for name in set(first) - manifests} == {
        name: second[name] for name in set(second) - manifests
    }
    assert json.loads(first["_manifest.json"])["merges"] == json.loads(second["_manifest.json"])["merges"]


def test_a_file_of_settings_runs_the_job(corpus: Path, tmp_path: Path, trained: Path) -> None:
    settings = tmp_path / "project.yaml"
    settings.write_text(f"corpus: {{files: {corpus}}}\ntokenizer: {{vocab_size: 9000}}\ntrain: {{output: x}}\n")
    overrides = ["--tokenizer.vocab_size", "400", "--train.output", str(tmp_path / "out"), "--run.workers", "1"]
    overrides += ["--tokenizer.special_tokens", json.dumps(SPECIAL_TOKENS), "--train.num_partitions", "3"]
    train_tokenizer(load_project(str(settings), overrides))
    assert contents(tmp_path / "out") == contents(trained)


BYTE_SETTINGS: list[dict[str, Any]] = [
    {"pattern": "whitespace"},
    {"vocab_size": 390},
    {"vocab_size": None, "num_merges": 100},
    {"ties": "lexicographic"},
    {"ties": "larger-pair"},
    {"ties": "first-seen"},
    {"min_frequency": 150},
    {"max_token_length": 4},
    {"whole_characters": True},
    {"unicode": "NFKD"},
    {"lowercase": True},
    {"special_tokens": {"eos": "<end>", "pad": "<pad>"}},
    {"special_tokens": {"pad": "<eos>", "eos": "<pad>"}},
    {"special_ids": "first"},
    {"vocab_order": "sorted"},
    {"vocab_order": "gpt2"},
    {"kind": "char"},
]
CHAR_SETTINGS: list[dict[str, Any]] = [
    {"limit_alphabet": 30},
    {"end_of_word": "§"},
    {"end_of_word_placement": "glued"},
    {"vocab_order": "sorted"},
    {"max_token_length": 3},
    {"min_frequency": 150},
    {"unicode": "NFD"},
    {"lowercase": True},
    {"ties": "smaller-pair"},
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "changed"),
    [*(("byte", changed) for changed in BYTE_SETTINGS), *(("char", changed) for changed in CHAR_SETTINGS)],
    ids=str,
)
def test_every_setting_has_an_effect(corpus: Path, tmp_path: Path, kind: str, changed: dict[str, Any]) -> None:
    usual: dict[str, Any] = {"kind": kind, "vocab_size": 400, "special_tokens": SPECIAL_TOKENS}
    before = Tokenizer.train(texts_of(corpus), **usual)
    after = train_tokenizer(project(corpus, tmp_path, {**usual, **changed}))
    assert after.files() != before.files()


def test_every_setting_is_tried_above() -> None:
    tried = {name for changed in [*BYTE_SETTINGS, *CHAR_SETTINGS] for name in changed}
    assert tried == set(TokenizerSettings.model_fields)


# Extending a tokenizer.


def extension(corpus: Path, output: Path, start: Path, learned: dict[str, Any], **train: Any) -> Project:
    return Project(
        corpus=Corpus(files=(str(corpus),)),
        tokenizer=TokenizerSettings(**learned),
        train=Train(output=str(output), start_from=str(start), num_partitions=3, **train),
        run=Run(workers=1, progress=False),
    )


def test_training_extends_a_tokenizer_whose_ids_stay(corpus: Path, tmp_path: Path, trained: Path) -> None:
    first = Tokenizer.train(
        ["die Straße, größer: zzzqqq zzzqqq"] * 9,
        pattern="o200k",
        vocab_size=280,
        special_ids="first",
        special_tokens={"eos": "<eos>"},
        unicode="NFC",
    )
    first.save(tmp_path / "first")
    more = train_tokenizer(extension(corpus, tmp_path / "more", tmp_path / "first", {"vocab_size": 330}))
    assert more.files() == first.train_more(texts_of(corpus), vocab_size=330).files()
    assert more.vocab_size == 330
    assert more.token_bytes()[: first.vocab_size] == first.token_bytes()
    assert more.pre_tokenizer == first.pre_tokenizer
    assert more.special_tokens == first.special_tokens
    assert Tokenizer.load(tmp_path / "more").files() == more.files()
    manifest = read_json(str(tmp_path / "more" / "_manifest.json"))
    assert manifest["start_from"] == first.fingerprint
    by_merges = extension(corpus, tmp_path / "again", tmp_path / "first", {"num_merges": len(more.merges)})
    assert train_tokenizer(by_merges).files() == more.files()


def test_extending_a_tokenizer_resumes_from_its_checkpoint(corpus: Path, tmp_path: Path, trained: Path) -> None:
    expected = train_tokenizer(extension(corpus, tmp_path / "unbroken", trained, {"vocab_size": 500}))
    settings = extension(corpus, tmp_path / "out", trained, {"vocab_size": 500}, checkpoint_seconds=1e-9)
    train_until_checkpoint(settings)
    assert train_tokenizer(settings).files() == expected.files()
    assert train_tokenizer(settings).files() == expected.files()
    Tokenizer.train(["x y"], num_merges=0, special_tokens={"eos": "<e>"}).save(tmp_path / "other")
    with pytest.raises(ValueError, match=r"was made from another corpus or with other settings: start_from"):
        train_tokenizer(extension(corpus, tmp_path / "out", tmp_path / "other", {"vocab_size": 500}))


@pytest.mark.parametrize(
    ("learned", "message"),
    [
        ({"vocab_size": 300}, "vocab_size is 300; this tokenizer already has 400 ids, and all stay"),
        ({"num_merges": 10}, r"tokenizer.num_merges is 10, but .*trained already has 142 merges"),
        ({"vocab_size": 500, "pattern": "gpt2"}, "tokenizer.pattern is given, and train.start_from names a tokenizer"),
    ],
)
def test_settings_that_contradict_start_from_are_refused(
    corpus: Path, tmp_path: Path, trained: Path, learned: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        train_tokenizer(extension(corpus, tmp_path, trained, learned))


def test_a_tokenizer_of_kind_char_cannot_be_extended(corpus: Path, tmp_path: Path) -> None:
    Tokenizer.train(["ab"], kind="char", num_merges=1).save(tmp_path / "char")
    with pytest.raises(
        ValueError, match=r"this tokenizer is of kind char, .*only tokenizers of kind byte can be trained further"
    ):
        train_tokenizer(extension(corpus, tmp_path / "out", tmp_path / "char", {"vocab_size": 500}))


def test_min_count_leaves_out_rare_words_and_counts_them(corpus: Path, tmp_path: Path) -> None:
    tokenizer = train_tokenizer(project(corpus, tmp_path, {"num_merges": 400}, {"min_count": 80}))
    counts = as_dict(count_words(texts_of(corpus)))
    kept = {word: count for word, count in counts.items() if count >= 80}
    assert 0 < len(kept) < len(counts)
    merges = learn_merges(kept, num_merges=400, special_tokens=["<eos>", "<pad>"])
    assert tokenizer.files() == (
        Tokenizer.from_merges(merges, pre_tokenizer=PreTokenizer("gpt2"), special_tokens=SPECIAL_TOKENS).files()
    )
    facts = read_json(f"{tmp_path}/_manifest.json")["corpus"]
    assert facts["distinct_words_trained_on"] == len(kept)
    assert facts["pruned_by_min_count"] == {
        "words": len(counts) - len(kept),
        "occurrences": sum(counts.values()) - sum(kept.values()),
    }
    assert word_counts_in(tmp_path / "word_counts") == counts


def test_num_partitions_is_the_number_of_files_of_word_counts(corpus: Path, tmp_path: Path, trained: Path) -> None:
    train_tokenizer(project(corpus, tmp_path, train={"num_partitions": 1}))
    [path] = (tmp_path / "word_counts").glob("*.parquet")
    assert path.name == "part-00000-of-00001.parquet"
    assert word_counts_in(tmp_path / "word_counts") == word_counts_in(trained / "word_counts")
    assert (tmp_path / "tokenizer.json").read_bytes() == (trained / "tokenizer.json").read_bytes()


def test_a_worker_that_holds_too_many_words_passes_them_on(
    corpus: Path, tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipelines.training.count_words._MAX_WORDS_HELD", 5)
    train_tokenizer(project(corpus, tmp_path / "out"))
    assert contents(tmp_path / "out") == contents(trained)


def test_a_worker_that_holds_long_words_passes_them_on(
    corpus: Path, tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = []
    take = WordCounter.take

    def watch(counter: WordCounter) -> pa.Table:
        held.append(counter.num_bytes)
        table = take(counter)
        assert sum(map(len, table["word"].to_pylist())) <= held[-1]
        return table

    monkeypatch.setattr(WordCounter, "take", watch)
    train_tokenizer(project(corpus, tmp_path / "usual"))
    usual = len(held)
    monkeypatch.setattr("pipelines.training.count_words._MAX_WORD_BYTES_HELD", 5)
    train_tokenizer(project(corpus, tmp_path / "out"))
    assert len(held) > 2 * usual
    assert contents(tmp_path / "out") == contents(tmp_path / "usual") == contents(trained)


def test_a_warning_says_that_almost_every_word_is_different(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(job, "_MIN_WORDS_TO_WARN", 200)
    chance = random.Random(3)
    proteins = ["".join(chance.choices("ACDEFGHIKLMNPQRSTVWY", k=400)) for _ in range(200)]
    pq.write_table(pa.table({"text": proteins}), tmp_path / "a.parquet")
    train_tokenizer(project(tmp_path / "a.parquet", tmp_path / "out"))
    warned = capsys.readouterr().err
    assert "200 of 200 words are different" in warned
    assert warned.index("words are different") < warned.index("merging 200 different words")
    pq.write_table(pa.table({"text": [text for text in proteins for _ in range(3)]}), tmp_path / "b.parquet")
    train_tokenizer(project(tmp_path / "b.parquet", tmp_path / "repeated"))
    assert "words are different" not in capsys.readouterr().err


# Running again on the same output.


def test_a_finished_output_is_left_as_it_is(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    first = train_tokenizer(project(corpus, tmp_path))
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    monkeypatch.setattr(count_corpus, "run_pipeline", no_pipeline)
    monkeypatch.setattr(checkpointed_learning, "learn_merges", no_pipeline)
    capsys.readouterr()
    second = train_tokenizer(project(corpus, tmp_path, train={"checkpoint_seconds": 7}, run={"workers": 2}))
    assert capsys.readouterr().err.startswith("nothing to do: ")
    assert second.files() == first.files()
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_a_second_run_on_the_same_output_stops(corpus: Path, tmp_path: Path, trained: Path) -> None:
    output = tmp_path / "out"
    settings = project(corpus, output)
    with OutputLock(str(output), "0-other", 60):
        before = contents(output)
        with pytest.raises(OutputLockedError, match="in use by run 0-other"):
            train_tokenizer(settings)
        assert contents(output) == before
    train_tokenizer(settings)
    assert contents(output) == contents(trained)


def test_a_run_that_lost_its_lock_writes_no_tokenizer(
    corpus: Path, tmp_path: Path, trained: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / "out"
    settings = project(corpus, output)

    def learn_and_lose_the_lock(*args: Any, **options: Any) -> Any:
        shutil.rmtree(output / LOCK_FOLDER)
        return learn_merges(*args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(checkpointed_learning, "learn_merges", learn_and_lose_the_lock)
        with pytest.raises(LockLostError, match="another run took over"):
            train_tokenizer(settings)
    assert {path.name for path in output.iterdir()} == {"word_counts"}
    train_tokenizer(settings)
    assert contents(output) == contents(trained)


@pytest.mark.parametrize(
    ("tokenizer", "train", "options", "message"),
    [
        ({"vocab_size": 401}, {}, {}, "settings.tokenizer.vocab_size: 400 before, 401 now"),
        ({"lowercase": True}, {}, {}, "settings.tokenizer.lowercase: false before, true now"),
        ({"special_tokens": {"eos": "<eos>"}}, {}, {}, 'special_tokens.pad: "<pad>" before, null now'),
        ({}, {"min_count": 2}, {}, "settings.train.min_count: 1 before, 2 now"),
        ({}, {}, {"on_invalid_utf8": "skip"}, 'settings.corpus.on_invalid_utf8: "fail" before, "skip" now'),
    ],
)
def test_other_settings_for_the_same_output_are_refused(
    corpus: Path, trained: Path, tokenizer: Any, train: Any, options: Any, message: str
) -> None:
    before = contents(trained)
    with pytest.raises(ValueError, match="was made from another corpus or with other settings: ") as caught:
        train_tokenizer(project(corpus, trained, tokenizer, train, **options))
    assert message in str(caught.value)
    assert "--run.overwrite true" in str(caught.value)
    assert contents(trained) == before


def test_a_changed_file_of_the_corpus_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", "a.parquet", "b.parquet")
    train_tokenizer(project(corpus, tmp_path / "out"))
    old = read_json(f"{tmp_path}/out/_manifest.json")["inputs"][f"{corpus}/b.parquet"]
    pq.write_table(pa.table({"text": ["something else"]}), corpus / "b.parquet")
    with pytest.raises(ValueError, match="was made from another corpus") as caught:
        train_tokenizer(project(corpus, tmp_path / "out"))
    size = (corpus / "b.parquet").stat().st_size
    assert f"inputs.{corpus}/b.parquet.bytes: {old['bytes']} before, {size} now" in str(caught.value)
    assert f'inputs.{corpus}/b.parquet.fingerprint: "{old["fingerprint"]}" before, ' in str(caught.value)


def test_a_new_file_of_the_corpus_is_refused(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", "a.parquet")
    train_tokenizer(project(corpus, tmp_path / "out"))
    pq.write_table(pa.table({"text": ["new"]}), corpus / "b.parquet")
    with pytest.raises(ValueError, match=r"b\.parquet: null before, \{\"bytes\": \d+, \"fingerprint\": .* now"):
        train_tokenizer(project(corpus, tmp_path / "out"))


@pytest.mark.slow
def test_overwrite_replaces_what_the_job_wrote_and_nothing_else(corpus: Path, tmp_path: Path) -> None:
    train_tokenizer(project(corpus, tmp_path / "out", train={"num_partitions": 5}))
    (tmp_path / "out" / "README.md").write_text("mine")
    (tmp_path / "out" / "_checkpoint.json").write_text("old")
    train_tokenizer(project(corpus, tmp_path / "out", {"vocab_size": 390}, run={"overwrite": True}))
    train_tokenizer(project(corpus, tmp_path / "fresh", {"vocab_size": 390}))
    assert contents(tmp_path / "out") == {**contents(tmp_path / "fresh"), "README.md": b"mine"}


def test_overwrite_deletes_nothing_when_there_is_no_corpus_or_no_word_counts(corpus: Path, tmp_path: Path) -> None:
    train_tokenizer(project(corpus, tmp_path))
    before = contents(tmp_path)
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        train_tokenizer(project(f"{corpus}/*.txt", tmp_path, run={"overwrite": True}))
    with pytest.raises(FileNotFoundError, match="no word counts found"):
        train_tokenizer(project(corpus, tmp_path, train={"from_counts": str(corpus / "no")}, run={"overwrite": True}))
    assert contents(tmp_path) == before


# Resuming an interrupted run.


def test_complete_word_counts_are_not_counted_again(
    corpus: Path,
    tmp_path: Path,
    trained: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    train_until("read_word_counts", project(corpus, tmp_path))
    assert not (tmp_path / "_manifest.json").exists()
    monkeypatch.setattr(count_corpus, "run_pipeline", no_pipeline)
    train_tokenizer(project(corpus, tmp_path))
    assert "using the finished word counts in " in capsys.readouterr().err
    assert contents(tmp_path) == contents(trained)


def test_word_counts_without_their_manifest_are_counted_again(corpus: Path, tmp_path: Path, trained: Path) -> None:
    train_until("finish_word_counts", project(corpus, tmp_path), count_corpus)
    assert (tmp_path / "word_counts" / "_totals.json").exists()
    counts = pa.table({"word": [b"left over"], "count": [10**6]})
    pq.write_table(counts, tmp_path / "word_counts" / "part-00000-of-00002.parquet")
    train_tokenizer(project(corpus, tmp_path))
    assert contents(tmp_path) == contents(trained)


def test_word_counts_of_another_corpus_are_refused(corpus: Path, tmp_path: Path) -> None:
    train_until("read_word_counts", project(corpus, tmp_path))
    with pytest.raises(ValueError, match="lowercase: false before, true now"):
        train_tokenizer(project(corpus, tmp_path, {"lowercase": True}))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ties": "first-seen", "num_merges": 300},
        {"ties": "larger-pair", "max_token_length": 5, "whole_characters": True},
        {"kind": "char", "num_merges": 200, "end_of_word_placement": "glued", "limit_alphabet": 60},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "defaults",
)
def test_merges_resume_from_the_last_checkpoint(
    corpus: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    settings: dict[str, Any],
) -> None:
    train_tokenizer(project(corpus, tmp_path / "unbroken", settings))
    done = train_until_checkpoint(project(corpus, tmp_path / "out", settings, {"checkpoint_seconds": 1e-9}))
    assert 0 < done < len(Tokenizer.load(tmp_path / "unbroken").merges)
    assert not (tmp_path / "out" / "tokenizer.json").exists()
    capsys.readouterr()
    train_tokenizer(project(corpus, tmp_path / "out", settings))
    assert f"resuming from the checkpoint at merge {done}" in capsys.readouterr().err
    assert contents(tmp_path / "out") == contents(tmp_path / "unbroken")


def test_a_checkpoint_of_other_settings_is_not_used(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train_until_checkpoint(project(corpus, tmp_path / "out", {"ties": "larger-pair"}, {"checkpoint_seconds": 1e-9}))
    train_tokenizer(project(corpus, tmp_path / "out"))
    assert "taking up" not in capsys.readouterr().err
    train_tokenizer(project(corpus, tmp_path / "fresh"))
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


def test_a_truncated_checkpoint_is_named(corpus: Path, tmp_path: Path) -> None:
    train_until_checkpoint(project(corpus, tmp_path, train={"checkpoint_seconds": 1e-9}))
    path = tmp_path / "_checkpoint.json"
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ValueError, match=r"_checkpoint\.json is not JSON .*delete"):
        train_tokenizer(project(corpus, tmp_path))
    assert not (tmp_path / "tokenizer.json").exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda pairs: pairs[:-1],
        lambda pairs: pairs[::-1],
        lambda pairs: [*pairs[:-1], 0],
        lambda pairs: [*pairs, 10**6, 10**6],
        lambda pairs: "pairs",
        lambda pairs: None,
    ],
    ids=["odd", "reversed", "changed", "unknown", "text", "null"],
)
def test_a_damaged_checkpoint_is_not_used(
    corpus: Path,
    tmp_path: Path,
    trained: Path,
    damage: Callable[[list[int]], Any],
) -> None:
    train_until_checkpoint(project(corpus, tmp_path, train={"checkpoint_seconds": 1e-9}))
    checkpoint = read_json(f"{tmp_path}/_checkpoint.json")
    write_json(f"{tmp_path}/_checkpoint.json", {**checkpoint, "pairs": damage(checkpoint["pairs"])})
    train_tokenizer(project(corpus, tmp_path))
    assert contents(tmp_path) == contents(trained)


# Training from given word counts.


def test_training_from_word_counts_gives_the_same_tokenizer(corpus: Path, tmp_path: Path, trained: Path) -> None:
    counts = str(trained / "word_counts")
    tokenizer = train_tokenizer(project(tmp_path / "not read", tmp_path / "out", train={"from_counts": counts}))
    assert tokenizer.files() == Tokenizer.load(trained).files()
    assert set(contents(tmp_path / "out")) == {*TOKENIZER_FILES, "_manifest.json"}
    manifest, original = (read_json(f"{folder}/_manifest.json") for folder in (tmp_path / "out", trained))
    assert manifest["merges"] == original["merges"]
    assert manifest["corpus"] == original["corpus"]


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"pattern": "whitespace"}, r'pattern: .* before, \["\\\\S\+"\] now'),
        ({"lowercase": True}, "lowercase: false before, true now"),
        ({"unicode": "NFC"}, 'unicode: "none" before, "NFC" now'),
        ({"kind": "char"}, "keep_gaps: true before, false now"),
    ],
)
def test_counts_of_words_that_were_split_differently_are_refused(
    tmp_path: Path, trained: Path, changed: dict[str, Any], message: str
) -> None:
    counts = str(trained / "word_counts")
    with pytest.raises(ValueError, match=f"holds counts of words that were split differently .*{message}"):
        train_tokenizer(project("x", tmp_path / "out", changed, {"from_counts": counts}))
    assert not (tmp_path / "out").exists()


def test_word_counts_made_by_hand_need_no_manifest(tmp_path: Path) -> None:
    (tmp_path / "counts").mkdir()
    counts = {"hug": 10, "pug": 5, "hugs": 5, "bun": 4, "pun": 12}
    halves = list(counts.items())[:2], list(counts.items())[2:]
    for number, half in enumerate(halves):
        words, numbers = zip(*half, strict=True)
        table = pa.table({"note": ["-"] * len(half), "count": pa.array(numbers, pa.int32()), "word": words})
        pq.write_table(table, tmp_path / "counts" / f"{number}.parquet")
    tokenizer = train_tokenizer(
        project("x", tmp_path / "out", {"num_merges": 4}, {"from_counts": str(tmp_path / "counts")})
    )
    merges = learn_merges(counts, num_merges=4)
    assert tokenizer.files() == (
        Tokenizer.from_merges(merges, pre_tokenizer=PreTokenizer("gpt2"), special_tokens=SPECIAL_TOKENS).files()
    )


def test_word_counts_that_changed_are_refused_even_at_the_same_size(tmp_path: Path) -> None:
    (tmp_path / "counts").mkdir()
    path = tmp_path / "counts" / "a.parquet"
    settings = project("x", tmp_path / "out", {"num_merges": 1}, {"from_counts": str(tmp_path / "counts")})
    pq.write_table(pa.table({"word": ["ab", "cd"], "count": [1, 2]}), path)
    size = path.stat().st_size
    train_tokenizer(settings)
    pq.write_table(pa.table({"word": ["ab", "cd"], "count": [2, 1]}), path)
    assert path.stat().st_size == size
    with pytest.raises(ValueError, match=r"was made from another corpus .*a\.parquet\.\w+: .* before, .* now"):
        train_tokenizer(settings)


@pytest.mark.parametrize("change", ["missing", "more"])
def test_word_counts_that_do_not_match_their_manifest_are_refused(tmp_path: Path, trained: Path, change: str) -> None:
    counts = tmp_path / "counts"
    shutil.copytree(trained / "word_counts", counts)
    part = min(counts.glob("*.parquet"))
    named = part if change == "missing" else Path(shutil.copy(part, counts / "part-9.parquet"))
    if change == "missing":
        part.unlink()
    with pytest.raises(ValueError, match=f"counts: {named.name} is either missing or not listed in _manifest.json"):
        train_tokenizer(project("x", tmp_path / "out", train={"from_counts": str(counts)}))


def test_missing_word_counts_and_missing_columns_are_named(tmp_path: Path) -> None:
    settings = project("x", tmp_path / "out", train={"from_counts": str(tmp_path / "counts")})
    with pytest.raises(FileNotFoundError, match=r"counts: no word counts found \(\*\.parquet with the columns"):
        train_tokenizer(settings)
    (tmp_path / "counts").mkdir()
    pq.write_table(pa.table({"word": ["a"], "number": [1]}), tmp_path / "counts" / "a.parquet")
    with pytest.raises(ValueError, match=r"a\.parquet: word counts need the columns word and count; it has"):
        train_tokenizer(settings)


def test_overwriting_an_output_keeps_the_word_counts_it_is_trained_from(corpus: Path, tmp_path: Path) -> None:
    train_tokenizer(project(corpus, tmp_path))
    counts = contents(tmp_path / "word_counts")
    again = {"from_counts": str(tmp_path / "word_counts")}
    tokenizer = train_tokenizer(project(corpus, tmp_path, {"vocab_size": 300}, again, {"overwrite": True}))
    assert contents(tmp_path / "word_counts") == counts
    assert tokenizer.files() == (
        Tokenizer.train(texts_of(corpus), vocab_size=300, special_tokens=SPECIAL_TOKENS).files()
    )


# Corpora that are refused.


@pytest.mark.parametrize("texts", [[], [None, None], [""], ["", None]])
def test_a_corpus_without_words_is_an_error(tmp_path: Path, texts: list[str | None]) -> None:
    pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"nothing to train on: .*/out/word_counts holds no word"):
        train_tokenizer(project(tmp_path / "a.parquet", tmp_path / "out"))
    assert not {*TOKENIZER_FILES, "_manifest.json"} & set(contents(tmp_path / "out"))


def test_min_count_above_every_count_is_an_error(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="holds no word that occurs at least 1000000 times"):
        train_tokenizer(project(corpus, tmp_path, train={"min_count": 10**6}))


@pytest.mark.slow
def test_invalid_utf8_is_named_by_file_and_row(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", "a.parquet")
    texts = pa.array([b"good", b"good", b"bad \xff\xfe"], pa.binary())
    pq.write_table(pa.table({"text": texts}), corpus / "b.parquet", row_group_size=1)
    with pytest.raises(BadInputError, match=r"corpus/b\.parquet, row 2: the text is not UTF-8 .* Set corpus\.on"):
        train_tokenizer(project(corpus, tmp_path / "out"))
    left = contents(tmp_path / "out") if (tmp_path / "out").exists() else {}
    assert not [name for name in left if name.endswith("_manifest.json")]
    (corpus / "b.parquet").unlink()
    train_tokenizer(project(corpus, tmp_path / "out"))
    train_tokenizer(project(corpus, tmp_path / "fresh"))
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


@pytest.mark.parametrize(("choice", "words"), [("replace", {"good": 2, "bad": 1, " \ufffd": 1}), ("skip", {"good": 2})])
def test_invalid_utf8_is_replaced_or_skipped(tmp_path: Path, choice: str, words: dict[str, int]) -> None:
    texts = pa.array([b"good", b"bad \xff", b"good"], pa.binary())
    pq.write_table(pa.table({"text": texts}), tmp_path / "a.parquet")
    train_tokenizer(project(tmp_path / "a.parquet", tmp_path / "out", on_invalid_utf8=choice))
    assert word_counts_in(tmp_path / "out" / "word_counts") == {word.encode(): n for word, n in words.items()}
    totals = read_json(f"{tmp_path}/out/_manifest.json")["corpus"]
    assert totals["skipped_documents" if choice == "skip" else "replaced_documents"] == 1


def test_a_pattern_that_matches_nothing_fails_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        train_tokenizer(project(tmp_path / "*.parquet", tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_message_says_that_the_pairs_ran_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pq.write_table(pa.table({"text": ["ab ab"]}), tmp_path / "a.parquet")
    tokenizer = train_tokenizer(project(tmp_path / "a.parquet", tmp_path / "out"))
    assert tokenizer.vocab_size == 256 + 2 + 2
    assert "no pairs are left, so there are fewer than the 400 entries asked for" in capsys.readouterr().err
    assert Counter(read_json(f"{tmp_path}/out/_manifest.json")["merges"]["counts"]) == {2: 1, 1: 1}


def test_an_output_that_cannot_be_written_is_refused_before_the_corpus_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.txt").write_text("hug")
    monkeypatch.setattr(count_corpus, "run_pipeline", lambda *_: pytest.fail("the corpus was counted"))
    with pytest.raises(NotADirectoryError, match=r"a\.txt"):
        train_tokenizer(project(tmp_path / "a.txt", tmp_path / "a.txt"))


def test_a_corpus_without_words_leaves_no_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("")
    with pytest.raises(ValueError, match="nothing to train on"):
        train_tokenizer(project(tmp_path / "a.txt", tmp_path / "out"))
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"word_counts"}
