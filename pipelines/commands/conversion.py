"""The commands that make other files of a tokenizer: `export` and `cut`."""

import argparse
from typing import get_args

from bpe_core.export import ExportFormat, export_tokenizer
from pipelines.commands.arguments import add_tokenizer_arguments, read_named_tokenizer
from pipelines.storage.tokenizer_files import write_tokenizer


def add_export_arguments(export: argparse.ArgumentParser) -> None:
    """Adds the arguments of `export`."""
    add_tokenizer_arguments(export)
    export.add_argument("--format", required=True, choices=get_args(ExportFormat))
    export.add_argument("--output", required=True, metavar="FOLDER")


def add_cut_arguments(cut: argparse.ArgumentParser) -> None:
    """Adds the arguments of `cut`."""
    add_tokenizer_arguments(cut)
    cut.add_argument("--merges", required=True, type=int, metavar="NUMBER", help="how many merges to keep")
    cut.add_argument("--output", required=True, metavar="FOLDER")


def run_export(args: argparse.Namespace) -> None:
    """Writes a tokenizer as files of another tool, and prints the paths of the files."""
    for path in export_tokenizer(read_named_tokenizer(args), args.output, args.format):
        print(path)


def run_cut(args: argparse.Namespace) -> None:
    """Writes a tokenizer that keeps only the first merges of another."""
    tokenizer = read_named_tokenizer(args).keep_first_merges(args.merges)
    write_tokenizer(args.output, tokenizer)
    print(f"{args.output}: {args.merges:,} merges, {tokenizer.vocab_size:,} ids")
