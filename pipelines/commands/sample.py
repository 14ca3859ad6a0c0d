"""The command `corpus`, which writes the sample corpus."""

import argparse
import sys

import pyarrow as pa
import pyarrow.parquet as pq

from pipelines.reading.formats.known_answers import known_answer_documents
from pipelines.storage import files


def add_sample_corpus_arguments(corpus: argparse.ArgumentParser) -> None:
    """Adds the arguments of `corpus`."""
    corpus.add_argument("name", choices=["known-answers"])
    corpus.add_argument(
        "--output", metavar="FILE.parquet", help="write Parquet (lang, text) to this file instead of printing the text"
    )


def run_corpus(args: argparse.Namespace) -> None:
    """Prints the known-answer documents, or writes them as Parquet."""
    languages, texts = map(list, zip(*known_answer_documents(), strict=True))
    if args.output is None:
        sys.stdout.buffer.write("".join(f"{text}\n" for text in texts).encode())
        return
    with files.create_raw(args.output) as file:
        pq.write_table(pa.table({"lang": languages, "text": texts}), file)
