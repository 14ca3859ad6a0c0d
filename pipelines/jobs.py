"""Runs a job as a command: reads settings, checks paths, runs the job, and reports how it ended."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import PurePath
from typing import Any

from pipelines.running.outcome import Outcome, RunRecord, classify_error
from pipelines.running.runners import check_paths
from pipelines.settings.jobs import ReportJob, SweepJob, TokenizingJob, TrainingJob
from pipelines.settings.project_file import load_project
from pipelines.storage import files
from pipelines.storage.lock import new_run_id
from pipelines.storage.manifest import read_json
from pipelines.storage.output_files import MANIFEST, REPORT_DATA, SWEEP_RESULT

_AnyJob = TrainingJob | TokenizingJob | SweepJob | ReportJob
_SETTINGS: dict[str, type[_AnyJob]] = {
    "train": TrainingJob,
    "tokenize": TokenizingJob,
    "sweep": SweepJob,
    "report": ReportJob,
}
"""The class of each job's settings."""


def run_job(
    job: str,
    config: str,
    overrides: Sequence[str] = (),
    beam_args: Sequence[str] = (),
    *,
    dry_run: bool = False,
    log_json: bool = False,
) -> Outcome:
    """Runs `train`, `tokenize`, `sweep` or `report`, writes the metrics of the run, and returns how it ended.

    Args:
        job: the name of the job.
        config: path of the YAML file of the project.
        overrides: settings in the form of the command line, which replace those of the file.
        beam_args: Beam's own flags.
        dry_run: for `tokenize`: print what would be done, and write nothing.
        log_json: print one line of JSON about the run to standard output.

    Raises:
        SystemExit: `overrides` asked for the list of settings, which was printed.
        Exception: any error that the job raises.
    """
    files.use_flags(beam_args)
    record = RunRecord(job, new_run_id(), config)
    metrics_path = None
    try:
        project = load_project(config, overrides, command=f"tokenmill {job} --config {config}")
        settings = _SETTINGS[job].of(project)
        check_paths(settings.worker_paths, beam_args)
        record.output = settings.output
        record.outcome = Outcome.DONE
        if dry_run:
            _preview(settings, record, quiet=log_json)
        else:
            metrics_path = project.run.metrics
            _run(settings, beam_args, record)
    except SystemExit:
        raise
    except BaseException as error:
        record.outcome, record.error = classify_error(error), str(error) or type(error).__name__
        record.close(metrics_path, log_json)
        raise
    record.close(metrics_path, log_json)
    return record.outcome


def _run(settings: _AnyJob, beam_args: Sequence[str], record: RunRecord) -> None:
    # Each job is imported when it runs: its modules import Beam, which takes a second.
    match settings:
        case TrainingJob():
            from pipelines.training.train_tokenizer import run_training, summarize_training

            run_training(settings, beam_args)
            record.counts = _read_counts(settings, MANIFEST, summarize_training)
        case SweepJob():
            from pipelines.sweeping.sweep import run_sweep, summarize_sweep

            run_sweep(settings, beam_args)
            record.counts = _read_counts(settings, SWEEP_RESULT, summarize_sweep)
        case ReportJob():
            from pipelines.report.make_report import make_report, summarize_report

            # A name may hold bytes that are not UTF-8, which a page cannot.
            make_report(settings, PurePath(record.config).stem.encode(errors="replace").decode())
            record.counts = _read_counts(settings, REPORT_DATA, summarize_report)
        case TokenizingJob():
            from pipelines.tokenizing.tokenize_corpus import run_tokenizing

            done = run_tokenizing(settings, beam_args, record.run_id)
            sources = {name: len(paths) for name, paths in asdict(done.changes).items()}
            record.outcome = done.outcome
            record.counts = done.manifest["counts"]
            record.facts = {"tasks_done": done.tasks_done, "bytes_read": done.num_bytes, "sources": sources}


def _read_counts(
    settings: _AnyJob, name: str, summarize: Callable[[dict[str, Any]], Mapping[str, int]]
) -> Mapping[str, int]:
    """Returns the totals of a job's output, from the file in which the job wrote them."""
    content = read_json(files.join(settings.output, name))
    return summarize(content) if content else {}


def _preview(settings: _AnyJob, record: RunRecord, *, quiet: bool) -> None:
    from pipelines.tokenizing.tokenize_corpus import preview_tokenizing

    assert isinstance(settings, TokenizingJob)
    found = preview_tokenizing(settings)
    record.outcome = Outcome.NOTHING_TO_DO if found.nothing_to_do else Outcome.DONE
    record.facts = {"dry_run": True, **found.facts}
    if not quiet:
        print("\n".join(found.lines()))
