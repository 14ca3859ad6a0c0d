"""Job 1: corpus -> word counts -> merges -> tokenizer folder."""

import time
from collections.abc import Sequence
from typing import Any

from bpe_core.encoding.model import extend_model
from bpe_core.merging.merges import Merges
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.tokenizer import Tokenizer
from pipelines.reading.deduplicate import delete_hashes, find_duplicates
from pipelines.reading.fingerprints import compute_sha256
from pipelines.reading.source_files import SourceFile, find_files
from pipelines.reading.tasks import Task, name_task, plan_tasks
from pipelines.running.console import console
from pipelines.running.runners import run_pipeline
from pipelines.settings.jobs import TrainingJob
from pipelines.settings.project import Project
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage import files
from pipelines.storage.lock import OutputLock, new_run_id
from pipelines.storage.manifest import differences, fingerprint, read_json, versions, write_json
from pipelines.storage.output_files import CHECKPOINT, DUPLICATES_FOLDER, MANIFEST, PLAN, TEMPORARY_FOLDER
from pipelines.storage.tokenizer_files import read_tokenizer, write_tokenizer
from pipelines.training.merging import learn
from pipelines.training.word_counts import (
    CountWords,
    count_corpus,
    find_word_counts,
    finish_word_counts,
    read_word_counts,
)


def train_tokenizer(project: Project, beam_args: Sequence[str] = ()) -> Tokenizer:
    """Runs job 1 and returns the tokenizer, which then stands in `train.output` with its manifest.

    A finished output of the same corpus and settings is returned as it is. An unfinished one is taken up where it
    stopped: at its word counts, or at the last checkpoint of its merges.

    Raises:
        OutputLockedError: another run works on the output.
        LockLostError: another run took this one for dead.
        ValueError: the output holds the result of another corpus or other settings, or there is nothing to train on.
    """
    return run_training(TrainingJob.of(project), beam_args)


def run_training(job: TrainingJob, beam_args: Sequence[str] = ()) -> Tokenizer:
    """Runs job 1; see `train_tokenizer`."""
    output = job.train.output
    files.use_flags(beam_args)
    if files.exists(files.join(output, PLAN)):
        raise ValueError(f"{output} holds training shards; choose another train.output, for the tokenizer alone")
    with OutputLock(output, new_run_id(), job.run.lock_seconds) as lock:
        for claim in lock.taken_over:
            console.print(f"{output}: removed the lock of a dead run, {claim}")
        return _train(job, beam_args, lock)


def _train(job: TrainingJob, beam_args: Sequence[str], lock: OutputLock) -> Tokenizer:
    settings, train = job.tokenizer, job.train
    counts_folder = train.counts_folder
    sources = [] if train.from_counts else find_files(job.corpus, job.outputs)
    start = read_tokenizer(train.start_from) if train.start_from else None
    pre_tokenizer = start.pre_tokenizer if start else settings.pre_tokenizer
    identity = {
        "settings": _settings(job),
        "inputs": _inputs(sources) or _given_counts(pre_tokenizer, counts_folder),
        **({"start_from": start.fingerprint} if start else {}),
    }
    if job.run.overwrite:
        _delete_output(train)
    finished = read_json(files.join(train.output, MANIFEST))
    if finished is not None:
        _refuse_changes(train.output, {key: finished.get(key) for key in identity}, identity)
        tokenizer = read_tokenizer(train.output)
        console.print(f"nothing to do: {train.output} is finished, and its corpus and settings are the same")
        return tokenizer
    if not train.from_counts:
        _count(job, pre_tokenizer, sources, counts_folder, beam_args)
    word_counts, pruned = read_word_counts(counts_folder, train.min_count)
    if word_counts.num_rows == 0:
        raise ValueError(
            f"there is nothing to train on: {counts_folder} holds no word with a count of {train.min_count}"
        )
    merges = learn(job, start, word_counts, identity=fingerprint(identity), console=console)
    tokenizer = _numbered(merges, start, settings, pre_tokenizer)
    lock.check()
    write_tokenizer(train.output, tokenizer)
    files.delete(files.join(train.output, CHECKPOINT))
    counted = read_json(files.join(counts_folder, MANIFEST)) or {}
    trained_on = {"distinct_words_trained_on": word_counts.num_rows, "pruned_by_min_count": pruned}
    manifest = {
        **identity,
        "tokenizer": {"fingerprint": tokenizer.fingerprint, "vocab_size": tokenizer.vocab_size},
        "versions": versions(),
        "corpus": {**counted.get("totals", {}), "duplicates": counted.get("duplicates"), **trained_on},
        "quarantine": counted.get("quarantine", {}),
        "merges": _merges_summary(merges),
    }
    write_json(files.join(train.output, MANIFEST), manifest)
    files.delete(files.join(train.output, TEMPORARY_FOLDER))
    return tokenizer


def _numbered(
    merges: Merges, start: Tokenizer | None, settings: TokenizerSettings, pre_tokenizer: PreTokenizer
) -> Tokenizer:
    """Returns the tokenizer that has these merges: `start` with more of them, or a new one."""
    if start:
        return Tokenizer(extend_model(start.model, merges))
    return Tokenizer.from_merges(
        merges,
        pre_tokenizer=pre_tokenizer,
        special_tokens=settings.special_tokens,
        special_ids=settings.special_ids,
        vocab_order=settings.vocab_order,
    )


