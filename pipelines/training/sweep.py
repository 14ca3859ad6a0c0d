"""How large should the vocabulary be: one training run, every smaller size read off its prefix, all measured."""

import csv
import io
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
from rich import box
from rich.table import Table

from bpe_core.hashing import GOLDEN_RATIO
from bpe_core.kernels import Int64s
from bpe_core.measuring.evaluation import (
    SampleCounter,
    TextSample,
    compute_share_whole,
    compute_vocabulary_cost,
    count_word_tokens,
    find_knee,
    measure_sample,
)
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.tokenizer import Tokenizer
from pipelines.reading.documents import read_task
from pipelines.reading.source_files import SourceFile, find_carried_schema, find_files
from pipelines.reading.tasks import plan_tasks
from pipelines.running.console import console
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import SweepJob
from pipelines.settings.project import Project
from pipelines.settings.sweep import Sweep
from pipelines.storage import files
from pipelines.storage.manifest import write_json
from pipelines.storage.output_files import SWEEP_LANGUAGES, SWEEP_RESULT, SWEEP_SIZES, TEMPORARY_FOLDER
from pipelines.training.train_tokenizer import run_training

ALL_LANGUAGES = "all"
"""The language of every document where no column names it."""

UNKNOWN_LANGUAGE = "unknown"
"""The language of documents whose column is null."""

_MOST_READ = 16
"""How many times as much text as the sample holds is read to draw it, at most (as far as row groups allow)."""


def sweep(project: Project, beam_args: Sequence[str] = ()) -> dict[str, Any]:
    """Trains the largest size, measures all sizes, and returns what `sweep.json` then says.

    `sweep.output` holds `sweep.json`, `sweep.csv` (a row for each size), `languages.csv` (a row for each size and
    language) and, in `tokenizer/`, the output of job 1 at the largest size, which is taken up or kept as job 1 does.

    Raises:
        ValueError: settings that contradict each other or the corpus; as job 1.
    """
    return run_sweep(SweepJob.of(project), beam_args)


def run_sweep(job: SweepJob, beam_args: Sequence[str] = ()) -> dict[str, Any]:
    """Runs a sweep; see `sweep`."""
    settings = job.sweep
    files.use_flags(beam_args)
    sources = find_files(job.corpus, job.outputs, with_fingerprints=False)
    # First what may be refused, then what takes long.
    _check_language_column(sources, settings.language_column)
    with console.status("counting the words of the sample"):
        sample = read_sample(sources, job.corpus, job.training.tokenizer.pre_tokenizer, settings)
    if settings.reference_language is not None:
        sample.find_language(settings.reference_language)
    largest = run_training(job.training, beam_args)
    lengths, not_reached = _prefix_lengths(largest, settings)
    sizes = []
    for num_merges in lengths:
        with console.status(f"measuring {num_merges:,} merges"):
            sizes.append(_measured(largest.keep_first_merges(num_merges), sample, settings))
    chosen, reason = _recommended(sizes, settings)
    result = {
        "settings": settings.model_dump(mode="json", exclude={"output"}),
        "tokenizer": {"fingerprint": largest.fingerprint, "vocab_size": largest.vocab_size},
        "sample": {
            "documents": sample.documents,
            "bytes": sample.bytes,
            "characters": sample.characters,
            "words": int(sample.counts.sum()),
        },
        "sizes": sizes,
        "not_reached": not_reached,
        "recommended": {
            "num_merges": sizes[chosen]["num_merges"],
            "vocab_size": sizes[chosen]["vocab_size"],
            "reason": reason,
        },
    }
    files.write_text(files.join(settings.output, SWEEP_SIZES), _csv(map(_size_row, sizes)))
    files.write_text(files.join(settings.output, SWEEP_LANGUAGES), _csv(_language_rows(sizes)))
    write_json(files.join(settings.output, SWEEP_RESULT), result)
    files.delete(files.join(settings.output, TEMPORARY_FOLDER))
    _show(result, chosen)
    return result


def _check_language_column(sources: Sequence[SourceFile], column: str | None) -> None:
    if column is None:
        return
    without = [source for source in sources if source.format == "text"]
    if without:
        raise ValueError(f"{without[0].path}: a text file has no column {column!r}. Remove sweep.language_column")
    find_carried_schema(sources, [column])
    if sources[0].format == "known-answers" and column != "lang":
        raise ValueError(f"the known-answers corpus has no column {column!r}. Set sweep.language_column to lang")


