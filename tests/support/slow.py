"""Slow, obvious versions of the compiled code, written as one would explain the algorithm. Tests compare both."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise

import regex

from bpe_core.encoding.added_tokens import AddedToken
from bpe_core.merging.alphabet import GPT2_BYTE_ORDER

Symbol = tuple[bytes, bool]
"""The bytes of a symbol, with the end-of-word marker written out, and whether the marker ends it."""

Pair = tuple[Symbol, Symbol]

DROPPED = "\ue000"
"""Replaces each character that `limit_alphabet` drops."""


def learn_merges(
    word_counts: dict[bytes, int],
    *,
    num_merges: int | None = None,
    vocab_size: int | None = None,
    kind: str = "byte",
    ties: str = "smaller-pair",
    min_frequency: int = 1,
    max_token_length: int = 10**9,
    limit_alphabet: int | None = None,
    whole_characters: bool = False,
    end_of_word: str = "</w>",
    end_of_word_placement: str = "apart",
    special_tokens: Iterable[str] = (),
) -> list[tuple[bytes, bytes, int]]:
    """Returns the merges as (left, right, count). Counts every pair again in every step."""
    if limit_alphabet is not None:
        word_counts = drop_rare_characters(word_counts, limit_alphabet)
    special = {spelling.encode() for spelling in special_tokens}
    corpus = [(spell(word, kind, end_of_word, end_of_word_placement), n) for word, n in word_counts.items()]
    if limit_alphabet is not None:
        corpus = [(part, n) for symbols, n in corpus for part in split_at_dropped(symbols)]
    rank = rank_base_symbols(word_counts, corpus, kind, end_of_word)

    def measure_length(symbol: Symbol) -> int:
        if kind == "byte":
            return len(symbol[0])
        return len(symbol[0].removesuffix(end_of_word.encode() if symbol[1] else b"").decode())

    def is_allowed(pair: Pair) -> bool:
        spelling = pair[0][0] + pair[1][0]
        return (
            measure_length(pair[0]) + measure_length(pair[1]) <= max_token_length
            and not (whole_characters and breaks_character(spelling))
            and spelling not in special
        )

    merges: list[tuple[bytes, bytes, int]] = []
    while True:
        if num_merges is not None and len(merges) >= num_merges:
            break
        if vocab_size is not None and len(rank) + len(special) >= vocab_size:
            break
        counts = count_pairs(corpus)
        candidates = [pair for pair, n in counts.items() if n >= max(1, min_frequency) and is_allowed(pair)]
        if not candidates:
            break
        highest = max(counts[pair] for pair in candidates)
        best = break_tie([pair for pair in candidates if counts[pair] == highest], ties, rank)
        joined = (best[0][0] + best[1][0], best[1][1])
        rank.setdefault(joined, len(rank))
        corpus = [(merge(symbols, best, joined), n) for symbols, n in corpus]
        merges.append((best[0][0], best[1][0], highest))
    return merges


def spell(word: bytes, kind: str, end_of_word: str = "</w>", placement: str = "apart") -> list[Symbol]:
    """Returns the base symbols of a word."""
    if kind == "byte":
        return [(bytes([byte]), False) for byte in word]
    characters = [(character.encode(), False) for character in word.decode()]
    if placement == "apart":
        return [*characters, (end_of_word.encode(), True)]
    return [*characters[:-1], (characters[-1][0] + end_of_word.encode(), True)]


def rank_base_symbols(
    word_counts: dict[bytes, int], corpus: list[tuple[list[Symbol], int]], kind: str, end_of_word: str
) -> dict[Symbol, int]:
    """Returns the place of each base symbol in the order of the tie rule `smaller-pair`."""
    if kind == "byte":
        return {(bytes([byte]), False): i for i, byte in enumerate(GPT2_BYTE_ORDER)}
    bare = {(c.encode(), False) for word in word_counts for c in word.decode() if c != DROPPED}
    found = {symbol for symbols, _ in corpus for symbol in symbols}
    order = sorted(bare | found, key=lambda s: s[0].removesuffix(end_of_word.encode()) + b"\xff" if s[1] else s[0])
    return {symbol: i for i, symbol in enumerate(order)}


def count_pairs(corpus: list[tuple[list[Symbol], int]]) -> Counter[Pair]:
    """Returns how often each pair occurs, in the order in which pairs first appear."""
    counts: Counter[Pair] = Counter()
    for symbols, n in corpus:
        for pair in pairwise(symbols):
            counts[pair] += n
    return counts


def break_tie(tied: list[Pair], ties: str, rank: dict[Symbol, int]) -> Pair:
    """Returns which of equally frequent pairs, given in the order of first appearance, is merged first."""
    ranks = {pair: (rank[pair[0]], rank[pair[1]]) for pair in tied}
    if ties == "smaller-pair":
        return min(tied, key=ranks.__getitem__)
    if ties == "first-seen":
        return tied[0]
    spellings = {pair: (pair[0][0], pair[1][0]) for pair in tied}
    chosen = max(spellings.values()) if ties == "larger-pair" else min(spellings.values())
    return min((pair for pair in tied if spellings[pair] == chosen), key=ranks.__getitem__)


def merge(symbols: list[Symbol], pair: Pair, joined: Symbol) -> list[Symbol]:
    """Returns a word after one merge, made from the left."""
    merged: list[Symbol] = []
    at = 0
    while at < len(symbols):
        if tuple(symbols[at : at + 2]) == pair:
            merged.append(joined)
            at += 2
        else:
            merged.append(symbols[at])
            at += 1
    return merged


def breaks_character(text: bytes) -> bool:
    """Whether the bytes hold part of a UTF-8 character and anything outside that character."""
    try:
        text.decode()
    except UnicodeDecodeError:
        continuation = [0x80 <= byte < 0xC0 for byte in text]
        lead = text[0]
        width = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
        is_start_of_one = not continuation[0] and all(continuation[1:]) and len(text) < width
        is_rest_of_one = all(continuation) and len(text) <= 3
        return not (is_start_of_one or is_rest_of_one)
    return False


def drop_rare_characters(word_counts: dict[bytes, int], limit: int) -> dict[bytes, int]:
    """Returns the words with all but the `limit` most frequent characters replaced by `DROPPED`."""
    counts: Counter[str] = Counter()
    for word, n in word_counts.items():
        for character in word.decode():
            counts[character] += n
    kept = set(sorted(counts, key=lambda c: (-counts[c], c))[:limit])
    replaced: dict[bytes, int] = {}
    for word, n in word_counts.items():
        new = "".join(c if c in kept else DROPPED for c in word.decode()).encode()
        replaced[new] = replaced.get(new, 0) + n
    return replaced


def split_at_dropped(symbols: list[Symbol]) -> list[list[Symbol]]:
    """Returns the parts of a word between dropped characters."""
    parts: list[list[Symbol]] = [[]]
    for symbol in symbols:
        if symbol[0].startswith(DROPPED.encode()):
            parts.append([])
        else:
            parts[-1].append(symbol)
    return [part for part in parts if part]


def encode(symbols: list[Symbol], merges: list[Pair]) -> list[Symbol]:
    """Returns a word's tokens. Makes one merge at a time: the one learned first, and of several the leftmost."""
    rank = {pair: i for i, pair in enumerate(merges)}
    while True:
        pairs = list(pairwise(symbols))
        known = [(rank[pair], at) for at, pair in enumerate(pairs) if pair in rank]
        if not known:
            return symbols
        _, at = min(known)
        left, right = pairs[at]
        symbols = [*symbols[:at], (left[0] + right[0], right[1]), *symbols[at + 2 :]]


