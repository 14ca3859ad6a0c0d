"""The command line: `tokenmill train|tokenize|sweep|report|corpus|encode|decode|inspect|export|cut|verify|audit`.

Only the module of the given command is imported, and Beam only when a job has work to do, so that small commands start
at once.
"""

import argparse
import errno
import importlib
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple, NoReturn

from pipelines.errors import LockLostError, OutputLockedError, PipelineError
from pipelines.running.outcome import Outcome, classify_error
from pipelines.storage.quiet_beam import quiet_beam_import

_BEAM_JOBS = ("train", "tokenize", "sweep")
_VERIFY_SHARDS = "verify shards"


class _Command(NamedTuple):
    """A command.

    Attributes:
        purpose: what it does, for the list of commands.
        module: its module in `pipelines.commands`.
        add_arguments: the name of the function that adds its arguments to a parser.
        run: the name of the function that runs it.
    """

    purpose: str
    module: str
    add_arguments: str
    run: str


_COMMANDS = {
    "train": _Command("job 1: learn a tokenizer from a corpus", "job", "add_train_arguments", "run_job_command"),
    "tokenize": _Command("job 2: write shards", "job", "add_tokenize_arguments", "run_job_command"),
    "sweep": _Command(
        "compare vocabulary sizes by measurement and recommend one", "job", "add_sweep_arguments", "run_job_command"
    ),
    "report": _Command("write a web page about a tokenizer", "job", "add_report_arguments", "run_job_command"),
    "corpus": _Command(
        "write the sample corpus that comes with tokenmill", "sample", "add_sample_corpus_arguments", "run_corpus"
    ),
    "encode": _Command(
        "turn text into ids, one line of ids per line of text", "text", "add_text_arguments", "run_encode"
    ),
    "decode": _Command(
        "turn ids into text, one line of text per line of ids", "text", "add_text_arguments", "run_decode"
    ),
    "inspect": _Command("show how a text is split into tokens", "text", "add_text_arguments", "run_inspect"),
    "export": _Command(
        "write a tokenizer as files of another tool, checked by reading them back",
        *("conversion", "add_export_arguments", "run_export"),
    ),
    "cut": _Command(
        "write a tokenizer that keeps only the first merges of another", "conversion", "add_cut_arguments", "run_cut"
    ),
    "verify": _Command(
        "check a tokenizer against its corpus and settings, or its ids against another library's",
        *("verify", "add_verify_arguments", "run_verify"),
    ),
    _VERIFY_SHARDS: _Command(
        "check training shards against their manifest, corpus and tokenizer",
        *("verify", "add_verify_shards_arguments", "run_verify_shards"),
    ),
    "audit": _Command(
        "list the tokens of a vocabulary that deserve attention", "audit", "add_audit_arguments", "run_audit"
    ),
}


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
    parser = _make_parser(given[0] if given else "")
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
        remedy = "" if "pip install" in str(error) else f"; install it first: pip install {error.name}"
        _fail(ModuleNotFoundError(f"{error}{remedy}"), Outcome.BAD_INPUT)
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


class _PrintVersions(argparse.Action):
    """Prints the versions of everything that the output may depend on."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        """Prints them and ends the program."""
        from pipelines.storage.manifest import list_versions

        print("".join(f"{name} {version}\n" for name, version in list_versions().items()), end="")
        parser.exit()


def _make_parser(chosen: str) -> argparse.ArgumentParser:
    """Returns the parser of the command line, with the arguments of the chosen command only."""
    parser = argparse.ArgumentParser(
        prog="tokenmill",
        description="Learn a BPE tokenizer; write training shards.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_PrintVersions, nargs=0, help="print the versions and exit")
    parsers = parser.add_subparsers(required=True, metavar="command")
    for name, command in _COMMANDS.items():
        one = parsers.add_parser(name, help=command.purpose)
        if name != chosen:
            continue
        with quiet_beam_import():
            module = importlib.import_module(f"pipelines.commands.{command.module}")
        getattr(module, command.add_arguments)(one)
        one.set_defaults(run=getattr(module, command.run), command=name)
    return parser


if __name__ == "__main__":
    main()
