"""The commands that are not jobs: each takes parsed arguments, does its work, and prints the result."""

import argparse
import csv
import io
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from bpe_core.export import export_tokenizer
from bpe_core.formats.lines import split_lines
from bpe_core.measuring.audit import TokenAudit, audit_tokens
from bpe_core.measuring.token_display import show_on_one_line
from bpe_core.tokenizer import Tokenizer
from pipelines.checking.check import Check
from pipelines.checking.comparison import compare_ids
from pipelines.checking.verify_shards import check_shards
from pipelines.checking.verify_tokenizer import check_tokenizer
from pipelines.reading.formats.known_answers import known_answer_documents
from pipelines.rows.segments import read_job_tokenizer
from pipelines.running.outcome import Outcome
from pipelines.running.remarks import show_remarks
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.project_file import load_project
from pipelines.storage import files
from pipelines.storage.tokenizer_files import read_tokenizer, write_tokenizer
from pipelines.tokenizing.token_counts import read_token_counts
from pipelines.training.count_corpus import count_corpus_in_memory
from pipelines.training.word_counts import read_word_counts

_COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green", "black on bright_magenta")


def _read_tokenizer(args: argparse.Namespace) -> Tokenizer:
    return read_tokenizer(args.tokenizer, args.pattern, unicode=args.unicode)


_OPTIONS_OF_OTHERS: dict[str, tuple[str, Any]] = {
    "pattern": ("--pattern", None),
    "unicode": ("--unicode", "none"),
    "reference": ("--reference", None),
    "format": ("--format", "auto"),
    "text_column": ("--text-column", "text"),
    "positives": ("--positives", []),
    "negatives": ("--negatives", []),
    "json": ("--json", None),
}
"""Arguments that have an effect only with another argument: how they are written, and the value if left out."""


def _refuse_without_effect(args: argparse.Namespace, names: Sequence[str], needed: str) -> None:
    """Raises ValueError if one of these arguments is given, because what it needs is not."""
    for name in names:
        option, default = _OPTIONS_OF_OTHERS[name]
        value = getattr(args, name)
        if value != default:
            raise ValueError(f"{option} {value} has no effect here; it needs {needed}. Leave it out")


def _make_corpus(args: argparse.Namespace) -> Corpus:
    return Corpus(files=tuple(args.corpus), format=args.format, text_column=args.text_column, on_invalid_utf8="replace")


def run_corpus(args: argparse.Namespace) -> None:
    """Prints the known-answer documents, or writes them as Parquet."""
    languages, texts = map(list, zip(*known_answer_documents(), strict=True))
    if args.output is None:
        sys.stdout.buffer.write("".join(f"{text}\n" for text in texts).encode())
        return
    with files.create_raw(args.output) as file:
        pq.write_table(pa.table({"lang": languages, "text": texts}), file)


def _read_lines(args: argparse.Namespace) -> Iterator[str]:
    """Yields the text on the command line, or the lines of standard input, read as UTF-8 in every locale."""
    if args.text:
        yield os.fsencode(" ".join(args.text)).decode(errors="surrogateescape")
        return
    if sys.stdin is None:
        raise ValueError("no text was given and standard input is closed; give the text as an argument, or pipe it in")
    for line in sys.stdin.buffer:
        yield line.decode(errors="surrogateescape").removesuffix("\n")


def run_encode(args: argparse.Namespace) -> None:
    """Prints a line of ids for each line of text."""
    tokenizer = _read_tokenizer(args)
    for line in _read_lines(args):
        print(*tokenizer.encode(line))


def run_decode(args: argparse.Namespace) -> None:
    """Prints a line of text for each line of ids, byte for byte.

    Raises:
        ValueError: a word is not an id.
    """
    tokenizer = _read_tokenizer(args)
    for line in _read_lines(args):
        words = re.findall(r"[^ \t\r]+", line)
        wrong = [word for word in words if not re.fullmatch("-?[0-9]{1,18}", word)]
        if wrong:
            raise ValueError(
                f"{wrong[0][:60]!r} in {line[:60]!r} is not an id; write whole numbers separated by spaces"
            )
        ids = [int(word) for word in words]
        sys.stdout.buffer.write(tokenizer.decode_bytes(ids) + b"\n")
        sys.stdout.buffer.flush()


