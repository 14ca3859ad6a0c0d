"""Job 1: corpus -> word counts -> merges -> tokenizer folder."""

import hashlib
import time
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from bpe_core.merge_loop import MergeLoop, Progress
from bpe_core.merges import Merges, learn_merges
from bpe_core.model import extended, pairs_to_go_on_from, size_to_learn, spellings
from bpe_core.tokenizer import Tokenizer
from bpe_core.words import Words
from pipelines import files
from pipelines.config import Project
from pipelines.corpus import SourceFile, find_files, plan_tasks
from pipelines.deduplicate import DUPLICATES_FOLDER, delete_hashes, find_duplicates, task_name
from pipelines.manifest import MANIFEST, differences, fingerprint, read_json, versions, write_json
from pipelines.plan import PLAN
from pipelines.runners import run_pipeline
from pipelines.word_counts import CountWords, count_corpus, find_word_counts, finish_word_counts, read_word_counts

WORD_COUNTS_FOLDER = "word_counts"

_CHECKPOINT = "_checkpoint.json"
_READ_BYTES = 1 << 20

_console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)


def train_tokenizer(project: Project, beam_args: Sequence[str] = ()) -> Tokenizer:
    """Runs job 1 and returns the tokenizer, which then stands in `train.output` with its manifest.

    A finished output of the same corpus and settings is returned as it is. An unfinished one is taken up where it
    stopped: at its word counts, or at the last checkpoint of its merges.

    Raises:
        ValueError: the output holds the result of another corpus or other settings, or there is nothing to train on.
    """
    settings, train = project.for_training()
    files.use_flags(beam_args)
    if files.exists(files.join(train.output, PLAN)):
        raise ValueError(f"{train.output} holds training shards; choose another train.output, for the tokenizer alone")
    counts_folder = train.from_counts or files.join(train.output, WORD_COUNTS_FOLDER)
    sources = [] if train.from_counts else find_files(project.corpus, project.outputs)
    start = files.read_tokenizer(train.start_from) if train.start_from else None
    words = start.words if start else settings.words
    identity: dict[str, Any] = {
        "settings": _settings(project),
        "inputs": _inputs(sources) or _given_counts(words, counts_folder),
    }
    if start:
        identity["start_from"] = start.fingerprint
    if project.run.overwrite:
        _delete_output(train.output, keep_counts=train.from_counts is not None)
    finished = read_json(files.join(train.output, MANIFEST))
    if finished is not None:
        _refuse_changes(train.output, {key: finished.get(key) for key in identity}, identity)
        tokenizer = files.read_tokenizer(train.output)
        _console.print(f"nothing to do: {train.output} is finished, and its corpus and settings are the same")
        return tokenizer
    files.check_writable(train.output)
    if not train.from_counts:
        _count(project, words, sources, counts_folder, beam_args)
    word_counts, pruned = read_word_counts(counts_folder, train.min_count)
    if word_counts.num_rows == 0:
        raise ValueError(
            f"there is nothing to train on: {counts_folder} holds no word with a count of {train.min_count}"
        )
    merges = _learn(project, start, word_counts, fingerprint(identity))
    if start:
        tokenizer = Tokenizer(extended(start.model, merges))
    else:
        tokenizer = Tokenizer.from_merges(
            merges,
            words=words,
            special_tokens=settings.special_tokens,
            special_ids=settings.special_ids,
            vocab_order=settings.vocab_order,
        )
    for name, text in tokenizer.files().items():
        files.write_text(files.join(train.output, name), text)
    counted = read_json(files.join(counts_folder, MANIFEST)) or {}
    files.delete(files.join(train.output, _CHECKPOINT))
    write_json(
        files.join(train.output, MANIFEST),
        {
            **identity,
            "tokenizer": {"fingerprint": tokenizer.fingerprint, "vocab_size": tokenizer.vocab_size},
            "versions": versions(),
            "corpus": {
                **counted.get("totals", {}),
                "duplicates": counted.get("duplicates"),
                "distinct_words_trained_on": word_counts.num_rows,
                "pruned_by_min_count": pruned,
            },
            "quarantine": counted.get("quarantine", {}),
            "merges": _merges_summary(merges),
        },
    )
    files.delete(files.join(train.output, files.TEMPORARY))
    return tokenizer


