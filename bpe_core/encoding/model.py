"""What a tokenizer is made of, for encoders and for file formats: its tokens, merges and special tokens, all by id."""

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
from bpe_core.pretokenize.normalizer import Normalization
from bpe_core.pretokenize.pre_tokenizer import PATTERNS, WHITESPACE, PreTokenizer, repair_surrogates

VocabOrder = Literal["merges", "sorted", "gpt2"]
"""The order of the ids of base symbols and merged symbols.

* `merges`: base symbols, then merged symbols in the order learned. Bytes are ordered by value, so that byte b has the
  id b; characters by code point, an end-of-word marker that is a symbol of its own last.
* `sorted`: all symbols by spelling, such a marker last.
* `gpt2` (kind `byte`): as `merges`, but the bytes are in GPT-2's order. Hugging Face's trainer gives the same ids.
"""

SpecialIds = Literal["first", "last"]
"""Whether special tokens have the first ids or the last ones."""

ROLES = ("bos", "eos", "unk", "pad", "sep", "cls", "mask", "additional")
"""The roles that special tokens can have; `additional` takes a list of tokens, the others one each."""

SpecialTokens = Mapping[str, str | Sequence[str]]
"""Role -> spelling, or a list of spellings for the role `additional`."""


class NotExpressibleError(ValueError):
    """A file format cannot hold this model exactly; the message says why."""


def list_special_tokens(special_tokens: SpecialTokens) -> list[str]:
    """Returns the spellings of the special tokens without duplicates, in the order given, which is that of their ids.

    Raises:
        ValueError: a role is unknown, a spelling is empty or holds surrogates, or a role other than `additional` has
            several tokens.

    >>> list_special_tokens({"bos": "<s>", "eos": "</s>", "pad": "</s>", "additional": ["<a>", "<b>"]})
    ['<s>', '</s>', '<a>', '<b>']
    """
    if not isinstance(special_tokens, Mapping):
        raise ValueError(
            f"special tokens are {special_tokens!r}; give a mapping of role to spelling, as {{'eos': '<|endoftext|>'}}"
        )
    spelled: dict[str, None] = {}  # In order, each once.
    for role, given in special_tokens.items():
        if role not in ROLES:
            raise ValueError(f"the special token role {role!r} is unknown; roles are {', '.join(ROLES)}")
        if role != "additional" and not isinstance(given, str):
            raise ValueError(
                f"the special token role {role!r} is given {given!r}; give one spelling, only additional takes a list"
            )
        for spelling in [given] if isinstance(given, str) else given:
            if not spelling:
                raise ValueError(f"the special token with the role {role!r} is empty; give its spelling")
            if repair_surrogates(spelling) != spelling:
                raise ValueError(
                    f"the special token {spelling!r} holds surrogates, which no text can hold; spell it differently"
                )
            spelled[spelling] = None
    return list(spelled)


def check_roles(roles: SpecialTokens, special_tokens: Mapping[str, int]) -> dict[str, str | list[str]]:
    """Returns role -> spelling, or a list of them; raises ValueError if a spelling is not among the special tokens."""
    absent = [spelling for spelling in list_special_tokens(roles) if spelling not in special_tokens]
    if absent:
        raise ValueError(f"{absent[0]!r} has a role, but it is not among the special tokens")
    return {role: given if isinstance(given, str) else list(given) for role, given in roles.items()}


def make_pre_tokenizer(
    kind: Kind, pattern: str | tuple[str, ...] | None = None, unicode: Normalization = "none", lowercase: bool = False
) -> PreTokenizer:
    """Returns the pre-tokenizer for a kind; without a pattern, it is `gpt2` for kind `byte`, `whitespace` for `char`.

    Raises:
        ValueError: kind `char` is given another pattern than `whitespace`, or the pattern looks like a mistyped name.

    >>> make_pre_tokenizer("char").split("hug  pug")
    ['hug', 'pug']
    """
    if kind == "char" and pattern not in (None, WHITESPACE):
        raise ValueError(
            f"kind char splits text at white space, which its end-of-word marker replaces; the pattern {pattern!r} "
            f"would lose text. Leave the pattern out or set it to {WHITESPACE}, or use kind byte"
        )
    if pattern is None:
        pattern = "gpt2" if kind == "byte" else WHITESPACE
    if isinstance(pattern, str) and pattern not in PATTERNS and re.fullmatch(r"[\w-]*", pattern):
        raise ValueError(
            f"pattern {pattern!r} is none of {', '.join(PATTERNS)}, and as a regular expression it would match only "
            "these letters themselves; correct the name, or write an expression that matches words"
        )
    return PreTokenizer(pattern, kind == "byte", unicode, lowercase)


