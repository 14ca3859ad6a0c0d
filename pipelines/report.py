"""The report: what a tokenizer looks like, as one HTML file that needs no network, and as JSON and CSV for machines.

Every figure is plain data first; charts and page are drawn from it. What is not there (no sweep was made, job 2 has not
run) is left out with a sentence. The page's JavaScript (`report.js`) encodes what is typed, with the tokenizer's own
tables and merges. Needs jinja2 and matplotlib, which are imported when a report is made.
"""

import base64
import csv
import io
import json
import sys
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc
from rich.console import Console

from bpe_core.alphabet import MARKER
from bpe_core.merges import learn_merges
from bpe_core.model import symbol_pairs
from bpe_core.tokenizer import Tokenizer
from pipelines import charts, files
from pipelines.config import Corpus, Project, Report
from pipelines.corpus import find_files, plan_tasks
from pipelines.documents import read_task
from pipelines.manifest import MANIFEST, read_json
from pipelines.shards import TOKEN_COUNTS, read_token_counts
from pipelines.spelling import visible, written, written_tokens
from pipelines.word_counts import read_word_counts

HTML, JSON = "report.html", "report.json"

_NUM_SAMPLES = 6
_SAMPLE_CHARACTERS = 400
_SAMPLE_LINES = 10
_LOOKED_AT = 20  # documents to choose a sample from
_EXAMPLE_CHARACTERS = 24
_NUM_WORDS = 6
_LONGEST_WORD = 14  # characters, of words that are chosen
_NUM_SIZES = 24
_POINTS = 400  # of a curve
_NUM_EXAMPLES = 8
_MOST_TICKS = 8
_SHOWN = 30  # rows of a long table
_ENDS = 20  # merges shown from either end
_GLUED = 0x110000  # As in report.js.

_console = Console(stderr=True, soft_wrap=True, markup=False, highlight=False)


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


def make_report(project: Project, name: str) -> str:
    """Writes the report of a project's tokenizer into `report.output`; returns the path of the HTML file.

    `name` is what the page calls the tokenizer.

    Raises:
        ModuleNotFoundError: jinja2 or matplotlib is not installed.
        ValueError: the section `report` is missing.
    """
    _check_installed()
    settings = project.for_report()
    tokenizer = files.read_tokenizer(settings.tokenizer or "")
    counts = _merge_counts(tokenizer, project, settings)
    figures = _figures(tokenizer, counts, project, settings)
    facts = _facts(tokenizer, name)
    page = render(tokenizer, facts, figures, _samples(project.corpus, settings), counts)
    content = {"tokenizer": facts, "figures": {figure.name: figure.content() for figure in figures}}
    for figure in figures:
        path = files.join(settings.output, f"{figure.name}.csv")
        if figure.absent:
            files.delete(path)
        else:
            files.write_text(path, _csv(figure))
    files.write_text(files.join(settings.output, JSON), json.dumps(content, ensure_ascii=False) + "\n")
    path = files.join(settings.output, HTML)
    files.write_text(path, page)
    files.delete(files.join(settings.output, files.TEMPORARY))
    _console.print(f"{path}: {len(page.encode()) / 1e6:.1f} MB")
    for figure in figures:
        if figure.absent:
            _console.print(f"  left out: {figure.title}. {figure.absent}")
    return path


def _check_installed() -> None:
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the report needs {error.name}, which is in the extra tokenmill[report]", name=error.name
        ) from error


# Texts.


def _shown_tokens(tokenizer: Tokenizer, text: str) -> list[str]:
    return [visible(token).replace("⏎", "⏎\n") for token in tokenizer.tokenize(text)]


