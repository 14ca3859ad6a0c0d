"""The report's figures: each is plain data first, and a chart drawn from that.

What is not there (no sweep was made, job 2 has not run) is left out with a sentence.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bpe_core.kernels import Int64s
from bpe_core.measuring.token_display import list_shown_tokens, show_with_spaces
from bpe_core.tokenizer import Tokenizer
from pipelines.report import charts
from pipelines.storage.output_files import TOKEN_COUNTS

_EXAMPLE_CHARACTERS = 24
_NUM_WORDS = 6
_LONGEST_WORD = 14  # characters, of words that are chosen
_NUM_SIZES = 24
_POINTS = 400  # of a curve
_NUM_EXAMPLES = 8
_MOST_TICKS = 8
_SHOWN = 30  # rows of a long table


class TrainingData(NamedTuple):
    """What job 2 wrote.

    Attributes:
        absent: why there is nothing to show.
        buckets: by length, what its manifest says.
        bucket_choice: as the manifest says, where buckets were chosen.
        token_counts: int64, how often each id occurs; None where there is no such file.
    """

    absent: str
    buckets: dict[str, Any]
    bucket_choice: dict[str, Any] | None
    token_counts: Int64s | None


class Material(NamedTuple):
    """What the figures are made of, beside the tokenizer.

    Attributes:
        merge_counts: how often each pair occurred when it was merged, where that is known.
        words: to show in pieces; chosen where there are none.
        sweep: the content of its JSON file, empty where there is none; so `audit`.
    """

    merge_counts: Sequence[int] | None
    words: Sequence[str]
    sweep: dict[str, Any]
    audit: dict[str, Any]
    training_data: TrainingData


@dataclass(frozen=True)
class Figure:
    """One figure of the report.

    Attributes:
        name: of its CSV file, and in the JSON.
        summary: what it shows, in a sentence with its main numbers.
        columns, rows: all its data; of a figure that is left out there are none.
        absent: why it is left out.
        chart: the data as SVG, or nothing.
        legend: what the chart's series are.
        shown: the rows for the page, where all would be too many.
    """

    name: str
    title: str
    summary: str = ""
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[Any, ...]] = ()
    absent: str = ""
    chart: str = ""
    legend: tuple[str, ...] = ()
    shown: Sequence[tuple[Any, ...]] | None = None

    def content(self) -> dict[str, Any]:
        """Returns the figure as JSON content."""
        if self.absent:
            return {"title": self.title, "absent": self.absent}
        return {"title": self.title, "summary": self.summary, "columns": self.columns, "rows": self.rows}

    def csv_text(self) -> str:
        """Returns the figure as a table of CSV."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows:
            writer.writerow([" ".join(cell) if isinstance(cell, list) else cell for cell in row])
        return file.getvalue()


def make_figures(tokenizer: Tokenizer, material: Material) -> list[Figure]:
    """Returns all figures, in the order of the page."""
    return [
        _merges_figure(tokenizer, material.merge_counts),
        _sizes_figure(material.sweep),
        _whole_figure(material.sweep),
        _pieces_figure(tokenizer, material.words or _chosen_words(tokenizer, material.sweep)),
        _languages_figure(material.sweep, tokenizer.vocab_size),
        _buckets_figure(material.training_data),
        _uses_figure(tokenizer, material.training_data),
        _audit_figure(material.audit),
        _vocabulary_figure(tokenizer, material.merge_counts),
    ]