@dataclass(frozen=True, eq=False)
class Model:
    """A tokenizer's parts.

    `merges`, `ranked_by` and `ignore_merges` decide how a word becomes ids:

    * A word starts as its base symbols. While two neighbours are a pair in `merges`, the pair with the lowest rank is
      merged, of equal ranks the leftmost.
    * `ranked_by` says what a pair's rank is. `merge`: its row in `merges`, as in Hugging Face tokenizers and GPT-2's
      `merges.txt`. `token`: the id of the token that it makes, as in tiktoken, which has no list of merges. There every
      two tokens whose bytes join to a third token's are a merge, so one token may be made by several pairs. Both give
      the same ids if each token is made by one pair, ids follow the order of the merges, and every token is what the
      merges make of its own bytes.
    * `ignore_merges` is the flag of that name in Hugging Face's BPE model: a word that is a token as a whole gets that
      token's id without merging. It matters only for tokens that the merges do not make of their own bytes.

    Invariants: the base symbols of `alphabet` are tokens. The token that a merge makes is the concatenation of its two
    parts. No merge makes a special token. If two merges list the same pair, the later one counts.

    Attributes:
        pre_tokenizer: normalizes text and splits it into words.
        alphabet: the base symbols.
        tokens: the bytes of every token, in the order of the ids; empty for an id that is not used. For kind `char`
            they contain the end-of-word marker as `bpe_core.merging.alphabet.MARKER`. For added tokens they are the
            spelling.
        merges: int32, shape `(num_merges, 3)`: the ids of left, right and the token that they make, in merge order.
        special_roles: role -> spelling, or a list of spellings for `additional`.
        added_tokens: the tokens that are found in texts by their spelling: special tokens and others.
        ignore_merges: see above.
        ranked_by: see above.
        prefix_suffix_ids: the ids before and the ids after a text that a post-processor adds when the caller asks.
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
    def kind(self) -> Kind:
        """The alphabet's kind, `byte` or `char`."""
        return self.alphabet.kind

    @property
    def special_tokens(self) -> dict[str, int]:
        """Spelling -> id of every special token."""
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
    """Returns the model of learned merges; `special_ids` and `vocab_order` decide which token has which id.

    Raises:
        ValueError: a special token has an unknown role or no spelling, or `vocab_order` does not go with the kind.
    """
    check_choice("special_ids", special_ids, SpecialIds)
    check_choice("vocab_order", vocab_order, VocabOrder)
    special = list_special_tokens(special_tokens)
    order = _order_symbols(merges, vocab_order)
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


def _order_symbols(merges: Merges, vocab_order: VocabOrder) -> list[int]:
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
            raise ValueError("vocab_order gpt2 is an order of bytes; for kind char use merges or sorted")
        return [*range(num_bases), *learned]
    if kind == "byte":
        return [*sorted(range(num_bases), key=lambda symbol: BYTE_ALPHABET.symbols[symbol]), *learned]
    return [*range(num_bases), *learned]


def get_symbol_pairs(model: Model) -> Int32s:
    """Returns the pairs of a model's merges, numbered as the merge loop numbers symbols: int32, shape `(merges, 2)`.

    The merge loop numbers base symbols from 0 in the alphabet's order, then merged symbols in the order learned.

    Raises:
        ValueError: a merge uses a token that no earlier merge makes, or pairs are ranked by tokens.
    """
    _check_ranked_by_merge(model)
    ids = {token: id_ for id_, token in reversed(list(enumerate(model.tokens)))}
    number = {ids[symbol]: index for index, symbol in enumerate(model.alphabet.symbols)}
    pairs = np.empty((len(model.merges), 2), np.int32)
    for rank, (left, right, made) in enumerate(model.merges.tolist()):
        if left not in number or right not in number:
            raise ValueError(
                f"merge {rank} uses a token that no earlier merge makes, so training cannot resume from it"
            )
        pairs[rank] = number[left], number[right]
        number.setdefault(made, len(number))
    return pairs


def _check_ranked_by_merge(model: Model) -> None:
    if model.ranked_by != "merge":
        raise ValueError(
            "this tokenizer ranks pairs by the tokens that they make, as tiktoken does, so its merges have no order in "
            "which they were learned"
        )


def pairs_to_resume_from(model: Model) -> Int32s:
    """Returns the pairs of a model's merges for the argument `resume_from` of `learn_merges`; see `get_symbol_pairs`.

    Raises:
        ValueError: the model is of kind `char`, or as for `get_symbol_pairs`. The base symbols of kind `char` are the
            characters of its corpus, and another corpus has others.
    """
    if model.alphabet.kind != "byte":
        raise ValueError(
            "this tokenizer is of kind char, whose base symbols are the characters of its corpus; only tokenizers of "
            "kind byte can be trained further"
        )
    return get_symbol_pairs(model)


def get_size_to_learn(model: Model, vocab_size: int) -> int:
    """Returns the `vocab_size` to give to `learn_merges` so that the extended model has `vocab_size` ids in all.

    The two differ if the model has ids that `learn_merges` does not count, such as added tokens that are not special.

    Raises:
        ValueError: the model already has more ids.
    """
    if vocab_size < len(model.tokens):
        raise ValueError(
            f"vocab_size is {vocab_size}; this tokenizer already has {len(model.tokens)} ids, and all stay"
        )
    num_symbols = len(model.alphabet.symbols) + len(np.unique(model.merges[:, 2]))
    return num_symbols + len(model.special_tokens) + vocab_size - len(model.tokens)


def extend_model(model: Model, merges: Merges) -> Model:
    """Returns the model with more merges; every id stays, and new tokens get the next ids.

    Args:
        model: the model.
        merges: the model's merges, and the new ones after them, as `learn_merges` returns when it resumes.
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
    """Returns the model with its first merges only; without the tokens that only later merges make, ids close up.

    Raises:
        ValueError: the model has fewer merges, or ranks pairs by tokens.
    """
    _check_ranked_by_merge(model)
    if not 0 <= num_merges <= len(model.merges):
        raise ValueError(
            f"num_merges is {num_merges}; this tokenizer has {len(model.merges)} merges, give at most that"
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
