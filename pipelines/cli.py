"""The command line: `tokenmill train|tokenize|sweep|report|corpus|encode|decode|inspect|export|cut|verify|audit`."""

import argparse
import errno
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn, get_args

from bpe_core.export import ExportFormat
from pipelines.errors import LockLostError, OutputLockedError, PipelineError, WorkerLostError
from pipelines.running.outcome import EXIT_CODES, Outcome
from pipelines.storage.manifest import list_versions
from pipelines.storage.quiet_beam import quiet_beam_import

with quiet_beam_import():
    from pipelines import commands
    from pipelines.checking.comparison import Library
    from pipelines.jobs import outcome_of, run_job

_BEAM_JOBS = ("train", "tokenize", "sweep")
_VERIFY_SHARDS = "verify shards"


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command and exits with one of the codes of `Outcome`."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:2] == _VERIFY_SHARDS.split():  # Not a command below `verify`, whose own settings may be any word.
        given[:2] = [_VERIFY_SHARDS]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # A locale may know few characters.
    beam_args: list[str] = []
    if given and given[0] in _BEAM_JOBS and "--" in given:
        at = given.index("--")
        given, beam_args = given[:at], given[at + 1 :]
    parser = _parser()
    args, overrides = parser.parse_known_args(given)
    if overrides and getattr(args, "config", None) is None:
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    args.overrides, args.beam_args = overrides, beam_args
    try:
        outcome = args.run(args) or Outcome.DONE
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has what it wanted, as in `... | head`. At its end Python would flush into the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Outcome.FAILED)
    except KeyboardInterrupt:
        _end_interrupted()
    except ModuleNotFoundError as error:
        _fail(ModuleNotFoundError(f"{error}; install it first: pip install {error.name}"), Outcome.BAD_INPUT)
    except (PipelineError, OutputLockedError, LockLostError, ValueError, OSError) as error:
        _fail(error, outcome_of(error))
    if outcome:
        sys.exit(outcome)


