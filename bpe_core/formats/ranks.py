"""Ranks and merges: the same tokens may mean two different things.

tiktoken merges any two neighbours that spell a token, the token of the lowest id first; a list of merges makes only the
merges in it. Let `ab`, `bc` and `abc` be tokens in this order, `abc` learned from `a` and `bc`. In `abc` the merges
make `ab` and stop there, for `ab` + `c` is no merge; tiktoken goes on to `abc`.

Both are alike where every token is what the merges make of its own spelling, ids follow the merges, and each token is
made by one merge: at the moment when the lowest rank that waits is a token's, what lies inside its spelling has been
merged by all lower ranks, just as if it stood alone, so its two parts are those that it was learned from.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pyarrow as pa

from bpe_core.encoding.model import Model, NotExpressibleError
from bpe_core.encoding.word_encoder import WordEncoder
from bpe_core.kernels import Int32s, flatten_bytes
from bpe_core.merging.alphabet import MARKER, Alphabet
from bpe_core.pretokenize.pre_tokenizer import WordEnds


def check_ranks_equal_merges(model: Model) -> None:
    """Raises NotExpressibleError unless merges and ranks mean the same; the module says why these rules suffice."""
    _check_parts_come_first(model)
    made = model.merges[:, 2]
    if (np.diff(made) <= 0).any():
        at = int(np.flatnonzero(np.diff(made) <= 0)[0]) + 1
        raise NotExpressibleError(
            f"merge {at} makes {model.tokens[made[at]]!r} with the id {made[at]}, the one before it {made[at - 1]}; "
            "ranks are ids, so ids must follow the merges (vocab_order merges or gpt2), one merge for each token"
        )
    other = find_first_unreachable(model)
    if other is not None:
        raise NotExpressibleError(
            f"the merges make {' + '.join(repr(part) for part in other[1])} of {other[0]!r}, which is a token, and "
            "tiktoken would make the token"
        )


def find_first_unreachable(model: Model) -> tuple[bytes, list[bytes]] | None:
    """Returns a token of kind `byte` that the merges do not make of its own spelling, and what they make; or None."""
    first = next(iter(find_unreachable_ids(model).items()), None)
    return first and (model.tokens[first[0]], [model.tokens[part] for part in first[1]])


def find_unreachable_ids(model: Model) -> dict[int, list[int]]:
    """Returns each id whose token the merges do not make of its own spelling, and the ids that they make, by id.

    A character without a symbol is below 0 among these. Whole words that are looked up (`ignore_merges`) do not count
    here; added tokens have no spelling in merges.
    """
    kind, base_ids = model.alphabet.kind, _base_ids(model)
    left_out = {*base_ids.values(), *(token.id for token in model.added_tokens)}
    chosen = [id_ for id_, token in enumerate(model.tokens) if id_ not in left_out and token]
    if kind == "byte":
        return _made_otherwise(model, model.alphabet, base_ids, [(id_, model.tokens[id_]) for id_ in chosen])
    # The encoder puts a marker after every word; where the token has none, one that merges with nothing.
    ending = [(id_, model.tokens[id_][:-1]) for id_ in chosen if model.tokens[id_].endswith(MARKER)]
    inside = [(id_, model.tokens[id_]) for id_ in chosen if not model.tokens[id_].endswith(MARKER)]
    symbols = [symbol for symbol in base_ids if not symbol.endswith(MARKER)]
    bare = replace(model.alphabet, symbols=(*symbols, MARKER), placement="apart")
    made = _made_otherwise(model, model.alphabet, base_ids, ending)
    made |= _made_otherwise(model, bare, {**base_ids, MARKER: len(model.tokens)}, inside)
    return dict(sorted(made.items()))


def _base_ids(model: Model) -> dict[bytes, int]:
    added = {token.id for token in model.added_tokens}
    ids = {token: id_ for id_, token in enumerate(model.tokens) if id_ not in added}
    for token in model.added_tokens:  # One may stand for a symbol of the merges as well.
        ids.setdefault(token.content.encode(), token.id)
    return {symbol: ids[symbol] for symbol in model.alphabet.symbols}


def _made_otherwise(
    model: Model, alphabet: Alphabet, base_ids: dict[bytes, int], words: list[tuple[int, bytes]]
) -> dict[int, list[int]]:
    """Returns what the merges make of words where that is not the one id that stands beside the word."""
    if not words:
        return {}
    encoder = WordEncoder(alphabet, base_ids, model.merges, model.ranked_by)
    data, offsets = flatten_bytes(pa.array([word for _, word in words], pa.large_binary()))
    ids, starts = encoder.encode(data, offsets, WordEnds(offsets[1:], np.arange(len(words) + 1), 1))
    stops = starts[1:] - (base_ids.get(MARKER) == len(model.tokens))
    wanted = np.array([id_ for id_, _ in words], np.int32)
    other = np.flatnonzero((stops - starts[:-1] != 1) | (ids[starts[:-1]] != wanted))
    return {words[at][0]: ids[starts[at] : stops[at]].tolist() for at in other.tolist()}


def find_last_merges(model: Model) -> Int32s:
    """Returns the two ids that each token is merged from in the end when it is made of its own spelling alone.

    int32, shape `(ids, 2)`; -1 for base symbols, added tokens, and where the merges do not make the token.
    """
    parts = np.full((len(model.tokens), 2), -1, np.int32)
    parts[model.merges[:, 2]] = model.merges[:, :2]
    made, num_merges = np.unique(model.merges[:, 2], return_counts=True)
    if (num_merges > 1).any():
        by_pair = {
            (left, right): (rank if model.ranked_by == "merge" else both, both)
            for rank, (left, right, both) in enumerate(model.merges.tolist())
        }
        base_ids = _base_ids(model)
        for id_ in made[num_merges > 1].tolist():
            parts[id_] = _last_parts(model.alphabet.split_symbol(model.tokens[id_]), base_ids, by_pair)
    parts[list(find_unreachable_ids(model))] = -1
    return parts


def _last_parts(
    symbols: list[bytes], base_ids: dict[bytes, int], by_pair: dict[tuple[int, int], tuple[int, int]]
) -> tuple[int, int]:
    """Returns the last two parts that merges leave of a spelling; (-1, -1) where they leave more."""
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
    """Returns a model that is ranked by tokens as one that is ranked by merges and gives the same ids.

    Raises:
        NotExpressibleError: there is none, for a token cannot be made by lower ones; the message names it.
    """
    if model.ranked_by == "merge":
        return model
    other = find_first_unreachable(model)
    if other is not None:
        raise NotExpressibleError(
            f"the token {other[0]!r} is found only as a whole word: the ranks make {other[1]} of it. "
            "As merges, other words that hold it would get other ids"
        )
    parts = find_last_merges(model).tolist()
    merges = [(*parts[made], made) for made in np.unique(model.merges[:, 2]).tolist()]
    merged = replace(model, merges=np.array(merges, np.int32).reshape(-1, 3), ranked_by="merge")
    _check_parts_come_first(merged)
    return merged


def _check_parts_come_first(model: Model) -> None:
    made = set(model.merges[:, 2].tolist())
    for left, right, both in model.merges.tolist():
        late = [side for side in (left, right) if side in made and side >= both]
        if late:
            raise NotExpressibleError(
                f"the token {model.tokens[both]!r} has the id {both}, before its part {model.tokens[late[0]]!r} with "
                f"{late[0]}; as ranks and as merges that gives different ids"
            )
