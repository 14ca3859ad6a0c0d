"""What a tokenizer is made of, ready to be used or to be written: tokens by id, merges by id, special tokens."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.encoding.word_merging import RankedBy
from bpe_core.kernels import Int32s
from bpe_core.merging.alphabet import BYTE_ALPHABET, MARKER, Alphabet, Kind, check_choice
from bpe_core.merging.merges import Merges
from bpe_core.pretokenize.pre_tokenizer import PATTERNS, WHITESPACE, Normalization, PreTokenizer, repair_surrogates

VocabOrder = Literal["merges", "sorted", "gpt2"]
"""How ids follow from symbols.

`merges`: base symbols (bytes by value, so that byte b has id b; characters by code point, the marker last), then the
merges' symbols as learned. `sorted`: all by spelling, a marker that stands apart last. `gpt2` (kind `byte`): as
`merges`, but the bytes in GPT-2's order, which gives the ids of Hugging Face's trainer.
"""

SpecialIds = Literal["first", "last"]

ROLES = ("bos", "eos", "unk", "pad", "sep", "cls", "mask", "additional")
"""What a special token may be for; `additional` takes a list."""

SpecialTokens = Mapping[str, str | Sequence[str]]


class NotExpressibleError(ValueError):
    """A format cannot hold this model exactly; the message says why."""


def list_special_tokens(special_tokens: SpecialTokens) -> list[str]:
    """Returns the different special tokens in the order given, which is the order of their ids.

    Raises:
        ValueError: an unknown role, an empty spelling, or several where the role has one.
    """
    if not isinstance(special_tokens, Mapping):
        raise ValueError(
            f"special tokens are {special_tokens!r}; give role and spelling, as {{'eos': '<|endoftext|>'}}"
        )
    spelled: dict[str, None] = {}  # In order, each once.
    for role, given in special_tokens.items():
        if role not in ROLES:
            raise ValueError(f"special token role {role!r} is unknown; roles are {', '.join(ROLES)}")
        if role != "additional" and not isinstance(given, str):
            raise ValueError(f"special token role {role!r} is given {given!r}; only additional takes a list")
        for spelling in [given] if isinstance(given, str) else given:
            if not spelling:
                raise ValueError(f"the special token of role {role!r} is empty; write its spelling")
            if repair_surrogates(spelling) != spelling:
                raise ValueError(
                    f"the special token {spelling!r} holds surrogates, which no text can; spell it otherwise"
                )
            spelled[spelling] = None
    return list(spelled)


def make_pre_tokenizer(
    kind: Kind, pattern: str | tuple[str, ...] | None = None, unicode: Normalization = "none", lowercase: bool = False
) -> PreTokenizer:
    """Returns how a tokenizer of this kind cuts text: by `gpt2` (kind `byte`) or at blanks (kind `char`).

    Raises:
        ValueError: kind `char` with another pattern than `whitespace`, or a pattern that is a mistyped name.
    """
    if kind == "char" and pattern not in (None, WHITESPACE):
        raise ValueError(
            f"kind char cuts words at blanks, where its end-of-word marker stands for them; the pattern {pattern!r} "
            f"would lose text. Leave the pattern out or set it to {WHITESPACE}, or use kind byte"
        )
    if pattern is None:
        pattern = "gpt2" if kind == "byte" else WHITESPACE
    if isinstance(pattern, str) and pattern not in PATTERNS and re.fullmatch(r"[\w-]*", pattern):
        raise ValueError(
            f"pattern {pattern!r} is none of {', '.join(PATTERNS)}, and as a regular expression it would cut text at "
            "these very letters only; correct the name, or write an expression that finds words"
        )
    return PreTokenizer(pattern, kind == "byte", unicode, lowercase)


@dataclass(frozen=True, eq=False)
class Model:
    """A tokenizer's parts.

    Attributes:
        pre_tokenizer: normalizes text and splits it into words.
        alphabet: the base symbols.
        tokens: the bytes of every id, from 0; see `bpe_core.merging.alphabet` for the
            marker. Special tokens: their spelling.
        merges: int32, shape `(merges, 3)`: the ids of left, right and the symbol they make, in the order learned.
        special_roles: role -> spelling, or a list of them for `additional`.
        added_tokens: the tokens that no merge makes, special ones and others.
        ignore_merges: a word that is a token as a whole is that token, whatever the merges make of it.
        ranked_by: what decides which pair is merged first: the place of its merge, or the id of the token it makes (as
            in tiktoken, where every two tokens that spell a third are a merge). Both are the same where each token is
            made by one merge, ids follow the merges, and every token is what the merges make of its spelling.
        prefix_suffix_ids: ids that stand before and after a text when asked for, as a post-processor puts them.
    """

    pre_tokenizer: PreTokenizer
    alphabet: Alphabet
    tokens: Sequence[bytes]
    merges: Int32s
    special_roles: Mapping[str, str | list[str]]
    added_tokens: tuple[AddedToken, ...]
    ignore_merges: bool = False
    ranked_by: RankedBy = "merge"
    prefix_suffix_ids: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())

    @property
    def special_tokens(self) -> dict[str, int]:
        """Spelling -> id, for every special token."""
        return {token.content: token.id for token in self.added_tokens if token.special}

    @property
    def base_ids(self) -> dict[bytes, int]:
        """Base symbol -> id, in the alphabet's order; an added token may also be a base symbol."""
        added = {token.id for token in self.added_tokens}
        ids = {token: id_ for id_, token in enumerate(self.tokens) if id_ not in added}
        for token in self.added_tokens:
            ids.setdefault(token.content.encode(), token.id)
        return {symbol: ids[symbol] for symbol in self.alphabet.symbols}


