"""Makes the report of a tokenizer: one HTML file that needs no network, and the same data as JSON and CSV.

This module gathers what the jobs wrote; `figures` turns it into data and charts, and `page` into HTML. Needs jinja2 and
matplotlib, which are imported when a report is made.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.compute as pc

from bpe_core.encoding.model import get_symbol_pairs
from bpe_core.merging.merges import learn_merges
from bpe_core.tokenizer import Tokenizer
from pipelines.reading.documents import read_task
from pipelines.reading.source_files import find_files
from pipelines.reading.tasks import plan_tasks
from pipelines.report.figures import Figure, FigureInputs, TrainingData, make_figures
from pipelines.report.page import render_page
from pipelines.rows.segments import read_job_tokenizer
from pipelines.running.console import console
from pipelines.running.remarks import show_remarks
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import ReportJob
from pipelines.settings.report import Report
from pipelines.storage import files
from pipelines.storage.manifest import read_json
from pipelines.storage.output_files import MANIFEST, REPORT_DATA, REPORT_PAGE, TEMPORARY_FOLDER, TOKEN_COUNTS
from pipelines.storage.tokenizer_files import read_tokenizer
from pipelines.tokenizing.token_counts import read_token_counts
from pipelines.training.word_counts import read_word_counts

_NUM_SAMPLES = 6
_SAMPLE_CHARACTERS = 400
_SAMPLE_LINES = 10
_NUM_CANDIDATES = 20  # documents that a sample is chosen from


def make_report(job: ReportJob, name: str) -> str:
    """Writes the report of a tokenizer into the folder `report.output`, and returns the path of the HTML file.

    Args:
        job: The settings.
        name: What the page calls the tokenizer.

    Raises:
        ModuleNotFoundError: jinja2 or matplotlib is not installed.
    """
    _check_installed()
    settings = job.report
    tokenizer = _read_report_tokenizer(job)
    inputs = _gather_inputs(tokenizer, job)
    figures = make_figures(tokenizer, inputs)
    facts = _list_facts(tokenizer, name)
    page = render_page(tokenizer, facts, figures, _choose_samples(job.corpus, settings), inputs.merge_counts)
    _write_tables(settings.output, facts, figures)
    path = files.join(settings.output, REPORT_PAGE)
    files.write_text(path, page)
    files.delete(files.join(settings.output, TEMPORARY_FOLDER))
    console.print(f"{path}: {len(page.encode()) / 1e6:.1f} MB")
    for figure in figures:
        if figure.absent:
            console.print(f"  left out: {figure.title}. {figure.absent}")
    return path


def _read_report_tokenizer(job: ReportJob) -> Tokenizer:
    """Returns the tokenizer of the report, read with the settings of `shards` if that section names the same one."""
    if job.shards and job.shards.tokenizer == job.report.tokenizer:
        return read_job_tokenizer(job.shards)
    return read_tokenizer(job.report.tokenizer or "")


def summarize_report(content: Mapping[str, Any]) -> dict[str, int]:
    """Returns how many figures a report has and how many it lacks, by name; `content` is that of `report.json`."""
    absent = sum(bool(figure.get("absent")) for figure in content["figures"].values())
    return {"figures": len(content["figures"]) - absent, "figures_left_out": absent}


def _check_installed() -> None:
    try:
        import jinja2  # noqa: F401
        import matplotlib  # noqa: F401
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the report needs {error.name}, which is in the extra tokenmill[report]", name=error.name
        ) from error


def _write_tables(output: str, facts: dict[str, Any], figures: Sequence[Figure]) -> None:
    """Writes the JSON file, and a CSV file per figure; deletes the older CSV file of a figure that is left out."""
    for figure in figures:
        path = files.join(output, f"{figure.name}.csv")
        if figure.absent:
            files.delete(path)
        else:
            files.write_text(path, figure.to_csv())
    content = {"tokenizer": facts, "figures": {figure.name: figure.to_json() for figure in figures}}
    files.write_text(files.join(output, REPORT_DATA), json.dumps(content, ensure_ascii=False) + "\n")


def _list_facts(tokenizer: Tokenizer, name: str) -> dict[str, Any]:
    """Returns what the head of the page says about a tokenizer."""
    pre_tokenizer = tokenizer.pre_tokenizer
    return {
        "name": name,
        "kind": tokenizer.alphabet.kind,
        "pattern": pre_tokenizer.pattern if isinstance(pre_tokenizer.pattern, str) else list(pre_tokenizer.pattern),
        "unicode": pre_tokenizer.unicode,
        "lowercase": pre_tokenizer.lowercase,
        "vocab_size": tokenizer.vocab_size,
        "base_symbols": len(tokenizer.alphabet.symbols),
        "merges": len(tokenizer.merges),
        "special_tokens": tokenizer.special_tokens,
        "fingerprint": tokenizer.fingerprint,
    }


def _gather_inputs(tokenizer: Tokenizer, job: ReportJob) -> FigureInputs:
    """Returns what the figures are made from, read from the files of the jobs."""
    settings = job.report
    return FigureInputs(
        merge_counts=_find_merge_counts(tokenizer, job),
        words=settings.words,
        sweep=_read_content(settings.sweep),
        audit=_read_content(settings.audit),
        training_data=_read_training_data(tokenizer, job.shards.output if job.shards else None),
    )


def _read_content(path: str | None) -> dict[str, Any]:
    """Returns the content of a JSON file, or an empty dict if no path is given or the file does not exist."""
    return (read_json(path) if path else None) or {}


def _find_merge_counts(tokenizer: Tokenizer, job: ReportJob) -> list[int] | None:
    """Returns how often each pair occurred when it was merged, one count per merge, or None if that is unknown.

    The counts are those in job 1's manifest; without it, they are counted again from job 1's word counts.
    """
    folder = job.report.tokenizer or ""
    manifest = (None if folder.endswith(".json") else read_json(files.join(folder, MANIFEST))) or {}
    counts = manifest.get("merges", {}).get("counts", [])
    if manifest and len(counts) == len(tokenizer.merges):
        return list(counts)
    counts_folder = job.train and job.train.counts_folder
    if not counts_folder or not files.exists(counts_folder) or tokenizer.alphabet.kind != "byte":
        return None
    counted_with = (read_json(files.join(counts_folder, MANIFEST)) or {}).get("words", {})
    if counted_with.get("pattern") != list(tokenizer.pre_tokenizer.expressions):
        return None
    try:
        pairs = get_symbol_pairs(tokenizer.model)
    except ValueError:  # Merges in an order that learning could not give, such as Llama 3's.
        return None
    again = learn_merges(read_word_counts(counts_folder)[0], num_merges=len(pairs), resume_from=pairs)
    return [int(count) for count in again.counts]


def _read_training_data(tokenizer: Tokenizer, folder: str | None) -> TrainingData:
    """Returns what job 2 wrote into its output folder about the training data."""
    manifest = _read_content(folder and files.join(folder, MANIFEST))
    if folder is None or not manifest.get("buckets"):
        return TrainingData("There is no training data yet; tokenmill tokenize writes it.", {}, None, None)
    if manifest["tokenizer"] != tokenizer.fingerprint:
        return TrainingData("The training data was written with another tokenizer.", {}, None, None)
    counts = read_token_counts(folder) if files.exists(files.join(folder, TOKEN_COUNTS)) else None
    return TrainingData("", manifest["buckets"], manifest.get("bucket_choice"), counts)


def _choose_samples(corpus: Corpus, settings: Report) -> list[tuple[str, str]]:
    """Returns title and text of each sample: those in the settings, or starts of documents across the corpus."""
    if settings.samples:
        return [(f"Text {number + 1}", text) for number, text in enumerate(settings.samples)]
    tasks = plan_tasks(find_files(corpus, with_fingerprints=False))
    found = []
    counts: Counter[str] = Counter()
    for number in range(_NUM_SAMPLES):
        batch = next(read_task(tasks[number * len(tasks) // _NUM_SAMPLES], corpus, counts), None) if tasks else None
        if batch is None or len(batch.texts) == 0:
            continue
        # The longest of a few documents, as some documents may be a title or a line only.
        first = number * len(batch.texts) // _NUM_SAMPLES
        sizes = pc.utf8_length(batch.texts.slice(first, _NUM_CANDIDATES)).to_numpy()
        row = first + int(sizes.argmax())
        name = batch.path.replace("\\", "/").rpartition("/")[2]
        found.append((f"{name}, row {batch.rows[row]:,}", _take_start(batch.texts[row].as_py())))
    if len(found) < _NUM_SAMPLES:
        console.print(f"  {len(found)} of {_NUM_SAMPLES} places in the corpus have a document to show as a sample")
    show_remarks(counts)
    return found


def _take_start(text: str) -> str:
    """Returns the first lines of a text, without blank lines before them."""
    stripped = text.strip()
    lines = [f"{line}\n" for line in stripped.split("\n")[:_SAMPLE_LINES]]
    return "".join(lines)[: min(len(stripped), _SAMPLE_CHARACTERS)]
