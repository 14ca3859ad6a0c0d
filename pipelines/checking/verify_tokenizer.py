"""Is a tokenizer right? Checks of it against its corpus, its settings and the Hugging Face library."""

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise, zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bpe_core import Merges, PreTokenizer, Tokenizer
from bpe_core.encoding.model import Model, NotExpressibleError, get_symbol_pairs, number_tokens
from bpe_core.export import export_tokenizer
from bpe_core.formats.hugging_face_layout import to_hugging_face
from bpe_core.formats.ranks import rank_by_merges
from bpe_core.formats.tokenizer_json import TOKENIZER_FILE
from bpe_core.kernels import flatten_bytes
from bpe_core.measuring.audit import find_unreachable
from bpe_core.measuring.evaluation import count_word_tokens
from bpe_core.measuring.token_display import escape_token
from bpe_core.merging.alphabet import MARKER, word_counts_to_arrays
from pipelines.checking.check import Check
from pipelines.checking.comparison import compare_ids, num_shared
from pipelines.reading.documents import read_corpus
from pipelines.reading.formats.known_answers import NEGATIVES, POSITIVES
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import TokenizingJob
from pipelines.settings.project import Project
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.storage import files
from pipelines.storage.manifest import list_differences, read_json
from pipelines.storage.output_files import MANIFEST
from pipelines.storage.tokenizer_files import read_tokenizer
from pipelines.training.count_corpus import count_corpus_in_memory
from pipelines.training.train_tokenizer import train_tokenizer
from pipelines.training.word_counts import read_word_counts

_SHOWN_EXCEPTIONS = 5
_SHOWN_BYTES = 30  # around the first difference


class _NotChecked(Exception):
    """There is nothing to hold the tokenizer against; the message says why."""


@dataclass(frozen=True)
class _Result:
    passed: bool
    summary: str
    values: Mapping[str, float] = field(default_factory=dict)


def check_tokenizer(project: Project, positives: Sequence[str] = (), negatives: Sequence[str] = ()) -> Iterator[Check]:
    """Yields each check of a project's tokenizer as it is done; it is trained again in a folder of its own.

    The tokenizer is that of `train.output`, or of `shards.tokenizer` where there is no `train`.

    Args:
        positives, negatives: words that must be one token, or in pieces; by default those of the section `sweep`, or,
            where it names none, of the known-answer corpus if that is the corpus.

    Raises:
        FileNotFoundError: there is no tokenizer, or no corpus.
    """
    path = project.train.output if project.train else TokenizingJob.of(project).shards.tokenizer
    assert path is not None
    try:
        tokenizer = read_tokenizer(path)
    except ValueError as error:
        yield Check("loads", "fail", str(error))
        return
    yield Check(
        "loads",
        "pass",
        f"{path}: {tokenizer.vocab_size:,} ids, {len(tokenizer.merges):,} merges",
        {"ids": tokenizer.vocab_size, "merges": len(tokenizer.merges)},
    )
    settings = project.tokenizer if project.train else None
    corpus, pre_tokenizer = project.corpus, settings.pre_tokenizer if settings else tokenizer.pre_tokenizer
    with tempfile.TemporaryDirectory() as folder:
        again = cache(lambda: _train_again(project, folder))
        for name, check in {
            "ranks": lambda: _ranks(tokenizer.model, settings),
            "merges": lambda: _merges(tokenizer.model, again()),
            "as recorded": lambda: _as_recorded(tokenizer, project, again()),
            "word counts": lambda: _word_counts(project, again()),
            "round trip": lambda: _round_trip(tokenizer, pre_tokenizer, corpus),
            "reachable": lambda: _reachable(tokenizer),
            "prefixes": lambda: _prefixes(
                tokenizer, again().word_counts if settings else count_corpus_in_memory(corpus, pre_tokenizer)
            ),
            "positives": lambda: _wholeness(
                tokenizer, positives or _planted(project, "positives", POSITIVES), whole=True
            ),
            "negatives": lambda: _wholeness(
                tokenizer, negatives or _planted(project, "negatives", NEGATIVES), whole=False
            ),
            "hugging face": lambda: _agrees_with_hugging_face(tokenizer, corpus),
        }.items():
            yield _checked(name, check)


