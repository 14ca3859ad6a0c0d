"""Checks of how a tokenizer encodes text: round trips, unreachable tokens, given words, other libraries."""

import tempfile
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa

from bpe_core import PreTokenizer, Tokenizer
from bpe_core.encoding.library_model import LibraryTokenizer
from bpe_core.encoding.model import NotExpressibleError
from bpe_core.export import export_tokenizer
from bpe_core.formats.tokenizer_json import TOKENIZER_FILE
from bpe_core.kernels import flatten_bytes
from bpe_core.measuring.audit import find_unreachable
from bpe_core.measuring.evaluation import count_word_tokens
from bpe_core.measuring.token_display import escape_token
from bpe_core.merging.alphabet import MARKER, word_counts_to_arrays
from pipelines.checking.check import CheckResult
from pipelines.checking.comparison import compare_ids, count_common_prefix, load_library
from pipelines.errors import CheckSkippedError
from pipelines.reading.documents import read_corpus
from pipelines.running.remarks import list_remarks
from pipelines.settings.corpus import Corpus
from pipelines.storage import files

_MAX_TOKENS_SHOWN = 5
_NUM_BYTES_SHOWN = 30  # Around the first difference.


def check_round_trip(tokenizer: Tokenizer, pre_tokenizer: PreTokenizer, corpus: Corpus) -> CheckResult:
    """Checks that decoding the ids of each document gives the normalized document.

    A tokenizer of kind `char` decodes to the document's words with one space between them, and the spelling of the
    unknown token in place of characters that are not in its alphabet.
    """
    is_char = tokenizer.alphabet.kind == "char"
    values: dict[str, float] = dict.fromkeys(("documents", "ids", "normalised", "unknown", "different"), 0)
    unknown_id, first = tokenizer.special_id("unk"), ""
    counts: Counter[str] = Counter()
    for batch in read_corpus(corpus, counts):
        texts = batch.texts.to_pylist()
        normalized = pre_tokenizer.normalize_batch(batch.texts).to_pylist()
        encoded = tokenizer.encode_batch(batch.texts).to_pylist()
        for row, text, expected, ids in zip(batch.rows.tolist(), texts, normalized, encoded, strict=True):
            values["documents"] += 1
            values["ids"] += len(ids)
            values["normalised"] += expected != text
            expected = pre_tokenizer.get_prefix(expected) + expected
            if is_char:
                num_unknown = ids.count(unknown_id)
                values["unknown"] += num_unknown
                words = pre_tokenizer.split(text)
                expected = _join_with_unknown(tokenizer, words) if num_unknown else " ".join(words)
            decoded = tokenizer.decode_bytes(ids)
            if decoded != expected.encode():
                values["different"] += 1
                difference = _describe_difference(expected.encode(), decoded)
                first = first or f"; the first is {batch.path}, row {row}: {difference}"
    summary = f"{values['documents']:,} documents, {values['ids']:,} ids, {values['different']:,} decode differently"
    if pre_tokenizer.unicode != "none" or pre_tokenizer.lowercase:
        summary += f", {values['normalised']:,} changed by normalization"
    if is_char:
        summary += f", {values['unknown']:,} unknown characters"
    summary = "; ".join([summary, *list_remarks(counts)])
    return CheckResult(not first, summary + first, values)


def _join_with_unknown(tokenizer: Tokenizer, words: Sequence[str]) -> str:
    """Returns the text that a tokenizer of kind `char` decodes for words with characters that have no symbol."""
    alphabet, known = tokenizer.alphabet, set(tokenizer.alphabet.symbols)
    unknown = str(tokenizer.special_roles["unk"])
    parts: list[str] = []
    for word in words:
        parts += [character if character.encode() in known else unknown for character in word]
        if alphabet.placement == "glued":
            parts[-1] = f"{word[-1]} " if word[-1].encode() + MARKER in known else unknown
        else:
            parts.append(" ")
    return "".join(parts).removesuffix(" ")