def number_tokens(
    merges: Merges,
    pre_tokenizer: PreTokenizer,
    special_tokens: SpecialTokens,
    special_ids: SpecialIds,
    vocab_order: VocabOrder,
) -> Model:
    """Returns the model of these merges, with ids as `special_ids` and `vocab_order` say."""
    check_choice("special_ids", special_ids, SpecialIds)
    check_choice("vocab_order", vocab_order, VocabOrder)
    special = list_special_tokens(special_tokens)
    order = _order(merges, vocab_order)
    first = len(special) if special_ids == "first" else 0
    id_of = np.empty(len(order), np.int32)
    id_of[order] = np.arange(first, first + len(order), dtype=np.int32)
    symbols = [merges.symbols[symbol] for symbol in order]
    spelled = [spelling.encode() for spelling in special]
    roles = {
        role: _listed(given) if role == "additional" else str(given) for role, given in special_tokens.items() if given
    }
    first_special = 0 if special_ids == "first" else len(symbols)
    return Model(
        pre_tokenizer,
        merges.alphabet,
        [*spelled, *symbols] if special_ids == "first" else [*symbols, *spelled],
        np.stack([id_of[merges.left], id_of[merges.right], id_of[merges.merged]], axis=1),
        roles,
        tuple(AddedToken(spelling, first_special + i) for i, spelling in enumerate(special)),
    )


def _listed(given: str | Sequence[str]) -> list[str]:
    return [given] if isinstance(given, str) else list(given)


def _order(merges: Merges, vocab_order: VocabOrder) -> list[int]:
    """Returns the symbols in the order of their ids."""
    kind = merges.alphabet.kind
    num_bases = len(merges.alphabet.symbols)
    learned = list(range(num_bases, len(merges.symbols)))
    if vocab_order == "sorted":
        return sorted(
            range(len(merges.symbols)),
            key=lambda symbol: (
                kind == "char" and merges.symbols[symbol] == MARKER,
                merges.alphabet.write_out_marker(merges.symbols[symbol]),
                merges.symbols[symbol],
            ),
        )
    if vocab_order == "gpt2":
        if kind != "byte":
            raise ValueError("vocab_order gpt2 is an order of bytes; for kind char choose merges or sorted")
        return [*range(num_bases), *learned]
    if kind == "byte":
        return [*sorted(range(num_bases), key=lambda symbol: BYTE_ALPHABET.symbols[symbol]), *learned]
    return [*range(num_bases), *learned]


