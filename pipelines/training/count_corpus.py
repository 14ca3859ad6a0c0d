"""Counts the words of a corpus into a folder of word counts, or in memory."""

import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.pretokenize.word_counting import WordCounter
from pipelines.reading.deduplicate import delete_hashes, find_duplicates
from pipelines.reading.documents import read_corpus
from pipelines.reading.source_files import SourceFile
from pipelines.reading.tasks import Task, name_task, plan_tasks
from pipelines.reading.weights import repeat_by_weight
from pipelines.running.console import console
from pipelines.running.runners import run_pipeline
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import TrainingJob
from pipelines.storage import files
from pipelines.storage.manifest import read_json
from pipelines.storage.output_files import DUPLICATES_FOLDER, MANIFEST
from pipelines.training.count_words import CountWords, add_counting_steps
from pipelines.training.identity import check_same_identity, describe_inputs, describe_pre_tokenizer
from pipelines.training.word_counts import finish_word_counts


def count_corpus(
    job: TrainingJob, pre_tokenizer: PreTokenizer, sources: Sequence[SourceFile], beam_args: Sequence[str]
) -> None:
    """Counts the words of a corpus into `job.train.counts_folder`, unless an earlier run has done that.

    Args:
        job: the settings.
        pre_tokenizer: splits text into words.
        sources: the files of the corpus.
        beam_args: Beam's own flags.

    Raises:
        ValueError: the folder holds counts of another corpus or with other settings.
        BadInputError: more documents are in quarantine than the settings allow.
    """
    folder = job.train.counts_folder
    identity = {
        "corpus": job.corpus.identity,
        "words": describe_pre_tokenizer(pre_tokenizer),
        "num_partitions": job.train.num_partitions,
        "inputs": describe_inputs(sources),
    }
    finished = read_json(files.join(folder, MANIFEST))
    if finished is not None:
        check_same_identity(job.output, finished, identity)
        console.print(f"using the finished word counts in {folder}")
        return
    files.delete(folder)
    tasks = plan_tasks(sources)
    started = time.perf_counter()
    duplicates = None
    if job.corpus.deduplicate == "exact":
        duplicates = _find_training_duplicates(job, pre_tokenizer, sources, tasks, beam_args)
    count_words = CountWords(job.corpus, pre_tokenizer, job.train.num_partitions, folder)
    num_bytes = sum(source.num_bytes for source in sources)
    with console.status(f"counting words: {len(sources)} files, {num_bytes / 1e6:.1f} MB, {len(tasks)} tasks"):
        run_pipeline(lambda pipeline: add_counting_steps(pipeline, tasks, count_words), job.run, beam_args)
    totals = finish_word_counts(folder, identity, job.corpus, duplicates)
    seconds = time.perf_counter() - started
    console.print(
        f"counted {totals.get('words', 0):,} words in {totals.get('documents', 0):,} documents, "
        f"{totals.get('text_bytes', 0) / 1e6:,.1f} MB of text, {seconds:.1f} s"
    )


def _find_training_duplicates(
    job: TrainingJob,
    pre_tokenizer: PreTokenizer,
    sources: Sequence[SourceFile],
    tasks: Sequence[Task],
    beam_args: Sequence[str],
) -> dict[str, Any]:
    """Finds the duplicates among the tasks of job 1, and returns what its manifest says about them."""
    folder = files.join(job.train.counts_folder, DUPLICATES_FOLDER)
    with console.status("looking for duplicates"):
        duplicates = find_duplicates(
            {name_task(task): task for task in tasks},
            {source.path: source.fingerprint for source in sources},
            job.corpus,
            pre_tokenizer,
            folder,
            job.run,
            beam_args=beam_args,
        )
    delete_hashes(folder)  # No later run adds to word counts, so none needs the hashes.
    return duplicates.to_json()


def count_corpus_in_memory(corpus: Corpus, pre_tokenizer: PreTokenizer, counts: Counter[str] | None = None) -> pa.Table:
    """Returns the word counts of a corpus, counted in this process; adds to `counts` what was left out."""
    counter = WordCounter(pre_tokenizer)
    counts = Counter() if counts is None else counts
    for batch in repeat_by_weight(read_corpus(corpus, counts), corpus, counts):
        counter.add(batch.texts)
    return counter.take()