def _delete_output(train: Train) -> None:
    """Deletes what job 1 writes, the manifests first; anything else in the folder stays.

    Word counts stay where training is from counts: they may be the very ones, and the corpus may be gone.
    """
    files.delete(files.join(train.output, MANIFEST))
    if train.from_counts is None:
        files.delete(files.join(train.kept_counts, MANIFEST))
        files.delete(train.kept_counts)
    names = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", CHECKPOINT, TEMPORARY_FOLDER)
    files.delete(*(files.join(train.output, name) for name in names))


def _settings(job: TrainingJob) -> dict[str, Any]:
    """The settings that the output depends on: not where it goes, nor how the job runs."""
    content = {
        "tokenizer": job.tokenizer.model_dump(mode="json"),
        "train": job.train.model_dump(mode="json"),
        "corpus": job.corpus.identity,
    }
    for name in ("output", "checkpoint_seconds", "from_counts", "start_from"):
        content["train"].pop(name)
    return content


def _inputs(sources: Sequence[SourceFile]) -> dict[str, Any]:
    return {source.path: {"bytes": source.num_bytes, "fingerprint": source.fingerprint} for source in sources}


def _given_counts(pre_tokenizer: PreTokenizer, folder: str) -> dict[str, Any]:
    """Returns the word counts to train from, after checking that their words were cut as this tokenizer cuts them."""
    manifest = read_json(files.join(folder, MANIFEST)) or {}
    ours = _to_json(pre_tokenizer)
    if manifest.get("words", ours) != ours:
        changed = "; ".join(differences(manifest["words"], ours))
        raise ValueError(f"{folder} holds counts of words that were cut otherwise ({changed}); count the corpus again")
    return {m.path: {"bytes": m.num_bytes, "fingerprint": _sha256(m.path)} for m in find_word_counts(folder)}


def _sha256(path: str) -> str:
    """Over the whole file: other counts of the same words may well take as many bytes."""
    with files.open_raw(path) as file:
        return compute_sha256(file)


def _to_json(pre_tokenizer: PreTokenizer) -> dict[str, Any]:
    return {
        "pattern": list(pre_tokenizer.expressions),
        "keep_gaps": pre_tokenizer.keep_gaps,
        "unicode": pre_tokenizer.unicode,
        "lowercase": pre_tokenizer.lowercase,
    }


def _refuse_changes(output: str, before: dict[str, Any], now: dict[str, Any]) -> None:
    changed = differences(before, now)
    if changed:
        more = f" and {len(changed) - 4} more" if len(changed) > 4 else ""
        raise ValueError(
            f"{output} was made from another corpus or with other settings: {'; '.join(changed[:4])}{more}. Choose "
            "another output, or replace it with --run.overwrite true"
        )


def _count(
    job: TrainingJob, pre_tokenizer: PreTokenizer, sources: Sequence[SourceFile], folder: str, beam_args: Sequence[str]
) -> None:
    """Counts the corpus into `folder`, unless that was done before."""
    train = job.train
    identity = {
        "corpus": job.corpus.identity,
        "words": _to_json(pre_tokenizer),
        "num_partitions": train.num_partitions,
        "inputs": _inputs(sources),
    }
    finished = read_json(files.join(folder, MANIFEST))
    if finished is not None:
        _refuse_changes(train.output, {key: finished.get(key) for key in identity}, identity)
        console.print(f"word counts are there: {folder}")
        return
    files.delete(folder)
    tasks = plan_tasks(sources)
    size = sum(source.num_bytes for source in sources)
    counting = CountWords(job.corpus, pre_tokenizer, train.num_partitions, folder)
    started = time.perf_counter()
    duplicates = None
    if job.corpus.deduplicate == "exact":
        duplicates = _find_duplicates(job, pre_tokenizer, sources, tasks, folder, beam_args)
    with console.status(f"counting words: {len(sources)} files, {size / 1e6:.1f} MB, {len(tasks)} tasks"):
        run_pipeline(lambda pipeline: count_corpus(pipeline, tasks, counting), job.run, beam_args)
    totals = finish_word_counts(folder, identity, job.corpus, duplicates)
    seconds = time.perf_counter() - started
    console.print(
        f"counted {totals.get('words', 0):,} words in {totals.get('documents', 0):,} documents, "
        f"{totals.get('text_bytes', 0) / 1e6:,.1f} MB of text, {seconds:.1f} s"
    )


def _find_duplicates(
    job: TrainingJob,
    pre_tokenizer: PreTokenizer,
    sources: Sequence[SourceFile],
    tasks: Sequence[Task],
    folder: str,
    beam_args: Sequence[str],
) -> dict[str, Any]:
    """Finds the duplicates for counting into `folder`, and returns what the manifest says of them."""
    fingerprints = {source.path: source.fingerprint for source in sources}
    by_name = {name_task(task): task for task in tasks}
    duplicates_folder = files.join(folder, DUPLICATES_FOLDER)
    with console.status("looking for duplicates"):
        duplicates = find_duplicates(
            by_name, fingerprints, job.corpus, pre_tokenizer, duplicates_folder, job.run, beam_args=beam_args
        )
    delete_hashes(duplicates_folder)  # Word counts are made at once or not at all.
    return duplicates.to_json()


def _merges_summary(merges: Merges) -> dict[str, Any]:
    different, occurrences = merges.num_characters_dropped
    return {
        "made": len(merges),
        "ended_by": merges.ended_by,
        "base_symbols": len(merges.alphabet.symbols),
        "symbols": len(merges.symbols),
        "dropped_by_limit_alphabet": {"characters": different, "occurrences": occurrences},
        "counts": merges.counts.tolist(),
    }
