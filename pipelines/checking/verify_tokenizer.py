"""Verifies a tokenizer: checks it against its corpus, its settings, and the Hugging Face library."""

import tempfile
from collections.abc import Iterator, Sequence
from functools import cache

from bpe_core import Tokenizer
from pipelines.checking.check import Check, run_check
from pipelines.checking.encoding_checks import (
    check_decoding,
    check_hugging_face,
    check_prefixes,
    check_reachable,
    check_round_trip,
    check_wholeness,
)
from pipelines.checking.training_checks import (
    check_ids,
    check_merges,
    check_recorded,
    check_word_counts,
    train_again,
)
from pipelines.errors import CheckSkippedError
from pipelines.reading.formats.known_answers import NEGATIVES, POSITIVES
from pipelines.rows.segments import read_job_tokenizer
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.project import Project
from pipelines.storage.tokenizer_files import read_tokenizer
from pipelines.training.count_corpus import count_corpus_in_memory


def check_tokenizer(project: Project, positives: Sequence[str] = (), negatives: Sequence[str] = ()) -> Iterator[Check]:
    """Yields each check of a project's tokenizer as it is done.

    The tokenizer is that of `train.output`, or of `shards.tokenizer` if the project has no section `train`. For some
    checks it is trained again, into a temporary folder.

    Args:
        project: names the tokenizer, its corpus and its settings.
        positives: words that must be one token. By default those of the section `sweep`; if it names none, those of
            the known-answer corpus, if that is the project's corpus.
        negatives: words that must be several tokens; by default as for `positives`.

    Raises:
        FileNotFoundError: the tokenizer or the corpus does not exist.
    """
    shards = None if project.train else TokenizingJob.of(project).shards
    path = project.train.output if project.train else TokenizingJob.of(project).shards.tokenizer or ""
    try:
        tokenizer = read_job_tokenizer(shards) if shards else read_tokenizer(path, engine="native")
    except ValueError as error:
        yield Check("loads", "fail", str(error))
        return
    if not tokenizer.has_merges:
        yield from _check_foreign(tokenizer, path, project)
        return
    yield Check(
        "loads",
        "pass",
        f"{path}: {tokenizer.vocab_size:,} ids, {len(tokenizer.merges):,} merges",
        {"ids": tokenizer.vocab_size, "merges": len(tokenizer.merges)},
    )
    settings = project.tokenizer if project.train else None
    corpus, pre_tokenizer = project.corpus, settings.pre_tokenizer if settings else tokenizer.pre_tokenizer
    with tempfile.TemporaryDirectory() as folder:
        retrained = cache(lambda: train_again(project, folder))
        for name, check in {
            "ranks": lambda: check_ids(tokenizer.model, settings),
            "merges": lambda: check_merges(tokenizer.model, retrained()),
            "as recorded": lambda: check_recorded(tokenizer, project, retrained()),
            "word counts": lambda: check_word_counts(project, retrained()),
            "round trip": lambda: check_round_trip(tokenizer, pre_tokenizer, corpus),
            "reachable": lambda: check_reachable(tokenizer),
            "prefixes": lambda: check_prefixes(
                tokenizer, retrained().word_counts if settings else count_corpus_in_memory(corpus, pre_tokenizer)
            ),
            "positives": lambda: check_wholeness(
                tokenizer, positives or _find_words(project, "positives", POSITIVES), whole=True
            ),
            "negatives": lambda: check_wholeness(
                tokenizer, negatives or _find_words(project, "negatives", NEGATIVES), whole=False
            ),
            "hugging face": lambda: check_hugging_face(tokenizer, corpus),
        }.items():
            yield run_check(name, check)


def _check_foreign(tokenizer: Tokenizer, path: str, project: Project) -> Iterator[Check]:
    """Yields the checks of a tokenizer without merges, which cannot have been trained here."""
    summary = f"{path}: {tokenizer.vocab_size:,} ids, of kind {tokenizer.kind}"
    yield Check("loads", "pass", summary, {"ids": tokenizer.vocab_size})
    yield run_check("decoding", lambda: check_decoding(tokenizer, project.corpus))
    yield run_check("hugging face", lambda: check_hugging_face(tokenizer, project.corpus))


def _find_words(project: Project, name: str, known: Sequence[str]) -> Sequence[str]:
    """Returns the words that the section `sweep` names or, if the corpus is the known-answer corpus, the known words.

    Raises:
        CheckSkippedError: there are no such words.
    """
    given: Sequence[str] = getattr(project.sweep, name, ())
    words = given or (known if project.corpus.sample == "known-answers" else ())
    if not words:
        raise CheckSkippedError(f"no words are given; name some in sweep.{name} or with --{name}")
    return words
