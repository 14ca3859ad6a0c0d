"""Times counting, encoding, training and Parquet to shards in tokenmill and other libraries, on the same text.

Each contender first runs once; the results of contenders that compute the same thing are compared. Then all contenders
are timed in turn, round after round. Prints a table and writes it with all times to `benchmarks/results/`.
"""

import argparse
import gc
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
SECTIONS = ("count", "encode", "train", "shards")
SLOW_SECONDS = 20  # A contender that takes longer is timed only once.


@dataclass
class Contender:
    """One thing to time.

    Attributes:
        name: as printed in the table.
        run: the function to time; it gets what `prepare` returned.
        prepare: runs before each timing and is not timed.
        compare: turns the result of `run` into what must be equal for all contenders of a section; None: not compared.
        seconds: the measured times.
        remark: whether the result was equal, or why the contender failed.
    """

    name: str
    run: Callable[[Any], Any]
    prepare: Callable[[], Any] = lambda: None
    compare: Callable[[Any], Any] | None = None
    seconds: list[float] = field(default_factory=list)
    remark: str = ""


def measure(contenders: list[Contender], rounds: int) -> None:
    """Runs each contender once and compares the results, then times all contenders in turn, `rounds` times."""
    expected = None
    for contender in contenders:
        try:
            started = time.perf_counter()
            result = contender.run(contender.prepare())
            first = time.perf_counter() - started
        except Exception as error:  # A library that fails here is reported; the others are still timed.
            contender.remark = f"failed: {type(error).__name__}: {error}"[:120]
            continue
        if contender.compare is not None:
            compared = contender.compare(result)
            expected = compared if expected is None else expected
            contender.remark = "same result" if compared == expected else "OTHER RESULT"
        if first > SLOW_SECONDS and contender is not contenders[0]:  # Our first run may include compiling.
            contender.seconds.append(first)
        del result
        print(f"  {contender.name}: first run {first:.2f} s {contender.remark}", file=sys.stderr, flush=True)
    for _ in range(rounds):
        for contender in contenders:
            if contender.remark.startswith("failed") or (contender.seconds[:1] > [SLOW_SECONDS]):
                if contender is not contenders[0]:
                    continue
            argument = contender.prepare()
            gc.collect()
            started = time.perf_counter()
            contender.run(argument)
            contender.seconds.append(time.perf_counter() - started)


def documents(corpus: list[str]) -> list[str]:
    """Returns the texts of the files in `corpus`; if it is empty, of Python's standard library."""
    from pipelines.reading.documents import read_task
    from pipelines.reading.source_files import find_files
    from pipelines.reading.tasks import plan_tasks
    from pipelines.settings.corpus import Corpus

    settings = (
        Corpus(files=tuple(corpus), on_invalid_utf8="replace")
        if corpus
        else Corpus(sample="python-stdlib", on_invalid_utf8="replace")
    )
    tasks = plan_tasks(find_files(settings), 1 << 40)
    return [
        text for task in tasks for batch in read_task(task, settings, Counter()) for text in batch.texts.to_pylist()
    ]


def make_batches(texts: list[str]) -> list[Any]:
    """Returns the texts as Arrow arrays of about 1 MB each."""
    import pyarrow as pa

    chosen, size, gathered = [], 0, []
    for text in texts:
        chosen.append(text)
        size += len(text)
        if size > 1 << 20:
            gathered.append(pa.array(chosen, pa.large_string()))
            chosen, size = [], 0
    return [*gathered, pa.array(chosen, pa.large_string())]


def count_section(texts: list[str]) -> list[Contender]:
    """Returns the contenders that count words."""
    import regex

    from bpe_core import PATTERNS, PreTokenizer
    from bpe_core.pretokenize.word_counting import WordCounter

    arrays = make_batches(texts)
    pattern = regex.compile(PATTERNS["gpt2"][0])

    def ours(_: Any) -> Any:
        counter = WordCounter(PreTokenizer("gpt2"))
        for array in arrays:
            counter.add(array)
        return counter

    def theirs(_: Any) -> Any:
        counts: Counter[str] = Counter()
        for text in texts:
            counts.update(pattern.findall(text))
        return counts

    return [
        Contender("tokenmill", ours, compare=lambda c: (len(c), c.num_words)),
        Contender("regex + Counter", theirs, compare=lambda c: (len(c), sum(c.values()))),
    ]


