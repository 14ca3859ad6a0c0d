"""Makes the report's figures: each is a table of plain data, and most have a chart drawn from it.

A figure whose data is missing (no sweep was made, job 2 has not run) is left out, with a sentence that says why.
"""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bpe_core.kernels import Int64s
from bpe_core.measuring.token_display import list_shown_tokens, show_with_spaces
from bpe_core.pretokenize.unicode_categories import load_category
from bpe_core.tokenizer import Tokenizer
from pipelines.report import charts
from pipelines.storage.output_files import TOKEN_COUNTS

_EXAMPLE_CHARACTERS = 24
_NUM_WORDS_CHOSEN = 6
_MAX_WORD_CHARACTERS = 14  # of words that are chosen
_NUM_SIZES = 24  # numbers of merges that words are split with
_NUM_POINTS = 400  # of a curve
_NUM_EXAMPLES = 8  # of each finding of the audit
_MAX_TICKS = 8
_NUM_ROWS_SHOWN = 30  # of a long table


class TrainingData(NamedTuple):
    """What job 2 wrote about the training data.

    Attributes:
        absent: Why there is nothing to show, or empty.
        buckets: Bucket (as a string) -> the entry of job 2's manifest.
        bucket_choice: The manifest's entry about the choice of buckets; None if they were given in the settings.
        token_counts: int64, one per id: how often it occurs; None if the file is missing.
    """

    absent: str
    buckets: dict[str, Any]
    bucket_choice: dict[str, Any] | None
    token_counts: Int64s | None


class FigureInputs(NamedTuple):
    """What the figures are made from, besides the tokenizer.

    Attributes:
        merge_counts: How often each pair occurred when it was merged, one per merge; None if that is unknown.
        words: Words to show as they are split; if empty, some are chosen.
        sweep: The content of the sweep's JSON file; empty if there is none.
        audit: The content of the audit's JSON file; empty if there is none.
        training_data: What job 2 wrote about the training data.
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
        name: The name of its CSV file, without the ending, and its key in the JSON file.
        title: The heading.
        summary: What it shows, as a sentence or two with its main numbers.
        columns: The names of the columns; empty if the figure is left out.
        rows: All data, one value per column; empty if the figure is left out.
        absent: Why the figure is left out, or empty.
        chart: The data as SVG, or empty.
        legend: The names of the chart's series.
        shown: The rows that the page shows, if all are too many.
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

    def to_json(self) -> dict[str, Any]:
        """Returns the figure as JSON content: title, summary, columns and rows, or why it is left out."""
        if self.absent:
            return {"title": self.title, "absent": self.absent}
        return {"title": self.title, "summary": self.summary, "columns": self.columns, "rows": self.rows}

    def to_csv(self) -> str:
        """Returns the figure's table as CSV text."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(self.columns)
        for row in self.rows:
            writer.writerow([" ".join(cell) if isinstance(cell, list) else cell for cell in row])
        return file.getvalue()


def make_figures(tokenizer: Tokenizer, inputs: FigureInputs) -> list[Figure]:
    """Returns all figures, in their order on the page."""
    return [
        _make_merges_figure(tokenizer, inputs.merge_counts),
        _make_sizes_figure(inputs.sweep),
        _make_whole_figure(inputs.sweep),
        _make_pieces_figure(tokenizer, inputs.words or _choose_words(tokenizer, inputs.sweep)),
        _make_languages_figure(inputs.sweep, tokenizer.vocab_size),
        _make_buckets_figure(inputs.training_data),
        _make_uses_figure(tokenizer, inputs.training_data),
        _make_audit_figure(inputs.audit),
        _make_vocabulary_figure(tokenizer, inputs.merge_counts),
    ]


