"""Job 1: learns a tokenizer. Reads the corpus, counts its words, learns merges, and writes the tokenizer's folder."""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bpe_core.encoding.model import extend_model
from bpe_core.merging.merges import Merges
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.tokenizer import Tokenizer
from pipelines.reading.source_files import find_files
from pipelines.running.console import console
from pipelines.running.locking import lock_output
from pipelines.running.remarks import show_remarks
from pipelines.settings.jobs import TrainingJob
from pipelines.settings.project import Project
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage import files
from pipelines.storage.lock import OutputLock
from pipelines.storage.manifest import fingerprint_json, list_versions, read_json, write_json
from pipelines.storage.output_files import CHECKPOINT, MANIFEST, PLAN, TEMPORARY_FOLDER
from pipelines.storage.tokenizer_files import read_tokenizer, write_tokenizer
from pipelines.training.checkpointed_learning import learn_with_checkpoints
from pipelines.training.count_corpus import count_corpus
from pipelines.training.identity import (
    check_same_identity,
    describe_given_counts,
    describe_inputs,
    describe_training_settings,
)
from pipelines.training.word_counts import check_normalized, has_own_words, read_word_counts

_MIN_WORDS_TO_WARN = 100_000
"""A small corpus gets no warning that most of its words are different."""

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def train_tokenizer(project: Project, beam_args: Sequence[str] = ()) -> Tokenizer:
    """Runs job 1 and returns the tokenizer, after writing it and its manifest to `train.output`.

    If the output is finished and was made from the same corpus with the same settings, returns it as it is. If an
    earlier run was interrupted, continues from its word counts or from the last checkpoint of its merges.

    Raises:
        OutputLockedError: another run is working on the output.
        LockLostError: another run took this run for dead.
        ValueError: the output was made from another corpus or with other settings, or the corpus has no words.
    """
    return run_training(TrainingJob.of(project), beam_args)


def run_training(job: TrainingJob, beam_args: Sequence[str] = ()) -> Tokenizer:
    """Runs job 1 with settings that are already resolved; see `train_tokenizer`."""
    files.use_flags(beam_args)
    if files.exists(files.join(job.output, PLAN)):
        raise ValueError(
            f"{job.output} holds training shards; choose another train.output, a folder for the tokenizer alone"
        )
    for note in job.notes:
        console.print(f"note: {note}")
    with lock_output(job.output, job.run) as lock:
        return _train(job, beam_args, lock)


def _train(job: TrainingJob, beam_args: Sequence[str], lock: OutputLock) -> Tokenizer:
    train = job.train
    sources = [] if train.from_counts else find_files(job.corpus, job.outputs)
    start = read_tokenizer(train.start_from, engine="native") if train.start_from else None
    pre_tokenizer = start.pre_tokenizer if start else job.tokenizer.pre_tokenizer
    identity = {
        "settings": describe_training_settings(job),
        "inputs": describe_inputs(sources) or describe_given_counts(train.counts_folder, pre_tokenizer),
        **({"start_from": start.fingerprint} if start else {}),
    }
    if job.run.overwrite:
        _delete_training_output(train)
    finished = read_json(files.join(train.output, MANIFEST))
    if finished is not None:
        check_same_identity(train.output, finished, identity)
        tokenizer = read_tokenizer(train.output, engine="native")
        console.print(f"nothing to do: {train.output} is finished, and its corpus and settings are the same")
        _show_training(train.output, summarize_training(finished))
        return tokenizer
    if not train.from_counts:
        count_corpus(job, pre_tokenizer, sources, beam_args)
    word_counts, pruned = read_word_counts(train.counts_folder, train.min_count)
    if not has_own_words(train.counts_folder):
        check_normalized(train.counts_folder, word_counts, pre_tokenizer)
    if word_counts.num_rows == 0:
        raise ValueError(
            f"nothing to train on: {train.counts_folder} holds no word that occurs at least {train.min_count} times"
        )
    _warn_about_different_words(word_counts)
    merges = learn_with_checkpoints(job, start, word_counts, identity=fingerprint_json(identity))
    tokenizer = _make_tokenizer(merges, start, job.tokenizer, pre_tokenizer)
    lock.check()
    write_tokenizer(train.output, tokenizer)
    files.delete(files.join(train.output, CHECKPOINT))
    counted = read_json(files.join(train.counts_folder, MANIFEST)) or {}
    trained_on = {"distinct_words_trained_on": word_counts.num_rows, "pruned_by_min_count": pruned}
    manifest = {
        **identity,
        "tokenizer": {"fingerprint": tokenizer.fingerprint, "vocab_size": tokenizer.vocab_size},
        "versions": list_versions(),
        "corpus": {**counted.get("totals", {}), "duplicates": counted.get("duplicates"), **trained_on},
        "quarantine": counted.get("quarantine", {}),
        "merges": _summarize_merges(merges),
    }
    write_json(files.join(train.output, MANIFEST), manifest)
    files.delete(files.join(train.output, TEMPORARY_FOLDER))
    _show_training(train.output, summarize_training(manifest))
    return tokenizer


