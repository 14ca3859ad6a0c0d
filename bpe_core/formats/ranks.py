"""Decides whether tiktoken's ranks and a list of merges give the same tokens, and converts ranks to merges.

tiktoken merges any two neighbours whose bytes together are a token, the token of the lowest id first. A list of merges
allows only the merges in it. Let `ab`, `bc` and `abc` be tokens with ids in this order, and let `abc` be learned
from `a` + `bc`. For the text `abc` the merges make `ab` and stop there, as `ab` + `c` is not in the list; tiktoken
goes on to `abc`.

Ranks and merges agree if three things hold: ids follow the order of the merges, each token is made by one merge only,
and the merges make each token out of its own spelling. The reason: when a pair that spells a token is the lowest rank
that waits, all lower ranks within its spelling have been merged, just as if the token were a word of its own. So its
two parts are the parts that it was learned from.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from bpe_core.encoding.bpe_rules import make_bpe_rules
from bpe_core.encoding.model import Model, NotExpressibleError
from bpe_core.encoding.word_encoder import WordEncoder
from bpe_core.kernels import Int32s, flatten_bytes
from bpe_core.merging.alphabet import MARKER, Alphabet
from bpe_core.pretokenize.text_splitter import WordEnds


def check_ranks_equal_merges(model: Model) -> None:
    """Raises NotExpressibleError unless the ids of a model, used as ranks, give the same tokens as its merges.

    The module's docstring says why the conditions that are checked suffice.
    """
    _check_parts_come_first(model)
    made = model.merges[:, 2]
    if (np.diff(made) <= 0).any():
        at = int(np.flatnonzero(np.diff(made) <= 0)[0]) + 1
        raise NotExpressibleError(
            f"merge {at} makes {model.tokens[made[at]]!r} with the id {made[at]}, but the merge before it makes the id "
            f"{made[at - 1]}. tiktoken's ranks are ids, so ids must follow the merges (vocab_order merges or gpt2), "
            "with one merge for each token"
        )
    unreachable = find_first_unreachable(model)
    if unreachable is not None:
        token, parts = unreachable
        raise NotExpressibleError(
            f"the merges make {' + '.join(repr(part) for part in parts)} of {token!r}, although it is a token; "
            "tiktoken would make the token"
        )


def find_first_unreachable(model: Model) -> tuple[bytes, list[bytes]] | None:
    """Returns the first token that `find_unreachable_ids` finds and the tokens that the merges make of it, or None.

    For kind `byte` only.
    """
    first = next(iter(find_unreachable_ids(model).items()), None)
    return first and (model.tokens[first[0]], [model.tokens[part] for part in first[1]])


def find_unreachable_ids(model: Model) -> dict[int, list[int]]:
    """Returns each id whose token the merges do not make of its own spelling, with the ids that they make instead.

    The result is in the order of ids. A character that has no symbol appears as a number below 0. Added tokens are left
    out, as they are not made by merges; so is the lookup of whole words (`ignore_merges`), which may still give the id.

    >>> from bpe_core import Tokenizer
    >>> model = Tokenizer.train(["hug pug hug"], num_merges=2).model  # u+g, h+ug
    >>> find_unreachable_ids(replace(model, merges=model.merges[1:]))  # Without u+g, neither `ug` nor `hug` is made.
    {256: [117, 103], 257: [104, 117, 103]}
    """
    kind, base_ids = model.alphabet.kind, model.base_ids
    left_out = {*base_ids.values(), *(token.id for token in model.added_tokens)}
    chosen = [id_ for id_, token in enumerate(model.tokens) if id_ not in left_out and token]
    if kind == "byte":
        return _find_merged_differently(model, model.alphabet, base_ids, [(id_, model.tokens[id_]) for id_ in chosen])
    # The encoder puts a marker after every word. A token without one is encoded with a marker that merges with nothing.
    ending = [(id_, model.tokens[id_][:-1]) for id_ in chosen if model.tokens[id_].endswith(MARKER)]
    inside = [(id_, model.tokens[id_]) for id_ in chosen if not model.tokens[id_].endswith(MARKER)]
    symbols = [symbol for symbol in base_ids if not symbol.endswith(MARKER)]
    bare = replace(model.alphabet, symbols=(*symbols, MARKER), placement="apart")
    found = _find_merged_differently(model, model.alphabet, base_ids, ending)
    found |= _find_merged_differently(model, bare, {**base_ids, MARKER: len(model.tokens)}, inside)
    return dict(sorted(found.items()))


def _find_merged_differently(
    model: Model, alphabet: Alphabet, base_ids: dict[bytes, int], words: list[tuple[int, bytes]]
) -> dict[int, list[int]]:
    """Returns expected id -> ids that the merges make, for the words that do not become their expected id.

    `words` are pairs of expected id and bytes. A marker with the id `len(model.tokens)` is left out of the result.
    """
    if not words:
        return {}
    encoder = WordEncoder(make_bpe_rules(alphabet, base_ids, model.merges, model.ranked_by))
    data, offsets = flatten_bytes(pa.array([word for _, word in words], pa.large_binary()))
    ids, starts = encoder.encode(data, offsets, WordEnds(offsets[1:], np.arange(len(words) + 1), 1))
    stops = starts[1:] - (base_ids.get(MARKER) == len(model.tokens))
    wanted = np.array([id_ for id_, _ in words], np.int32)
    other = np.flatnonzero((stops - starts[:-1] != 1) | (ids[starts[:-1]] != wanted))
    return {words[at][0]: ids[starts[at] : stops[at]].tolist() for at in other.tolist()}


def find_last_merges(model: Model) -> Int32s:
    """Returns the two ids that are merged last when each token is made of its own spelling: int32, shape `(ids, 2)`.

    The ids are -1 for base symbols, for added tokens, and for tokens that the merges do not make.
    """
    parts = np.full((len(model.tokens), 2), -1, np.int32)
    parts[model.merges[:, 2]] = model.merges[:, :2]
    made, num_merges = np.unique(model.merges[:, 2], return_counts=True)
    if (num_merges > 1).any():
        by_pair = {
            (left, right): (rank if model.ranked_by == "merge" else both, both)
            for rank, (left, right, both) in enumerate(model.merges.tolist())
        }
        base_ids = model.base_ids
        for id_ in made[num_merges > 1].tolist():
            parts[id_] = _merge_to_two_parts(model.alphabet.split_symbol(model.tokens[id_]), base_ids, by_pair)
    parts[list(find_unreachable_ids(model))] = -1
    return parts


def _merge_to_two_parts(
    symbols: list[bytes], base_ids: dict[bytes, int], by_pair: dict[tuple[int, int], tuple[int, int]]
) -> tuple[int, int]:
    """Returns the last two ids of a spelling before it becomes one token, or (-1, -1) if merges do not get that far.

    `by_pair` maps a pair of ids to its rank and to the id that it makes.
    """
    if any(symbol not in base_ids for symbol in symbols):
        return (-1, -1)
    parts = [base_ids[symbol] for symbol in symbols]
    while len(parts) > 2:
        pairs = enumerate(pairwise(parts))
        waiting = [(*by_pair[pair], at) for at, pair in pairs if pair in by_pair]
        if not waiting:
            return (-1, -1)
        _, both, at = min(waiting, key=lambda one: (one[0], one[2]))
        parts[at : at + 2] = [both]
    return (parts[0], parts[1])


def rank_by_merges(model: Model) -> Model:
    """Returns a model that gives the same ids with its pairs ranked by a list of merges, not by tokens.

    A model that is ranked by merges is returned as it is.

    Raises:
        NotExpressibleError: No list of merges gives the same ids, because a token is found only as a whole word or has
            a lower id than one of its parts.
    """
    if model.ranked_by == "merge":
        return model
    unreachable = find_first_unreachable(model)
    if unreachable is not None:
        raise NotExpressibleError(
            f"the token {unreachable[0]!r} is found only as a whole word, as the ranks make {unreachable[1]} of it. "
            "With a list of merges, other words that hold it would get other ids"
        )
    parts = find_last_merges(model).tolist()
    merges = [(*parts[made], made) for made in np.unique(model.merges[:, 2]).tolist()]
    # The merges make every token, so a look-up of whole words finds nothing else. Hugging Face's layout does not allow
    # one if there are ids that are not used.
    ignore_merges = model.ignore_merges and b"" not in model.tokens
    rows = np.array(merges, np.int32).reshape(-1, 3)
    merged = replace(model, merges=rows, ranked_by="merge", ignore_merges=ignore_merges)
    _check_parts_come_first(merged)
    return merged


def _check_parts_come_first(model: Model) -> None:
    """Raises NotExpressibleError if a token has a lower id than a merged token that it is made of."""
    made = set(model.merges[:, 2].tolist())
    for left, right, both in model.merges.tolist():
        late = [side for side in (left, right) if side in made and side >= both]
        if late:
            raise NotExpressibleError(
                f"the token {model.tokens[both]!r} has the id {both}, but its part {model.tokens[late[0]]!r} has the "
                f"higher id {late[0]}; ranks and merges would give different ids"
            )
