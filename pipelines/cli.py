"""The command line: `tokenmill train|tokenize|sweep|report|corpus|encode|decode|inspect|export|cut|verify|audit`."""

import argparse
import csv
import errno
import io
import json
import os
import re
import signal
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any, NoReturn, get_args

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.text import Text

from bpe_core.audit import audit_tokens
from bpe_core.export import Format, export
from bpe_core.tokenizer import Tokenizer
from pipelines import files
from pipelines.config import Corpus, Project, load_project
from pipelines.known_answers import known_answer_documents
from pipelines.lock import Locked, LockLost, new_run_id
from pipelines.outcome import EXIT_CODES, Outcome, RunRecord
from pipelines.plan import Changes
from pipelines.report import make_report, visible
from pipelines.rows import read_tokenizer
from pipelines.runners import BadInput, PipelineFailed, WorkerLost, check_paths
from pipelines.shards import read_token_counts
from pipelines.sweep import sweep
from pipelines.tokenize_corpus import preview_tokenizing, run_tokenizing
from pipelines.train_tokenizer import train_tokenizer
from pipelines.verify import Check, Library, self_checks, verify_against
from pipelines.verify_shards import verify_shards
from pipelines.word_counts import count_corpus_here, read_word_counts

# Other errors of the operating system, as of a full disk, are not mended by changing the input.
_BAD_INPUT = (
    *(BadInput, ValueError, ModuleNotFoundError),
    *(FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError),
)

_VERIFY_SHARDS = "verify shards"

_COLOURS = ("black on bright_cyan", "black on bright_yellow", "black on bright_green", "black on bright_magenta")


def main(argv: Sequence[str] | None = None) -> None:
    """Runs one command and exits with one of the codes of `Outcome`."""
    given = list(sys.argv[1:] if argv is None else argv)
    if given[:2] == _VERIFY_SHARDS.split():  # Not a command below `verify`, whose own settings may be any word.
        given[:2] = [_VERIFY_SHARDS]
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # A locale may know few characters.
    beam_args: list[str] = []
    if given[:1] in (["train"], ["tokenize"], ["sweep"]) and "--" in given:
        at = given.index("--")
        given, beam_args = given[:at], given[at + 1 :]
    parser = _parser()
    args, overrides = parser.parse_known_args(given)
    if overrides and getattr(args, "config", None) is None:
        parser.error(f"unrecognized arguments: {' '.join(overrides)}")
    try:
        if hasattr(args, "job"):
            outcome = _run_job(args, overrides, beam_args)
            if outcome is not Outcome.DONE:
                sys.exit(outcome)
        else:
            args.overrides = overrides
            args.run(args)
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader has what it wanted, as in `... | head`. At its end Python would flush into the closed pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(Outcome.FAILED)
    except KeyboardInterrupt:
        _end_interrupted()
    except ModuleNotFoundError as error:
        _fail(ModuleNotFoundError(f"{error}; install it first: pip install {error.name}"), Outcome.BAD_INPUT)
    except (PipelineFailed, Locked, LockLost, ValueError, OSError) as error:
        _fail(error, _outcome_of(error))


def _end_interrupted() -> None:
    """Ends this process as the signal would have, at once: Beam's threads wait for workers that it no longer serves."""
    print("tokenmill: interrupted; the same command takes the work up again", file=sys.stderr, flush=True)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    os.kill(os.getpid(), signal.SIGINT)


def _outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, Locked):
        return Outcome.LOCKED
    return Outcome.BAD_INPUT if isinstance(error, _BAD_INPUT) else Outcome.FAILED