def _make_merges_figure(tokenizer: Tokenizer, counts: Sequence[int] | None) -> Figure:
    spelled = list_shown_tokens(tokenizer)
    pairs = [[spelled[id_] for id_ in merge] for merge in tokenizer.merges.tolist()]
    columns = ("merge", "left", "right", "token")
    title = "How often each pair occurred when it was merged"
    ranks = range(len(pairs))
    if counts is None or not pairs:
        rows: list[tuple[Any, ...]] = [(rank, *pair) for rank, pair in zip(ranks, pairs, strict=True)]
        summary = (
            "How often the pairs occurred is unknown, as neither job 1's manifest nor its word counts were found for "
            "this tokenizer."
        )
        return Figure("merges", title, summary, columns, rows, shown=_pick_rows(rows))
    rows = [(rank, *pair, count) for rank, pair, count in zip(ranks, pairs, counts, strict=True)]
    kept = _space_out(len(rows), _NUM_POINTS)
    line = charts.Line([rank + 1 for rank in kept], [counts[rank] for rank in kept])
    chart = charts.draw_line_chart(
        "merges", [line], charts.Axis("merge, in the order learned", log=True), charts.Axis("occurrences", log=True)
    )
    summary = (
        f"The first merge, {rows[0][1]} + {rows[0][2]}, joined {counts[0]:,} pairs; the last of {len(rows):,} merges, "
        f"{rows[-1][1]} + {rows[-1][2]}, joined {counts[-1]:,}."
    )
    return Figure("merges", title, summary, (*columns, "count"), rows, chart=chart, shown=_pick_rows(rows))


