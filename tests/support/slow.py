"""Slow, obvious twins of the compiled code: what it must equal, written as one would explain it."""

from collections import Counter
from collections.abc import Iterable
from itertools import pairwise

from bpe_core.merging.alphabet import GPT2_BYTE_ORDER

Symbol = tuple[bytes, bool]  # What is seen, and whether the end-of-word marker ends it.


def spell(word: bytes, kind: str, end_of_word: str = "</w>", placement: str = "apart") -> list[Symbol]:
    """The base symbols of a word."""
    if kind == "byte":
        return [(bytes([byte]), False) for byte in word]
    characters = [(character.encode(), False) for character in word.decode()]
    if placement == "apart":
        return [*characters, (end_of_word.encode(), True)]
    return [*characters[:-1], (characters[-1][0] + end_of_word.encode(), True)]


def merge(symbols: list[Symbol], pair: tuple[Symbol, Symbol], joined: Symbol) -> list[Symbol]:
    """The word after one merge, made from the left."""
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


def breaks_a_character(text: bytes) -> bool:
    """Whether the bytes hold part of a UTF-8 character and anything beyond it."""
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
    """The merges as (left, right, count), every pair counted anew at every step."""
    if limit_alphabet is not None:
        word_counts = drop_rare_characters(word_counts, limit_alphabet)
    special = {spelling.encode() for spelling in special_tokens}
    corpus = [(spell(word, kind, end_of_word, end_of_word_placement), n) for word, n in word_counts.items()]
    if limit_alphabet is not None:
        corpus = [(part, n) for symbols, n in corpus for part in split_at_dropped(symbols)]
    if kind == "byte":
        rank = {(bytes([byte]), False): i for i, byte in enumerate(GPT2_BYTE_ORDER)}
    else:
        bare = {(c.encode(), False) for word in word_counts for c in word.decode() if c != DROPPED}
        seen = {symbol for symbols, _ in corpus for symbol in symbols}
        order = sorted(bare | seen, key=lambda s: s[0].removesuffix(end_of_word.encode()) + b"\xff" if s[1] else s[0])
        rank = {symbol: i for i, symbol in enumerate(order)}
    merges: list[tuple[bytes, bytes, int]] = []
    while True:
        if num_merges is not None and len(merges) >= num_merges:
            break
        if vocab_size is not None and len(rank) + len(special) >= vocab_size:
            break
        counts: Counter[tuple[Symbol, Symbol]] = Counter()  # Keeps the order of first appearance.
        for symbols, n in corpus:
            for pair in pairwise(symbols):
                counts[pair] += n
        first_seen = {pair: i for i, pair in enumerate(counts)}

        def length(symbol: Symbol) -> int:
            return len(symbol[0]) if kind == "byte" else len(symbol[0].removesuffix(tail(symbol)).decode())

        def tail(symbol: Symbol) -> bytes:
            return end_of_word.encode() if symbol[1] else b""

        def allowed(pair: tuple[Symbol, Symbol]) -> bool:
            joined = pair[0][0] + pair[1][0]
            return (
                length(pair[0]) + length(pair[1]) <= max_token_length
                and not (whole_characters and breaks_a_character(joined))
                and joined not in special
            )

        candidates = [pair for pair, n in counts.items() if n >= max(1, min_frequency) and allowed(pair)]
        if not candidates:
            break
        most = max(counts[pair] for pair in candidates)
        tied = [pair for pair in candidates if counts[pair] == most]
        ranks = {pair: (rank[pair[0]], rank[pair[1]]) for pair in tied}
        if ties == "smaller-pair":
            best = min(tied, key=ranks.__getitem__)
        elif ties == "first-seen":
            best = min(tied, key=first_seen.__getitem__)
        else:
            spelled = sorted(tied, key=lambda pair: ((pair[0][0], pair[1][0]), ranks[pair]))
            best = spelled[0]
            if ties == "larger-pair":
                largest = spelled[-1]
                same = [p for p in spelled if (p[0][0], p[1][0]) == (largest[0][0], largest[1][0])]
                best = min(same, key=ranks.__getitem__)
        joined = (best[0][0] + best[1][0], best[1][1])
        rank.setdefault(joined, len(rank))
        corpus = [(merge(symbols, best, joined), n) for symbols, n in corpus]
        merges.append((best[0][0], best[1][0], most))
    return merges


DROPPED = "\ue000"


def drop_rare_characters(word_counts: dict[bytes, int], limit: int) -> dict[bytes, int]:
    """The words with every character but the `limit` commonest ones replaced by `DROPPED`."""
    counts: Counter[str] = Counter()
    for word, n in word_counts.items():
        for character in word.decode():
            counts[character] += n
    kept = set(sorted(counts, key=lambda c: (-counts[c], c))[:limit])
    dropped: dict[bytes, int] = {}
    for word, n in word_counts.items():
        new = "".join(c if c in kept else DROPPED for c in word.decode()).encode()
        dropped[new] = dropped.get(new, 0) + n
    return dropped


def split_at_dropped(symbols: list[Symbol]) -> list[list[Symbol]]:
    """The parts of a word between dropped characters."""
    parts: list[list[Symbol]] = [[]]
    for symbol in symbols:
        if symbol[0].startswith(DROPPED.encode()):
            parts.append([])
        else:
            parts[-1].append(symbol)
    return [part for part in parts if part]


def encode(symbols: list[Symbol], merges: list[tuple[Symbol, Symbol]]) -> list[Symbol]:
    """A word's tokens: the pair that was learned first is merged first, the leftmost of equals, one at a time."""
    rank = {pair: i for i, pair in enumerate(merges)}
    while True:
        pairs = list(pairwise(symbols))
        known = [(rank[pair], at) for at, pair in enumerate(pairs) if pair in rank]
        if not known:
            return symbols
        _, at = min(known)
        left, right = pairs[at]
        symbols = [*symbols[:at], (left[0] + right[0], right[1]), *symbols[at + 2 :]]