def summarize_training(manifest: Mapping[str, Any]) -> dict[str, int]:
    """Returns the totals in a manifest of job 1, by name: what was read, left out and learned."""
    corpus, merges = manifest["corpus"], manifest["merges"]
    pruned, dropped = corpus.get("pruned_by_min_count", {}), merges.get("dropped_by_limit_alphabet", {})
    return {
        **{name: count for name, count in corpus.items() if isinstance(count, int)},
        "pruned_words": pruned.get("words", 0),
        "pruned_occurrences": pruned.get("occurrences", 0),
        "dropped_characters": dropped.get("characters", 0),
        "dropped_character_occurrences": dropped.get("occurrences", 0),
        "merges": merges["made"],
        "vocab_size": manifest["tokenizer"]["vocab_size"],
    }


def _show_training(output: str, counts: Mapping[str, int]) -> None:
    """Prints where the tokenizer is, what it was learned from, and what was left out."""
    read = f"{counts['documents']:,} documents, " if "documents" in counts else ""
    console.print(
        f"{output}: {counts['vocab_size']:,} ids and {counts['merges']:,} merges, learned from "
        f"{read}{counts['distinct_words_trained_on']:,} different words"
    )
    show_remarks(counts)


def _warn_about_different_words(word_counts: pa.Table) -> None:
    """Warns if most words occur only once: counting has not made the text shorter, and merging needs memory for all."""
    num_words = pc.sum(word_counts["count"]).as_py()
    if word_counts.num_rows >= max(_MIN_WORDS_TO_WARN, num_words / 2):
        console.print(
            f"{word_counts.num_rows:,} of {num_words:,} words are different, so merging needs memory for nearly all of "
            "the text. If the text has no spaces, set tokenizer.pattern to split it; or set train.min_count, or train "
            "on a part of the corpus"
        )


def _make_tokenizer(
    merges: Merges, start: Tokenizer | None, settings: TokenizerSettings, pre_tokenizer: PreTokenizer
) -> Tokenizer:
    """Returns the tokenizer with these merges: `start` extended by them, or a new one."""
    if start:
        return Tokenizer(extend_model(start.model, merges))
    return Tokenizer.from_merges(
        merges,
        pre_tokenizer=pre_tokenizer,
        special_tokens=settings.special_tokens,
        special_ids=settings.special_ids,
        vocab_order=settings.vocab_order,
    )


def _delete_training_output(train: Train) -> None:
    """Deletes what job 1 writes, manifests first; other files in the folder stay.

    If training starts from given word counts, no word counts are deleted: they may be the given ones, and the corpus
    may no longer exist.
    """
    files.delete(files.join(train.output, MANIFEST))
    if train.from_counts is None:
        files.delete(files.join(train.kept_counts, MANIFEST))
        files.delete(train.kept_counts)
    files.delete(*(files.join(train.output, name) for name in (*_TOKENIZER_FILES, CHECKPOINT, TEMPORARY_FOLDER)))


def _summarize_merges(merges: Merges) -> dict[str, Any]:
    different, occurrences = merges.num_characters_dropped
    return {
        "made": len(merges),
        "ended_by": merges.ended_by,
        "base_symbols": len(merges.alphabet.symbols),
        "symbols": len(merges.symbols),
        "dropped_by_limit_alphabet": {"characters": different, "occurrences": occurrences},
        "counts": merges.counts.tolist(),
    }