def train(texts: list[str], vocab_size: int) -> Any:
    """Returns a tokenizer with Hugging Face's ids, learned from the texts."""
    from bpe_core import Tokenizer

    return Tokenizer.train(texts, vocab_size=vocab_size, vocab_order="gpt2")


def encode_section(texts: list[str], threads: int, vocab_size: int) -> list[Contender]:
    """Returns the contenders that encode; warm ones have encoded the same text before."""
    import gigatoken
    import tiktoken
    import tokenizers

    from bpe_core import PATTERNS, Tokenizer

    model = train(texts, vocab_size)
    content = model.files()["tokenizer.json"]
    arrays = make_batches(texts)
    ranks = {token: id_ for id_, token in enumerate(model.token_bytes())}
    encoding = tiktoken.Encoding("bench", pat_str=PATTERNS["gpt2"][0], mergeable_ranks=ranks, special_tokens={})
    hugging_face = tokenizers.Tokenizer.from_str(content)
    giga = gigatoken.Tokenizer.from_json(content.encode())

    def ours(tokenizer: Any) -> Any:
        return [tokenizer.encode_batch(array) for array in arrays]

    def all_ids(result: Any) -> int:
        return hash(tuple(id_ for chunk in result for id_ in chunk.values.to_pylist()))

    def flat(result: Any) -> int:
        return hash(tuple(id_ for row in result for id_ in row))

    parallel = threads > 1
    return [
        Contender("tokenmill, warm", ours, lambda: model, all_ids),
        Contender("tokenmill, cold", ours, lambda: Tokenizer.from_json(content), all_ids),
        Contender("tiktoken", lambda _: encoding.encode_ordinary_batch(texts, num_threads=threads), compare=flat),
        Contender("tokenizers", lambda _: [e.ids for e in hugging_face.encode_batch_fast(texts)], compare=flat),
        Contender(
            "gigatoken, warm",
            lambda _: giga.encode_batch(texts, parallel=parallel),
            compare=lambda result: flat(result.to_list()),
        ),
        Contender(
            "gigatoken, cold",
            lambda fresh: fresh.encode_batch(texts, parallel=parallel),
            lambda: gigatoken.Tokenizer.from_json(content.encode()),
            lambda result: flat(result.to_list()),
        ),
    ]


def train_section(texts: list[str], threads: int, vocab_size: int, folder: Path) -> list[Contender]:
    """Returns the contenders that learn a tokenizer from texts."""
    import bpeasy
    import gigabpe
    import rustbpe
    import sentencepiece
    import tokenizers

    from bpe_core import PATTERNS, count_words, learn_merges
    from bpe_core.merging.alphabet import BYTE_TO_CHARACTER

    lines = folder / "lines.txt"
    lines.write_text("\n".join(texts), encoding="utf-8", newline="")

    def ours(_: Any) -> Any:
        return learn_merges(count_words(texts), vocab_size=vocab_size)

    def theirs(_: Any) -> Any:
        model = tokenizers.Tokenizer(tokenizers.models.BPE())
        model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
        trainer = tokenizers.trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False, initial_alphabet=alphabet)
        model.train_from_iterator(texts, trainer)
        return json.loads(model.to_str())["model"]["merges"]

    def spelled(merges: Any) -> Any:
        return [["".join(BYTE_TO_CHARACTER[byte] for byte in side) for side in pair] for pair in merges]

    def rust(_: Any) -> Any:
        rustbpe.Tokenizer().train_from_iterator(iter(texts), vocab_size, pattern=PATTERNS["gpt2"][0])

    def piece(_: Any) -> Any:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(texts),
            model_prefix=str(folder / "sp"),
            vocab_size=vocab_size,
            model_type="bpe",
            num_threads=threads,
            byte_fallback=True,
            max_sentence_length=1 << 30,
            minloglevel=2,
        )

    return [
        Contender("tokenmill", ours, compare=spelled),
        Contender("tokenizers", theirs, compare=lambda merges: merges),
        Contender("rustbpe", rust),
        Contender("bpeasy", lambda _: bpeasy.train_bpe(iter(texts), PATTERNS["gpt2"][0], 128, vocab_size)),
        Contender("gigabpe (from a text file)", lambda _: gigabpe.train_bpe([str(lines)], vocab_size, threads=threads)),
        Contender("sentencepiece (another model)", piece),
    ]


