"""The commands that are no jobs: what each does with its arguments, and prints."""

import argparse
import csv
import io
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from bpe_core.export import export_tokenizer
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
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.project_file import load_project
from pipelines.storage import files
from pipelines.storage.tokenizer_files import read_tokenizer, write_tokenizer
from pipelines.tokenizing.token_counts import read_token_counts
from pipelines.training.count_corpus import count_corpus_in_memory
from pipelines.training.word_counts import read_word_counts

_COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green", "black on bright_magenta")


def _tokenizer(args: argparse.Namespace) -> Tokenizer:
    return read_tokenizer(args.tokenizer, args.pattern)


def _corpus(args: argparse.Namespace) -> Corpus:
    return Corpus(files=tuple(args.corpus), format=args.format, text_column=args.text_column, on_invalid_utf8="replace")


def corpus(args: argparse.Namespace) -> None:
    """Prints the known-answer documents, or writes them as Parquet."""
    languages, texts = map(list, zip(*known_answer_documents(), strict=True))
    if args.output is None:
        sys.stdout.buffer.write("".join(f"{text}\n" for text in texts).encode())
        return
    with files.create_raw(args.output) as file:
        pq.write_table(pa.table({"lang": languages, "text": texts}), file)


def _lines(args: argparse.Namespace) -> Iterator[str]:
    """The text on the command line, or the lines of standard input, as UTF-8 whatever the locale is."""
    if args.text:
        yield os.fsencode(" ".join(args.text)).decode(errors="surrogateescape")
        return
    if sys.stdin is None:
        raise ValueError("there is no text, and standard input is closed; give the text as an argument, or by a pipe")
    for line in sys.stdin.buffer:
        yield line.decode(errors="surrogateescape").removesuffix("\n")


def encode(args: argparse.Namespace) -> None:
    """Prints a line of ids for each line of text."""
    tokenizer = _tokenizer(args)
    for line in _lines(args):
        print(*tokenizer.encode(line))


def decode(args: argparse.Namespace) -> None:
    """Prints a line of text for each line of ids, as its bytes are.

    Raises:
        ValueError: a word is not an id.
    """
    tokenizer = _tokenizer(args)
    for line in _lines(args):
        wrong = [word for word in line.split() if not re.fullmatch("-?[0-9]{1,18}", word)]
        if wrong:
            raise ValueError(
                f"{wrong[0][:60]!r} in {line[:60]!r} is not an id; write whole numbers with blanks between"
            )
        ids = [int(word) for word in line.split()]
        sys.stdout.buffer.write(tokenizer.decode_bytes(ids) + b"\n")
        sys.stdout.buffer.flush()


def inspect(args: argparse.Namespace) -> None:
    """Prints how each text is split, in colours or with `|` after each token, its ids and its numbers."""
    tokenizer = _tokenizer(args)
    console = Console(highlight=False, soft_wrap=True)
    for line in _lines(args):
        _show_split(console, tokenizer, line)


def _show_split(console: Console, tokenizer: Tokenizer, text: str) -> None:
    words = tokenizer.pre_tokenizer.split(text)
    tokens = tokenizer.tokenize(text)
    ids = tokenizer.encode(text)
    shown = Text()
    for number, token in enumerate(tokens):
        shown.append(show_on_one_line(token), _COLOURS[number % len(_COLOURS)])
        if not console.is_terminal:
            shown.append("|")
    console.print(shown)
    console.print(" ".join(map(str, ids)), style="dim")
    blanks = sum(character.isspace() for character in text)
    counted = {
        "characters": f"{len(text)} ({len(text) - blanks} without blanks)",
        "words": f"{len(words)} ({len(set(words))} different)",
        "tokens": f"{len(ids)} ({len(set(ids))} different)",
    }
    console.print("   ".join(f"{name} {count}" for name, count in counted.items()))


def export(args: argparse.Namespace) -> None:
    """Writes a tokenizer in another tool's files, and prints their names."""
    for path in export_tokenizer(_tokenizer(args), args.output, args.format):
        print(path)


def cut(args: argparse.Namespace) -> None:
    """Writes the tokenizer with the first merges of another."""
    tokenizer = _tokenizer(args).keep_first_merges(args.merges)
    write_tokenizer(args.output, tokenizer)
    print(f"{args.output}: {args.merges:,} merges, {tokenizer.vocab_size:,} ids")


def verify(args: argparse.Namespace) -> None:
    """Prints the checks of a project's tokenizer, or compares a tokenizer's ids with another library's.

    Raises:
        ValueError: arguments are missing, or are for the other of the two.
        SystemExit: a check failed, or ids differ.
    """
    if args.config is None:
        _compare_with_library(args)
        return
    if args.tokenizer or args.against or args.corpus:
        raise ValueError("--config names tokenizer and corpus; leave out --tokenizer, --against and --corpus")
    project = load_project(args.config, args.overrides, command=f"tokenmill verify --config {args.config}")
    _show_checks(check_tokenizer(project, _words(args.positives), _words(args.negatives)), args.json)


def _compare_with_library(args: argparse.Namespace) -> None:
    if not (args.tokenizer and args.against and args.corpus):
        raise ValueError("give --config FILE, or all of --tokenizer, --against and --corpus")
    tokenizer = _tokenizer(args)
    found = compare_ids(tokenizer, args.against, _corpus(args), args.reference)
    print(found.line)
    if found.first is not None:
        print(found.first.describe(tokenizer))
        raise SystemExit(Outcome.FAILED)


def verify_shards(args: argparse.Namespace) -> None:
    """Prints the checks of a finished output of job 2.

    Raises:
        ValueError: arguments are missing, or contradict each other.
        SystemExit: a check failed.
    """
    if (args.config is None) == (args.shards is None):
        raise ValueError("give --config FILE or --shards FOLDER, one of the two")
    if args.sample < 0 or args.seed < 0:
        raise ValueError(f"--sample is {args.sample} and --seed is {args.seed}; neither can be below 0")
    may_be_gone = args.sources_may_be_gone
    if args.config is None:
        tokenizer = _tokenizer(args) if args.tokenizer else None
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
    """Prints checks as they are done and writes them to a JSON file; leaves with 1 if one failed."""
    checks = []
    for check in found:
        checks.append(check)
        print(check.line, flush=True)
    failed = [check.name for check in checks if check.status == "fail"]
    if path:
        _write_json(path, {"passed": not failed, "checks": [check.json_form for check in checks]})
    if failed:
        raise SystemExit(Outcome.FAILED)


def _words(given: Sequence[str]) -> list[str]:
    """Returns words; a file among them stands for its lines."""
    read = (files.read_text(one).splitlines() if os.path.isfile(one) else [one] for one in given)
    return [word for words in read for word in words if word.strip()]


def audit(args: argparse.Namespace) -> None:
    """Prints the tokens that are worth a look, and writes all of them where that is asked for.

    Raises:
        ValueError: both a corpus and word counts are given.
    """
    tokenizer = _tokenizer(args)
    if args.corpus and args.counts:
        raise ValueError("give --corpus or --counts, not both")
    word_counts = None
    if args.counts:
        word_counts, _ = read_word_counts(args.counts)
    elif args.corpus:
        word_counts = count_corpus_in_memory(_corpus(args), tokenizer.pre_tokenizer)
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
            writer.writerows(found.rows())


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
