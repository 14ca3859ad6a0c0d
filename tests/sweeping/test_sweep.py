"""The sweep: each size equals a training run of its own, and the known-answers corpus has its known best size."""

import csv
import json
import random
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bpe_core import Tokenizer
from bpe_core.measuring.evaluation import compute_tokens_per_character
from bpe_core.merging.merges import Merges
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from pipelines import cli
from pipelines.reading.documents import DocumentBatch, read_task
from pipelines.reading.formats.known_answers import NEGATIVES, POSITIVES, known_answer_documents
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import Task
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.sweep import Sweep
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.sweeping import sample as sample_module
from pipelines.sweeping import sweep as sweep_module
from pipelines.sweeping.sample import draw_documents, read_sample
from pipelines.sweeping.sweep import sweep

QUICKSTART = Path(__file__).parents[2] / "configs" / "quickstart.yaml"
MERGE_COUNTS = (60, 120, 200, 300, 450, 600)
SPECIAL_TOKENS: dict[str, str | list[str]] = {"eos": "<eos>", "pad": "<pad>"}


def documents() -> list[tuple[str | None, str]]:
    """Returns 121 texts: in two languages, with runs of one letter, and one without a language."""
    chance = random.Random(7)
    words = {
        "en": "the cat sat on mats aaa aaaa aaaaaaa aaaaa ".split(" "),
        "de": "der Hund läuft über Straßen ".split(" "),
    }
    texts: list[tuple[str | None, str]] = []
    for _ in range(120):
        language = chance.choice(["en", "en", "en", "de"])
        texts.append((language, " ".join(chance.choice(words[language]) for _ in range(chance.randrange(1, 20)))))
    return [*texts, (None, "no language is named here")]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep") / "corpus.parquet"
    languages, texts = zip(*documents(), strict=True)
    pq.write_table(pa.table({"lang": languages, "text": texts}), path, row_group_size=30)
    return path


def project(corpus: Path | str, output: Path, tokenizer: dict[str, Any] | None = None, **settings: Any) -> Project:
    if not {"num_merges", "vocab_sizes"} & set(settings):
        settings["num_merges"] = (5, 20, 40)
    return Project(
        corpus=Corpus(files=(str(corpus),)),
        tokenizer=TokenizerSettings(**{"num_merges": 1, "special_tokens": SPECIAL_TOKENS, **(tokenizer or {})}),
        train=Train(output=str(output / "not_used"), num_partitions=2),
        sweep=Sweep(output=str(output), **settings),
        run=Run(workers=1, progress=False),
    )


