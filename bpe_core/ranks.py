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

from bpe_core.alphabet import BYTES
from bpe_core.encoder import Encoder
from bpe_core.model import Model, NotExpressible
from bpe_core.words import Cut


def check_as_ranks(model: Model) -> None:
    """Raises NotExpressible unless merges and ranks mean the same; the module says why these rules suffice."""
    _check_parts_come_first(model)
    made = model.merges[:, 2]
    if (np.diff(made) <= 0).any():
        at = int(np.flatnonzero(np.diff(made) <= 0)[0]) + 1
        raise NotExpressible(
            f"merge {at} makes {model.tokens[made[at]]!r} with the id {made[at]}, the one before it {made[at - 1]}; "
            "ranks are ids, so ids must follow the merges (vocab_order merges or gpt2), one merge for each token"
        )
    other = unreachable(model)
    if other is not None:
        raise NotExpressible(
            f"the merges make {' + '.join(repr(part) for part in other[1])} of {other[0]!r}, which is a token, and "
            "tiktoken would make the token"
        )


def unreachable(model: Model) -> tuple[bytes, list[bytes]] | None:
    """Returns a token of kind `byte` that the merges do not make of its own spelling, and what they make; or None."""
    added = {token.id for token in model.added_tokens}
    chosen = [(token, id_) for id_, token in enumerate(model.tokens) if id_ not in added and token]
    base_ids = {token: id_ for token, id_ in chosen if len(token) == 1}
    data = np.frombuffer(b"".join(token for token, _ in chosen) + bytes(16), np.uint8)
    ends = np.cumsum([len(token) for token, _ in chosen])
    offsets = np.concatenate([[0], ends]).astype(np.int64)
    encoder = Encoder(BYTES, base_ids, model.merges, model.ranked_by)
    cut = Cut(ends.astype(np.int64), np.arange(len(chosen) + 1), 1)
    ids, starts = encoder.encode(data[: ends[-1]], offsets, cut)
    for (token, id_), start, stop in zip(chosen, starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        if ids[start:stop].tolist() != [id_]:
            return token, [model.tokens[part] for part in ids[start:stop]]
    return None


def as_merges(model: Model) -> Model:
    """Returns a model that is ranked by tokens as one that is ranked by merges and gives the same ids.

    Raises:
        NotExpressible: there is none, for a token cannot be made by lower ones; the message names it.
    """
    if model.ranked_by == "merge":
        return model
    other = unreachable(model)
    if other is not None:
        raise NotExpressible(
            f"the token {other[0]!r} is found only as a whole word: the ranks make {other[1]} of it. "
            "As merges, other words that hold it would get other ids"
        )
    # The last merge of each token, made from its spelling by lower ranks alone, is the one that it is learned by.
    by_pair = {(left, right): made for left, right, made in model.merges.tolist()}
    base_ids = {token: id_ for id_, token in enumerate(model.tokens) if len(token) == 1}
    merges = []
    for made in np.unique(model.merges[:, 2]).tolist():
        parts = [base_ids[bytes([byte])] for byte in model.tokens[made]]
        while len(parts) > 2:
            pairs = enumerate(pairwise(parts))
            token, at = min((by_pair[pair], at) for at, pair in pairs if pair in by_pair)
            parts[at : at + 2] = [token]
        merges.append((parts[0], parts[1], made))
    merged = replace(model, merges=np.array(merges, np.int32).reshape(-1, 3), ranked_by="merge")
    _check_parts_come_first(merged)
    return merged


def _check_parts_come_first(model: Model) -> None:
    made = set(model.merges[:, 2].tolist())
    for left, right, both in model.merges.tolist():
        late = [side for side in (left, right) if side in made and side >= both]
        if late:
            raise NotExpressible(
                f"the token {model.tokens[both]!r} has the id {both}, before its part {model.tokens[late[0]]!r} with "
                f"{late[0]}; as ranks and as merges that gives different ids"
            )
