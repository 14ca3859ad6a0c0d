"""The sweep: one training run for the largest vocabulary; smaller sizes are its first merges; all are measured."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa

from bpe_core.measuring.evaluation import (
    TextSample,
    compute_share_whole,
    compute_vocabulary_cost,
    count_word_tokens,
    measure_sample,
)
from bpe_core.tokenizer import Tokenizer
from pipelines.reading.carried_columns import find_carried_fields
from pipelines.reading.carried_types import choose_memory_type
from pipelines.reading.source_files import SourceFile, find_files
from pipelines.running.console import console
from pipelines.running.remarks import show_remarks
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import SweepJob
from pipelines.settings.project import Project
from pipelines.settings.sweep import Sweep
from pipelines.storage import files
from pipelines.storage.manifest import write_json
from pipelines.storage.output_files import SWEEP_LANGUAGES, SWEEP_RESULT, SWEEP_SIZES, TEMPORARY_FOLDER
from pipelines.sweeping.recommend import recommend_size
from pipelines.sweeping.sample import read_sample
from pipelines.sweeping.tables import format_csv, make_language_rows, make_size_row, show_sweep
from pipelines.training.train_tokenizer import run_training

_LEFT_OUT = (
    *("null_documents", "skipped_documents", "quarantined_documents"),
    *("replaced_documents", "surrogate_documents", "blank_lines"),
)
"""The counts of documents and lines that were left out or changed before the sample was drawn."""


def sweep(project: Project, beam_args: Sequence[str] = ()) -> dict[str, Any]:
    """Trains the largest size, measures all sizes, and returns the content of `sweep.json`.

    Writes to `sweep.output`: `sweep.json`, `sweep.csv` (one row per size), `languages.csv` (one row per size and
    language), and in `tokenizer/` the output of job 1 for the largest size. As always, job 1 continues an interrupted
    run and keeps a finished one.

    Raises:
        ValueError: settings contradict each other or the corpus; see also `train_tokenizer`.
    """
    return run_sweep(SweepJob.of(project), beam_args)


def run_sweep(job: SweepJob, beam_args: Sequence[str] = ()) -> dict[str, Any]:
    """Runs a sweep with settings that are already resolved; see `sweep`."""
    settings = job.sweep
    files.use_flags(beam_args)
    sources = find_files(job.corpus, job.outputs, with_fingerprints=False)
    # Everything that can fail quickly comes before the training, which takes long.
    _check_language_column(sources, settings.language_column)
    with console.status("counting the words of the sample"):
        counts: Counter[str] = Counter()
        sample = read_sample(sources, job.corpus, job.training.tokenizer.pre_tokenizer, settings, counts)
    _show_sample(sample, counts, job.corpus)
    if settings.reference_language is not None:
        sample.find_language(settings.reference_language)
    largest = run_training(job.training, beam_args)
    merge_counts, not_reached = _count_merges_of_sizes(largest, settings)
    sizes = []
    for num_merges in merge_counts:
        with console.status(f"measuring {num_merges:,} merges"):
            sizes.append(_measure_size(largest.keep_first_merges(num_merges), sample, settings))
    chosen, reason = recommend_size(sizes, settings)
    result = {
        "settings": settings.model_dump(mode="json", exclude={"output"}),
        "tokenizer": {"fingerprint": largest.fingerprint, "vocab_size": largest.vocab_size},
        "sample": {
            "documents": sample.documents,
            "bytes": sample.bytes,
            "characters": sample.characters,
            "words": int(sample.counts.sum()),
            **{name: counts[name] for name in _LEFT_OUT if counts[name]},
        },
        "sizes": sizes,
        "not_reached": not_reached,
        "recommended": {
            "num_merges": sizes[chosen]["num_merges"],
            "vocab_size": sizes[chosen]["vocab_size"],
            "reason": reason,
        },
    }
    files.write_text(files.join(settings.output, SWEEP_SIZES), format_csv(map(make_size_row, sizes)))
    files.write_text(files.join(settings.output, SWEEP_LANGUAGES), format_csv(make_language_rows(sizes)))
    write_json(files.join(settings.output, SWEEP_RESULT), result)
    files.delete(files.join(settings.output, TEMPORARY_FOLDER))
    show_sweep(result, chosen)
    return result


def summarize_sweep(result: Mapping[str, Any]) -> dict[str, int]:
    """Returns the numbers of a sweep's result by name: of the sample, of what was left out, and of sizes."""
    sample = {f"sample_{name}": count for name, count in result["sample"].items()}
    return {**sample, "sizes": len(result["sizes"]), "sizes_not_reached": len(result["not_reached"])}


