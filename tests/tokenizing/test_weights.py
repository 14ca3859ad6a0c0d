"""Weighted sources: how often their documents occur in the rows of job 2 and the word counts of job 1."""

from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from row_outputs import CHOICE, ROW_LENGTH, bytes_in, chosen_for, place, rows_in, run, write_corpus

from bpe_core.tokenizer import Tokenizer
from pipelines.reading.source_files import find_files
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage.manifest import read_json
from pipelines.tokenizing.tokenize_corpus import tokenize_corpus
from pipelines.training.train_tokenizer import train_tokenizer
from pipelines.training.word_counts import read_word_counts


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("rows") / "corpus")


@pytest.fixture(scope="module")
def tokenizer(corpus: Path) -> Path:
    texts = [text for path in corpus.glob("*.parquet") for text in pq.read_table(path)["text"].to_pylist() if text]
    folder = corpus.parent / "tokenizer"
    Tokenizer.train(texts, num_merges=20, special_tokens={"bos": "<bos>", "eos": "<eos>", "pad": "<pad>"}).save(folder)
    return folder


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


@pytest.mark.slow
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


@pytest.mark.slow
def test_text_counts_as_often_as_it_occurs(two_sources: Path, tokenizer: Path, tmp_path: Path) -> None:
    once = run(two_sources / "a", tokenizer, tmp_path / "once", bucket_lengths=[ROW_LENGTH])
    twice = run([str(two_sources / "a")], tokenizer, tmp_path / "twice", weights=(2,), bucket_lengths=[ROW_LENGTH])
    assert twice["counts"]["text_bytes"] == 2 * once["counts"]["text_bytes"]
    assert twice["counts"]["tokens"] == 2 * once["counts"]["tokens"]
    rows = sorted(rows_in(tmp_path / "twice"), key=place)
    assert rows[::2] == rows[1::2] == sorted(rows_in(tmp_path / "once"), key=place)


@pytest.mark.slow
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


@pytest.mark.slow
def test_buckets_are_chosen_for_weighted_documents(two_sources: Path, tokenizer: Path, tmp_path: Path) -> None:
    sources = [str(two_sources / "a"), str(two_sources / "b")]
    manifest = run(sources, tokenizer, tmp_path, weights=(0.1, 3), buckets=CHOICE)
    assert manifest["bucket_choice"] == chosen_for([row["length"] for row in rows_in(tmp_path)], CHOICE)


@pytest.mark.slow
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