def _end_interrupted() -> NoReturn:
    """Ends this process as the signal would have, at once: Beam's threads wait for workers that it no longer serves."""
    print("tokenmill: interrupted; the same command takes the work up again", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    raise KeyboardInterrupt  # Not reached: the signal is deadly now.


def _fail(error: Exception, outcome: Outcome) -> NoReturn:
    is_full = os.strerror(errno.ENOSPC) in str(error)
    remedy = "; free some space and give the same command again" if is_full else ""
    print(f"tokenmill: {error}{remedy}", file=sys.stderr, flush=True)
    if isinstance(error, WorkerLostError):
        os._exit(outcome)
    sys.exit(outcome)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tokenmill",
        description="Learn a BPE tokenizer; write training shards.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    told = "\n".join(f"{name} {version}" for name, version in list_versions().items())
    parser.add_argument("--version", action="version", version=told, help="print the versions and exit")
    parsers = parser.add_subparsers(required=True, metavar="command")
    _add_jobs(parsers)
    _add_corpus(parsers)
    _add_readers_of_text(parsers)
    _add_export(parsers)
    _add_cut(parsers)
    _add_verify(parsers)
    _add_verify_shards(parsers)
    _add_audit(parsers)
    return parser


def _add_jobs(parsers: Any) -> None:
    for name, purpose in (
        ("train", "job 1: learn a tokenizer from a corpus"),
        ("tokenize", "job 2: write shards"),
        ("sweep", "compare vocabulary sizes by measurement and recommend one"),
        ("report", "write a page about a tokenizer, to look at in a browser"),
    ):
        beam = " [-- Beam's own flags]" if name in _BEAM_JOBS else ""
        job = parsers.add_parser(
            name,
            help=purpose,
            usage=f"tokenmill {name} --config FILE [--section.setting value ...]{beam}",
            epilog=f"All settings: tokenmill {name} --config FILE --settings\n\n{EXIT_CODES}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        job.add_argument("--config", required=True, help="YAML file of the corpus project")
        job.add_argument("--settings", action="store_true", help="list all settings and exit")
        job.add_argument(
            "--log-json", action="store_true", help="print one line of JSON about the run to standard output"
        )
        if name == "tokenize":
            job.add_argument("--dry-run", action="store_true", help="print what would be done, and write nothing")
        if name == "train":
            job.add_argument(
                "--from-counts", metavar="FOLDER", help="train from word counts; same as --train.from_counts"
            )
        job.set_defaults(run=_run_job, job=name)


def _run_job(args: argparse.Namespace) -> Outcome:
    overrides = ["--help"] if args.settings else args.overrides
    if getattr(args, "from_counts", None):
        overrides = [*overrides, "--train.from_counts", args.from_counts]
    dry_run = getattr(args, "dry_run", False)
    return run_job(args.job, args.config, overrides, args.beam_args, dry_run=dry_run, log_json=args.log_json)


def _add_corpus(parsers: Any) -> None:
    corpus = parsers.add_parser("corpus", help="write a corpus that comes with tokenmill")
    corpus.add_argument("name", choices=["known-answers"])
    corpus.add_argument(
        "--output", metavar="FILE.parquet", help="write Parquet (lang, text) here instead of printing it"
    )
    corpus.set_defaults(run=commands.corpus)


def _add_readers_of_text(parsers: Any) -> None:
    for name, purpose, run in (
        ("encode", "text to ids, a line of ids for each line of text", commands.encode),
        ("decode", "ids to text, a line of text for each line of ids", commands.decode),
        ("inspect", "show how a text is split", commands.inspect),
    ):
        command = parsers.add_parser(name, help=purpose)
        _tokenizer_arguments(command)
        command.add_argument("text", nargs="*", help="what to read; standard input if left out")
        command.set_defaults(run=run)


def _add_export(parsers: Any) -> None:
    export = parsers.add_parser("export", help="write a tokenizer in another tool's files, checked by reading them")
    _tokenizer_arguments(export)
    export.add_argument("--format", required=True, choices=get_args(ExportFormat))
    export.add_argument("--output", required=True, metavar="FOLDER")
    export.set_defaults(run=commands.export)


def _add_cut(parsers: Any) -> None:
    cut = parsers.add_parser("cut", help="write a tokenizer with the first merges of another")
    _tokenizer_arguments(cut)
    cut.add_argument("--merges", required=True, type=int, metavar="NUMBER", help="how many of its merges stay")
    cut.add_argument("--output", required=True, metavar="FOLDER")
    cut.set_defaults(run=commands.cut)


def _add_verify(parsers: Any) -> None:
    verify = parsers.add_parser(
        "verify",
        help="check a tokenizer against its corpus and settings, or its ids against another library's",
        usage="tokenmill verify --config FILE [--section.setting value ...] [--positives ...] [--negatives ...]\n"
        "       tokenmill verify --tokenizer FOLDER --against LIBRARY --corpus FILE [FILE ...]",
    )
    verify.add_argument("--config", metavar="FILE", help="YAML file of the corpus project; runs the self-checks")
    for name, what in (("positives", "one token"), ("negatives", "in pieces")):
        verify.add_argument(
            f"--{name}",
            nargs="+",
            default=[],
            metavar="WORD",
            help=f"words that must be {what}, or files with a word a line; those of the section sweep if left out",
        )
    verify.add_argument("--json", metavar="FILE", help="write the checks here as well")
    _tokenizer_arguments(verify, required=False)
    verify.add_argument("--against", choices=get_args(Library))
    verify.add_argument("--reference", metavar="FILE", help="another tokenizer.json to compare with (hf)")
    _corpus_arguments(verify)
    verify.set_defaults(run=commands.verify)


def _add_verify_shards(parsers: Any) -> None:
    verify = parsers.add_parser(
        _VERIFY_SHARDS,
        help="read training shards again and check them against manifest, corpus and tokenizer",
        usage="tokenmill verify shards --config FILE [--section.setting value ...]\n"
        "       tokenmill verify shards --shards FOLDER [--tokenizer PATH]",
    )
    verify.add_argument("--config", metavar="FILE", help="YAML file of the corpus project")
    verify.add_argument("--shards", metavar="FOLDER", help="a finished output of tokenmill tokenize")
    _tokenizer_arguments(verify, required=False)
    verify.add_argument("--sample", type=int, default=1000, metavar="N", help="documents to encode again, about")
    verify.add_argument("--seed", type=int, default=0, metavar="N", help="which documents these are")
    verify.add_argument(
        "--sources-may-be-gone", action="store_true", help="a source file that is no longer there is no failure"
    )
    verify.add_argument("--json", metavar="FILE", help="write the checks here as well")
    verify.set_defaults(run=commands.verify_shards)


def _add_audit(parsers: Any) -> None:
    audit = parsers.add_parser("audit", help="list the tokens of a vocabulary that are worth a look")
    _tokenizer_arguments(audit)
    _corpus_arguments(audit)
    audit.add_argument("--counts", metavar="FOLDER", help="word counts, as job 1 keeps them, in place of a corpus")
    audit.add_argument(
        "--id-counts",
        metavar="PATH",
        help="how often each id stands in the training data: job 2's folder, or a .npy file",
    )
    audit.add_argument("--rare-below", type=int, default=10, metavar="N", help="uses under which a token is rare")
    audit.add_argument("--show", type=int, default=8, metavar="N", help="tokens of each kind that are printed")
    audit.add_argument("--json", metavar="FILE", help="write all findings here")
    audit.add_argument("--csv", metavar="FILE", help="write all findings here, a token a row")
    audit.set_defaults(run=commands.audit)


def _corpus_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--corpus", nargs="+", metavar="FILE", help="files, globs or folders")
    command.add_argument("--format", default="auto", choices=("auto", "parquet", "jsonl", "text"), help="of the files")
    command.add_argument("--text-column", default="text", help="of Parquet and JSON lines")


def _tokenizer_arguments(command: argparse.ArgumentParser, required: bool = True) -> None:
    command.add_argument(
        "--tokenizer", required=required, metavar="PATH", help="tokenizer's folder, tokenizer.json or .tiktoken file"
    )
    command.add_argument("--pattern", help="how text is cut, for a tokenizer that does not say")


if __name__ == "__main__":
    main()
