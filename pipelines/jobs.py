"""The jobs as commands: settings read, paths checked, the job run, and what became of it said and written down."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import PurePath

from pipelines.errors import OutputLockedError
from pipelines.report.make_report import make_report
from pipelines.running.outcome import Outcome, RunRecord
from pipelines.running.runners import check_paths
from pipelines.settings.jobs import ReportJob, SweepJob, TokenizingJob, TrainingJob
from pipelines.settings.project_file import load_project
from pipelines.storage import files
from pipelines.storage.lock import new_run_id
from pipelines.tokenizing.tokenize_corpus import preview_tokenizing, run_tokenizing
from pipelines.training.sweep import run_sweep
from pipelines.training.train_tokenizer import run_training

# Other errors of the operating system, as of a full disk, are not mended by changing the input.
_BAD_INPUT = (
    *(ValueError, ModuleNotFoundError),
    *(FileNotFoundError, FileExistsError, IsADirectoryError, NotADirectoryError, PermissionError),
)

_AnyJob = TrainingJob | TokenizingJob | SweepJob | ReportJob
_SETTINGS: dict[str, type[_AnyJob]] = {
    "train": TrainingJob,
    "tokenize": TokenizingJob,
    "sweep": SweepJob,
    "report": ReportJob,
}
"""The class of each job's settings."""


def outcome_of(error: BaseException) -> Outcome:
    """Returns how a run ended that such an error ended."""
    if isinstance(error, OutputLockedError):
        return Outcome.LOCKED
    return Outcome.BAD_INPUT if isinstance(error, _BAD_INPUT) else Outcome.FAILED


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
        overrides: settings that stand over those of the file `config`, as on the command line.
        dry_run: of `tokenize`: what would be done is printed, and nothing is written.
        log_json: a line of JSON about the run is printed to standard output.

    Raises:
        SystemExit: the list of settings was asked for, and is printed.
        Exception: whatever the job raises.
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
        record.outcome, record.error = outcome_of(error), str(error) or type(error).__name__
        record.close(metrics_path, log_json)
        raise
    record.close(metrics_path, log_json)
    return record.outcome


def _run(settings: _AnyJob, beam_args: Sequence[str], record: RunRecord) -> None:
    match settings:
        case TrainingJob():
            run_training(settings, beam_args)
        case SweepJob():
            run_sweep(settings, beam_args)
        case ReportJob():
            make_report(settings, PurePath(record.config).stem)
        case TokenizingJob():
            done = run_tokenizing(settings, beam_args, record.run_id)
            sources = {name: len(paths) for name, paths in asdict(done.changes).items()}
            record.outcome = done.outcome
            record.counts = done.manifest["counts"]
            record.facts = {"tasks_done": done.tasks_done, "bytes_read": done.num_bytes, "sources": sources}


def _preview(settings: _AnyJob, record: RunRecord, *, quiet: bool) -> None:
    assert isinstance(settings, TokenizingJob)
    found = preview_tokenizing(settings)
    record.outcome = Outcome.NOTHING_TO_DO if found.nothing_to_do else Outcome.DONE
    record.facts = {"dry_run": True, **found.facts}
    if not quiet:
        print("\n".join(found.lines()))