def _checked(name: str, check: Callable[[], _Result]) -> Check:
    try:
        found = check()
    except _NotChecked as reason:
        return Check(name, "skip", str(reason))
    except ValueError as error:  # Of a damaged tokenizer: what it says is what is wrong.
        return Check(name, "fail", str(error))
    return Check(name, "pass" if found.passed else "fail", found.summary, found.values)


class _Again(NamedTuple):
    """What came of training again."""

    tokenizer: Tokenizer
    word_counts: pa.Table
    manifest: dict[str, Any]
    recorded: dict[str, Any] | None  # The manifest of the training that is checked.


def _train_again(project: Project, folder: str) -> _Again:
    if project.train is None:
        raise _NotChecked("the tokenizer is not of this project's training: there is no section train")
    train = project.train.model_copy(update={"output": folder})
    tokenizer = train_tokenizer(project.model_copy(update={"train": train}))
    counts, _ = read_word_counts(train.counts_folder)
    recorded = read_json(files.join(project.train.output, MANIFEST))
    return _Again(tokenizer, counts, read_json(files.join(folder, MANIFEST)), recorded)


def _as_recorded(tokenizer: Tokenizer, project: Project, again: _Again) -> _Result:
    """Corpus, settings and tokenizer are those that the manifest names."""
    assert project.train is not None
    if again.recorded is None:
        raise _NotChecked("there is no manifest beside the tokenizer")
    changed = list_differences(again.recorded["settings"], again.manifest["settings"], "settings")
    if project.train.from_counts != project.train.kept_counts:  # Else the corpus was not read again.
        changed += list_differences(again.recorded["inputs"], again.manifest["inputs"], "inputs")
    changed += list_differences(
        again.recorded["tokenizer"]["fingerprint"], tokenizer.fingerprint, "tokenizer.fingerprint"
    )
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return _Result(False, f"{changed[0]}{more}", {"changed": len(changed)})
    return _Result(True, f"corpus, settings and tokenizer {tokenizer.fingerprint[:12]} are those of the manifest")


def _word_counts(project: Project, again: _Again) -> _Result:
    """The word counts that were kept are those of the corpus."""
    assert project.train is not None
    folder = project.train.kept_counts
    if project.train.from_counts or not files.exists(folder):
        raise _NotChecked("the tokenizer was trained from given counts, or none were kept")
    kept, _ = read_word_counts(folder)
    values = {"words": kept.num_rows}
    if not kept.equals(again.word_counts):
        return _Result(False, f"{folder} holds other counts than the corpus, {again.word_counts.num_rows:,}", values)
    return _Result(True, f"{kept.num_rows:,} different words, counted again alike", values)


def _merges(model: Model, again: _Again) -> _Result:
    """Training again gives the same base symbols, and the same merges one for one."""
    ours, theirs = _spelled_merges(model), _spelled_merges(again.tokenizer.model)
    values = {"merges": len(ours)}
    other = set(model.alphabet.symbols) ^ set(again.tokenizer.alphabet.symbols)
    if other:
        symbol = model.alphabet.spell(min(other))
        return _Result(False, f"{len(other)} base symbols are in one of the two only, the first is {symbol!r}", values)
    for rank, (mine, its) in enumerate(zip_longest(ours, theirs)):
        if mine != its:
            shown = [" + ".join(map(repr, pair)) if pair else "no merge" for pair in (mine, its)]
            return _Result(False, f"merge {rank} is {shown[0]}; trained again it is {shown[1]}", values)
    return _Result(True, f"{len(ours):,} merges, trained again one for one", values)


def _spelled_merges(model: Model) -> list[tuple[bytes | str, bytes | str]]:
    spelled = [model.alphabet.spell(token) for token in model.tokens]
    return [(spelled[left], spelled[right]) for left, right, _ in model.merges.tolist()]


