"""Times the encoding of text that was not encoded before, in tokenmill and other libraries; this is the headline.

The texts of a language are divided into two halves. Each contender encodes, with one thread, the first half with an
empty cache (`cold`), then the second half (`new`), then the second half again (`again`, which flatters caches). Figures
are MB of UTF-8 per second of CPU time, medians over the rounds. Each contender runs in a process of its own; ids are
compared by a hash. The tokenizers are files, or are trained here from the corpus: `gpt2:32000` is a pattern and a size.

    python benchmarks/new_text.py --corpus 'corpus/*.parquet' --tokenizers gpt2:32000 llama2/tokenizer.json
"""

import argparse
import gc
import glob
import hashlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

RESULTS = Path(__file__).parent / "results"
CONTENDERS = ("tokenmill", "gigatoken", "tokenizers-1", "tokenizers", "tiktoken", "sentencepiece")
STEPS = ("cold", "new", "again")


class Encoder(NamedTuple):
    """How a contender encodes.

    Attributes:
        make: returns a tokenizer with an empty cache.
        prepare: returns texts in the form that the contender takes.
        run: returns what the contender gives for such texts.
        flatten: returns the ids in that, one after the other.
    """

    make: Callable[[], Any]
    prepare: Callable[[list[str]], Any]
    run: Callable[[Any, Any], Any]
    flatten: Callable[[Any], Any]


def read_halves(paths: Sequence[str], group: str) -> tuple[list[str], list[str]]:
    """Returns both halves of the texts of some languages, joined by `+`, or of `all`, in the columns lang and text."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.concat_tables([pq.read_table(path, columns=["lang", "text"]) for path in paths])
    rows = zip(table["lang"].to_pylist(), table["text"].to_pylist(), strict=True)
    texts = [text for lang, text in rows if text and (group == "all" or lang in group.split("+"))]
    return texts[: len(texts) // 2], texts[len(texts) // 2 :]


def make_batches(texts: list[str]) -> Iterator[Any]:
    """Yields the texts as Arrow arrays of about a million characters."""
    import pyarrow as pa

    batch, size = [], 0
    for text in texts:
        batch.append(text)
        size += len(text)
        if size > 1 << 20:
            yield pa.array(batch, pa.large_string())
            batch, size = [], 0
    yield pa.array(batch, pa.large_string())


def concatenate(ids: Any) -> Any:
    """Returns lists of ids as one array."""
    import numpy as np

    return np.concatenate([np.empty(0, np.int64), *(np.asarray(one, np.int64) for one in ids)])


def make_encoder(name: str, path: str) -> Encoder:
    """Returns a contender's encoder for a tokenizer's file."""
    if name == "tokenmill":
        import pyarrow as pa

        from bpe_core import Tokenizer

        Tokenizer.load(path).encode_batch(pa.array(["compile first"], pa.large_string()))
        return Encoder(
            lambda: Tokenizer.load(path),
            lambda texts: list(make_batches(texts)),
            lambda tokenizer, arrays: [tokenizer.encode_batch(array, special="allow") for array in arrays],
            lambda ids: concatenate([array.flatten() for array in ids]),
        )
    if name == "gigatoken":
        import gigatoken

        content = Path(path).read_bytes()
        return Encoder(
            lambda: gigatoken.Tokenizer.from_json(content),
            list,
            lambda tokenizer, texts: tokenizer.encode_batch(texts, parallel=False),
            concatenate,
        )
    if name.startswith("tokenizers"):
        import tokenizers

        def make() -> Any:
            tokenizer: Any = tokenizers.Tokenizer.from_file(path)
            if hasattr(tokenizer, "no_truncation"):
                tokenizer.no_truncation()
                tokenizer.no_padding()
            else:  # Version 1.0.
                tokenizer.truncation = tokenizer.padding = None
            return tokenizer

        def run(tokenizer: Any, texts: list[str]) -> Any:
            encode = getattr(tokenizer, "encode_batch_fast", tokenizer.encode_batch)
            return encode(texts, add_special_tokens=False)

        return Encoder(make, list, run, lambda ids: concatenate([one.ids for one in ids]))
    if name == "sentencepiece":
        import sentencepiece

        model = str(Path(path).with_name("tokenizer.model"))
        return Encoder(
            lambda: sentencepiece.SentencePieceProcessor(model_file=model),
            list,
            lambda tokenizer, texts: tokenizer.encode(texts, num_threads=1),
            concatenate,
        )
    import tiktoken

    from bpe_core import Tokenizer

    own = Tokenizer.load(path)
    ranks = {token: id_ for id_, token in enumerate(own.token_bytes())}
    encoding = tiktoken.Encoding(
        "same", pat_str=own.pre_tokenizer.expressions[0], mergeable_ranks=ranks, special_tokens={}
    )
    return Encoder(
        lambda: encoding,
        list,
        lambda tokenizer, texts: tokenizer.encode_ordinary_batch(texts, num_threads=1),
        concatenate,
    )


def time_contender(name: str, path: str, group: str, rounds: int, corpus: Sequence[str]) -> dict[str, Any]:
    """Returns MB per second of CPU time of each step, and a hash of the ids of the second half."""
    halves = read_halves(corpus, group)
    encoder = make_encoder(name, path)
    inputs = [encoder.prepare(half) for half in halves]
    sizes = [sum(len(text.encode()) for text in half) / 1e6 for half in halves]
    speeds: dict[str, list[float]] = {step: [] for step in STEPS}
    digest = ""
    for _ in range(rounds):
        tokenizer = encoder.make()
        for step, half in zip(STEPS, (0, 1, 1), strict=True):
            gc.collect()
            started = time.process_time()
            ids = encoder.run(tokenizer, inputs[half])
            speeds[step].append(sizes[half] / (time.process_time() - started))
            if step == "new" and not digest:
                digest = hashlib.sha256(encoder.flatten(ids).tobytes()).hexdigest()[:8]
            del ids
    return {**{step: statistics.median(found) for step, found in speeds.items()}, "ids": digest, "mb": sum(sizes)}


def run_contender(name: str, path: str, group: str, args: argparse.Namespace) -> dict[str, Any]:
    """Returns what `time_contender` returns in a new process, or the reason why it failed."""
    python = args.tokenizers_1_python if name == "tokenizers-1" else sys.executable
    if python is None:
        return {"failed": "no --tokenizers-1-python was given"}
    environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false", "RAYON_NUM_THREADS": "1"}
    command = [python, __file__, "--one", name, path, group, str(args.rounds), *args.corpus]
    try:
        done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=args.timeout)
    except subprocess.TimeoutExpired:
        return {"failed": f"took over {args.timeout} s"}
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no message"])[-1][:100]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def train_tokenizer(given: str, corpus: Sequence[str], folder: str) -> str:
    """Returns the path of a tokenizer's file; `PATTERN:SIZE` is trained from the corpus."""
    if ":" not in given or os.path.exists(given):
        return given
    from bpe_core import Tokenizer

    pattern, size = given.split(":")
    first, second = read_halves(corpus, "all")
    target = os.path.join(folder, given.replace(":", "_"))
    Tokenizer.train([*first, *second], pattern=pattern, vocab_size=int(size)).save(target)
    return os.path.join(target, "tokenizer.json")