def known_answers(output: Path, **settings: Any) -> Project:
    return Project(
        corpus=Corpus(sample="known-answers"),
        tokenizer=TokenizerSettings(kind="char", num_merges=1, special_tokens={"unk": "<unk>"}),
        sweep=Sweep(
            **{
                "output": str(output),
                "num_merges": MERGE_COUNTS,
                "positives": POSITIVES,
                "negatives": NEGATIVES,
                "language_column": "lang",
                "reference_language": "en",
                **settings,
            }
        ),
        run=Run(workers=1, progress=False),
    )


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sweep of the known-answers corpus, which tests must not change."""
    output = tmp_path_factory.mktemp("known")
    sweep(known_answers(output))
    return output


def result_in(folder: Path) -> Any:
    return json.loads((folder / "sweep.json").read_text(encoding="utf-8"))


def rows_in(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


# The recommended size.


def test_the_best_size_of_the_known_corpus_is_recommended(known: Path) -> None:
    result = result_in(known)
    sizes = result["sizes"]
    assert tuple(size["num_merges"] for size in sizes) == MERGE_COUNTS
    whole = [(size["positives"]["share_whole"], size["negatives"]["share_whole"]) for size in sizes]
    assert (1, 0) in whole
    assert whole[-1] == (1, 1)
    for before, after in pairwise(sizes):
        assert before["tokens_per_character"] >= after["tokens_per_character"]
        assert before["vocab_size"] <= after["vocab_size"]
    recommended = result["recommended"]
    [size] = [size for size in sizes if size["num_merges"] == recommended["num_merges"]]
    assert (size["positives"]["share_whole"], size["negatives"]["share_whole"]) == (1, 0)
    assert recommended == {
        "num_merges": 200,
        "vocab_size": size["vocab_size"],
        "reason": "all 8 positives are whole and all 3 negatives are split, the best result, reached by 5 sizes; "
        f"the knee of tokens per character is at this size, {size['vocab_size']} entries (0.394 tokens per character)",
    }


def test_the_sizes_of_the_known_corpus_are_measured_as_one_by_one(known: Path) -> None:
    texts = [text for _, text in known_answer_documents()]
    for size in result_in(known)["sizes"]:
        alone = Tokenizer.train(texts, kind="char", num_merges=size["num_merges"], special_tokens={"unk": "<unk>"})
        assert size["vocab_size"] == alone.vocab_size
        assert size["tokens_per_character"] == compute_tokens_per_character(alone, texts)
        assert size["positives"]["tokens"] == {word: len(alone.encode(word)) for word in POSITIVES}
        assert size["negatives"]["tokens"] == {word: len(alone.encode(word)) for word in NEGATIVES}
        assert {name: facts["documents"] for name, facts in size["languages"].items()} == {"en": 484, "zh": 164}
        assert size["languages"]["en"]["parity"] == 1


@pytest.mark.parametrize(
    ("sizes", "chosen", "reason"),
    [
        ((0, 20, 60), 60, "all 8 positives are whole and all 3 negatives are split, better than at any other size"),
        ((0, 600), 0, "0 of 8 positives are whole and all 3 negatives are split, the best result, reached by 2 sizes"),
        (
            (450, 590, 600),
            450,
            "all 8 positives are whole and all 3 negatives are split, better than at any other size",
        ),
    ],
)
def test_the_best_size_is_recommended_even_if_none_is_perfect(
    tmp_path: Path, sizes: tuple[int, ...], chosen: int, reason: str
) -> None:
    recommended = sweep(known_answers(tmp_path, num_merges=sizes))["recommended"]
    assert recommended["num_merges"] == chosen
    assert recommended["reason"].startswith(f"{reason}; ")


def test_without_positives_and_negatives_the_knee_decides(tmp_path: Path) -> None:
    recommended = sweep(known_answers(tmp_path, positives=(), negatives=()))["recommended"]
    assert recommended["num_merges"] == 200
    assert recommended["reason"] == (
        f"the knee of tokens per character is at this size, {recommended['vocab_size']} entries "
        "(0.394 tokens per character)"
    )
    two = sweep(known_answers(tmp_path / "two", positives=(), negatives=(), num_merges=(60, 120)))["recommended"]
    assert (two["num_merges"], two["reason"]) == (
        60,
        "tokens per character has no knee over these sizes, so this is the smallest of them",
    )


# Every size equals a training run of its own.


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"ties": "larger-pair", "vocab_order": "gpt2", "special_ids": "first"},
        {"vocab_order": "sorted", "lowercase": True, "unicode": "NFD"},
        {"max_token_length": 4},
        {"kind": "char", "special_tokens": {"unk": "<unk>", "pad": "<pad>"}},
        {"kind": "char", "end_of_word_placement": "glued", "vocab_order": "sorted"},
    ],
    ids=lambda settings: "-".join(map(str, settings.values())) or "defaults",
)
@pytest.mark.parametrize("by", ["vocab_sizes", "num_merges"])
def test_every_size_equals_training_it_alone(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str, settings: dict[str, Any]
) -> None:
    measured: list[Tokenizer] = []

    def watched(tokenizer: Tokenizer, *others: Any) -> dict[str, Any]:
        measured.append(tokenizer)
        return original(tokenizer, *others)

    original = sweep_module._measure_size
    monkeypatch.setattr(sweep_module, "_measure_size", watched)
    texts = [text for _, text in documents()]
    settings = {"special_tokens": SPECIAL_TOKENS, **settings}
    fewest = Tokenizer.train(texts, num_merges=0, **settings).vocab_size
    sizes = tuple(range(9, 49)) if by == "num_merges" else tuple(range(fewest, fewest + 40))
    sweep(project(corpus, tmp_path, settings, **{by: sizes}))
    name = "num_merges" if by == "num_merges" else "vocab_size"
    for size, tokenizer in zip(sizes, measured, strict=True):
        alone: dict[str, Any] = {name: size, **settings}
        assert tokenizer.files() == Tokenizer.train(texts, **alone).files()


def test_a_merge_that_makes_no_new_entry_belongs_to_no_smaller_size() -> None:
    left, right, made = np.array([[97, 98, 256], [98, 99, 257], [97, 257, 258], [256, 99, 258]], np.int32).T
    symbols = (*(bytes([byte]) for byte in range(256)), b"ab", b"bc", b"abc")
    alphabet = Tokenizer.train([""], num_merges=0, vocab_order="gpt2").alphabet
    order = [symbols.index(symbol) for symbol in alphabet.symbols]
    place = np.array([*np.argsort(order), 256, 257, 258], np.int32)
    spelled = (*alphabet.symbols, *symbols[256:])
    merges = Merges(alphabet, place[left], place[right], place[made], np.ones(4, np.int64), spelled, "size")
    largest = Tokenizer.from_merges(merges, pre_tokenizer=PreTokenizer("gpt2"))
    assert largest.tokens(largest.merges[:, 2]) == [b"ab", b"bc", b"abc", b"abc"]
    settings = Sweep(output="o", vocab_sizes=(256, 257, 258, 259))
    assert sweep_module._count_merges_of_sizes(largest, settings) == ([0, 1, 2, 3], [])
    settings = Sweep(output="o", vocab_sizes=(259, 260))
    assert sweep_module._count_merges_of_sizes(largest, settings) == ([3, 4], [260])


def test_sizes_out_of_reach_are_named_and_replaced_by_all_merges(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [text for _, text in documents()]
    everything = Tokenizer.train(texts, num_merges=10_000, special_tokens=SPECIAL_TOKENS)
    result = sweep(project(corpus, tmp_path, num_merges=(10, 5000, 10_000)))
    assert [size["num_merges"] for size in result["sizes"]] == [10, len(everything.merges)]
    assert result["not_reached"] == [5000, 10_000]
    assert "the corpus has too few pairs for 5,000, 10,000; the last size has all merges that it allows" in (
        capsys.readouterr().err
    )
    result = sweep(project(corpus, tmp_path / "sizes", vocab_sizes=(300, everything.vocab_size, 10_000)))
    assert [size["vocab_size"] for size in result["sizes"]] == [300, everything.vocab_size]
    assert result["not_reached"] == [10_000]


def test_a_size_below_the_characters_of_the_corpus_is_refused(corpus: Path, tmp_path: Path) -> None:
    texts = [text for _, text in documents()]
    fewest = Tokenizer.train(texts, kind="char", num_merges=0, special_tokens=SPECIAL_TOKENS).vocab_size
    message = rf"sweep\.vocab_sizes: 12 is too small for the {fewest} base symbols and special tokens"
    with pytest.raises(ValueError, match=message):
        sweep(project(corpus, tmp_path, {"kind": "char"}, vocab_sizes=(12, 60)))


# The files of an output.


def test_json_and_both_tables_say_the_same(known: Path) -> None:
    result = result_in(known)
    assert list(result) == ["settings", "tokenizer", "sample", "sizes", "not_reached", "recommended"]
    assert result["sample"] == {"documents": 648, "bytes": 57096, "characters": 46206, "words": 9775}
    assert result["tokenizer"]["fingerprint"] == Tokenizer.load(known / "tokenizer").fingerprint
    rows = rows_in(known / "sweep.csv")
    assert len(rows) == len(MERGE_COUNTS)
    for row, size in zip(rows, result["sizes"], strict=True):
        for name, value in [*size.items(), *size["cost"].items()]:
            if not isinstance(value, dict):
                assert float(row.pop(name)) == value
        assert float(row.pop("share_whole_positives")) == size["positives"]["share_whole"]
        assert float(row.pop("share_whole_negatives")) == size["negatives"]["share_whole"]
        assert row == {}
    expected = [
        {"num_merges": size["num_merges"], "vocab_size": size["vocab_size"], "language": language, **facts}
        for size in result["sizes"]
        for language, facts in size["languages"].items()
    ]
    assert rows_in(known / "languages.csv") == [{name: str(value) for name, value in row.items()} for row in expected]
    assert {path.name for path in known.iterdir()} == {"sweep.json", "sweep.csv", "languages.csv", "tokenizer"}


def test_the_same_sweep_writes_the_same_bytes_and_does_not_train_again(
    known: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("sweep.json", "sweep.csv", "languages.csv")
    for _ in range(2):
        sweep(known_answers(tmp_path))
        assert {name: (tmp_path / name).read_bytes() for name in names} == {
            name: (known / name).read_bytes() for name in names
        }
    assert capsys.readouterr().err.count("nothing to do") == 1
    sweep(known_answers(tmp_path, num_merges=(60, 600)))
    assert "nothing to do" in capsys.readouterr().err
    with pytest.raises(ValueError, match=r"with other settings: .*num_merges: 600 before, 601 now"):
        sweep(known_answers(tmp_path, num_merges=(60, 601)))


def test_costs_are_those_of_the_model(tmp_path: Path, corpus: Path) -> None:
    settings: dict[str, Any] = {"num_merges": (42,), "hidden_size": 4096, "model_parameters": 2_457_600}
    [untied] = sweep(project(corpus, tmp_path, **settings))["sizes"]
    [tied] = sweep(project(corpus, tmp_path, tied=True, **settings))["sizes"]
    parameters = untied["vocab_size"] * 4096
    assert untied["cost"] == {
        "parameters_per_matrix": parameters,
        "untied_total": 2 * parameters,
        "logit_flops_per_token": 2 * parameters,
        "bytes_fp16_per_matrix": 2 * parameters,
        "bytes_bf16_per_matrix": 2 * parameters,
        "parameters": 2 * parameters,
        "share_of_model": 2 * parameters / 2_457_600,
    }
    assert tied["cost"] == {
        **untied["cost"],
        "parameters": parameters,
        "share_of_model": parameters / 2_457_600,
    }


def test_documents_without_a_language_and_a_corpus_without_a_language_column(corpus: Path, tmp_path: Path) -> None:
    by_language = sweep(project(corpus, tmp_path, language_column="lang"))["sizes"][0]["languages"]
    assert {name: facts["documents"] for name, facts in by_language.items()} == {
        **{name: sum(language == name for language, _ in documents()) for name in ("de", "en")},
        "unknown": 1,
    }
    assert {facts["parity"] for facts in by_language.values()} == {None}
    together = sweep(project(corpus, tmp_path))["sizes"][0]["languages"]
    assert {name: facts["documents"] for name, facts in together.items()} == {"all": 121}
    assert rows_in(tmp_path / "languages.csv")[0]["parity"] == ""


CHANGED: dict[str, Any] = {
    "vocab_sizes": (300, 320),
    "num_merges": (5, 20, 41),
    "sample_bytes": 2000,
    "positives": ("cat",),
    "negatives": ("Hund",),
    "language_column": "lang",
    "reference_language": "de",
    "rare_count": 2,
    "hidden_size": 64,
    "model_parameters": 1000,
    "tied": True,
}


@pytest.fixture(scope="module")
def usual(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    output = tmp_path_factory.mktemp("usual")
    without = sweep(project(corpus, output))
    return {"lang": sweep(project(corpus, output, language_column="lang")), None: without}


@pytest.mark.parametrize("name", CHANGED)
def test_every_setting_has_an_effect(corpus: Path, tmp_path: Path, usual: Any, name: str) -> None:
    column = "lang" if name == "reference_language" else None
    settings = {"language_column": column, name: CHANGED[name]}
    changed = sweep(project(corpus, tmp_path, **settings))
    assert changed["settings"] != usual[column]["settings"]
    assert changed["sizes"] != usual[column]["sizes"]


def test_every_setting_is_tried_above() -> None:
    assert {"output", *CHANGED} == set(Sweep.model_fields)


# The sample.


@pytest.mark.parametrize("one_in", [1, 2, 3, 10, 64])
@pytest.mark.parametrize("period", [1, 2, 3, 4, 10])
def test_the_sample_is_even_if_the_corpus_is_periodic(one_in: int, period: int) -> None:
    drawn = draw_documents(0, 100_000, one_in)
    for rest in range(period):
        share = sum(drawn % period == rest) / len(drawn)
        assert share == pytest.approx(1 / period, rel=0.02)
    assert len(drawn) == pytest.approx(100_000 / one_in, rel=0.01)
    later = [
        number for start in range(0, 3000, 700) for number in (start + draw_documents(start, 700, one_in)).tolist()
    ]
    assert later == [number for number in drawn.tolist() if number < 3500]


def test_a_sample_has_about_the_size_asked_for_from_all_over_the_corpus(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def sample_of(sample_bytes: int) -> Any:
        settings = project(corpus, tmp_path, sample_bytes=sample_bytes, language_column="lang").sweep
        tokenizer = TokenizerSettings(num_merges=1)
        assert settings is not None
        return read_sample(
            find_files(Corpus(files=(str(corpus),))), Corpus(files=("-",)), tokenizer.pre_tokenizer, settings
        )

    everything = sample_of(1 << 20)
    assert everything.bytes == sum(len(text.encode()) for _, text in documents())
    half = sample_of(everything.bytes // 2)
    assert 0.3 < half.bytes / everything.bytes < 0.7
    # If the corpus is much larger than the sample, only a part of it is read.
    read = []

    def watched(task: Task, *others: Any) -> Iterator[DocumentBatch]:
        read.append(task)
        return read_task(task, *others)

    monkeypatch.setattr(sample_module, "read_task", watched)
    monkeypatch.setattr(sample_module, "_MAX_READ_FACTOR", 1)
    assert sample_of(everything.bytes // 2).bytes < 0.9 * everything.bytes
    assert len(read) < 5


def test_a_sample_without_words_is_refused(tmp_path: Path, corpus: Path) -> None:
    settings = project(corpus, tmp_path, sample_bytes=1)
    assert settings.sweep is not None
    empty = tmp_path / "empty.parquet"
    pq.write_table(pa.table({"text": ["", None]}), empty)
    with pytest.raises(ValueError, match=r"has no words to measure on; set a larger sweep\.sample_bytes"):
        read_sample(
            find_files(Corpus(files=(str(empty),))),
            Corpus(files=("-",)),
            TokenizerSettings(num_merges=1).pre_tokenizer,
            settings.sweep,
        )


# Settings that are refused before training.


def test_a_missing_language_column_is_refused_at_once(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no column 'language' .*the columns are lang, text"):
        sweep(project(corpus, tmp_path / "out", language_column="language"))
    with pytest.raises(ValueError, match=r"no column 'x'\. Remove it from sweep\.language_column"):
        sweep(known_answers(tmp_path / "out", language_column="x"))
    (tmp_path / "a.txt").write_text("some text")
    with pytest.raises(ValueError, match=r"a\.txt: a text file has no column 'lang'\. Remove it from sweep"):
        sweep(project(tmp_path / "a.txt", tmp_path / "out", language_column="lang"))
    with pytest.raises(ValueError, match=r"the sample has no text in the language 'fr'; it has de, en, unknown"):
        sweep(project(corpus, tmp_path / "out", language_column="lang", reference_language="fr"))
    assert not (tmp_path / "out").exists()


def test_the_command_shows_a_table_and_the_recommended_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "quickstart.yaml"
    config.write_text(QUICKSTART.read_text(encoding="utf-8").replace("build/", f"{tmp_path}/"), encoding="utf-8")
    cli.main(["sweep", "--config", str(config), "--run.workers", "1", "--run.progress", "false"])
    printed = capsys.readouterr()
    assert printed.out == ""
    lines = [line.split() for line in printed.err.splitlines()]
    assert ["200", "325", "0.394", "1.864", "64.8%", "100%", "0%", "76", "0.117", "1.7%", "←"] in lines
    assert sum("←" in line for line in lines) == 1
    assert "recommended: 325 entries, 200 merges: all 8 positives are whole" in printed.err
    assert result_in(tmp_path / "quickstart" / "sweep")["recommended"]["num_merges"] == 200
