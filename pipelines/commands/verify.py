"""The commands that check results: `verify` and `verify shards`."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import get_args

from bpe_core.formats.lines import split_lines
from pipelines.checking.check import Check
from pipelines.checking.comparison import Library, compare_ids
from pipelines.checking.verify_shards import check_shards
from pipelines.checking.verify_tokenizer import check_tokenizer
from pipelines.commands.arguments import (
    add_corpus_arguments,
    add_tokenizer_arguments,
    make_corpus,
    read_named_tokenizer,
    refuse_without_effect,
    write_findings,
)
from pipelines.rows.segments import read_job_tokenizer
from pipelines.running.outcome import Outcome
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.project_file import load_project
from pipelines.storage import files


def add_verify_arguments(verify: argparse.ArgumentParser) -> None:
    """Adds the arguments of `verify`."""
    verify.usage = (
        "tokenmill verify --config FILE [--section.setting value ...] [--positives ...] [--negatives ...]\n"
        "       tokenmill verify --tokenizer FOLDER --against LIBRARY --corpus FILE [FILE ...]"
    )
    verify.add_argument("--config", metavar="FILE", help="YAML file of the corpus project; runs the self-checks")
    for name, what in (("positives", "one token"), ("negatives", "several tokens")):
        verify.add_argument(
            f"--{name}",
            nargs="+",
            default=[],
            metavar="WORD",
            help=f"words that must be {what}, or files with one word per line; by default those of the section sweep",
        )
    verify.add_argument("--json", metavar="FILE", help="also write the checks to this file")
    add_tokenizer_arguments(verify, required=False)
    verify.add_argument("--against", choices=get_args(Library))
    verify.add_argument("--reference", metavar="FILE", help="another tokenizer.json to compare with (hf)")
    add_corpus_arguments(verify)


def add_verify_shards_arguments(verify: argparse.ArgumentParser) -> None:
    """Adds the arguments of `verify shards`."""
    verify.usage = (
        "tokenmill verify shards --config FILE [--section.setting value ...]\n"
        "       tokenmill verify shards --shards FOLDER [--tokenizer PATH]"
    )
    verify.add_argument("--config", metavar="FILE", help="YAML file of the corpus project")
    verify.add_argument("--shards", metavar="FOLDER", help="a finished output of tokenmill tokenize")
    add_tokenizer_arguments(verify, required=False)
    verify.add_argument(
        "--sample", type=int, default=1000, metavar="N", help="about how many documents to encode again"
    )
    verify.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the choice of these documents")
    verify.add_argument("--sources-may-be-gone", action="store_true", help="a deleted source file is not a failure")
    verify.add_argument("--json", metavar="FILE", help="also write the checks to this file")


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
    refuse_without_effect(args, ("pattern", "unicode", "engine"), "--tokenizer, not --config")
    refuse_without_effect(args, ("reference", "format", "text_column"), "--against, not --config")
    project = load_project(args.config, args.overrides, command=f"tokenmill verify --config {args.config}")
    _show_checks(check_tokenizer(project, _read_words(args.positives), _read_words(args.negatives)), args.json)


def _compare_with_library(args: argparse.Namespace) -> None:
    if not (args.tokenizer and args.against and args.corpus):
        raise ValueError("give --config FILE, or all of --tokenizer, --against and --corpus")
    refuse_without_effect(args, ("positives", "negatives", "json"), "--config")
    if args.against != "hf":
        refuse_without_effect(args, ("reference",), "--against hf")
    tokenizer = read_named_tokenizer(args)
    found = compare_ids(tokenizer, args.against, make_corpus(args), args.reference)
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
        refuse_without_effect(args, ("pattern", "unicode", "engine"), "--tokenizer")
    if args.config is None:
        tokenizer = read_named_tokenizer(args) if args.tokenizer else None
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
        write_findings(path, {"passed": not failed, "checks": [check.json_form for check in checks]})
    if failed:
        raise SystemExit(Outcome.FAILED)


def _read_words(given: Sequence[str]) -> list[str]:
    """Returns words; a name of a file is replaced by the lines of the file, without a byte-order mark."""
    read = (split_lines(files.read_text(one).removeprefix("\ufeff")) if os.path.isfile(one) else [one] for one in given)
    return [word for words in read for word in words if word.strip()]