def run_inspect(args: argparse.Namespace) -> None:
    """Prints each text split into tokens (in colours, or with `|` after each token), its ids, and its counts."""
    tokenizer = _read_tokenizer(args)
    console = Console(highlight=False, soft_wrap=True)
    for line in _read_lines(args):
        _show_split(console, tokenizer, line)


def _show_split(console: Console, tokenizer: Tokenizer, text: str) -> None:
    words = tokenizer.splitter.split(text) if tokenizer.kind != "library" else None
    tokens = tokenizer.tokenize(text)
    ids = tokenizer.encode(text)
    shown = Text()
    for number, token in enumerate(tokens):
        shown.append(show_on_one_line(token), _COLOURS[number % len(_COLOURS)])
        if not console.is_terminal:
            shown.append("|")
    console.print(shown)
    console.print(" ".join(map(str, ids)), style="dim")
    num_spaces = sum(character.isspace() for character in text)
    counts = {"characters": f"{len(text)} ({len(text) - num_spaces} without spaces)"}
    if words is not None:  # The library does not return words.
        counts["words"] = f"{len(words)} ({len(set(words))} different)"
    counts["tokens"] = f"{len(ids)} ({len(set(ids))} different)"
    console.print("   ".join(f"{name} {count}" for name, count in counts.items()))


def run_export(args: argparse.Namespace) -> None:
    """Writes a tokenizer as files of another tool, and prints the paths of the files."""
    for path in export_tokenizer(_read_tokenizer(args), args.output, args.format):
        print(path)


def run_cut(args: argparse.Namespace) -> None:
    """Writes a tokenizer that keeps only the first merges of another."""
    tokenizer = _read_tokenizer(args).keep_first_merges(args.merges)
    write_tokenizer(args.output, tokenizer)
    print(f"{args.output}: {args.merges:,} merges, {tokenizer.vocab_size:,} ids")


def run_verify(args: argparse.Namespace) -> None:
    """Prints the checks of a project's tokenizer, or compares a tokenizer's ids with another library's.

    Raises:
        ValueError: arguments are missing, or belong to the other kind of check.
        SystemExit: a check failed, or ids differ.
    """
    if args.config is None:
        _compare_with_library(args)
        return
    if args.tokenizer or args.against or args.corpus:
        raise ValueError("--config names the tokenizer and the corpus; leave out --tokenizer, --against and --corpus")
    _refuse_without_effect(args, ("pattern", "unicode"), "--tokenizer, not --config")
    _refuse_without_effect(args, ("reference", "format", "text_column"), "--against, not --config")
    project = load_project(args.config, args.overrides, command=f"tokenmill verify --config {args.config}")
    _show_checks(check_tokenizer(project, _read_words(args.positives), _read_words(args.negatives)), args.json)


def _compare_with_library(args: argparse.Namespace) -> None:
    if not (args.tokenizer and args.against and args.corpus):
        raise ValueError("give --config FILE, or all of --tokenizer, --against and --corpus")
    _refuse_without_effect(args, ("positives", "negatives", "json"), "--config")
    if args.against != "hf":
        _refuse_without_effect(args, ("reference",), "--against hf")
    tokenizer = _read_tokenizer(args)
    found = compare_ids(tokenizer, args.against, _make_corpus(args), args.reference)
    print(found.line)
    if found.first is not None:
        print(found.first.describe(tokenizer))
        raise SystemExit(Outcome.FAILED)