def read_sample(
    sources: Sequence[SourceFile], corpus: Corpus, pre_tokenizer: PreTokenizer, settings: Sweep
) -> TextSample:
    """Returns about `sample_bytes` of a corpus: documents from all over it, the same ones every time.

    Raises:
        ValueError: there is no text; as `read_task`.
    """
    parts = plan_tasks(sources, task_bytes=1)
    all_bytes = sum(_num_bytes(part) for part in parts)
    parts = parts[:: max(1, -(-all_bytes // (_MOST_READ * settings.sample_bytes)))]
    one_in = max(1, -(-sum(_num_bytes(part) for part in parts) // settings.sample_bytes))
    carry = [settings.language_column] if settings.language_column else []
    counter = SampleCounter(pre_tokenizer)
    seen = 0
    for part in parts:
        for batch in read_task(part, corpus, Counter(), carry):
            chosen = pa.array(_drawn(seen, len(batch.texts), one_in))
            seen += len(batch.texts)
            texts = batch.texts.take(chosen)
            if carry:
                languages = batch.carried[carry[0]].take(chosen).cast(pa.string()).combine_chunks()
                languages = languages.fill_null(UNKNOWN_LANGUAGE)
            else:
                languages = pa.repeat(ALL_LANGUAGES, len(texts))
            counter.add(texts, languages)
    sample = counter.take()
    if not len(sample.words):
        raise ValueError("the sample of the corpus holds no words to measure on; set a larger sweep.sample_bytes")
    return sample


def _num_bytes(part: Iterable[Any]) -> int:
    return sum(file_slice.num_bytes for file_slice in part)


def _drawn(first: int, count: int, one_in: int) -> Int64s:
    """Returns which of `count` documents are in the sample, the first being number `first` of all.

    Multiples of the golden ratio spread evenly and have no period that the order of a corpus could share.
    """
    numbers = np.arange(first, first + count, dtype=np.uint64) * GOLDEN_RATIO
    return np.flatnonzero((numbers >> np.uint64(32)) * np.uint64(one_in) < np.uint64(1 << 32))


def _prefix_lengths(largest: Tokenizer, settings: Sweep) -> tuple[list[int], list[int]]:
    """Returns how many merges each size has, and the sizes that training could not reach; all merges stand for those.

    Raises:
        ValueError: a size is less than base symbols and special tokens.
    """
    if settings.num_merges:
        lengths = {size: size if size <= len(largest.merges) else None for size in settings.num_merges}
    else:
        # Where an entry is new: a merge may also spell a symbol that is there.
        _, first = np.unique(largest.merges[:, 2], return_index=True)
        new = np.sort(first)
        fewest = largest.vocab_size - new.size
        if settings.vocab_sizes[0] < fewest:
            raise ValueError(
                f"sweep.vocab_sizes: {settings.vocab_sizes[0]} is too small for the {fewest} base symbols and special "
                "tokens"
            )
        ends = [0, *(new + 1).tolist()]
        lengths = {size: ends[size - fewest] if size - fewest < len(ends) else None for size in settings.vocab_sizes}
    reached = [length for length in lengths.values() if length is not None]
    not_reached = [size for size, length in lengths.items() if length is None]
    if not_reached and len(largest.merges) not in reached:
        reached.append(len(largest.merges))
    return reached, not_reached


def _measured(tokenizer: Tokenizer, sample: TextSample, settings: Sweep) -> dict[str, Any]:
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


# Which size.


def _recommended(sizes: Sequence[Mapping[str, Any]], settings: Sweep) -> tuple[int, str]:
    """Returns the place of the recommended size, and why in words.

    Of the sizes that do best by positives and negatives, it is the one nearest to the knee of tokens per character.
    """
    bend = find_knee([size["vocab_size"] for size in sizes], [size["tokens_per_character"] for size in sizes])
    gains = [_gain(size, settings) for size in sizes]
    best = [place for place, gain in enumerate(gains) if gain == max(gains)]
    chosen = min(best, key=lambda place: (abs(place - (bend or 0)), place))
    return chosen, "; ".join([*_planted_reason(sizes[chosen], len(best), settings), _knee_reason(sizes, bend, chosen)])


def _gain(size: Mapping[str, Any], settings: Sweep) -> float:
    """1 where all positives are whole and all negatives in pieces; each that is not takes its share away."""
    missing = 1 - size["positives"]["share_whole"] if settings.positives else 0
    return float(1 - missing - size["negatives"]["share_whole"])


def _planted_reason(size: Mapping[str, Any], num_best: int, settings: Sweep) -> list[str]:
    said = []
    for name, whole, all_well, wanted in (
        ("positives", settings.positives, size["positives"]["share_whole"] == 1, "whole"),
        ("negatives", settings.negatives, size["negatives"]["share_whole"] == 0, "in pieces"),
    ):
        if whole:
            one_token = sum(count == 1 for count in size[name]["tokens"].values())
            well = one_token if name == "positives" else len(whole) - one_token
            said.append(f"{'all' if all_well else f'{well} of'} {len(whole)} {name} are {wanted}")
    if not said:
        return []
    others = "so at no other size" if num_best == 1 else f"so well at {num_best} sizes"
    return [f"{' and '.join(said)}, {others}"]


def _knee_reason(sizes: Sequence[Mapping[str, Any]], bend: int | None, chosen: int) -> str:
    if bend is None:
        return "tokens per character has no knee over these sizes, so the smallest of them"
    at = f"{sizes[bend]['vocab_size']:,} entries ({sizes[bend]['tokens_per_character']:.3f} tokens per character)"
    if bend == chosen:
        return f"the knee of tokens per character is here, at {at}"
    return f"the knee of tokens per character is at {at}, and this is the nearest to it of them"


# What is written and shown.


def _size_row(size: Mapping[str, Any]) -> dict[str, Any]:
    """One size on one line: of positives and negatives the share only, and no languages."""
    flat = {name: value for name, value in size.items() if name not in ("positives", "negatives", "cost", "languages")}
    planted = {f"share_whole_{name}": size[name]["share_whole"] for name in ("positives", "negatives")}
    return {**flat, **planted, **size["cost"]}


def _language_rows(sizes: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    for size in sizes:
        for language, measures in size["languages"].items():
            yield {**{key: size[key] for key in ("num_merges", "vocab_size")}, "language": language, **measures}


def _csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Of at least one row, all with the same keys; None is an empty field."""
    listed = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(listed[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return text.getvalue()


def _show(result: Mapping[str, Any], chosen: int) -> None:
    sizes = result["sizes"]
    by_language = result["settings"]["language_column"] is not None
    # Narrow enough for 80 columns.
    table = _right_aligned(
        *("merges", "entries", "tokens/\nchar", "tokens/\nword", "1-token\nwords", "posi-\ntives", "nega-\ntives"),
        *("unused\ntokens", "Gini", "of the\nmodel", ""),
        title="sizes",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    for place, size in enumerate(sizes):
        table.add_row(
            *(f"{size[key]:,}" for key in ("num_merges", "vocab_size")),
            *(f"{size[key]:.3f}" for key in ("tokens_per_character", "tokens_per_word")),
            f"{size['share_one_token_words']:.1%}",
            *(f"{size[key]['share_whole']:.0%}" if size[key]["tokens"] else "" for key in ("positives", "negatives")),
            f"{size['unused_tokens']:,}",
            f"{size['gini']:.3f}" if by_language else "",
            f"{size['cost']['share_of_model']:.1%}",
            "←" if place == chosen else "",
        )
    console.print(table)
    if by_language:
        console.print(_language_table(sizes[chosen]))
    if result["not_reached"]:
        asked = ", ".join(f"{size:,}" for size in result["not_reached"])
        console.print(f"the corpus has no pairs left for {asked}; the last size is all that there is")
    recommended = result["recommended"]
    console.print(
        f"recommended: {recommended['vocab_size']:,} entries, {recommended['num_merges']:,} merges: "
        f"{recommended['reason']}"
    )


def _language_table(size: Mapping[str, Any]) -> Table:
    table = _right_aligned(
        *("language", "documents", "bytes", "bytes/token", "tokens/char", "parity"),
        title=f"languages at {size['vocab_size']:,} entries",
    )
    for language, measures in size["languages"].items():
        table.add_row(
            language,
            *(f"{measures[key]:,}" for key in ("documents", "bytes")),
            *(f"{measures[key]:.3f}" for key in ("bytes_per_token", "tokens_per_character")),
            "" if measures["parity"] is None else f"{measures['parity']:.3f}",
        )
    return table


def _right_aligned(*columns: str, **options: Any) -> Table:
    table = Table(*columns, **options)
    for column in table.columns:
        column.justify = "right"
    return table