def _merges_figure(tokenizer: Tokenizer, counts: Sequence[int] | None) -> Figure:
    spelled = list_shown_tokens(tokenizer)
    pairs = [[spelled[id_] for id_ in merge] for merge in tokenizer.merges.tolist()]
    columns = ("merge", "left", "right", "token")
    title = "How often each pair occurred when it was merged"
    ranks = range(len(pairs))
    if counts is None or not pairs:
        rows: list[tuple[Any, ...]] = [(rank, *pair) for rank, pair in zip(ranks, pairs, strict=True)]
        summary = "How often the pairs occurred is not known: there are no word counts beside this tokenizer."
        return Figure("merges", title, summary, columns, rows, shown=_some(rows))
    rows = [(rank, *pair, count) for rank, pair, count in zip(ranks, pairs, counts, strict=True)]
    kept = _spaced(len(rows), _POINTS)
    line = charts.Line([rank + 1 for rank in kept], [counts[rank] for rank in kept])
    chart = charts.line_chart(
        "merges", [line], charts.Axis("merge, in the order learned", log=True), charts.Axis("occurrences", log=True)
    )
    summary = (
        f"The first merge, {rows[0][1]} + {rows[0][2]}, joined {counts[0]:,} pairs; the last of {len(rows):,}, "
        f"{rows[-1][1]} + {rows[-1][2]}, joined {counts[-1]:,}."
    )
    return Figure("merges", title, summary, (*columns, "count"), rows, chart=chart, shown=_some(rows))