def _delete_output(folder: str, keep_counts: bool) -> None:
    """Deletes what job 1 writes, the manifests first; anything else in the folder stays.

    Word counts stay where training is from counts: they may be the very ones, and the corpus may be gone.
    """
    files.delete(files.join(folder, MANIFEST))
    names = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", _CHECKPOINT, files.TEMPORARY]
    if not keep_counts:
        files.delete(files.join(folder, WORD_COUNTS_FOLDER, MANIFEST))
        names.append(WORD_COUNTS_FOLDER)
    files.delete(*(files.join(folder, name) for name in names))


def _settings(project: Project) -> dict[str, Any]:
    """The settings that the output depends on: not where it goes, nor how the job runs."""
    content = project.model_dump(mode="json", include={"tokenizer", "train"})
    content["corpus"] = project.corpus.identity
    for name in ("output", "checkpoint_seconds", "from_counts", "start_from"):
        content["train"].pop(name)
    return content


def _inputs(sources: Sequence[SourceFile]) -> dict[str, Any]:
    return {source.path: {"bytes": source.num_bytes, "fingerprint": source.fingerprint} for source in sources}


def _given_counts(words: Words, folder: str) -> dict[str, Any]:
    """Returns the word counts to train from, after checking that their words were cut as this tokenizer cuts them."""
    manifest = read_json(files.join(folder, MANIFEST)) or {}
    ours = _to_json(words)
    if manifest.get("words", ours) != ours:
        changed = "; ".join(differences(manifest["words"], ours))
        raise ValueError(f"{folder} holds counts of words that were cut otherwise ({changed}); count the corpus again")
    return {m.path: {"bytes": m.size_in_bytes, "fingerprint": _sha256(m.path)} for m in find_word_counts(folder)}