def _fail(error: Exception, outcome: Outcome) -> NoReturn:
    is_full = os.strerror(errno.ENOSPC) in str(error)
    remedy = "; free some space and give the same command again" if is_full else ""
    print(f"tokenmill: {error}{remedy}", file=sys.stderr, flush=True)
    if isinstance(error, WorkerLost):
        os._exit(outcome)
    sys.exit(outcome)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tokenmill", description="Learn a BPE tokenizer; write training shards.")
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, purpose in (
        ("train", "job 1: learn a tokenizer from a corpus"),
        ("tokenize", "job 2: write shards"),
        ("sweep", "compare vocabulary sizes by measurement and recommend one"),
        ("report", "write a page about a tokenizer, to look at in a browser"),
    ):
        beam = "" if name == "report" else " [-- Beam's own flags]"
        job = commands.add_parser(
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
        _add_tokenizer(command)
        command.add_argument("text", nargs="*", help="what to read; standard input if left out")
        command.set_defaults(run=run)
    export_ = commands.add_parser("export", help="write a tokenizer in another tool's files, checked by reading them")
    _add_tokenizer(export_)
    export_.add_argument("--format", required=True, choices=get_args(Format))
    export_.add_argument("--output", required=True, metavar="FOLDER")
    export_.set_defaults(run=_export)
    cut = commands.add_parser("cut", help="write a tokenizer with the first merges of another")
    _add_tokenizer(cut)
    cut.add_argument("--merges", required=True, type=int, metavar="NUMBER", help="how many of its merges stay")
    cut.add_argument("--output", required=True, metavar="FOLDER")
    cut.set_defaults(run=_cut)
    _add_verify(commands)
    _add_verify_shards(commands)
    _add_audit(commands)
    return parser


def _add_verify(commands: Any) -> None:
    verify = commands.add_parser(
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
    _add_tokenizer(verify, required=False)
    verify.add_argument("--against", choices=get_args(Library))
    verify.add_argument("--reference", metavar="FILE", help="another tokenizer.json to compare with (hf)")
    _add_corpus(verify)
    verify.set_defaults(run=_verify)


def _add_verify_shards(commands: Any) -> None:
    verify = commands.add_parser(
        _VERIFY_SHARDS,
        help="read training shards again and check them against manifest, corpus and tokenizer",
        usage="tokenmill verify shards --config FILE [--section.setting value ...]\n"
        "       tokenmill verify shards --shards FOLDER [--tokenizer PATH]",
    )
    verify.add_argument("--config", metavar="FILE", help="YAML file of the corpus project")
    verify.add_argument("--shards", metavar="FOLDER", help="a finished output of tokenmill tokenize")
    _add_tokenizer(verify, required=False)
    verify.add_argument("--sample", type=int, default=1000, metavar="N", help="documents to encode again, about")
    verify.add_argument("--seed", type=int, default=0, metavar="N", help="which documents these are")
    verify.add_argument(
        "--sources-may-be-gone", action="store_true", help="a source file that is no longer there is no failure"
    )
    verify.add_argument("--json", metavar="FILE", help="write the checks here as well")
    verify.set_defaults(run=_verify_shards)


def _add_audit(commands: Any) -> None:
    audit = commands.add_parser("audit", help="list the tokens of a vocabulary that are worth a look")
    _add_tokenizer(audit)
    _add_corpus(audit)
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
    audit.set_defaults(run=_audit)


def _add_corpus(command: argparse.ArgumentParser) -> None:
    command.add_argument("--corpus", nargs="+", metavar="FILE", help="files, globs or folders")
    command.add_argument("--format", default="auto", choices=("auto", "parquet", "jsonl", "text"), help="of the files")
    command.add_argument("--text-column", default="text", help="of Parquet and JSON lines")


def _given_corpus(args: argparse.Namespace) -> Corpus:
    return Corpus(files=tuple(args.corpus), format=args.format, text_column=args.text_column, on_invalid_utf8="replace")


def _add_tokenizer(command: argparse.ArgumentParser, required: bool = True) -> None:
    command.add_argument(
        "--tokenizer", required=required, metavar="PATH", help="tokenizer's folder, tokenizer.json or .tiktoken file"
    )
    command.add_argument("--pattern", help="how text is cut, for a tokenizer that does not say")


def _export(args: argparse.Namespace) -> None:
    for path in export(files.read_tokenizer(args.tokenizer, args.pattern), args.output, args.format):
        print(path)


def _cut(args: argparse.Namespace) -> None:
    tokenizer = files.read_tokenizer(args.tokenizer, args.pattern).first_merges(args.merges)
    for name, text in tokenizer.files().items():
        files.write_text(files.join(args.output, name), text)
    print(f"{args.output}: {args.merges:,} merges, {tokenizer.vocab_size:,} ids")


def _verify(args: argparse.Namespace) -> None:
    if args.config is not None:
        if args.tokenizer or args.against or args.corpus:
            raise ValueError("--config names tokenizer and corpus; leave out --tokenizer, --against and --corpus")
        _self_check(args)
        return
    if not (args.tokenizer and args.against and args.corpus):
        raise ValueError("give --config FILE, or all of --tokenizer, --against and --corpus")
    tokenizer = files.read_tokenizer(args.tokenizer, args.pattern)
    found = verify_against(tokenizer, args.against, _given_corpus(args), args.reference)
    print(f"{found.documents:,} documents, {found.ids:,} ids, {found.different:,} documents with other ids")
    if found.first is not None:
        print(found.first.describe(tokenizer))
        raise SystemExit(Outcome.FAILED)


def _self_check(args: argparse.Namespace) -> None:
    project = load_project(args.config, args.overrides, command=f"tokenmill verify --config {args.config}")
    _show_checks(self_checks(project, _words(args.positives), _words(args.negatives)), args.json)


def _verify_shards(args: argparse.Namespace) -> None:
    if (args.config is None) == (args.shards is None):
        raise ValueError("give --config FILE or --shards FOLDER, one of the two")
    if args.sample < 0 or args.seed < 0:
        raise ValueError(f"--sample is {args.sample} and --seed is {args.seed}; neither can be below 0")
    may_be_gone = args.sources_may_be_gone
    if args.config is None:
        tokenizer = files.read_tokenizer(args.tokenizer, args.pattern) if args.tokenizer else None
        folder = args.shards
    else:
        if args.tokenizer:
            raise ValueError("--config names the tokenizer; leave out --tokenizer")
        command = f"tokenmill verify shards --config {args.config}"
        settings = load_project(args.config, args.overrides, command=command).for_tokenizing()
        tokenizer, folder = read_tokenizer(settings), settings.output
        may_be_gone = may_be_gone or settings.on_removed == "keep"
    checks = verify_shards(folder, tokenizer, sample=args.sample, seed=args.seed, sources_may_be_gone=may_be_gone)
    _show_checks(checks, args.json)


def _show_checks(found: Iterable[Check], path: str | None) -> None:
    """Prints checks as they are done and writes them to a JSON file; leaves with 1 if one failed."""
    checks = []
    for check in found:
        checks.append(check)
        print(check.line(), flush=True)
    failed = [check.name for check in checks if check.status == "fail"]
    if path:
        _write_json(path, {"passed": not failed, "checks": [asdict(check) for check in checks]})
    if failed:
        raise SystemExit(Outcome.FAILED)


def _words(given: Sequence[str]) -> list[str]:
    """Returns words; a file among them stands for its lines."""
    read = (files.read_text(one).splitlines() if os.path.isfile(one) else [one] for one in given)
    return [word for words in read for word in words if word.strip()]


def _audit(args: argparse.Namespace) -> None:
    tokenizer = files.read_tokenizer(args.tokenizer, args.pattern)
    if args.corpus and args.counts:
        raise ValueError("give --corpus or --counts, not both")
    word_counts = None
    if args.counts:
        word_counts, _ = read_word_counts(args.counts)
    elif args.corpus:
        word_counts = count_corpus_here(_given_corpus(args), tokenizer.words)
    if args.show < 0:
        raise ValueError(f"--show is {args.show}; give 0 or more")
    id_counts = read_token_counts(args.id_counts) if args.id_counts else None
    found = audit_tokens(tokenizer, word_counts, id_counts, rare_below=args.rare_below)
    print(f"{found.vocab_size:,} ids, {found.num_special:,} of them special tokens")
    for finding in found.findings:
        share = len(finding.entries) / max(1, found.vocab_size)
        print(f"{finding.name:19}{len(finding.entries):9,}  {share:6.1%}  {finding.meaning}")
        for entry in finding.entries[: args.show]:
            print(f"  {entry.describe(tokenizer)}")
    if args.json:
        _write_json(args.json, asdict(found))
    if args.csv:
        with files.create_raw(args.csv) as raw, io.TextIOWrapper(raw, encoding="utf-8", newline="") as text:
            writer = csv.writer(text)
            writer.writerow(["finding", "id", "token", "figure", "related", "note"])
            writer.writerows(found.rows())


def _write_json(path: str, content: Any) -> None:
    with files.create_raw(path) as file:
        file.write((json.dumps(content, ensure_ascii=False, indent=1) + "\n").encode())


def _run_job(args: argparse.Namespace, overrides: list[str], beam_args: list[str]) -> Outcome:
    if args.settings:
        overrides = ["--help"]
    if getattr(args, "from_counts", None):
        overrides = [*overrides, "--train.from_counts", args.from_counts]
    files.use_flags(beam_args)
    record = RunRecord(args.job, new_run_id(), args.config)
    metrics_path = None
    try:
        project = load_project(args.config, overrides, command=f"tokenmill {args.job} --config {args.config}")
        check_paths(_paths_of_workers(project, args.job), beam_args)
        sections = {
            "train": project.train,
            "tokenize": project.shards,
            "sweep": project.sweep,
            "report": project.report,
        }
        record.output = getattr(sections[args.job], "output", "")
        dry_run = args.job == "tokenize" and args.dry_run
        metrics_path = None if dry_run else project.run.metrics
        record.outcome = Outcome.DONE
        if args.job == "train":
            train_tokenizer(project, beam_args)
        elif args.job == "sweep":
            sweep(project, beam_args)
        elif args.job == "report":
            make_report(project, PurePath(args.config).stem)
        elif dry_run:
            _preview(project, record, as_json=args.log_json)
        else:
            _tokenize(project, beam_args, record)
    except SystemExit:
        raise  # The list of settings was asked for.
    except BaseException as error:
        record.outcome, record.error = _outcome_of(error), str(error) or type(error).__name__
        record.close(metrics_path, args.log_json)
        raise
    record.close(metrics_path, args.log_json)
    return record.outcome


def _tokenize(project: Project, beam_args: Sequence[str], record: RunRecord) -> None:
    done = run_tokenizing(project, beam_args, record.run_id)
    record.outcome = done.outcome
    record.counts = done.manifest["counts"]
    record.facts = {"tasks_done": done.tasks_done, "bytes_read": done.num_bytes, "sources": _sizes(done.changes)}


def _preview(project: Project, record: RunRecord, *, as_json: bool) -> None:
    found = preview_tokenizing(project)
    record.outcome = Outcome.NOTHING_TO_DO if found.nothing_to_do else Outcome.DONE
    record.facts = {"dry_run": True, **found.facts}
    if not as_json:
        print("\n".join(found.lines()))


def _sizes(changes: Changes) -> dict[str, int]:
    return {name: len(paths) for name, paths in asdict(changes).items()}


def _paths_of_workers(project: Project, job: str) -> list[str]:
    """Returns the paths that a job's workers read or write."""
    paths = list(project.corpus.files)
    if job == "train":
        _, train = project.for_training()
        paths.append(train.output)
    elif job == "tokenize":
        shards = project.for_tokenizing()
        paths += [path for path in (shards.tokenizer, shards.output) if path]
    return paths


def _corpus(args: argparse.Namespace) -> None:
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


def _encode(args: argparse.Namespace) -> None:
    tokenizer = files.read_tokenizer(args.tokenizer, args.pattern)
    for line in _lines(args):
        print(*tokenizer.encode(line))


def _decode(args: argparse.Namespace) -> None:
    tokenizer = files.read_tokenizer(args.tokenizer, args.pattern)
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
    tokenizer = files.read_tokenizer(args.tokenizer, args.pattern)
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
