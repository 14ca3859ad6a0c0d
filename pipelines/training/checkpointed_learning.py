"""Runs the merge loop of job 1 with checkpoints and a progress bar."""

import time
from dataclasses import dataclass, replace

import pyarrow as pa
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from bpe_core.encoding.model import get_size_to_learn, list_special_tokens, pairs_to_resume_from
from bpe_core.merging.loop import MergeLoop, Progress
from bpe_core.merging.merges import Merges, learn_merges
from bpe_core.tokenizer import Tokenizer
from pipelines.running.console import console
from pipelines.settings.jobs import TrainingJob
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.storage import files
from pipelines.storage.manifest import fingerprint_json, read_json, write_json
from pipelines.storage.output_files import CHECKPOINT


def learn_with_checkpoints(
    job: TrainingJob, start: Tokenizer | None, word_counts: pa.Table, *, identity: str
) -> Merges:
    """Learns merges from word counts, and returns them; keeps a checkpoint in `train.output` meanwhile.

    Continues from the checkpoint of an interrupted run, if there is one.

    Args:
        job: the settings.
        start: a tokenizer whose merges come first; None to learn all merges.
        word_counts: `word`, `count`, in the order of `read_word_counts`.
        identity: a fingerprint of corpus and settings; a checkpoint with another one is ignored.

    Raises:
        ValueError: `start` has more merges than the settings ask for; see also `learn_merges`.
    """
    settings = job.tokenizer
    given_pairs = pairs_to_resume_from(start.model).ravel().tolist() if start else []
    checkpoint = _Checkpoint(files.join(job.output, CHECKPOINT), identity)
    pairs = checkpoint.read()
    if len(pairs) > len(given_pairs):
        console.print(f"resuming from the checkpoint at merge {len(pairs) // 2:,}")
    else:
        pairs = given_pairs
    started = time.perf_counter()
    with _make_bar(shown=job.run.progress) as bar:
        merges = learn_merges(
            word_counts,
            replace(settings.merge_settings, vocab_size=_find_size_to_learn(job, start)),
            special_tokens=list(start.special_tokens) if start else list_special_tokens(settings.special_tokens),
            resume_from=pairs,
            on_progress=_LearningObserver(bar, checkpoint, job.train.checkpoint_seconds),
        )
    seconds = time.perf_counter() - started
    console.print(f"learned {len(merges):,} merges in {seconds:.1f} s{_explain_early_end(merges, settings)}")
    return merges


def _find_size_to_learn(job: TrainingJob, start: Tokenizer | None) -> int | None:
    """Returns the `vocab_size` for the merge loop, which does not know the added tokens of `start`."""
    settings = job.tokenizer
    if start is None:
        return settings.vocab_size
    if settings.vocab_size is not None:
        return get_size_to_learn(start.model, settings.vocab_size)
    if settings.num_merges is not None and settings.num_merges < len(start.merges):
        raise ValueError(
            f"tokenizer.num_merges is {settings.num_merges}, but {job.train.start_from} already has "
            f"{len(start.merges)} merges, which stay; give the number of all merges"
        )
    return None


def _explain_early_end(merges: Merges, settings: TokenizerSettings) -> str:
    """Returns why fewer merges were learned than asked for, to follow their number; empty if they were not fewer."""
    if merges.ended_by == "size":
        return ""
    asked, what = (settings.vocab_size, "entries") if settings.num_merges is None else (settings.num_merges, "merges")
    reason = "no pairs are left" if merges.ended_by == "no-pairs" else f"no pair occurs {settings.min_frequency} times"
    return f"; {reason}, so there are fewer than the {asked:,} {what} asked for"


@dataclass(frozen=True)
class _Checkpoint:
    """The file that keeps the merges learned so far, as pairs of symbols in one flat list."""

    path: str
    identity: str

    def read(self) -> list[int]:
        """Returns the pairs; none if the file is missing, damaged, or from another corpus or other settings."""
        kept = read_json(self.path) or {}
        pairs: list[int] = kept.get("pairs", [])
        return pairs if kept.get("fingerprint") == fingerprint_json([self.identity, pairs]) else []

    def write(self, pairs: list[int]) -> None:
        """Replaces the pairs in the file."""
        write_json(self.path, {"fingerprint": fingerprint_json([self.identity, pairs]), "pairs": pairs})


def _make_bar(*, shown: bool) -> ProgressBar:
    return ProgressBar(
        TextColumn("merging"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TextColumn("{task.fields[pair]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not shown,
    )


class _LearningObserver:
    """Called with the progress of the merge loop: updates the bar, and writes a checkpoint from time to time."""

    def __init__(self, bar: ProgressBar, checkpoint: _Checkpoint, checkpoint_seconds: float) -> None:
        self._bar = bar
        self._line = bar.add_task("", speed="", pair="")
        self._checkpoint = checkpoint
        self._checkpoint_seconds = checkpoint_seconds
        self._started = self._written = time.perf_counter()

    def __call__(self, progress: Progress, loop: MergeLoop) -> None:
        if progress.last_pair is None:
            _print_size(loop)
            return
        now = time.perf_counter()
        speed = f"{progress.num_merges / max(1e-6, now - self._started):,.0f}/s"
        pair = escape(f"{progress.last_pair[0]!r} + {progress.last_pair[1]!r} × {progress.last_count:,}")
        self._bar.update(self._line, completed=progress.num_merges, total=progress.max_merges, speed=speed, pair=pair)
        if now - self._written > self._checkpoint_seconds:
            self._checkpoint.write(loop.copy_pairs().ravel().tolist())
            self._written = now


def _print_size(loop: MergeLoop) -> None:
    size = loop.size
    console.print(
        f"merging {size.num_words:,} different words with {size.num_symbols:,} symbols and {size.num_pairs:,} "
        f"different pairs; memory: {size.num_bytes / 1e6:,.1f} MB at the start, of which the lists of "
        f"places can grow to {size.max_list_bytes / 1e6:,.1f} MB, and about 110 bytes for each new pair"
    )
