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
from bpe_core.pretokenize.normalizer import Normalization
from pipelines.errors import LockLostError, OutputLockedError, PipelineError
from pipelines.running.outcome import EXIT_CODES, Outcome
from pipelines.storage.manifest import list_versions
from pipelines.storage.quiet_beam import quiet_beam_import

with quiet_beam_import():
    from pipelines import commands
    from pipelines.checking.comparison import Library
    from pipelines.jobs import classify_error, run_job

_BEAM_JOBS = ("train", "tokenize", "sweep")
_VERIFY_SHARDS = "verify shards"


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command; exits with one of the codes of `Outcome` unless it is done.

    Args:
        argv: the arguments; those of this process by default.
    """
    given = list(sys.argv[1:] if argv is None else argv)
    # `verify shards` is not a subcommand of `verify`: there, any other word may be an override of a setting.
    if given[:2] == _VERIFY_SHARDS.split():
        given[:2] = [_VERIFY_SHARDS]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # The locale may not have every character.
    beam_args: list[str] = []
    if given and given[0] in _BEAM_JOBS and "--" in given:
        separator = given.index("--")
        given, beam_args = given[:separator], given[separator + 1 :]
    parser = _make_parser()
    args, overrides = parser.parse_known_args(given)
    if overrides and getattr(args, "config", None) is None:
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    args.overrides, args.beam_args = overrides, beam_args
    try:
        outcome = args.run(args) or Outcome.DONE
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader has closed the pipe, as in `... | head`. On exit, Python would flush into the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Outcome.FAILED)
    except KeyboardInterrupt:
        _end_interrupted()
    except ModuleNotFoundError as error:
        _fail(ModuleNotFoundError(f"{error}; install it first: pip install {error.name}"), Outcome.BAD_INPUT)
    except (PipelineError, OutputLockedError, LockLostError, ValueError, OSError) as error:
        _fail(error, classify_error(error))
    if outcome:
        sys.exit(outcome)


def _end_interrupted() -> NoReturn:
    """Ends this process at once, as the signal would have: Beam's threads wait for workers that it no longer serves."""
    print("tokenmill: interrupted; the same command resumes the work", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)
    raise KeyboardInterrupt  # Not reached: the signal now kills the process.


def _fail(error: Exception, outcome: Outcome) -> NoReturn:
    is_full = os.strerror(errno.ENOSPC) in str(error)
    remedy = "; free some space and run the same command again" if is_full else ""
    print(f"tokenmill: {error}{remedy}", file=sys.stderr, flush=True)
    sys.exit(outcome)


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tokenmill",
        description="Learn a BPE tokenizer; write training shards.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    version_lines = "\n".join(f"{name} {version}" for name, version in list_versions().items())
    parser.add_argument("--version", action="version", version=version_lines, help="print the versions and exit")
    parsers = parser.add_subparsers(required=True, metavar="command")
    _add_jobs(parsers)
    _add_corpus(parsers)
    _add_text_commands(parsers)
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
        ("report", "write a web page about a tokenizer"),
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
            job.add_argument("--dry-run", action="store_true", help="print what would be done and write nothing")
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
    corpus = parsers.add_parser("corpus", help="write the sample corpus that comes with tokenmill")
    corpus.add_argument("name", choices=["known-answers"])
    corpus.add_argument(
        "--output", metavar="FILE.parquet", help="write Parquet (lang, text) to this file instead of printing the text"
    )
    corpus.set_defaults(run=commands.run_corpus)


def _add_text_commands(parsers: Any) -> None:
    for name, purpose, run in (
        ("encode", "turn text into ids, one line of ids per line of text", commands.run_encode),
        ("decode", "turn ids into text, one line of text per line of ids", commands.run_decode),
        ("inspect", "show how a text is split into tokens", commands.run_inspect),
    ):
        command = parsers.add_parser(name, help=purpose)
        _add_tokenizer_arguments(command)
        command.add_argument("text", nargs="*", help="the input; standard input if left out")
        command.set_defaults(run=run)


def _add_export(parsers: Any) -> None:
    export = parsers.add_parser(
        "export", help="write a tokenizer as files of another tool, checked by reading them back"
    )
    _add_tokenizer_arguments(export)
    export.add_argument("--format", required=True, choices=get_args(ExportFormat))
    export.add_argument("--output", required=True, metavar="FOLDER")
    export.set_defaults(run=commands.run_export)


def _add_cut(parsers: Any) -> None:
    cut = parsers.add_parser("cut", help="write a tokenizer that keeps only the first merges of another")
    _add_tokenizer_arguments(cut)
    cut.add_argument("--merges", required=True, type=int, metavar="NUMBER", help="how many merges to keep")
    cut.add_argument("--output", required=True, metavar="FOLDER")
    cut.set_defaults(run=commands.run_cut)


def _add_verify(parsers: Any) -> None:
    verify = parsers.add_parser(
        "verify",
        help="check a tokenizer against its corpus and settings, or its ids against another library's",
        usage="tokenmill verify --config FILE [--section.setting value ...] [--positives ...] [--negatives ...]\n"
        "       tokenmill verify --tokenizer FOLDER --against LIBRARY --corpus FILE [FILE ...]",
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
    _add_tokenizer_arguments(verify, required=False)
    verify.add_argument("--against", choices=get_args(Library))
    verify.add_argument("--reference", metavar="FILE", help="another tokenizer.json to compare with (hf)")
    _add_corpus_arguments(verify)
    verify.set_defaults(run=commands.run_verify)


def _add_verify_shards(parsers: Any) -> None:
    verify = parsers.add_parser(
        _VERIFY_SHARDS,
        help="check training shards against their manifest, corpus and tokenizer",
        usage="tokenmill verify shards --config FILE [--section.setting value ...]\n"
        "       tokenmill verify shards --shards FOLDER [--tokenizer PATH]",
    )
    verify.add_argument("--config", metavar="FILE", help="YAML file of the corpus project")
    verify.add_argument("--shards", metavar="FOLDER", help="a finished output of tokenmill tokenize")
    _add_tokenizer_arguments(verify, required=False)
    verify.add_argument(
        "--sample", type=int, default=1000, metavar="N", help="about how many documents to encode again"
    )
    verify.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the choice of these documents")
    verify.add_argument("--sources-may-be-gone", action="store_true", help="a deleted source file is not a failure")
    verify.add_argument("--json", metavar="FILE", help="also write the checks to this file")
    verify.set_defaults(run=commands.run_verify_shards)


def _add_audit(parsers: Any) -> None:
    audit = parsers.add_parser("audit", help="list the tokens of a vocabulary that deserve attention")
    _add_tokenizer_arguments(audit)
    _add_corpus_arguments(audit)
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
    audit.set_defaults(run=commands.run_audit)


def _add_corpus_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--corpus", nargs="+", metavar="FILE", help="files, globs or folders")
    command.add_argument(
        "--format", default="auto", choices=("auto", "parquet", "jsonl", "text"), help="format of the files"
    )
    command.add_argument("--text-column", default="text", help="the column, or JSON key, that holds the text")


def _add_tokenizer_arguments(command: argparse.ArgumentParser, required: bool = True) -> None:
    command.add_argument(
        "--tokenizer", required=required, metavar="PATH", help="a tokenizer's folder, tokenizer.json or .tiktoken file"
    )
    command.add_argument("--pattern", help="how to split text into words, for a tokenizer without a pattern of its own")
    command.add_argument(
        "--unicode",
        default="none",
        choices=get_args(Normalization),
        help="the Unicode normalization of such a tokenizer, such as NFC for Qwen's files",
    )


if __name__ == "__main__":
    main()
