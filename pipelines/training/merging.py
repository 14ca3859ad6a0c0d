"""Job 1's merge loop: taken up at its last checkpoint, watched while it runs, and what came of it said."""

import time
from dataclasses import dataclass, replace

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from bpe_core.encoding.model import get_size_to_learn, list_special_tokens, pairs_to_resume_from
from bpe_core.merging.loop import MergeLoop, Progress
from bpe_core.merging.merges import Merges, learn_merges
from bpe_core.tokenizer import Tokenizer
from pipelines.settings.jobs import TrainingJob
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage import files
from pipelines.storage.manifest import fingerprint, read_json, write_json
from pipelines.storage.output_files import CHECKPOINT


def learn(
    job: TrainingJob, start: Tokenizer | None, word_counts: pa.Table, *, identity: str, console: Console
) -> Merges:
    """Returns the merges of word counts; keeps a checkpoint of them in `train.output` while it learns.

    Args:
        start: a tokenizer to go on from.
        word_counts: `word`, `count`, as `read_word_counts` orders them.
        identity: of corpus and settings; a checkpoint of others is not used.

    Raises:
        ValueError: `start` has more merges than are asked for; as `learn_merges`.
    """
    settings, train = job.tokenizer, job.train
    first = pairs_to_resume_from(start.model).ravel().tolist() if start else []
    vocab_size = _vocab_size(settings, train, start)
    checkpoint = _Checkpoint(files.join(train.output, CHECKPOINT), identity)
    done = checkpoint.read()
    if len(done) > len(first):
        console.print(f"taking up the merges at number {len(done) // 2:,}")
    else:
        done = first
    started = time.perf_counter()
    with _bar(console, shown=job.run.progress) as bar:
        merges = learn_merges(
            word_counts,
            replace(settings.merge_settings, vocab_size=vocab_size),
            special_tokens=list(start.special_tokens) if start else list_special_tokens(settings.special_tokens),
            resume_from=done,
            on_progress=_Watch(bar, console, checkpoint, train.checkpoint_seconds),
        )
    seconds = time.perf_counter() - started
    console.print(f"{len(merges):,} merges, {_ended(merges, settings)}, {seconds:.1f} s")
    return merges


def _vocab_size(settings: TokenizerSettings, train: Train, start: Tokenizer | None) -> int | None:
    """Returns `vocab_size` as the merge loop counts it, which knows nothing of what else `start` holds."""
    if start is None:
        return settings.vocab_size
    if settings.vocab_size is not None:
        return get_size_to_learn(start.model, settings.vocab_size)
    if settings.num_merges is not None and settings.num_merges < len(start.merges):
        raise ValueError(
            f"tokenizer.num_merges is {settings.num_merges}, and {train.start_from} has {len(start.merges)} already, "
            "which stay; give the number of all merges"
        )
    return None


def _ended(merges: Merges, settings: TokenizerSettings) -> str:
    if merges.ended_by == "size":
        return "as asked"
    asked, what = (settings.vocab_size, "entries") if settings.num_merges is None else (settings.num_merges, "merges")
    reason = "no pairs are left" if merges.ended_by == "no-pairs" else f"no pair occurs {settings.min_frequency} times"
    return f"{reason}, short of the {asked:,} {what} asked for"


@dataclass(frozen=True)
class _Checkpoint:
    """The file of the merges so far: their pairs of symbols, one after the other."""

    path: str
    identity: str

    def read(self) -> list[int]:
        """Returns the pairs that are kept; none where they are of another corpus or settings, or damaged."""
        kept = read_json(self.path) or {}
        pairs: list[int] = kept.get("pairs", [])
        return pairs if kept.get("fingerprint") == fingerprint([self.identity, pairs]) else []

    def write(self, pairs: list[int]) -> None:
        """Keeps pairs in place of those before."""
        write_json(self.path, {"fingerprint": fingerprint([self.identity, pairs]), "pairs": pairs})


def _bar(console: Console, *, shown: bool) -> Bar:
    return Bar(
        TextColumn("merging"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TextColumn("{task.fields[pair]}"),
        TimeRemainingColumn(),
        console=console,
        disable=not shown,
    )


class _Watch:
    """Is told of the progress of the merge loop: shows it, and writes a checkpoint every so often."""

    def __init__(self, bar: Bar, console: Console, checkpoint: _Checkpoint, checkpoint_seconds: float) -> None:
        self._bar = bar
        self._line = bar.add_task("", speed="", pair="")
        self._console = console
        self._checkpoint = checkpoint
        self._checkpoint_seconds = checkpoint_seconds
        self._started = self._written = time.perf_counter()

    def __call__(self, progress: Progress, loop: MergeLoop) -> None:
        if progress.last_pair is None:
            self._say_size(loop)
            return
        now = time.perf_counter()
        speed = f"{progress.num_merges / max(1e-6, now - self._started):,.0f}/s"
        pair = escape(f"{progress.last_pair[0]!r} + {progress.last_pair[1]!r} × {progress.last_count:,}")
        self._bar.update(self._line, completed=progress.num_merges, total=progress.max_merges, speed=speed, pair=pair)
        if now - self._written > self._checkpoint_seconds:
            self._checkpoint.write(loop.copy_pairs().ravel().tolist())
            self._written = now

    def _say_size(self, loop: MergeLoop) -> None:
        size = loop.size
        self._console.print(
            f"merging {size['words']:,} distinct words of {size['symbols']:,} symbols, {size['pairs']:,} different "
            f"pairs; the loop starts with {size['bytes'] / 1e6:,.1f} MB in its arrays, of which the lists of "
            f"places grow to {size['max_list_bytes'] / 1e6:,.1f} MB at most, and needs some 110 bytes for each "
            f"new pair"
        )