def main() -> None:
    """Times every contender with every tokenizer on every group of languages; prints and writes a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--corpus", nargs="+", required=True, help="Parquet files with the columns lang and text")
    parser.add_argument("--tokenizers", nargs="+", default=["gpt2:32000", "cl100k:128000"])
    parser.add_argument("--groups", nargs="+", default=["all"], help="languages joined by +, or all")
    parser.add_argument("--contenders", nargs="+", default=["tokenmill", "gigatoken", "tokenizers-1", "tokenizers"])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--timeout", type=int, default=600, help="seconds for one contender")
    parser.add_argument("--tokenizers-1-python", help="a Python with tokenizers 1.0, numpy and pyarrow")
    parser.add_argument("--name", default="new-text", help="of the result files")
    args = parser.parse_args()
    args.corpus = sorted(path for given in args.corpus for path in glob.glob(given) or [given])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for given in args.tokenizers:
            path = train_tokenizer(given, args.corpus, folder)
            for group in args.groups:
                ids = None
                for name in args.contenders:
                    found = run_contender(name, path, group, args)
                    ids = ids or found.get("ids")
                    remark = found.get("failed") or ("" if found["ids"] == ids else "OTHER IDS")
                    rows.append({"tokenizer": given, "group": group, "contender": name, **found, "remark": remark})
                    speeds = "".join(f"{found[step]:8.1f}" if step in found else f"{'-':>8}" for step in STEPS)
                    print(f"{given[-24:]:24} {group:12} {name:14}{speeds}  {remark}", flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / f"{args.name}.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        contender, file, languages, num_rounds, *paths = sys.argv[2:]
        print(json.dumps(time_contender(contender, file, languages, int(num_rounds), paths)))
    else:
        main()