def run_verify_shards(args: argparse.Namespace) -> None:
    """Prints the checks of a finished output of job 2.

    Raises:
        ValueError: arguments are missing, or contradict each other.
        SystemExit: a check failed.
    """
    if (args.config is None) == (args.shards is None):
        raise ValueError("give either --config FILE or --shards FOLDER")
    if args.sample < 0 or args.seed < 0:
        raise ValueError(f"--sample is {args.sample} and --seed is {args.seed}; neither may be negative")
    may_be_gone = args.sources_may_be_gone
    if not args.tokenizer:
        _refuse_without_effect(args, ("pattern", "unicode"), "--tokenizer")
    if args.config is None:
        tokenizer = _read_tokenizer(args) if args.tokenizer else None
        folder = args.shards
    else:
        if args.tokenizer:
            raise ValueError("--config names the tokenizer; leave out --tokenizer")
        command = f"tokenmill verify shards --config {args.config}"
        settings = TokenizingJob.of(load_project(args.config, args.overrides, command=command)).shards
        tokenizer, folder = read_job_tokenizer(settings), settings.output
        may_be_gone = may_be_gone or settings.on_removed == "keep"
    checks = check_shards(folder, tokenizer, sample=args.sample, seed=args.seed, sources_may_be_gone=may_be_gone)
    _show_checks(checks, args.json)


def _show_checks(found: Iterable[Check], path: str | None) -> None:
    """Prints each check when it is done, and writes all to a JSON file if `path` is given.

    Raises:
        SystemExit: a check failed.
    """
    checks = []
    for check in found:
        checks.append(check)
        print(check.line, flush=True)
    num = Counter(check.status for check in checks)
    summary = f"{len(checks)} checks: {num['pass']} passed, {num['fail']} failed, {num['skip']} skipped"
    print(summary, file=sys.stderr)  # Standard output has one line for each check.
    failed = [check.name for check in checks if check.status == "fail"]
    if path:
        _write_json(path, {"passed": not failed, "checks": [check.json_form for check in checks]})
    if failed:
        raise SystemExit(Outcome.FAILED)


def _read_words(given: Sequence[str]) -> list[str]:
    """Returns words; a name of a file is replaced by the lines of the file, without a byte-order mark."""
    read = (split_lines(files.read_text(one).removeprefix("\ufeff")) if os.path.isfile(one) else [one] for one in given)
    return [word for words in read for word in words if word.strip()]


def run_audit(args: argparse.Namespace) -> None:
    """Prints the tokens that deserve attention, and writes the whole list to files if asked to.

    Raises:
        ValueError: both a corpus and word counts are given.
    """
    tokenizer = _read_tokenizer(args)
    if args.corpus and args.counts:
        raise ValueError("give --corpus or --counts, not both")
    if not args.corpus:
        _refuse_without_effect(args, ("format", "text_column"), "--corpus")
    word_counts = None
    if args.counts:
        word_counts, _ = read_word_counts(args.counts)
    elif args.corpus:
        counts: Counter[str] = Counter()
        word_counts = count_corpus_in_memory(_make_corpus(args), tokenizer.pre_tokenizer, counts)
        show_remarks(counts)
    if args.show < 0:
        raise ValueError(f"--show is {args.show}; give 0 or more")
    id_counts = read_token_counts(args.id_counts) if args.id_counts else None
    found = audit_tokens(tokenizer, word_counts, id_counts, rare_below=args.rare_below)
    _show_audit(found, tokenizer, args.show)
    if args.json:
        _write_json(args.json, asdict(found))
    if args.csv:
        with files.create_raw(args.csv) as raw, io.TextIOWrapper(raw, encoding="utf-8", newline="") as text:
            writer = csv.writer(text)
            writer.writerow(["finding", "id", "token", "figure", "related", "note"])
            writer.writerows(found.iter_rows())


def _show_audit(found: TokenAudit, tokenizer: Tokenizer, num_shown: int) -> None:
    print(f"{found.vocab_size:,} ids, {found.num_special:,} of them special tokens")
    for finding in found.findings:
        share = len(finding.entries) / max(1, found.vocab_size)
        print(f"{finding.name:19}{len(finding.entries):9,}  {share:6.1%}  {finding.meaning}")
        for entry in finding.entries[:num_shown]:
            print(f"  {entry.describe(tokenizer)}")


def _write_json(path: str, content: Any) -> None:
    with files.create_raw(path) as file:
        file.write((json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())
