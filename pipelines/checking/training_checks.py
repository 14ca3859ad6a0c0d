"""Checks of how a tokenizer was trained: its ids and merges, its manifest, and its word counts."""

from itertools import zip_longest
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bpe_core import Merges, Tokenizer
from bpe_core.encoding.model import Model, get_symbol_pairs, number_tokens
from pipelines.checking.check import CheckResult
from pipelines.errors import CheckSkippedError
from pipelines.settings.project import Project
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.storage import files
from pipelines.storage.manifest import list_differences, read_json
from pipelines.storage.output_files import MANIFEST
from pipelines.training.train_tokenizer import train_tokenizer
from pipelines.training.word_counts import read_word_counts


class Retraining(NamedTuple):
    """The result of training a tokenizer again.

    Attributes:
        tokenizer: the tokenizer that was trained again.
        word_counts: the word counts that it was trained from.
        manifest: the manifest of training again.
        recorded: the manifest of the training that is checked, or None.
    """

    tokenizer: Tokenizer
    word_counts: pa.Table
    manifest: dict[str, Any]
    recorded: dict[str, Any] | None


def train_again(project: Project, folder: str) -> Retraining:
    """Trains a project's tokenizer into another folder.

    Raises:
        CheckSkippedError: the project has no section `train`.
    """
    if project.train is None:
        raise CheckSkippedError("this project has no section train, so the tokenizer cannot be trained again")
    train = project.train.model_copy(update={"output": folder})
    tokenizer = train_tokenizer(project.model_copy(update={"train": train}))
    counts, _ = read_word_counts(train.counts_folder)
    recorded = read_json(files.join(project.train.output, MANIFEST))
    return Retraining(tokenizer, counts, read_json(files.join(folder, MANIFEST)), recorded)


def check_recorded(tokenizer: Tokenizer, project: Project, retrained: Retraining) -> CheckResult:
    """Checks that the corpus, the settings and the tokenizer are those that the manifest records."""
    assert project.train is not None
    if retrained.recorded is None:
        raise CheckSkippedError("there is no manifest beside the tokenizer")
    recorded, manifest = retrained.recorded, retrained.manifest
    changed = list_differences(recorded["settings"], manifest["settings"], "settings")
    if project.train.from_counts != project.train.kept_counts:  # Otherwise the corpus was not read again.
        changed += list_differences(recorded["inputs"], manifest["inputs"], "inputs")
    changed += list_differences(recorded["tokenizer"]["fingerprint"], tokenizer.fingerprint, "tokenizer.fingerprint")
    if changed:
        more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
        return CheckResult(False, f"{changed[0]}{more}", {"changed": len(changed)})
    return CheckResult(True, f"corpus, settings and tokenizer {tokenizer.fingerprint[:12]} are as in the manifest")


def check_word_counts(project: Project, retrained: Retraining) -> CheckResult:
    """Checks that the word counts kept in the output are those of the corpus."""
    assert project.train is not None
    folder = project.train.kept_counts
    if project.train.from_counts or not files.exists(folder):
        raise CheckSkippedError("the tokenizer was trained from given counts, or its counts were not kept")
    kept, _ = read_word_counts(folder)
    values = {"words": kept.num_rows}
    if not kept.equals(retrained.word_counts):
        summary = f"{folder} holds counts of {kept.num_rows:,} words, which differ from those of the corpus"
        return CheckResult(False, f"{summary} ({retrained.word_counts.num_rows:,} words)", values)
    return CheckResult(True, f"{kept.num_rows:,} different words, counted again with the same result", values)


def check_merges(model: Model, retrained: Retraining) -> CheckResult:
    """Checks that training again gives the same base symbols, and the same merges in the same order."""
    ours, theirs = _spell_merges(model), _spell_merges(retrained.tokenizer.model)
    values = {"merges": len(ours)}
    different = set(model.alphabet.symbols) ^ set(retrained.tokenizer.alphabet.symbols)
    if different:
        symbol = model.alphabet.spell(min(different))
        return CheckResult(
            False, f"{len(different)} base symbols are in one of the two only; the first is {symbol!r}", values
        )
    for rank, (mine, its) in enumerate(zip_longest(ours, theirs)):
        if mine != its:
            shown = [" + ".join(map(repr, pair)) if pair else "missing" for pair in (mine, its)]
            return CheckResult(False, f"merge {rank} is {shown[0]}; trained again, it is {shown[1]}", values)
    return CheckResult(True, f"{len(ours):,} merges, the same when trained again", values)


def _spell_merges(model: Model) -> list[tuple[bytes | str, bytes | str]]:
    spelled = [model.alphabet.spell(token) for token in model.tokens]
    return [(spelled[left], spelled[right]) for left, right, _ in model.merges.tolist()]


def check_ids(model: Model, settings: TokenizerSettings | None) -> CheckResult:
    """Checks that the ids follow from the order of the merges and the settings `vocab_order` and `special_ids`."""
    if settings is None:
        raise CheckSkippedError("this project has no section train, so no setting says how ids follow from merges")
    expected = number_tokens(
        _renumber_merges(model),
        model.pre_tokenizer,
        settings.special_tokens,
        settings.special_ids,
        settings.vocab_order,
    )
    values = {"ids": len(model.tokens), "merges": len(model.merges)}
    for id_, (token, due) in enumerate(zip_longest(model.tokens, expected.tokens)):
        if token != due:
            return CheckResult(False, f"id {id_} is {token!r}; by the order of the merges it must be {due!r}", values)
    if not np.array_equal(model.merges, expected.merges):
        rank = int(np.flatnonzero((model.merges != expected.merges).any(axis=1))[0])
        rows = model.merges[rank].tolist(), expected.merges[rank].tolist()
        return CheckResult(False, f"merge {rank} has the ids {rows[0]}; by its tokens it must have {rows[1]}", values)
    last = len(model.tokens) - 1
    return CheckResult(True, f"ids 0 to {last:,} without gaps, {len(model.merges):,} merges at their ranks", values)


def _renumber_merges(model: Model) -> Merges:
    """Returns a model's merges with the numbers that the merge loop gives to symbols, whatever the model's ids are."""
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
