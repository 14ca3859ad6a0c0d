"""The commands that run a job: `train`, `tokenize`, `sweep` and `report`."""

import argparse

from pipelines.jobs import run_job
from pipelines.running.outcome import EXIT_CODES, Outcome


def add_train_arguments(train: argparse.ArgumentParser) -> None:
    """Adds the arguments of `train`."""
    _add_job_arguments(train, "train", uses_beam=True)
    train.add_argument("--from-counts", metavar="FOLDER", help="train from word counts; same as --train.from_counts")


def add_tokenize_arguments(tokenize: argparse.ArgumentParser) -> None:
    """Adds the arguments of `tokenize`."""
    _add_job_arguments(tokenize, "tokenize", uses_beam=True)
    tokenize.add_argument("--dry-run", action="store_true", help="print what would be done and write nothing")


def add_sweep_arguments(sweep: argparse.ArgumentParser) -> None:
    """Adds the arguments of `sweep`."""
    _add_job_arguments(sweep, "sweep", uses_beam=True)


def add_report_arguments(report: argparse.ArgumentParser) -> None:
    """Adds the arguments of `report`."""
    _add_job_arguments(report, "report", uses_beam=False)


def _add_job_arguments(job: argparse.ArgumentParser, name: str, *, uses_beam: bool) -> None:
    beam = " [-- Beam's own flags]" if uses_beam else ""
    job.usage = f"tokenmill {name} --config FILE [--section.setting value ...]{beam}"
    job.epilog = f"All settings: tokenmill {name} --config FILE --settings\n\n{EXIT_CODES}"
    job.formatter_class = argparse.RawDescriptionHelpFormatter
    job.add_argument("--config", required=True, help="YAML file of the corpus project")
    job.add_argument("--settings", action="store_true", help="list all settings and exit")
    job.add_argument("--log-json", action="store_true", help="print one line of JSON about the run to standard output")


def run_job_command(args: argparse.Namespace) -> Outcome:
    """Runs a job, with the settings of the file that `--config` names and the overrides."""
    overrides = ["--help"] if args.settings else args.overrides
    if getattr(args, "from_counts", None):
        overrides = [*overrides, "--train.from_counts", args.from_counts]
    dry_run = getattr(args, "dry_run", False)
    return run_job(args.command, args.config, overrides, args.beam_args, dry_run=dry_run, log_json=args.log_json)