def symbol_pairs(model: Model) -> Int32s:
    """Returns the merges of a model by the numbers that the merge loop gives symbols: int32, shape `(merges, 2)`.

    Raises:
        ValueError: a merge takes a token that no merge before it makes, or pairs are ranked by tokens.
    """
    if model.ranked_by != "merge":
        raise ValueError(
            "the pairs of this tokenizer are ranked by tokens, not by merges, so there is no more to learn"
        )
    ids = {token: id_ for id_, token in reversed(list(enumerate(model.tokens)))}
    number = {ids[symbol]: index for index, symbol in enumerate(model.alphabet.symbols)}
    pairs = np.empty((len(model.merges), 2), np.int32)
    for rank, (left, right, made) in enumerate(model.merges.tolist()):
        if left not in number or right not in number:
            raise ValueError(f"merge {rank} takes a token that no merge before it makes; it cannot be learned on from")
        pairs[rank] = number[left], number[right]
        number.setdefault(made, len(number))
    return pairs


def pairs_to_resume_from(model: Model) -> Int32s:
    """Returns the merges of a model as the merge loop takes them up, see `symbol_pairs`.

    Raises:
        ValueError: kind `char`, whose base symbols another corpus may lack, or as `symbol_pairs`.
    """
    if model.alphabet.kind != "byte":
        raise ValueError(
            "this tokenizer is of kind char; only kind byte can be trained on, for it has every base symbol"
        )
    return symbol_pairs(model)


def size_to_learn(model: Model, vocab_size: int) -> int:
    """Returns the `vocab_size` for `learn_merges` with which a model that is gone on from has `vocab_size` ids in all.

    Raises:
        ValueError: the model has more ids already.
    """
    if vocab_size < len(model.tokens):
        raise ValueError(f"vocab_size is {vocab_size}: this tokenizer has {len(model.tokens)} ids already, which stay")
    num_symbols = len(model.alphabet.symbols) + len(np.unique(model.merges[:, 2]))
    return num_symbols + len(model.special_tokens) + vocab_size - len(model.tokens)


def extend_model(model: Model, merges: Merges) -> Model:
    """Returns a model with the merges that `merges`, learned on from this model's, has beyond them.

    Every id stays; new tokens follow the last one.
    """
    tokens = list(model.tokens)
    ids = {token: id_ for id_, token in reversed(list(enumerate(tokens)))}
    rows = []
    for left, right, made in zip(merges.left, merges.right, merges.merged, strict=True):
        spelled = [merges.symbols[symbol] for symbol in (left, right, made)]
        if spelled[2] not in ids:
            ids[spelled[2]] = len(tokens)
            tokens.append(spelled[2])
        rows.append([ids[token] for token in spelled])
    new = np.array(rows[len(model.merges) :], np.int32).reshape(-1, 3)
    return replace(model, tokens=tokens, merges=np.concatenate([model.merges, new]))


def keep_first_merges(model: Model, num_merges: int) -> Model:
    """Returns the model with the first merges only, and no token that only later ones make; ids close up in order.

    Raises:
        ValueError: there are fewer merges, or pairs are ranked by tokens.
    """
    if model.ranked_by != "merge" or not 0 <= num_merges <= len(model.merges):
        raise ValueError(
            f"num_merges is {num_merges}; this tokenizer has {len(model.merges)}, ranked by {model.ranked_by}"
        )
    kept = {*model.merges[:num_merges].ravel().tolist(), *(token.id for token in model.added_tokens)}
    later = set(model.merges[num_merges:, 2].tolist()) - kept
    numbers = np.full(len(model.tokens), -1, np.int32)
    chosen = [id_ for id_ in range(len(model.tokens)) if id_ not in later]
    numbers[chosen] = np.arange(len(chosen))
    begin, end = (tuple(int(numbers[id_]) for id_ in side) for side in model.prefix_suffix_ids)
    return replace(
        model,
        tokens=[model.tokens[id_] for id_ in chosen],
        merges=numbers[model.merges[:num_merges]],
        added_tokens=tuple(token._replace(id=int(numbers[token.id])) for token in model.added_tokens),
        prefix_suffix_ids=(begin, end),
    )