def _describe_difference(expected: bytes, decoded: bytes) -> str:
    """Returns both texts around the first byte in which they differ."""
    start = max(0, count_common_prefix(expected, decoded) - _NUM_BYTES_SHOWN // 2)
    shown = [text[start : start + _NUM_BYTES_SHOWN].decode(errors="backslashreplace") for text in (expected, decoded)]
    return f"{shown[0]!r} decodes to {shown[1]!r}, from byte {start}"


def check_reachable(tokenizer: Tokenizer) -> CheckResult:
    """Checks that encoding the text of each token gives that token."""
    found = find_unreachable(tokenizer)
    shown = "; ".join(
        f"{entry.token!r} ({entry.id}) becomes {[escape_token(tokenizer, part) for part in entry.related]}"
        for entry in found[:_MAX_TOKENS_SHOWN]
    )
    summary = f"{len(found):,} of {tokenizer.vocab_size:,} tokens are unreachable"
    return CheckResult(not found, f"{summary}: {shown}" if found else summary, {"unreachable": len(found)})


def check_prefixes(tokenizer: Tokenizer, word_counts: pa.Table) -> CheckResult:
    """Checks that with more of the first merges, words never take more tokens, and the vocabulary never shrinks.

    The numbers of merges tried are 0, the powers of two, and all. Tokens are given per character of the words, so for
    kind `char` without the white space between words.
    """
    if tokenizer.model.ranked_by != "merge":
        raise CheckSkippedError("pairs are ranked by tokens, so the tokenizer has no list of merges to shorten")
    total = len(tokenizer.merges)
    sizes = sorted({0, total, *(1 << power for power in range(total.bit_length()))})
    words, counts = word_counts_to_arrays(word_counts)
    data, starts = flatten_bytes(words)
    characters = np.concatenate([[0], np.cumsum((data & 0xC0) != 0x80)])[starts]
    num_characters = max(1, int((np.diff(characters) * counts).sum()))
    steps = []
    for size in sizes:
        shortened = tokenizer.keep_first_merges(size)
        lengths = np.diff(shortened.encode_words(words).offsets.to_numpy())
        steps.append((size, int((lengths * counts).sum()), shortened.vocab_size))
    for (_, more_tokens, fewer_ids), (size, fewer_tokens, more_ids) in pairwise(steps):
        if fewer_tokens > more_tokens or more_ids < fewer_ids:
            return CheckResult(
                False,
                f"at {size:,} merges there are {fewer_tokens:,} tokens, after {more_tokens:,} with fewer merges, and "
                f"{more_ids:,} ids, after {fewer_ids:,}",
            )
    rates = [tokens / num_characters for _, tokens, _ in steps]
    return CheckResult(
        True,
        f"{rates[0]:.4f} tokens per character with no merges, {rates[-1]:.4f} with {total:,}, in {len(steps)} steps; "
        f"{steps[0][2]:,} ids to {steps[-1][2]:,}",
        {"tokens_per_character_first": rates[0], "tokens_per_character_last": rates[-1], "steps": len(steps)},
    )


def check_wholeness(tokenizer: Tokenizer, words: Sequence[str], *, whole: bool) -> CheckResult:
    """Checks that each word is one token (`whole`), or that each word is several tokens."""
    counts = count_word_tokens(tokenizer, words)
    wrong = [word for word, count in counts.items() if (count > 1 if whole else count == 1)]
    summary = f"{len(words) - len(wrong)} of {len(words)} words are {'one token' if whole else 'several tokens'}"
    shown = (f"{word!r} is {tokenizer.tokenize(word)}" for word in wrong[:_MAX_TOKENS_SHOWN])
    return CheckResult(not wrong, "; ".join([summary, *shown]), {"words": len(words), "wrong": len(wrong)})


def check_decoding(tokenizer: Tokenizer, corpus: Corpus) -> CheckResult:
    """Checks that each document's ids decode to the text that Hugging Face's library decodes them to."""
    library = _load_library_or_skip(tokenizer)
    values: dict[str, float] = {"documents": 0, "different": 0}
    first = ""
    counts: Counter[str] = Counter()
    for batch in read_corpus(corpus, counts):
        for row, ids in zip(batch.rows.tolist(), tokenizer.encode_batch(batch.texts).to_pylist(), strict=True):
            values["documents"] += 1
            ours, theirs = tokenizer.decode(ids), library.decode(ids, skip_special_tokens=False)
            if ours != theirs:
                values["different"] += 1
                difference = _describe_difference(theirs.encode(), ours.encode())
                first = first or f"; the first is {batch.path}, row {row}: {difference}"
    summary = f"{values['documents']:,} documents, {values['different']:,} decode differently"
    return CheckResult(not first, "; ".join([summary, *list_remarks(counts)]) + first, values)


def _load_library_or_skip(tokenizer: Tokenizer) -> LibraryTokenizer:
    try:
        return load_library(tokenizer)
    except (NotExpressibleError, ModuleNotFoundError) as error:
        raise CheckSkippedError(str(error)) from error


def check_hugging_face(tokenizer: Tokenizer, corpus: Corpus) -> CheckResult:
    """Checks that Hugging Face's library gives each document the same ids with the exported `tokenizer.json`."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            export_tokenizer(tokenizer, folder, "hugging-face")
            found = compare_ids(tokenizer, "hf", corpus, files.join(folder, TOKENIZER_FILE))
    except (NotExpressibleError, ModuleNotFoundError) as error:
        raise CheckSkippedError(str(error)) from error
    summary = found.line
    if found.first is not None:
        summary += "; " + found.first.describe(tokenizer).partition("\n")[0]
    values = {"documents": found.documents, "ids": found.ids, "different": found.different}
    return CheckResult(found.first is None, summary, values)