def _ranks(model: Model, settings: TokenizerSettings | None) -> _Result:
    """Ids are those that follow from the order of the merges by `vocab_order` and `special_ids`."""
    if settings is None:
        raise _NotChecked("the tokenizer is not of this project's training, so no setting says how its ids follow")
    expected = number_tokens(
        _numbered_anew(model), model.pre_tokenizer, settings.special_tokens, settings.special_ids, settings.vocab_order
    )
    values = {"ids": len(model.tokens), "merges": len(model.merges)}
    for id_, (token, due) in enumerate(zip_longest(model.tokens, expected.tokens)):
        if token != due:
            return _Result(False, f"the id {id_} is {token!r}; by the order of the merges it is {due!r}", values)
    if not np.array_equal(model.merges, expected.merges):
        rank = int(np.flatnonzero((model.merges != expected.merges).any(axis=1))[0])
        rows = model.merges[rank].tolist(), expected.merges[rank].tolist()
        return _Result(False, f"merge {rank} has the ids {rows[0]}; by its tokens it has {rows[1]}", values)
    last = len(model.tokens) - 1
    return _Result(True, f"ids 0 to {last:,} without holes, {len(model.merges):,} merges at their ranks", values)


def _numbered_anew(model: Model) -> Merges:
    """Returns the merges of a model as the merge loop numbers them, whatever its ids are."""
    pairs = get_symbol_pairs(model)
    numbers = {symbol: number for number, symbol in enumerate(model.alphabet.symbols)}
    spelled = list(numbers)
    merged = []
    for left, right in pairs.tolist():
        token = spelled[left] + spelled[right]
        if token not in numbers:
            numbers[token] = len(spelled)
            spelled.append(token)
        merged.append(numbers[token])
    counts = np.zeros(len(pairs), np.int64)
    made = np.array(merged, np.int32)
    return Merges(model.alphabet, pairs[:, 0], pairs[:, 1], made, counts, tuple(spelled), "size")


def _round_trip(tokenizer: Tokenizer, pre_tokenizer: PreTokenizer, corpus: Corpus) -> _Result:
    """Every document comes back from its ids: as it was normalised, for kind `char` with one blank between words."""
    in_words = tokenizer.alphabet.kind == "char"
    values: dict[str, float] = dict.fromkeys(("documents", "ids", "normalised", "unknown", "different"), 0)
    unknown_id, first = tokenizer.special_id("unk"), None
    for batch in read_corpus(corpus):
        texts = batch.texts.to_pylist()
        normalised = pre_tokenizer.normalize_batch(batch.texts).to_pylist()
        encoded = tokenizer.encode_batch(batch.texts).to_pylist()
        for row, text, due, ids in zip(batch.rows.tolist(), texts, normalised, encoded, strict=True):
            values["documents"] += 1
            values["ids"] += len(ids)
            values["normalised"] += due != text
            if in_words:
                unknown = ids.count(unknown_id)
                values["unknown"] += unknown
                due = _with_unknown(tokenizer, pre_tokenizer, text) if unknown else " ".join(pre_tokenizer.split(text))
            back = tokenizer.decode_bytes(ids)
            if back != due.encode():
                values["different"] += 1
                first = first or f"; the first is {batch.path}, row {row}: {_change(due.encode(), back)}"
    summary = f"{values['documents']:,} documents, {values['ids']:,} ids, {values['different']:,} come back otherwise"
    summary += (
        f", {values['normalised']:,} normalised" if pre_tokenizer.unicode != "none" or pre_tokenizer.lowercase else ""
    )
    summary += f", {values['unknown']:,} unknown characters" if in_words else ""
    return _Result(first is None, summary + (first or ""), values)


def _with_unknown(tokenizer: Tokenizer, pre_tokenizer: PreTokenizer, text: str) -> str:
    """Returns a text of kind `char` as it comes back where characters have no symbol."""
    alphabet, known = tokenizer.alphabet, set(tokenizer.alphabet.symbols)
    unknown = str(tokenizer.special_roles["unk"])
    parts: list[str] = []
    for word in pre_tokenizer.split(text):
        parts += [character if character.encode() in known else unknown for character in word]
        if alphabet.placement == "glued":
            parts[-1] = f"{word[-1]} " if word[-1].encode() + MARKER in known else unknown
        else:
            parts.append(" ")
    return "".join(parts).removesuffix(" ")


