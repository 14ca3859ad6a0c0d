"""Arguments that several commands have."""

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

from bpe_core.formats.tokenizer_json import Engine
from bpe_core.pretokenize.normalizer import Normalization
from bpe_core.tokenizer import Tokenizer
from pipelines.storage import files
from pipelines.storage.tokenizer_files import read_tokenizer

if TYPE_CHECKING:
    from pipelines.settings.corpus import Corpus

_OPTIONS_OF_OTHERS: dict[str, tuple[str, Any]] = {
    "pattern": ("--pattern", None),
    "unicode": ("--unicode", "none"),
    "engine": ("--engine", "auto"),
    "reference": ("--reference", None),
    "format": ("--format", "auto"),
    "text_column": ("--text-column", "text"),
    "positives": ("--positives", []),
    "negatives": ("--negatives", []),
    "json": ("--json", None),
}
"""Arguments that have an effect only with another argument: how they are written, and the value if left out."""


def refuse_without_effect(args: argparse.Namespace, names: Sequence[str], needed: str) -> None:
    """Raises ValueError if one of these arguments is given, because what it needs is not."""
    for name in names:
        option, default = _OPTIONS_OF_OTHERS[name]
        value = getattr(args, name)
        if value != default:
            raise ValueError(f"{option} {value} has no effect here; it needs {needed}. Leave it out")


def add_tokenizer_arguments(command: argparse.ArgumentParser, required: bool = True) -> None:
    """Adds the arguments that name a tokenizer."""
    command.add_argument(
        "--tokenizer", required=required, metavar="PATH", help="a tokenizer's folder, or one of its files"
    )
    command.add_argument("--pattern", help="how to split text into words, for a tokenizer without a pattern of its own")
    command.add_argument(
        "--unicode",
        default="none",
        choices=get_args(Normalization),
        help="the Unicode normalization of such a tokenizer, such as NFC for Qwen's files",
    )
    command.add_argument(
        "--engine",
        default="auto",
        choices=get_args(Engine),
        help="what encodes: compiled code, Hugging Face's library, or the library only for what compiled code lacks",
    )


def read_named_tokenizer(args: argparse.Namespace) -> Tokenizer:
    """Returns the tokenizer that the arguments name."""
    return read_tokenizer(args.tokenizer, args.pattern, unicode=args.unicode, engine=args.engine)


def add_corpus_arguments(command: argparse.ArgumentParser) -> None:
    """Adds the arguments that name a corpus."""
    command.add_argument("--corpus", nargs="+", metavar="FILE", help="files, globs or folders")
    command.add_argument(
        "--format", default="auto", choices=("auto", "parquet", "jsonl", "text"), help="format of the files"
    )
    command.add_argument("--text-column", default="text", help="the column, or JSON key, that holds the text")


def make_corpus(args: argparse.Namespace) -> "Corpus":
    """Returns the corpus that the arguments name."""
    from pipelines.settings.corpus import Corpus  # Here, because few commands need pydantic.

    return Corpus(files=tuple(args.corpus), format=args.format, text_column=args.text_column, on_invalid_utf8="replace")


def write_findings(path: str, content: Any) -> None:
    """Writes the findings of a command to a JSON file."""
    with files.create_raw(path) as file:
        file.write((json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())
