"""The results of a sweep as CSV files and as tables on the console."""

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rich import box
from rich.table import Table

from pipelines.running.console import console


def make_size_row(size: Mapping[str, Any]) -> dict[str, Any]:
    """Flattens one size to a CSV row: keeps only the share of whole positives and negatives, drops languages."""
    flat = {name: value for name, value in size.items() if name not in ("positives", "negatives", "cost", "languages")}
    shares = {f"share_whole_{name}": size[name]["share_whole"] for name in ("positives", "negatives")}
    return {**flat, **shares, **size["cost"]}


def make_language_rows(sizes: Iterable[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yields one CSV row for each size and language."""
    for size in sizes:
        for language, measures in size["languages"].items():
            yield {**{key: size[key] for key in ("num_merges", "vocab_size")}, "language": language, **measures}


def format_csv(rows: Iterable[Mapping[str, Any]]) -> str:
    """Returns rows as CSV with a header; there must be at least one, all with the same keys. None is an empty field."""
    listed = list(rows)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(listed[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(listed)
    return text.getvalue()


def show_sweep(result: Mapping[str, Any], chosen: int) -> None:
    """Prints the result of a sweep; `chosen` is the index of the recommended size."""
    sizes = result["sizes"]
    by_language = result["settings"]["language_column"] is not None
    console.print(_make_size_table(sizes, chosen, by_language=by_language))
    if by_language:
        console.print(_make_language_table(sizes[chosen]))
    if result["not_reached"]:
        asked = ", ".join(f"{size:,}" for size in result["not_reached"])
        console.print(f"the corpus has too few pairs for {asked}; the last size has all merges that it allows")
    recommended = result["recommended"]
    console.print(
        f"recommended: {recommended['vocab_size']:,} entries, {recommended['num_merges']:,} merges: "
        f"{recommended['reason']}"
    )


def _make_size_table(sizes: Iterable[Mapping[str, Any]], chosen: int, *, by_language: bool) -> Table:
    """Returns a table with one row per size, narrow enough for 80 columns."""
    table = _make_right_aligned_table(
        *("merges", "entries", "tokens/\nchar", "tokens/\nword", "1-token\nwords", "posi-\ntives", "nega-\ntives"),
        *("unused\ntokens", "Gini", "of the\nmodel", ""),
        title="sizes",
        box=box.SIMPLE_HEAD,
        padding=0,
    )
    for index, size in enumerate(sizes):
        table.add_row(
            *(f"{size[key]:,}" for key in ("num_merges", "vocab_size")),
            *(f"{size[key]:.3f}" for key in ("tokens_per_character", "tokens_per_word")),
            f"{size['share_one_token_words']:.1%}",
            *(f"{size[key]['share_whole']:.0%}" if size[key]["tokens"] else "" for key in ("positives", "negatives")),
            f"{size['unused_tokens']:,}",
            f"{size['gini']:.3f}" if by_language else "",
            f"{size['cost']['share_of_model']:.1%}",
            "←" if index == chosen else "",
        )
    return table


def _make_language_table(size: Mapping[str, Any]) -> Table:
    table = _make_right_aligned_table(
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


def _make_right_aligned_table(*columns: str, **options: Any) -> Table:
    table = Table(*columns, **options)
    for column in table.columns:
        column.justify = "right"
    return table