def _sha256(path: str) -> str:
    """Over the whole file: other counts of the same words may well take as many bytes."""
    digest = hashlib.sha256()
    with files.open_raw(path) as file:
        while block := file.read(_READ_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _to_json(words: Words) -> dict[str, Any]:
    return {
        "pattern": list(words.expressions),
        "keep_gaps": words.keep_gaps,
        "unicode": words.unicode,
        "lowercase": words.lowercase,
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
    project: Project, words: Words, sources: Sequence[SourceFile], folder: str, beam_args: Sequence[str]
) -> None:
    """Counts the corpus into `folder`, unless that was done before."""
    _, train = project.for_training()
    identity = {
        "corpus": project.corpus.identity,
        "words": _to_json(words),
        "num_partitions": train.num_partitions,
        "inputs": _inputs(sources),
    }
    finished = read_json(files.join(folder, MANIFEST))
    if finished is not None:
        _refuse_changes(train.output, {key: finished.get(key) for key in identity}, identity)
        _console.print(f"word counts are there: {folder}")
        return
    files.delete(folder)
    tasks = plan_tasks(sources)
    size = sum(source.num_bytes for source in sources)
    duplicates_folder = files.join(folder, DUPLICATES_FOLDER)
    counting = CountWords(project.corpus, words, train.num_partitions, folder)
    started = time.perf_counter()
    duplicates = None
    if project.corpus.deduplicate == "exact":
        fingerprints = {source.path: source.fingerprint for source in sources}
        with _console.status("looking for duplicates"):
            duplicates = find_duplicates(
                {task_name(task): task for task in tasks},
                fingerprints,
                project.corpus,
                words,
                duplicates_folder,
                project.run,
                beam_args=beam_args,
            ).content()
        delete_hashes(duplicates_folder)  # Word counts are made at once or not at all.
    with _console.status(f"counting words: {len(sources)} files, {size / 1e6:.1f} MB, {len(tasks)} tasks"):
        run_pipeline(lambda pipeline: count_corpus(pipeline, tasks, counting), project.run, beam_args)
    totals = finish_word_counts(folder, identity, project.corpus, duplicates)
    seconds = time.perf_counter() - started
    _console.print(
        f"counted {totals.get('words', 0):,} words in {totals.get('documents', 0):,} documents, "
        f"{totals.get('text_bytes', 0) / 1e6:,.1f} MB of text, {seconds:.1f} s"
    )


def _learn(project: Project, start: Tokenizer | None, word_counts: pa.Table, identity: str) -> Merges:
    settings, train = project.for_training()
    num_merges, vocab_size = settings.num_merges, settings.vocab_size
    special_tokens = spellings(settings.special_tokens)
    first: list[int] = []
    if start:
        first = pairs_to_go_on_from(start.model).ravel().tolist()
        special_tokens = list(start.special_tokens)
        if vocab_size is not None:
            vocab_size = size_to_learn(start.model, vocab_size)
        elif num_merges is not None and num_merges < len(start.merges):
            raise ValueError(
                f"tokenizer.num_merges is {num_merges}, and {train.start_from} has {len(start.merges)} already, which "
                "stay; give the number of all merges"
            )
    checkpoint_path = files.join(train.output, _CHECKPOINT)
    checkpoint = read_json(checkpoint_path) or {}
    done = checkpoint.get("pairs", [])
    if checkpoint.get("fingerprint") != fingerprint([identity, done]) or len(done) < len(first):
        done = first
    if len(done) > len(first):
        _console.print(f"taking up the merges at number {len(done) // 2:,}")
    bar = Bar(
        TextColumn("merging"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TextColumn("{task.fields[pair]}"),
        TimeRemainingColumn(),
        console=_console,
        disable=not project.run.progress,
    )
    line = bar.add_task("", speed="", pair="")
    started = written = time.perf_counter()

    def watch(progress: Progress, loop: MergeLoop) -> None:
        nonlocal written
        now = time.perf_counter()
        if progress.last_pair is None:
            size = loop.size
            _console.print(
                f"merging {size['words']:,} distinct words of {size['symbols']:,} symbols, {size['pairs']:,} different "
                f"pairs; the loop starts with {size['bytes'] / 1e6:,.1f} MB in its arrays, of which the lists of "
                f"places grow to {size['most_list_bytes'] / 1e6:,.1f} MB at most, and needs some 110 bytes for each "
                f"new pair"
            )
            return
        speed = f"{progress.num_merges / max(1e-6, now - started):,.0f}/s"
        pair = escape(f"{progress.last_pair[0]!r} + {progress.last_pair[1]!r} × {progress.last_count:,}")
        bar.update(line, completed=progress.num_merges, total=progress.max_merges, speed=speed, pair=pair)
        if now - written > train.checkpoint_seconds:
            pairs = loop.pairs().ravel().tolist()
            write_json(checkpoint_path, {"fingerprint": fingerprint([identity, pairs]), "pairs": pairs})
            written = now

    with bar:
        merges = learn_merges(
            word_counts,
            num_merges=num_merges,
            vocab_size=vocab_size,
            kind=settings.kind,
            ties=settings.ties,
            min_frequency=settings.min_frequency,
            max_token_length=settings.max_token_length,
            limit_alphabet=settings.limit_alphabet,
            whole_characters=settings.whole_characters,
            end_of_word=settings.end_of_word,
            end_of_word_placement=settings.end_of_word_placement,
            special_tokens=special_tokens,
            resume_from=done,
            on_progress=watch,
        )
    asked = settings.num_merges if settings.num_merges is not None else settings.vocab_size
    what = "merges" if settings.num_merges is not None else "entries"
    reason = {
        "size": "as asked",
        "no-pairs": f"no pairs are left, short of the {asked:,} {what} asked for",
        "min-frequency": f"no pair occurs {settings.min_frequency} times, short of the {asked:,} {what} asked for",
    }
    _console.print(f"{len(merges):,} merges, {reason[merges.ended_by]}, {time.perf_counter() - started:.1f} s")
    return merges


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
