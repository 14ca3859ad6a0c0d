"""Recommends one of the measured vocabulary sizes, and says why."""

from collections.abc import Mapping, Sequence
from typing import Any

from bpe_core.measuring.evaluation import find_knee
from pipelines.settings.sweep import Sweep


def recommend_size(sizes: Sequence[Mapping[str, Any]], settings: Sweep) -> tuple[int, str]:
    """Returns the index of the recommended size, and the reason in words.

    Of the sizes that treat positives and negatives best, it is the one nearest to the knee of tokens per character.
    """
    knee = find_knee([size["vocab_size"] for size in sizes], [size["tokens_per_character"] for size in sizes])
    scores = [_score(size, settings) for size in sizes]
    best = [index for index, score in enumerate(scores) if score == max(scores)]
    chosen = min(best, key=lambda index: (abs(index - (knee or 0)), index))
    reasons = [*_explain_words(sizes[chosen], len(best), settings), _explain_knee(sizes, knee, chosen)]
    return chosen, "; ".join(reasons)


def _score(size: Mapping[str, Any], settings: Sweep) -> float:
    """Returns 1 minus the share of positives that are split and the share of negatives that are whole."""
    split = 1 - size["positives"]["share_whole"] if settings.positives else 0
    return float(1 - split - size["negatives"]["share_whole"])


def _explain_words(size: Mapping[str, Any], num_best: int, settings: Sweep) -> list[str]:
    parts = []
    for name, words, all_good, wanted in (
        ("positives", settings.positives, size["positives"]["share_whole"] == 1, "whole"),
        ("negatives", settings.negatives, size["negatives"]["share_whole"] == 0, "split"),
    ):
        if words:
            num_whole = sum(count == 1 for count in size[name]["tokens"].values())
            num_good = num_whole if name == "positives" else len(words) - num_whole
            parts.append(f"{'all' if all_good else f'{num_good} of'} {len(words)} {name} are {wanted}")
    if not parts:
        return []
    others = "better than at any other size" if num_best == 1 else f"the best result, reached by {num_best} sizes"
    return [f"{' and '.join(parts)}, {others}"]


def _explain_knee(sizes: Sequence[Mapping[str, Any]], knee: int | None, chosen: int) -> str:
    if knee is None:
        return "tokens per character has no knee over these sizes, so this is the smallest of them"
    at = f"{sizes[knee]['vocab_size']:,} entries ({sizes[knee]['tokens_per_character']:.3f} tokens per character)"
    if knee == chosen:
        return f"the knee of tokens per character is at this size, {at}"
    return f"the knee of tokens per character is at {at}, and this is the nearest of these sizes"