def _some(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [rows[place] for place in _spaced(len(rows), _SHOWN)]


def _spaced(size: int, number: int) -> list[int]:
    """Returns at most `number` places from 0 to `size - 1`, both among them, closer together at the start."""
    return sorted(set((np.geomspace(1, size, number).round().astype(int) - 1).tolist())) if size else []


_NO_SWEEP = "No sweep over vocabulary sizes was made: set report.sweep to the JSON file that tokenmill sweep writes."


def _sizes_figure(sweep: dict[str, Any]) -> Figure:
    title = "Tokens per character against vocabulary size"
    if not sweep:
        return Figure("sizes", title, absent=_NO_SWEEP)
    columns = ("vocab_size", "num_merges", "tokens_per_character")
    rows = [tuple(size[column] for column in columns) for size in sweep["sizes"]]
    recommended = sweep["recommended"]
    summary = (
        f"From {rows[0][2]:.3f} with {rows[0][0]:,} entries to {rows[-1][2]:.3f} with {rows[-1][0]:,}. The recommended "
        f"size, {recommended['vocab_size']:,}, is marked: {recommended['reason']}."
    )
    chart = charts.line_chart(
        "sizes",
        [charts.Line([row[0] for row in rows], [row[2] for row in rows])],
        _sizes_axis([row[0] for row in rows]),
        charts.Axis("tokens per character"),
        marked_x=recommended["vocab_size"],
    )
    return Figure("sizes", title, summary, columns, rows, chart=chart)


def _sizes_axis(sizes: Sequence[int]) -> charts.Axis:
    return charts.Axis("entries of the vocabulary", log=True, ticks=sizes if len(sizes) <= _MOST_TICKS else ())


def _whole_figure(sweep: dict[str, Any]) -> Figure:
    title = "Words that should be one token, and words that should not"
    names = [name for name in ("positives", "negatives") if sweep and sweep["sizes"][0][name]["tokens"]]
    if not names:
        words = "The sweep was made without positives and negatives." if sweep else _NO_SWEEP
        return Figure("whole", title, absent=words)
    rows = [(size["vocab_size"], *(size[name]["share_whole"] for name in names)) for size in sweep["sizes"]]
    best = next(row for row in rows if row[0] == sweep["recommended"]["vocab_size"])
    shares = [f"{share:.0%} of the {name}" for name, share in zip(names, best[1:], strict=True)]
    summary = f"The share that is one token; with the recommended {best[0]:,} entries {' and '.join(shares)}."
    x = [row[0] for row in rows]
    chart = charts.line_chart(
        "whole",
        [charts.Line(x, [row[1 + number] for row in rows]) for number in range(len(names))],
        _sizes_axis(x),
        charts.Axis("words that are one token", percent=True),
        marked_x=best[0],
    )
    columns = ("vocab_size", *names)
    return Figure("whole", title, summary, columns, rows, chart=chart, legend=tuple(names))


def _chosen_words(tokenizer: Tokenizer, sweep: dict[str, Any]) -> Sequence[str]:
    """Returns the words of the sweep, or else words that are tokens.

    These are the longest of letters only from each part of the merges, so that they differ in age.
    """
    planted = [word for name in ("positives", "negatives") if sweep for word in sweep["sizes"][0][name]["tokens"]]
    if planted:
        return planted
    made = tokenizer.merges[:, 2].tolist()
    chosen = []
    for number in range(_NUM_WORDS):
        part = made[number * len(made) // _NUM_WORDS : (number + 1) * len(made) // _NUM_WORDS]
        texts = (tokenizer.decode([id_], errors="ignore") for id_ in part)
        word = max((t for t in texts if t.strip().isalpha() and len(t) <= _LONGEST_WORD), key=len, default="")
        if len(word.strip()) > 1 and word not in chosen:
            chosen.append(word)
    return chosen


def _pieces_figure(tokenizer: Tokenizer, words: Sequence[str]) -> Figure:
    title = "Words in pieces as merges grow"
    if tokenizer.model.ranked_by != "merge" or not words or not len(tokenizer.merges):
        return Figure("pieces", title, absent="This tokenizer has no list of merges that could grow, or no words.")
    rows: list[tuple[Any, ...]] = []
    sizes = [0, *(place + 1 for place in _spaced(len(tokenizer.merges), _NUM_SIZES))]
    smaller = [tokenizer.keep_first_merges(size) for size in sizes]
    lines = []
    for word in words:
        pieces = [list(map(show_with_spaces, one.tokenize(word))) for one in smaller]
        lines.append(charts.Line([max(size, 0.5) for size in sizes], [len(one) for one in pieces]))
        rows += [
            (show_with_spaces(word), size, len(now), now)
            for size, before, now in zip(sizes, [None, *pieces], pieces, strict=False)
            if now != before
        ]
    chart = charts.line_chart(
        "pieces",
        lines[: charts.MOST_SERIES],
        charts.Axis("merges", log=True),
        charts.Axis("tokens of the word"),
        steps=True,
    )
    summary = (
        f"Looked at with {', '.join(f'{size:,}' for size in sizes[:3])}, … {sizes[-1]:,} merges; a row stands where a "
        "word has become other pieces."
    )
    legend = tuple(map(show_with_spaces, words[: charts.MOST_SERIES]))
    return Figure("pieces", title, summary, ("word", "merges", "tokens", "pieces"), rows, chart=chart, legend=legend)


def _languages_figure(sweep: dict[str, Any], vocab_size: int) -> Figure:
    title = "Bytes per token by language"
    sizes = sweep.get("sizes", [])
    if not sizes or len(sizes[0]["languages"]) < 2:
        return Figure("languages", title, absent="The sweep names no languages." if sweep else _NO_SWEEP)
    nearest = min(sizes, key=lambda size: abs(size["vocab_size"] - vocab_size))
    found = sorted(nearest["languages"].items(), key=lambda item: -item[1]["bytes_per_token"])
    columns = ("language", "bytes_per_token", "parity")
    rows = [(language, facts["bytes_per_token"], facts["parity"]) for language, facts in found]
    summary = (
        f"With {nearest['vocab_size']:,} entries, from {rows[0][1]:.2f} ({rows[0][0]}) down to {rows[-1][1]:.2f} "
        f"({rows[-1][0]}). More bytes in a token make a text cheaper."
    )
    values = [row[1] for row in rows]
    chart = charts.bar_chart(
        "languages", [row[0] for row in rows], [values], [f"{v:.2f}" for v in values], charts.Axis("bytes per token")
    )
    return Figure("languages", title, summary, columns, rows, chart=chart)


def _buckets_figure(training_data: TrainingData) -> Figure:
    title = "Rows of training data by bucket, and their padding"
    if training_data.absent:
        return Figure("buckets", title, absent=training_data.absent)
    columns = ("bucket", "shards", "rows", "tokens", "padding", "padding_share")
    rows = [
        (
            int(bucket),
            of["shards"],
            of["rows"],
            of["tokens"],
            int(bucket) * of["rows"] - of["tokens"],
            of["padding_share"],
        )
        for bucket, of in training_data.buckets.items()
    ]
    tokens, padding = sum(row[3] for row in rows), sum(row[4] for row in rows)
    summary = (
        f"{sum(row[2] for row in rows):,} rows hold {tokens:,} tokens and {padding:,} of padding, "
        f"{padding / (tokens + padding):.1%} of all."
    )
    choice = training_data.bucket_choice
    if choice:
        shares = [f"{of['padding_share']:.1%}" for of in (choice, choice["equal_width"], choice["powers_of_two"])]
        summary += (
            f" The buckets were chosen for the corpus as it was first: {shares[0]} of padding, where as many of equal "
            f"width have {shares[1]} and powers of two {shares[2]}."
        )
    chart = charts.bar_chart(
        "buckets",
        [f"{row[0]:,}" for row in rows],
        [[row[3] for row in rows], [row[4] for row in rows]],
        [f"{charts.short_number(row[2])} rows, {row[5]:.1%}" for row in rows],
        charts.Axis("tokens"),
    )
    return Figure("buckets", title, summary, columns, rows, chart=chart, legend=("tokens", "padding"))


def _uses_figure(tokenizer: Tokenizer, training_data: TrainingData) -> Figure:
    title = "How often entries stand in the training data"
    counts = training_data.token_counts
    if counts is None:
        absent = training_data.absent or f"There is no {TOKEN_COUNTS} beside the training data."
        return Figure("uses", title, absent=absent)
    spelled = list_shown_tokens(tokenizer)
    rows = [(id_, spelled[id_], counts[id_].item()) for id_ in np.argsort(counts, kind="stable").tolist()]
    digits = np.array([len(str(count)) if count else 0 for count in counts.tolist()])
    ranges = range(int(digits.max()) + 1)
    entries = [int((digits == number).sum()) for number in ranges]
    labels = ["0", *(f"{10 ** (n - 1):,} to {10**n - 1:,}" if n > 1 else "1 to 9" for n in ranges[1:])]
    summary = (
        f"In {counts.sum():,} tokens of training data, {entries[0]:,} of {counts.size:,} entries do not occur and "
        f"{sum(entries[1:2]):,} occur fewer than 10 times; a model learns little or nothing about these."
    )
    chart = charts.bar_chart("uses", labels, [entries], [f"{n:,}" for n in entries], charts.Axis("entries"))
    return Figure("uses", title, summary, ("id", "token", "count"), rows, chart=chart, shown=rows[:_SHOWN])


def _audit_figure(audit: dict[str, Any]) -> Figure:
    title = "Entries worth a look"
    if not audit:
        absent = "No audit of the entries was made: set report.audit to its JSON file."
        return Figure("audit", title, absent=absent)
    rows = [
        (
            found["name"],
            len(found["entries"]),
            found["meaning"],
            [_shortened(show_with_spaces(entry["token"])) for entry in found["entries"][:_NUM_EXAMPLES]],
        )
        for found in audit["findings"]
    ]
    summary = f"The first {_NUM_EXAMPLES} of each finding are shown."
    return Figure("audit", title, summary, ("finding", "entries", "meaning", "examples"), rows)


def _shortened(text: str) -> str:
    return text if len(text) <= _EXAMPLE_CHARACTERS else text[:_EXAMPLE_CHARACTERS] + "…"


def _vocabulary_figure(tokenizer: Tokenizer, counts: Sequence[int] | None) -> Figure:
    tokens = tokenizer.token_bytes()
    added = {token.id: "special" if token.special else "added" for token in tokenizer.added_tokens}
    rank_of = {made: rank for rank, made in reversed(list(enumerate(tokenizer.merges[:, 2].tolist())))}
    spelled = list_shown_tokens(tokenizer)
    rows = [
        (
            id_,
            spelled[id_],
            token.hex(),
            added.get(id_) or ("merge" if id_ in rank_of else "base"),
            rank_of.get(id_),
            counts[rank_of[id_]] if counts and id_ in rank_of else None,
        )
        for id_, token in enumerate(tokens)
    ]
    columns = ("id", "token", "bytes", "made_by", "merge", "count")
    return Figure("vocabulary", "All entries", f"{len(rows):,} entries.", columns, rows)
