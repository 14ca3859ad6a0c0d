"""The command `audit`."""

import argparse
import csv
import io
from collections import Counter
from dataclasses import asdict

from bpe_core.measuring.audit import TokenAudit, audit_tokens
from bpe_core.tokenizer import Tokenizer
from pipelines.commands.arguments import (
    add_corpus_arguments,
    add_tokenizer_arguments,
    make_corpus,
    read_named_tokenizer,
    refuse_without_effect,
    write_findings,
)
from pipelines.running.remarks import show_remarks
from pipelines.storage import files
from pipelines.tokenizing.token_counts import read_token_counts
from pipelines.training.count_corpus import count_corpus_in_memory
from pipelines.training.word_counts import read_word_counts


def add_audit_arguments(audit: argparse.ArgumentParser) -> None:
    """Adds the arguments of `audit`."""
    add_tokenizer_arguments(audit)
    add_corpus_arguments(audit)
    audit.add_argument("--counts", metavar="FOLDER", help="word counts of job 1, instead of a corpus")
    audit.add_argument(
        "--id-counts",
        metavar="PATH",
        help="how often each id occurs in the training data: job 2's output, or a .npy file",
    )
    audit.add_argument("--rare-below", type=int, default=10, metavar="N", help="a token used fewer times is rare")
    audit.add_argument("--show", type=int, default=8, metavar="N", help="how many tokens of each kind to print")
    audit.add_argument("--json", metavar="FILE", help="write all findings to this file")
    audit.add_argument("--csv", metavar="FILE", help="write all findings to this file, one row per token")


def run_audit(args: argparse.Namespace) -> None:
    """Prints the tokens that deserve attention, and writes the whole list to files if asked to.

    Raises:
        ValueError: both a corpus and word counts are given.
    """
    tokenizer = read_named_tokenizer(args)
    if args.corpus and args.counts:
        raise ValueError("give --corpus or --counts, not both")
    if not args.corpus:
        refuse_without_effect(args, ("format", "text_column"), "--corpus")
    word_counts = None
    if args.counts:
        word_counts, _ = read_word_counts(args.counts)
    elif args.corpus:
        counts: Counter[str] = Counter()
        word_counts = count_corpus_in_memory(make_corpus(args), tokenizer.pre_tokenizer, counts)
        show_remarks(counts)
    if args.show < 0:
        raise ValueError(f"--show is {args.show}; give 0 or more")
    id_counts = read_token_counts(args.id_counts) if args.id_counts else None
    found = audit_tokens(tokenizer, word_counts, id_counts, rare_below=args.rare_below)
    _show_audit(found, tokenizer, args.show)
    if args.json:
        write_findings(args.json, asdict(found))
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
