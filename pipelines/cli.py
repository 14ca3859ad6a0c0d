"""The command line: `tokenmill train|tokenize|report|corpus|encode|decode|inspect|export|verify`."""

import argparse
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import PurePath
from typing import get_args

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from bpe_core.export import Format, export
from bpe_core.tokenizer import Tokenizer
from pipelines import files
from pipelines.config import Corpus, load_project
from pipelines.known_answers import known_answer_documents
from pipelines.report import make_report, visible
from pipelines.runners import PipelineFailed, WorkerLost
from pipelines.tokenize_corpus import tokenize_corpus
from pipelines.train_tokenizer import train_tokenizer
from pipelines.verify import Library, verify_against

_DONE, _FAILED, _BAD_INPUT = 0, 1, 2

_COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green", "black on bright_magenta")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command and exits: 0 when it is done, 2 when its input or settings are wrong, 1 when it failed."""
    given = list(sys.argv[1:] if argv is None else argv)
    beam_args: list[str] = []
    if given[:1] in (["train"], ["tokenize"]) and "--" in given:
        at = given.index("--")
        given, beam_args = given[:at], given[at + 1 :]
    parser = _parser()
    args, overrides = parser.parse_known_args(given)
    if overrides and not hasattr(args, "config"):
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    try:
        if hasattr(args, "config"):
            _run_job(args, overrides, beam_args)
        else:
            args.run(args)
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has what it wanted, as in `... | head`. At its end Python would flush into the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(_FAILED)
    except WorkerLost as error:
        print(f"tokenmill: {error}", file=sys.stderr, flush=True)
        os._exit(_FAILED)
    except PipelineFailed as error:
        sys.exit(_fail(error, _FAILED))
    except ModuleNotFoundError as error:
        sys.exit(_fail(ModuleNotFoundError(f"{error}; install it first: pip install {error.name}"), _BAD_INPUT))
    except (ValueError, OSError) as error:
        sys.exit(_fail(error, _BAD_INPUT))


def _fail(error: Exception, code: int) -> int:
    print(f"tokenmill: {error}", file=sys.stderr)
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tokenmill", description="Learn a BPE tokenizer; write training shards.")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, purpose in (
        ("train", "job 1: learn a tokenizer from a corpus"),
        ("tokenize", "job 2: write shards"),
        ("report", "write a page about a tokenizer, to look at in a browser"),
    ):
        beam = "" if name == "report" else " [-- Beam's own flags]"
        job = commands.add_parser(
            name,
            help=purpose,
            usage=f"tokenmill {name} --config FILE [--section.setting value ...]{beam}",
            epilog=f"All settings: tokenmill {name} --config FILE --settings",
        )
        job.add_argument("--config", required=True, help="YAML file of the corpus project")
        job.add_argument("--settings", action="store_true", help="list all settings and exit")
        if name == "train":
            job.add_argument(
                "--from-counts", metavar="FOLDER", help="train from word counts; same as --train.from_counts"
            )
        job.set_defaults(job=name)
    corpus = commands.add_parser("corpus", help="write a corpus that comes with tokenmill")
    corpus.add_argument("name", choices=["known-answers"])
    corpus.add_argument(
        "--output", metavar="FILE.parquet", help="write Parquet (lang, text) here instead of printing it"
    )
    corpus.set_defaults(run=_corpus)
    for name, purpose, run in (
        ("encode", "text to ids, a line of ids for each line of text", _encode),
        ("decode", "ids to text, a line of text for each line of ids", _decode),
        ("inspect", "show how a text is split", _inspect),
    ):
        command = commands.add_parser(name, help=purpose)
        command.add_argument(
            "--tokenizer", required=True, metavar="FOLDER", help="tokenizer's folder or tokenizer.json"
        )
        command.add_argument("text", nargs="*", help="what to read; standard input if left out")
        command.set_defaults(run=run)
    export_ = commands.add_parser("export", help="write a tokenizer in another tool's files, checked by reading them")
    export_.add_argument("--tokenizer", required=True, metavar="FOLDER", help="tokenizer's folder or tokenizer.json")
    export_.add_argument("--format", required=True, choices=get_args(Format))
    export_.add_argument("--output", required=True, metavar="FOLDER")
    export_.set_defaults(run=_export)
    verify = commands.add_parser("verify", help="compare a tokenizer's ids with another library's over a corpus")
    verify.add_argument("--tokenizer", required=True, metavar="FOLDER", help="tokenizer's folder or tokenizer.json")
    verify.add_argument("--against", required=True, choices=get_args(Library))
    verify.add_argument("--reference", metavar="FILE", help="another tokenizer.json to compare with (hf)")
    verify.add_argument("--corpus", required=True, nargs="+", metavar="FILE", help="files, globs or folders")
    verify.add_argument("--format", default="auto", choices=("auto", "parquet", "jsonl", "text"), help="of the files")
    verify.add_argument("--text-column", default="text", help="of Parquet and JSON lines")
    verify.set_defaults(run=_verify)
    return parser