def _show_sample(sample: TextSample, counts: Mapping[str, int], corpus: Corpus) -> None:
    """Prints how large the sample is, what was left out before it was drawn, and which settings do not apply to it."""
    console.print(
        f"sample: {sample.documents:,} documents, {sample.bytes / 1e6:,.1f} MB, drawn from "
        f"{counts['documents']:,} documents"
    )
    show_remarks({name: counts[name] for name in _LEFT_OUT})
    ignored = [
        name for name, used in (("weights", corpus.weights), ("deduplicate", corpus.deduplicate != "off")) if used
    ]
    for name in ignored:
        console.print(f"note: corpus.{name} has no effect on the sample, only on training")


def _check_language_column(sources: Sequence[SourceFile], column: str | None) -> None:
    if column is None:
        return
    for path, field in find_carried_fields(sources, column, "sweep.language_column"):
        try:
            pa.array([], choose_memory_type(field.type)).cast(pa.string())
        except pa.ArrowException as error:
            raise ValueError(
                f"{path}: the column {column!r} is {field.type}, which cannot name languages. Set "
                "sweep.language_column to a column of strings"
            ) from error


def _count_merges_of_sizes(largest: Tokenizer, settings: Sweep) -> tuple[list[int], list[int]]:
    """Returns the number of merges of each size, and the sizes that training did not reach.

    If training did not reach a size, all its merges are measured in its place.

    Raises:
        ValueError: a size is smaller than the base symbols and special tokens.
    """
    if settings.num_merges:
        merge_counts = {size: size if size <= len(largest.merges) else None for size in settings.num_merges}
    else:
        # Only the first merge to make a symbol adds an entry; later merges may make the same symbol.
        _, first = np.unique(largest.merges[:, 2], return_index=True)
        adding = np.sort(first)
        min_size = largest.vocab_size - adding.size
        if settings.vocab_sizes[0] < min_size:
            raise ValueError(
                f"sweep.vocab_sizes: {settings.vocab_sizes[0]} is too small for the {min_size} base symbols and "
                "special tokens"
            )
        ends = [0, *(adding + 1).tolist()]
        merge_counts = {
            size: ends[size - min_size] if size - min_size < len(ends) else None for size in settings.vocab_sizes
        }
    reached = [count for count in merge_counts.values() if count is not None]
    not_reached = [size for size, count in merge_counts.items() if count is None]
    if not_reached and len(largest.merges) not in reached:
        reached.append(len(largest.merges))
    return reached, not_reached


def _measure_size(tokenizer: Tokenizer, sample: TextSample, settings: Sweep) -> dict[str, Any]:
    measures = asdict(
        measure_sample(
            tokenizer, sample, rare_count=settings.rare_count, reference_language=settings.reference_language
        )
    )
    languages = measures.pop("languages")
    cost = compute_vocabulary_cost(tokenizer.vocab_size, settings.hidden_size)
    parameters = cost.parameters_per_matrix if settings.tied else cost.untied_total
    return {
        "num_merges": len(tokenizer.merges),
        "vocab_size": tokenizer.vocab_size,
        **measures,
        **{
            name: {"share_whole": compute_share_whole(tokenizer, words), "tokens": count_word_tokens(tokenizer, words)}
            for name, words in (("positives", settings.positives), ("negatives", settings.negatives))
        },
        "cost": {**asdict(cost), "parameters": parameters, "share_of_model": parameters / settings.model_parameters},
        "languages": languages,
    }