def shards_section(texts: list[str], threads: int, vocab_size: int, folder: Path) -> list[Contender]:
    """Returns the contenders that turn Parquet files of text into training shards."""
    import datasets
    import pyarrow as pa
    import pyarrow.parquet as pq
    import tokenizers
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.readers import ParquetReader
    from datatrove.pipeline.tokens import DocumentTokenizer

    from bpe_core import Tokenizer
    from pipelines.settings.project import Project
    from pipelines.tokenizing.tokenize_corpus import tokenize_corpus

    special = {"eos": "<|endoftext|>", "pad": "<|padding|>"}
    Tokenizer.train(texts, vocab_size=vocab_size, special_tokens=special).save(folder / "tokenizer")
    table = pa.table({"id": [str(n) for n in range(len(texts))], "text": texts})
    (folder / "corpus").mkdir()
    for part in range(4):
        size = -(-len(texts) // 4)
        pq.write_table(
            table.slice(part * size, size),
            folder / "corpus" / f"{part}.parquet",
            row_group_size=4000,
            compression="zstd",
        )
    file = str(folder / "tokenizer" / "tokenizer.json")
    datasets.disable_progress_bars()

    def fresh(name: str) -> Callable[[], Path]:
        def prepare() -> Path:
            shutil.rmtree(folder / name, ignore_errors=True)
            return folder / name

        return prepare

    def ours(output: Path) -> Any:
        settings = {
            "corpus": {"files": str(folder / "corpus")},
            "shards": {"output": str(output), "tokenizer": str(folder / "tokenizer"), "carry": ["id"]},
            "run": {"workers": threads, "progress": False},
        }
        return tokenize_corpus(Project(**settings))["counts"]["tokens"]

    def trove(output: Path) -> Any:
        reader = ParquetReader(str(folder / "corpus"))
        tokenizer = DocumentTokenizer(str(output), file, eos_token="<|endoftext|>", shuffle_documents=False)
        LocalPipelineExecutor(
            [reader, tokenizer],
            tasks=4 if threads > 1 else 1,
            workers=threads,
            logging_dir=str(output / "logs"),
            skip_completed=False,
        ).run()

    def mapped(output: Path) -> Any:
        model = tokenizers.Tokenizer.from_file(file)
        loaded = datasets.load_dataset(
            "parquet", data_files=str(folder / "corpus" / "*.parquet"), split="train", cache_dir=str(output / "cache")
        )

        def rows(batch: Any) -> Any:
            encoded = model.encode_batch_fast(batch["text"])
            return {"input_ids": [e.ids for e in encoded], "attention_mask": [e.attention_mask for e in encoded]}

        loaded.map(rows, batched=True, remove_columns=["text"], num_proc=threads if threads > 1 else None).to_parquet(
            str(output / "rows.parquet")
        )

    finished: Path = folder / "written"

    def limit(output: Path) -> Any:
        output.mkdir()
        for source in sorted((folder / "corpus").glob("*.parquet")):
            pq.read_table(source, columns=["id", "text"])
        for shard in sorted(finished.glob("bucket=*/*.parquet")):
            pq.write_table(
                pq.read_table(shard),
                output / f"{shard.parent.name}-{shard.name}",
                compression="zstd",
                compression_level=1,
                use_dictionary=False,
                write_statistics=False,
            )

    def ours_kept(output: Path) -> Any:
        tokens = ours(output)
        if not finished.exists():
            shutil.copytree(output, finished)
        return tokens

    return [
        Contender("tokenmill", ours_kept, fresh("ours")),
        Contender("datatrove", trove, fresh("trove")),
        Contender("datasets + tokenizers", mapped, fresh("mapped")),
        Contender("pyarrow: read, read and write the same shards", limit, fresh("limit")),
    ]


def run_section(section: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Times one section and returns its times, for the table and the result file."""
    texts = documents(arguments.corpus)
    num_bytes = sum(len(text.encode()) for text in texts)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if section == "count":
            contenders = count_section(texts)
        elif section == "encode":
            contenders = encode_section(texts, arguments.threads, arguments.vocab_size)
        elif section == "train":
            contenders = train_section(texts, arguments.threads, arguments.vocab_size, folder)
        else:
            contenders = shards_section(texts, arguments.threads, arguments.vocab_size, folder)
        measure([c for c in contenders if c.name.split()[0] not in arguments.without], arguments.rounds)
    return {
        "section": section,
        "threads": arguments.threads,
        "bytes": num_bytes,
        "contenders": [{"name": c.name, "seconds": c.seconds, "remark": c.remark} for c in contenders],
    }


def in_processes(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Runs each section and number of threads in its own process, because libraries read the number at import."""
    all_threads = sorted({1, arguments.max_threads})
    for section in arguments.sections:
        for threads in (1,) if section == "count" else all_threads:
            print(f"{section}, {threads} thread{'s' * (threads > 1)}", file=sys.stderr, flush=True)
            environment = {
                **os.environ,
                "RAYON_NUM_THREADS": str(threads),
                "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false",
                "OMP_NUM_THREADS": str(threads),
                "HF_HUB_OFFLINE": "1",
            }
            command = [sys.executable, __file__, *sys.argv[1:], "--section", section, "--threads", str(threads)]
            output = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True).stdout
            yield json.loads(output.splitlines()[-1])


def show(results: list[dict[str, Any]]) -> str:
    """Prints a table for each section and returns the tables as text."""
    from rich.console import Console
    from rich.table import Table

    console = Console(record=True, width=110)
    for result in results:
        megabytes = result["bytes"] / 1e6
        threads = result["threads"]
        table = Table(
            title=f"{result['section']}, {threads} thread{'s' * (threads > 1)}, {megabytes:.1f} MB",
            title_justify="left",
        )
        for column in ("", "median s", "MB/s", "tokenmill is … × as fast", "runs", ""):
            table.add_column(column, justify="left" if not column else "right")
        ours = statistics.median(result["contenders"][0]["seconds"])
        for contender in result["contenders"]:
            if not contender["seconds"]:
                table.add_row(contender["name"], "", "", "", "", contender["remark"])
                continue
            median = statistics.median(contender["seconds"])
            ratio = f"{median / ours:.2f}"
            runs = str(len(contender["seconds"]))
            table.add_row(
                contender["name"], f"{median:.2f}", f"{megabytes / median:.1f}", ratio, runs, contender["remark"]
            )
        console.print(table)
    return console.export_text()


def main() -> None:
    """Runs the sections that the command line asks for, prints the tables and writes the result files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--corpus", nargs="*", default=[], help="files, globs or folders; default: Python's standard library"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--sections", nargs="*", choices=SECTIONS, default=list(SECTIONS))
    parser.add_argument("--max-threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--without", nargs="*", default=[], help="libraries to leave out, for example slow ones")
    parser.add_argument("--name", default="latest", help="name of the result files in benchmarks/results/")
    parser.add_argument("--section", help=argparse.SUPPRESS)
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.section:
        print(json.dumps(run_section(arguments.section, arguments)))
        return
    results = list(in_processes(arguments))
    packages = ("numba", "pyarrow", "regex", "tokenizers", "tiktoken", "gigatoken", "gigabpe", "rustbpe", "bpeasy")
    packages += ("sentencepiece", "datatrove", "datasets")
    facts = {
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "vocab_size": arguments.vocab_size,
        "results": results,
    }
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{arguments.name}.json").write_text(json.dumps(facts, indent=1) + "\n")
    (RESULTS / f"{arguments.name}.txt").write_text(show(results))


if __name__ == "__main__":
    main()