def _samples(corpus: Corpus, settings: Report) -> list[tuple[str, str]]:
    """Returns the texts to show, each with a title: those given, or the start of documents all over the corpus."""
    if settings.samples:
        return [(f"Text {number + 1}", text) for number, text in enumerate(settings.samples)]
    tasks = plan_tasks(find_files(corpus, with_fingerprints=False))
    found = []
    for number in range(_NUM_SAMPLES):
        batch = next(read_task(tasks[number * len(tasks) // _NUM_SAMPLES], corpus, Counter()), None)
        if batch is None or len(batch.texts) == 0:
            continue
        # The longest of some documents: many a corpus holds a title or a line among them.
        first = number * len(batch.texts) // _NUM_SAMPLES
        sizes = pc.utf8_length(batch.texts.slice(first, _LOOKED_AT)).to_numpy()
        row = first + int(sizes.argmax())
        name = batch.path.replace("\\", "/").rpartition("/")[2]
        found.append((f"{name}, row {batch.rows[row]:,}", _start(batch.texts[row].as_py())))
    return found


def _start(text: str) -> str:
    """Returns the first lines of a text, from the first that is not blank."""
    return "".join(text.strip().splitlines(keepends=True)[:_SAMPLE_LINES])[:_SAMPLE_CHARACTERS]


# Figures.


def _facts(tokenizer: Tokenizer, name: str) -> dict[str, Any]:
    words = tokenizer.words
    return {
        "name": name,
        "kind": tokenizer.alphabet.kind,
        "pattern": words.pattern if isinstance(words.pattern, str) else list(words.pattern),
        "unicode": words.unicode,
        "lowercase": words.lowercase,
        "vocab_size": tokenizer.vocab_size,
        "base_symbols": len(tokenizer.alphabet.symbols),
        "merges": len(tokenizer.merges),
        "special_tokens": tokenizer.special_tokens,
        "fingerprint": tokenizer.fingerprint,
    }


def _merge_counts(tokenizer: Tokenizer, project: Project, settings: Report) -> list[int] | None:
    """Returns how often each pair occurred when it was merged: as job 1 wrote it down, or over its word counts."""
    folder = settings.tokenizer or ""
    manifest = (None if folder.endswith(".json") else read_json(files.join(folder, MANIFEST))) or {}
    counts = manifest.get("merges", {}).get("counts", [])
    if manifest and len(counts) == len(tokenizer.merges):
        return list(counts)
    train = project.train
    counts_folder = train and (train.from_counts or files.join(train.output, "word_counts"))
    if not counts_folder or not files.exists(counts_folder) or tokenizer.alphabet.kind != "byte":
        return None
    cut_as = (read_json(files.join(counts_folder, MANIFEST)) or {}).get("words", {})
    if cut_as.get("pattern") != list(tokenizer.words.expressions):
        return None
    try:
        pairs = symbol_pairs(tokenizer.model)
    except ValueError:  # Its merges are in no order that they could have been learned in, such as Llama 3's.
        return None
    again = learn_merges(read_word_counts(counts_folder)[0], num_merges=len(pairs), resume_from=pairs)
    return [int(count) for count in again.counts]


def _figures(tokenizer: Tokenizer, counts: list[int] | None, project: Project, settings: Report) -> list[Figure]:
    sweep = _sweep(settings)
    return [
        _merges_figure(tokenizer, counts),
        _sizes_figure(sweep),
        _whole_figure(sweep),
        _pieces_figure(tokenizer, _chosen_words(tokenizer, settings, sweep)),
        _languages_figure(sweep, tokenizer.vocab_size),
        _buckets_figure(tokenizer, project),
        _uses_figure(tokenizer, project),
        _audit_figure(settings),
        _vocabulary_figure(tokenizer, counts),
    ]


def _merges_figure(tokenizer: Tokenizer, counts: list[int] | None) -> Figure:
    spelled = written_tokens(tokenizer)
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


def _sweep(settings: Report) -> dict[str, Any]:
    return dict(read_json(settings.sweep) or {}) if settings.sweep else {}


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


def _chosen_words(tokenizer: Tokenizer, settings: Report, sweep: dict[str, Any]) -> Sequence[str]:
    """Returns the words of the settings, or those of the sweep, or else words that are tokens.

    These are the longest of letters only from each part of the merges, so that they differ in age.
    """
    planted = [word for name in ("positives", "negatives") if sweep for word in sweep["sizes"][0][name]["tokens"]]
    if settings.words or planted:
        return settings.words or planted
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
    smaller = [tokenizer.first_merges(size) for size in sizes]
    lines = []
    for word in words:
        pieces = [list(map(written, one.tokenize(word))) for one in smaller]
        lines.append(charts.Line([max(size, 0.5) for size in sizes], [len(one) for one in pieces]))
        rows += [
            (written(word), size, len(now), now)
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
    legend = tuple(map(written, words[: charts.MOST_SERIES]))
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


def _buckets_figure(tokenizer: Tokenizer, project: Project) -> Figure:
    title = "Rows of training data by bucket, and their padding"
    manifest, absent = _training_data(tokenizer, project)
    if absent:
        return Figure("buckets", title, absent=absent)
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
        for bucket, of in manifest["buckets"].items()
    ]
    tokens, padding = sum(row[3] for row in rows), sum(row[4] for row in rows)
    summary = (
        f"{sum(row[2] for row in rows):,} rows hold {tokens:,} tokens and {padding:,} of padding, "
        f"{padding / (tokens + padding):.1%} of all."
    )
    choice = manifest.get("bucket_choice")
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


def _training_data(tokenizer: Tokenizer, project: Project) -> tuple[dict[str, Any], str]:
    """Returns the manifest of job 2, and, where there is none to show, why."""
    manifest = (read_json(files.join(project.shards.output, MANIFEST)) if project.shards else None) or {}
    if not manifest.get("buckets"):
        return manifest, "No training data was written with tokenmill tokenize yet."
    if manifest["tokenizer"] != tokenizer.fingerprint:
        return manifest, "The training data was written with another tokenizer."
    return manifest, ""


def _uses_figure(tokenizer: Tokenizer, project: Project) -> Figure:
    title = "How often entries stand in the training data"
    _, absent = _training_data(tokenizer, project)
    if absent or project.shards is None:
        return Figure("uses", title, absent=absent)
    if not files.exists(files.join(project.shards.output, TOKEN_COUNTS)):
        return Figure("uses", title, absent=f"There is no {TOKEN_COUNTS} beside the training data.")
    counts = read_token_counts(project.shards.output)
    spelled = written_tokens(tokenizer)
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


def _audit_figure(settings: Report) -> Figure:
    title = "Entries worth a look"
    audit = (read_json(settings.audit) if settings.audit else None) or {}
    if not audit:
        absent = "No audit of the entries was made: set report.audit to its JSON file."
        return Figure("audit", title, absent=absent)
    rows = [
        (
            found["name"],
            len(found["entries"]),
            found["meaning"],
            [_shortened(written(entry["token"])) for entry in found["entries"][:_NUM_EXAMPLES]],
        )
        for found in audit["findings"]
    ]
    summary = f"The first {_NUM_EXAMPLES} of each finding are shown."
    return Figure("audit", title, summary, ("finding", "entries", "meaning", "examples"), rows)


def _shortened(text: str) -> str:
    return text if len(text) <= _EXAMPLE_CHARACTERS else text[:_EXAMPLE_CHARACTERS] + "…"


def _vocabulary_figure(tokenizer: Tokenizer, counts: list[int] | None) -> Figure:
    tokens = tokenizer.token_bytes()
    added = {token.id: "special" if token.special else "added" for token in tokenizer.added_tokens}
    rank_of = {made: rank for rank, made in reversed(list(enumerate(tokenizer.merges[:, 2].tolist())))}
    spelled = written_tokens(tokenizer)
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


def _csv(figure: Figure) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(figure.columns)
    for row in figure.rows:
        writer.writerow([" ".join(cell) if isinstance(cell, list) else cell for cell in row])
    return file.getvalue()


# The page.


def render(
    tokenizer: Tokenizer,
    facts: dict[str, Any],
    figures: Sequence[Figure],
    samples: Sequence[tuple[str, str]],
    counts: list[int] | None,
) -> str:
    """Returns the HTML of a report, which holds everything that it needs."""
    import jinja2
    from markupsafe import Markup

    folder = Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    data = json.dumps(encoder_data(tokenizer, counts), separators=(",", ":")).replace("<", "\\u003c")
    return environment.get_template("report.html.j2").render(
        facts=facts,
        figures={figure.name: figure for figure in figures},
        samples=[(title, _shown_tokens(tokenizer, text)) for title, text in samples],
        first_text=samples[0][1] if samples else "",
        data=Markup(data),
        can_encode=tokenizer.words.is_compiled,
        notes=_notes(tokenizer),
        dashes=charts.DASHES,
        num_ends=_ENDS,
        style=Markup((folder / "report.css").read_text(encoding="utf-8")),
        script=Markup((folder / "report.js").read_text(encoding="utf-8")),
        markup=Markup,
    )


def _notes(tokenizer: Tokenizer) -> list[str]:
    """Returns what a reader must know who types a text."""
    words = tokenizer.words
    notes = []
    if words.unicode != "none":
        notes.append(
            f"Texts are put into {words.unicode} first, by your browser; tokenmill does so by Unicode "
            f"{unicodedata.unidata_version}. Characters that only one of the two knows may differ."
        )
    if any(token.single_word for token in tokenizer.added_tokens):
        notes.append("Whether a letter stands beside an added token is decided by your browser's version of Unicode.")
    if tokenizer.alphabet.kind == "char":
        notes.append("Tokens of kind char leave out the blanks between words.")
    return notes


def encoder_data(tokenizer: Tokenizer, counts: list[int] | None) -> dict[str, Any]:
    """Returns what `report.js` encodes with, as JSON content; arrays in base64, little-endian."""
    words, model = tokenizer.words, tokenizer.model
    tokens = tokenizer.token_bytes()
    lower = replace(words, unicode="none").normalize
    characters = map(chr, range(sys.maxunicode + 1)) if words.lowercase else ()
    return {
        "kind": tokenizer.alphabet.kind,
        "keep_gaps": words.keep_gaps,
        "unicode": words.unicode,
        "lower": {c: lower(c) for c in characters if lower(c) != c} or None,
        "ranked_by": model.ranked_by,
        "ignore_merges": model.ignore_merges,
        "end_of_word": tokenizer.alphabet.end_of_word,
        "unknown_id": tokenizer.special_id("unk"),
        "marker": tokenizer.base_ids.get(MARKER) if tokenizer.alphabet.kind == "char" else None,
        "base_ids": _base_ids(tokenizer),
        "added_tokens": [
            {**token._asdict(), "match": words.normalize(token.content) if token.normalized else token.content}
            for token in tokenizer.added_tokens
        ],
        "tokens": base64.b64encode(b"".join(tokens)).decode(),
        "token_ends": _base64(np.cumsum([len(token) for token in tokens]), "<i4"),
        "merges": _base64(tokenizer.merges, "<i4"),
        "counts": None if counts is None else _base64(np.array(counts), "<f8"),
        "scanner": None
        if words.tables is None
        else {
            "moves": _base64(words.tables.moves, "<i4"),
            "first": _base64(words.tables.first, "<i4"),
            "block": _base64(words.tables.block, "<i4"),
            "classes": _base64(words.tables.classes, "u1"),
        },
    }


def _base64(numbers: npt.NDArray[Any], dtype: str) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers, dtype).tobytes()).decode()


def _base_ids(tokenizer: Tokenizer) -> list[tuple[int, int]]:
    """Returns the id of each byte, or of each code point; above `_GLUED`, of each with the marker glued to it."""
    if tokenizer.alphabet.kind == "byte":
        return [(symbol[0], id_) for symbol, id_ in tokenizer.base_ids.items()]
    return [
        (ord(symbol.removesuffix(MARKER).decode()) + (_GLUED if symbol.endswith(MARKER) else 0), id_)
        for symbol, id_ in tokenizer.base_ids.items()
        if symbol != MARKER
    ]