def _export(args: argparse.Namespace) -> None:
    for path in export(files.read_tokenizer(args.tokenizer), args.output, args.format):
        print(path)


def _verify(args: argparse.Namespace) -> None:
    tokenizer = files.read_tokenizer(args.tokenizer)
    corpus = Corpus(
        files=tuple(args.corpus), format=args.format, text_column=args.text_column, on_invalid_utf8="replace"
    )
    found = verify_against(tokenizer, args.against, corpus, args.reference)
    print(f"{found.documents:,} documents, {found.ids:,} ids, {found.different:,} documents with other ids")
    if found.first is not None:
        print(found.first.describe(tokenizer))
        raise SystemExit(1)


def _run_job(args: argparse.Namespace, overrides: list[str], beam_args: list[str]) -> None:
    if args.settings:
        overrides = ["--help"]
    if getattr(args, "from_counts", None):
        overrides = [*overrides, "--train.from_counts", args.from_counts]
    project = load_project(args.config, overrides, command=f"tokenmill {args.job} --config {args.config}")
    if args.job == "train":
        train_tokenizer(project, beam_args)
    elif args.job == "tokenize":
        tokenize_corpus(project, beam_args)
    else:
        make_report(project, PurePath(args.config).stem)


def _corpus(args: argparse.Namespace) -> None:
    languages, texts = map(list, zip(*known_answer_documents(), strict=True))
    if args.output is None:
        print("\n".join(texts))
        return
    with files.create_raw(args.output) as file:
        pq.write_table(pa.table({"lang": languages, "text": texts}), file)


def _lines(args: argparse.Namespace) -> Iterator[str]:
    """The text on the command line, or the lines of standard input, as UTF-8 whatever the locale is."""
    if args.text:
        yield " ".join(args.text)
        return
    for line in sys.stdin.buffer:
        yield line.decode(errors="surrogateescape").removesuffix("\n")


def _encode(args: argparse.Namespace) -> None:
    tokenizer = files.read_tokenizer(args.tokenizer)
    for line in _lines(args):
        print(*tokenizer.encode(line))


def _decode(args: argparse.Namespace) -> None:
    tokenizer = files.read_tokenizer(args.tokenizer)
    for line in _lines(args):
        wrong = [word for word in line.split() if not re.fullmatch("-?[0-9]{1,18}", word)]
        if wrong:
            raise ValueError(
                f"{wrong[0][:60]!r} in {line[:60]!r} is not an id; write whole numbers with blanks between"
            )
        ids = [int(word) for word in line.split()]
        sys.stdout.buffer.write(tokenizer.decode_bytes(ids) + b"\n")
        sys.stdout.buffer.flush()


def _inspect(args: argparse.Namespace) -> None:
    tokenizer = files.read_tokenizer(args.tokenizer)
    console = Console(highlight=False, soft_wrap=True)
    for line in _lines(args):
        _show_split(console, tokenizer, line)


def _show_split(console: Console, tokenizer: Tokenizer, text: str) -> None:
    words = tokenizer.words.split(text)
    tokens = tokenizer.tokenize(text)
    ids = tokenizer.encode(text)
    shown = Text()
    for number, token in enumerate(tokens):
        shown.append(visible(token), _COLOURS[number % len(_COLOURS)])
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


if __name__ == "__main__":
    main()