def _change(before: bytes, after: bytes) -> str:
    """Returns the place where two texts begin to differ."""
    at = max(0, num_shared(before, after) - _SHOWN_BYTES // 2)
    shown = [text[at : at + _SHOWN_BYTES].decode(errors="backslashreplace") for text in (before, after)]
    return f"{shown[0]!r} comes back as {shown[1]!r}, from byte {at}"


def _reachable(tokenizer: Tokenizer) -> _Result:
    """Every token is what the merges make of its own spelling."""
    found = find_unreachable(tokenizer)
    shown = "; ".join(
        f"{entry.token!r} ({entry.id}) becomes {[escape_token(tokenizer, part) for part in entry.related]}"
        for entry in found[:_SHOWN_EXCEPTIONS]
    )
    summary = f"{len(found):,} of {tokenizer.vocab_size:,} tokens cannot be reached"
    return _Result(not found, f"{summary}: {shown}" if found else summary, {"unreachable": len(found)})


def _prefixes(tokenizer: Tokenizer, word_counts: pa.Table) -> _Result:
    """With more and more of the merges, tokens per character never rise and the vocabulary never falls.

    Characters are those of words: for kind `char`, without blanks.
    """
    if tokenizer.model.ranked_by != "merge":
        raise _NotChecked("pairs are ranked by tokens, so there is no list of merges to take the first of")
    total = len(tokenizer.merges)
    sizes = sorted({0, total, *(1 << power for power in range(total.bit_length()))})
    words, counts = word_counts_to_arrays(word_counts)
    data, starts = flatten_bytes(words)
    characters = np.concatenate([[0], np.cumsum((data & 0xC0) != 0x80)])[starts]
    num_characters = max(1, int((np.diff(characters) * counts).sum()))
    steps = []
    for size in sizes:
        first = tokenizer.keep_first_merges(size)
        lengths = np.diff(first.encode_words(words).offsets.to_numpy())
        steps.append((size, int((lengths * counts).sum()), first.vocab_size))
    for (_, more, smaller), (size, fewer, larger) in pairwise(steps):
        if fewer > more or larger < smaller:
            return _Result(
                False,
                f"at {size:,} merges there are {fewer:,} tokens after {more:,}, and {larger:,} ids after {smaller:,}",
            )
    shares = [tokens / num_characters for _, tokens, _ in steps]
    return _Result(
        True,
        f"{shares[0]:.4f} tokens per character at no merges, {shares[-1]:.4f} at {total:,}, in {len(steps)} steps; "
        f"{steps[0][2]:,} ids to {steps[-1][2]:,}",
        {"tokens_per_character_first": shares[0], "tokens_per_character_last": shares[-1], "steps": len(steps)},
    )


def _planted(project: Project, name: str, known: Sequence[str]) -> Sequence[str]:
    """Returns the words of the section `sweep`, or those known of the known-answer corpus if that is the corpus."""
    given: Sequence[str] = getattr(project.sweep, name, ())
    words = given or (known if project.corpus.sample == "known-answers" else ())
    if not words:
        raise _NotChecked(f"no words are given; name some in sweep.{name} or with --{name}")
    return words


def _wholeness(tokenizer: Tokenizer, words: Sequence[str], *, whole: bool) -> _Result:
    """Every word is one token, or every word is in pieces."""
    counts = count_word_tokens(tokenizer, words)
    wrong = [word for word, count in counts.items() if (count > 1 if whole else count == 1)]
    summary = f"{len(words) - len(wrong)} of {len(words)} words are {'one token' if whole else 'in pieces'}"
    cuts = (f"{word!r} is {tokenizer.tokenize(word)}" for word in wrong[:_SHOWN_EXCEPTIONS])
    return _Result(not wrong, "; ".join([summary, *cuts]), {"words": len(words), "wrong": len(wrong)})


def _agrees_with_hugging_face(tokenizer: Tokenizer, corpus: Corpus) -> _Result:
    """The exported `tokenizer.json` gives the same ids in the Hugging Face library, document by document."""
    try:
        to_hugging_face(rank_by_merges(tokenizer.model))
    except NotExpressibleError as error:
        raise _NotChecked(str(error)) from error
    with tempfile.TemporaryDirectory() as folder:
        export_tokenizer(tokenizer, folder, "hugging-face")
        try:
            found = compare_ids(tokenizer, "hf", corpus, files.join(folder, TOKENIZER_FILE))
        except ModuleNotFoundError as error:
            raise _NotChecked(f"{error}; install it to compare: pip install tokenizers") from error
    summary = found.line
    if found.first is not None:
        summary += "; " + found.first.describe(tokenizer).partition("\n")[0]
    values = {"documents": found.documents, "ids": found.ids, "different": found.different}
    return _Result(found.first is None, summary, values)
