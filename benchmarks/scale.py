"""Measures how time, memory, shuffled bytes and distinct words grow with the corpus, for both jobs.

The larger corpora are 2, 4, 8 … copies of the files. Time, memory and bytes grow as for other text of that size, but
the number of distinct words does not; it is counted separately, on parts of the corpus. Prints tables and writes
`benchmarks/results/scale.json`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PAGE = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(root: int) -> int:
    """Returns the resident memory of a process and its descendants, in bytes; shared pages count once per process."""
    parents, sizes = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            pid = int(folder.name)
            parents[pid] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            sizes[pid] = int((folder / "statm").read_text().split()[1]) * PAGE
        except OSError:  # The process has ended since the listing.
            continue
    total = 0
    for pid, size in sizes.items():
        ancestor = pid
        while ancestor not in (root, 0, 1):
            ancestor = parents.get(ancestor, 0)
        total += size if ancestor == root else 0
    return total


def run(command: list[str]) -> tuple[float, int]:
    """Runs a command; returns its seconds, and the peak memory of it and its workers together, in bytes."""
    started = time.perf_counter()
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    most = 0
    ended = threading.Event()

    def watch() -> None:
        nonlocal most
        while not ended.wait(0.1):
            most = max(most, resident_bytes(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    code = process.wait()
    seconds = time.perf_counter() - started
    ended.set()
    watcher.join()
    if code:
        raise SystemExit(f"{' '.join(command)} ended with {code}")
    return seconds, most


def count_word_growth(files: list[str], pattern: str) -> list[dict[str, int]]:
    """Returns the number of distinct words in an eighth, a quarter, a half and all of the documents, evenly spread."""
    from bpe_core import PreTokenizer
    from bpe_core.pretokenize.word_counting import WordCounter
    from pipelines.reading.documents import read_corpus
    from pipelines.settings.corpus import Corpus

    growth = []
    for every in (8, 4, 2, 1):
        counter, num_bytes = WordCounter(PreTokenizer(pattern)), 0
        for batch in read_corpus(Corpus(files=tuple(files), on_invalid_utf8="replace")):
            texts = batch.texts.take(list(range(0, len(batch.texts), every)))
            counter.add(texts)
            num_bytes += sum(len(text.encode()) for text in texts.to_pylist())
        counts = counter.take()["count"].to_numpy()
        growth.append(
            {"bytes": num_bytes, "distinct_words": counts.size}
            | {f"occurring_{least}_times": int((counts >= least).sum()) for least in (2, 5, 10)}
        )
    return growth


def measure_shuffle(files: list[str], pattern: str, copies: int) -> dict[str, int]:
    """Returns how much job 1 shuffles: the rows and Arrow bytes of the word counts that all tasks emit."""
    from bpe_core import PreTokenizer
    from bpe_core.pretokenize.word_counting import WordCounter
    from pipelines.reading.documents import read_task
    from pipelines.reading.source_files import find_files
    from pipelines.reading.tasks import plan_tasks
    from pipelines.settings.corpus import Corpus

    corpus = Corpus(files=tuple(files), on_invalid_utf8="replace")
    tasks = plan_tasks(find_files(corpus))
    rows = num_bytes = 0
    for task in tasks:
        counter = WordCounter(PreTokenizer(pattern))
        for batch in read_task(task, corpus, Counter()):
            counter.add(batch.texts)
        counts = counter.take()
        rows += counts.num_rows
        num_bytes += counts.nbytes
    return {"copies": copies, "tasks": len(tasks), "rows": rows, "bytes": num_bytes}


def measure(corpus: list[Path], copies: int, workers: int, vocab_size: int) -> dict[str, Any]:
    """Runs both jobs on `copies` copies of the corpus and returns their times, memory and outputs."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "corpus").mkdir()
        for copy in range(copies):
            for number, file in enumerate(corpus):
                shutil.copyfile(file, folder / "corpus" / f"{copy:03d}-{number:03d}{file.suffix}")
        project = {
            "corpus": {"files": str(folder / "corpus"), "on_invalid_utf8": "replace"},
            "tokenizer": {
                "kind": "byte",
                "vocab_size": vocab_size,
                "special_tokens": {"eos": "<|endoftext|>", "pad": "<|padding|>"},
            },
            "train": {"output": str(folder / "tokenizer")},
            "shards": {"output": str(folder / "shards")},
            "run": {"workers": workers, "progress": False},
        }
        config = folder / "project.yaml"
        config.write_text(json.dumps(project))  # JSON is YAML.
        files = [str(folder / "corpus")]
        measured: dict[str, Any] = {"copies": copies, "shuffle": measure_shuffle(files, "gpt2", copies)}
        for job in ("train", "tokenize"):
            seconds, memory = run([sys.executable, "-m", "pipelines.cli", job, "--config", str(config)])
            measured[job] = {"seconds": round(seconds, 2), "most_bytes": memory}
        shards = list((folder / "shards").glob("bucket=*/*.parquet"))
        measured["shards"] = {"files": len(shards), "bytes": sum(file.stat().st_size for file in shards)}
        return measured


def main() -> None:
    """Measures all numbers of copies, prints the tables and writes the result file."""
    from rich.console import Console
    from rich.table import Table

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--corpus", nargs="+", required=True, type=Path, help="files of the corpus")
    parser.add_argument("--copies", nargs="+", type=int, default=[1, 2, 4, 8])
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--vocab-size", type=int, default=32_000)
    arguments = parser.parse_args()
    growth = count_word_growth([str(file) for file in arguments.corpus], "gpt2")
    runs = []
    for copies in arguments.copies:
        runs.append(measure(arguments.corpus, copies, arguments.workers, arguments.vocab_size))
        print(json.dumps(runs[-1]), file=sys.stderr, flush=True)
    console = Console(width=110)
    table = Table(title=f"{arguments.workers} workers", title_justify="left")
    for column in ("copies", "train s", "peak MB", "shuffled MB", "tasks", "tokenize s", "peak MB", "shards"):
        table.add_column(column, justify="right")
    for one in runs:
        table.add_row(
            str(one["copies"]),
            f"{one['train']['seconds']:.1f}",
            f"{one['train']['most_bytes'] / 1e6:,.0f}",
            f"{one['shuffle']['bytes'] / 1e6:,.1f}",
            str(one["shuffle"]["tasks"]),
            f"{one['tokenize']['seconds']:.1f}",
            f"{one['tokenize']['most_bytes'] / 1e6:,.0f}",
            str(one["shards"]["files"]),
        )
    console.print(table)
    words = Table(title="distinct words", title_justify="left")
    for column in growth[0]:
        words.add_column(column.replace("_", " "), justify="right")
    for row in growth:
        words.add_row(*(f"{value:,}" for value in row.values()))
    console.print(words)
    RESULTS.mkdir(exist_ok=True)
    facts = {"workers": arguments.workers, "vocab_size": arguments.vocab_size, "runs": runs, "word_growth": growth}
    (RESULTS / "scale.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