def find_spelling_starts(text: bytes, spellings: Sequence[bytes]) -> list[tuple[int, int]]:
    """Returns each place at which a spelling starts, and the index of the longest spelling there."""
    found = []
    for at in range(len(text)):
        here = [index for index, spelling in enumerate(spellings) if text.startswith(spelling, at)]
        if here:
            found.append((at, max(here, key=lambda index: len(spellings[index]))))
    return found


TextPiece = tuple[str, AddedToken | None]
"""A part of a text, and the added token that it is."""


def split_at_added_tokens(
    text: str, tokens: Sequence[AddedToken], normalize: Callable[[str], str], passes_special: bool = False
) -> list[TextPiece]:
    """Returns the pieces of a text: added tokens, and the normalized text between them."""
    raw = {token.content: token for token in tokens if not token.normalized}
    normalized = {normalize(token.content): token for token in tokens if token.normalized}
    pieces: list[TextPiece] = []
    for part, token in split_at_spellings(text, raw, passes_special):
        if token is None:
            pieces += split_at_spellings(normalize(part), normalized, passes_special)
        else:
            pieces.append((part, token))
    return pieces


def split_at_spellings(text: str, spelled: Mapping[str, AddedToken], passes_special: bool) -> Iterator[TextPiece]:
    """Yields the parts of a text: the leftmost spellings, the longest of several at one place, and what is between."""
    at = end = 0
    while at < len(text):
        here = [spelling for spelling in spelled if text.startswith(spelling, at)]
        if not here:
            at += 1
            continue
        spelling = max(here, key=len)
        token = spelled[spelling]
        start, stop = at, at + len(spelling)
        at = stop
        if token.special and passes_special:
            continue
        if token.single_word and (is_word_character(text[:start][-1:]) or is_word_character(text[stop:][:1])):
            continue
        if token.lstrip:
            start = max(len(regex.sub(r"\s+$", "", text[:start])), end)
        if token.rstrip:
            stop = max(stop, end)
            stop = len(text) - len(regex.sub(r"^\s+", "", text[stop:]))
        if start < stop:
            if start > end:
                yield text[end:start], None
            yield text[start:stop], token
            end = stop
    if end < len(text):
        yield text[end:], None


def is_word_character(character: str) -> bool:
    return bool(regex.match(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]", character))