def _pick_rows(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Returns some of the rows, from the first to the last, more of them near the first."""
    return [rows[index] for index in _space_out(len(rows), _NUM_ROWS_SHOWN)]


def _space_out(size: int, number: int) -> list[int]:
    """Returns at most `number` indices from 0 to `size - 1`, both included, closer together at the start.

    >>> _space_out(100, 5)
    [0, 2, 9, 31, 99]
    """
    return sorted(set((np.geomspace(1, size, number).round().astype(int) - 1).tolist())) if size else []


_NO_LANGUAGES = "The sweep has fewer than two languages: set sweep.language_column to compare them."

_NO_SWEEP = "No sweep over vocabulary sizes was given: set report.sweep to the JSON file that tokenmill sweep writes."


def _make_sizes_figure(sweep: dict[str, Any]) -> Figure:
    title = "Tokens per character by vocabulary size"
    if not sweep:
        return Figure("sizes", title, absent=_NO_SWEEP)
    columns = ("vocab_size", "num_merges", "tokens_per_character")
    rows = [tuple(size[column] for column in columns) for size in sweep["sizes"]]
    recommended = sweep["recommended"]
    summary = (
        f"{rows[0][2]:.3f} tokens per character with {rows[0][0]:,} entries, {rows[-1][2]:.3f} with {rows[-1][0]:,}; "
        f"fewer is better. The vertical line marks the recommended size, {recommended['vocab_size']:,}: "
        f"{recommended['reason']}."
    )
    chart = charts.draw_line_chart(
        "sizes",
        [charts.Line([row[0] for row in rows], [row[2] for row in rows])],
        _make_sizes_axis([row[0] for row in rows]),
        charts.Axis("tokens per character"),
        marked_x=recommended["vocab_size"],
    )
    return Figure("sizes", title, summary, columns, rows, chart=chart)


def _make_sizes_axis(sizes: Sequence[int]) -> charts.Axis:
    return charts.Axis("vocabulary size", log=True, ticks=sizes if len(sizes) <= _MAX_TICKS else ())


def _make_whole_figure(sweep: dict[str, Any]) -> Figure:
    """Returns the figure of positives and negatives: words that should be one token, and words that should not."""
    title = "Words that should be one token, and words that should not"
    names = [name for name in ("positives", "negatives") if sweep and sweep["sizes"][0][name]["tokens"]]
    if not names:
        absent = "The sweep was made without positives and negatives." if sweep else _NO_SWEEP
        return Figure("whole", title, absent=absent)
    rows = [(size["vocab_size"], *(size[name]["share_whole"] for name in names)) for size in sweep["sizes"]]
    best = next(row for row in rows if row[0] == sweep["recommended"]["vocab_size"])
    shares = [f"{share:.0%} of the {name}" for name, share in zip(names, best[1:], strict=True)]
    summary = f"Share of words that are one token; with the recommended {best[0]:,} entries: {' and '.join(shares)}."
    x = [row[0] for row in rows]
    chart = charts.draw_line_chart(
        "whole",
        [charts.Line(x, [row[1 + number] for row in rows]) for number in range(len(names))],
        _make_sizes_axis(x),
        charts.Axis("words that are one token", percent=True),
        marked_x=best[0],
    )
    columns = ("vocab_size", *names)
    return Figure("whole", title, summary, columns, rows, chart=chart, legend=tuple(names))


def _choose_words(tokenizer: Tokenizer, sweep: dict[str, Any]) -> Sequence[str]:
    """Returns the words of the sweep, or else words that are tokens.

    The latter are the longest tokens of letters only, one from each sixth of the merges, so that early and late merges
    are both shown.
    """
    given = [word for name in ("positives", "negatives") if sweep for word in sweep["sizes"][0][name]["tokens"]]
    if given:
        return given
    made = tokenizer.merges[:, 2].tolist()
    chosen = []
    for number in range(_NUM_WORDS_CHOSEN):
        part = made[number * len(made) // _NUM_WORDS_CHOSEN : (number + 1) * len(made) // _NUM_WORDS_CHOSEN]
        texts = (tokenizer.decode([id_], errors="ignore") for id_ in part)
        spelled = (text for text in texts if _has_only_letters(text.strip()) and len(text) <= _MAX_WORD_CHARACTERS)
        word = max(spelled, key=len, default="")
        if len(word.strip()) > 1 and word not in chosen:
            chosen.append(word)
    return chosen


def _has_only_letters(text: str) -> bool:
    letters = load_category("L")
    return text != "" and all(letters[ord(character)] for character in text)


def _make_pieces_figure(tokenizer: Tokenizer, words: Sequence[str]) -> Figure:
    title = "How words are split as merges are added"
    if tokenizer.model.ranked_by != "merge" or not words or not len(tokenizer.merges):
        return Figure(
            "pieces", title, absent="This tokenizer has no list of merges to add one by one, or there are no words."
        )
    rows: list[tuple[Any, ...]] = []
    sizes = [0, *(index + 1 for index in _space_out(len(tokenizer.merges), _NUM_SIZES))]
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
    chart = charts.draw_line_chart(
        "pieces",
        lines[: charts.MAX_SERIES],
        charts.Axis("merges", log=True),
        charts.Axis("tokens of the word"),
        steps=True,
    )
    summary = (
        f"Each word is split with the first {', '.join(f'{size:,}' for size in sizes[:3])}, … {sizes[-1]:,} merges; a "
        "row shows where its tokens change."
    )
    legend = tuple(map(show_with_spaces, words[: charts.MAX_SERIES]))
    return Figure("pieces", title, summary, ("word", "merges", "tokens", "pieces"), rows, chart=chart, legend=legend)


def _make_languages_figure(sweep: dict[str, Any], vocab_size: int) -> Figure:
    title = "Bytes per token by language"
    sizes = sweep.get("sizes", [])
    if not sizes or len(sizes[0]["languages"]) < 2:
        return Figure("languages", title, absent=_NO_LANGUAGES if sweep else _NO_SWEEP)
    nearest = min(sizes, key=lambda size: abs(size["vocab_size"] - vocab_size))
    found = sorted(nearest["languages"].items(), key=lambda item: -item[1]["bytes_per_token"])
    columns = ("language", "bytes_per_token", "parity")
    rows = [(language, facts["bytes_per_token"], facts["parity"]) for language, facts in found]
    summary = (
        f"With {nearest['vocab_size']:,} entries, from {rows[0][1]:.2f} bytes per token ({rows[0][0]}) down to "
        f"{rows[-1][1]:.2f} ({rows[-1][0]}). The more bytes a token holds, the fewer tokens a text costs."
    )
    if any(row[2] is not None for row in rows):
        summary += (
            " Parity is a language's tokens per byte divided by those of the reference language; 1 is equal cost."
        )
    values = [row[1] for row in rows]
    chart = charts.draw_bar_chart(
        "languages", [row[0] for row in rows], [values], [f"{v:.2f}" for v in values], charts.Axis("bytes per token")
    )
    return Figure("languages", title, summary, columns, rows, chart=chart)


def _make_buckets_figure(training_data: TrainingData) -> Figure:
    title = "Rows and padding of the training data by bucket"
    if training_data.absent:
        return Figure("buckets", title, absent=training_data.absent)
    columns = ("bucket", "shards", "rows", "tokens", "padding", "padding_share")
    rows = [
        (
            int(bucket),
            entry["shards"],
            entry["rows"],
            entry["tokens"],
            int(bucket) * entry["rows"] - entry["tokens"],
            entry["padding_share"],
        )
        for bucket, entry in training_data.buckets.items()
    ]
    tokens, padding = sum(row[3] for row in rows), sum(row[4] for row in rows)
    summary = (
        f"{sum(row[2] for row in rows):,} rows hold {tokens:,} tokens and {padding:,} padding ids, "
        f"{padding / (tokens + padding):.1%} of all ids."
    )
    choice = training_data.bucket_choice
    if choice:
        shares = [f"{one['padding_share']:.1%}" for one in (choice, choice["equal_width"], choice["powers_of_two"])]
        summary += (
            f" For the corpus that the buckets were chosen for, they have a padding share of {shares[0]}; as many "
            f"buckets of equal width would have {shares[1]}, and powers of two {shares[2]}."
        )
    chart = charts.draw_bar_chart(
        "buckets",
        [f"{row[0]:,}" for row in rows],
        [[row[3] for row in rows], [row[4] for row in rows]],
        [f"{charts.shorten_number(row[2])} rows, {row[5]:.1%}" for row in rows],
        charts.Axis("tokens"),
    )
    return Figure("buckets", title, summary, columns, rows, chart=chart, legend=("tokens", "padding"))


def _make_uses_figure(tokenizer: Tokenizer, training_data: TrainingData) -> Figure:
    """Returns the figure of how many tokens occur never, 1 to 9 times, 10 to 99 times, and so on."""
    title = "How often tokens occur in the training data"
    counts = training_data.token_counts
    if counts is None:
        absent = training_data.absent or f"The file {TOKEN_COUNTS} is missing beside the training data."
        return Figure("uses", title, absent=absent)
    spelled = list_shown_tokens(tokenizer)
    rows = [(id_, spelled[id_], counts[id_].item()) for id_ in np.argsort(counts, kind="stable").tolist()]
    digits = np.array([len(str(count)) if count else 0 for count in counts.tolist()])
    ranges = range(int(digits.max()) + 1)
    entries = [int((digits == number).sum()) for number in ranges]
    labels = ["0", *(f"{10 ** (n - 1):,} to {10**n - 1:,}" if n > 1 else "1 to 9" for n in ranges[1:])]
    summary = (
        f"In {counts.sum():,} tokens of training data, {entries[0]:,} of the {counts.size:,} entries do not occur and "
        f"{sum(entries[1:2]):,} occur fewer than 10 times; a model learns little or nothing about these."
    )
    chart = charts.draw_bar_chart("uses", labels, [entries], [f"{n:,}" for n in entries], charts.Axis("entries"))
    return Figure("uses", title, summary, ("id", "token", "count"), rows, chart=chart, shown=rows[:_NUM_ROWS_SHOWN])


def _make_audit_figure(audit: dict[str, Any]) -> Figure:
    title = "Tokens that deserve a look"
    if not audit:
        absent = "No audit was given: set report.audit to the JSON file that tokenmill audit writes."
        return Figure("audit", title, absent=absent)
    rows = [
        (
            found["name"],
            len(found["entries"]),
            found["meaning"],
            [_shorten_example(show_with_spaces(entry["token"])) for entry in found["entries"][:_NUM_EXAMPLES]],
        )
        for found in audit["findings"]
    ]
    summary = f"The first {_NUM_EXAMPLES} tokens of each finding are shown."
    return Figure("audit", title, summary, ("finding", "entries", "meaning", "examples"), rows)


def _shorten_example(text: str) -> str:
    """Returns the start of a long text, with … after it."""
    return text if len(text) <= _EXAMPLE_CHARACTERS else text[:_EXAMPLE_CHARACTERS] + "…"


def _make_vocabulary_figure(tokenizer: Tokenizer, counts: Sequence[int] | None) -> Figure:
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
