"""Finds added tokens in texts: the tokens that no merge makes, which stand in a text as they are spelled.

Added tokens are the special tokens (such as `<|endoftext|>`) and others that a vocabulary was given by hand. They are
found as Hugging Face tokenizers 0.23 finds them (`AddedVocabulary::find_matches`): the leftmost match wins, and of
several at one place the longest. Two passes are made. The first searches the text as given, for tokens that are not
`normalized`. The second normalizes what lies between those matches and searches it for the others.
"""

from collections import Counter
from collections.abc import Sequence
from functools import cache, cached_property
from itertools import pairwise
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa

from bpe_core.encoding.spelling_automaton import SpellingAutomaton, build_spelling_automaton, find_spelling_starts
from bpe_core.kernels import Int32s, Int64s, UInt8s, copy_items, device_function, flatten_bytes, kernel
from bpe_core.pretokenize.pre_tokenizer import check_utf8
from bpe_core.pretokenize.scanner import decode_code_point, get_utf8_width
from bpe_core.pretokenize.text_splitter import TextSplitter
from bpe_core.pretokenize.unicode_categories import WHITE_SPACE, load_word_characters

SpecialInText = Literal["plain", "allow", "refuse"]
"""What the spelling of a special token in a text means: ordinary text (`plain`), the token (`allow`), or an error."""


class AddedToken(NamedTuple):
    """A token that no merge makes, with the flags of Hugging Face tokenizers.

    Attributes:
        content: its spelling.
        special: whether it is a special token, whose id ordinary text never gets.
        single_word: whether it is ignored next to a letter, digit or other word character.
        lstrip: whether it takes the white space on its left.
        rstrip: whether it takes the white space on its right.
        normalized: whether its content is normalized and searched for in the normalized text.
    """

    content: str
    id: int
    special: bool = True
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False


class Piece(NamedTuple):
    """A part of a text: an added token, or ordinary text to split into words.

    The spans of a text's pieces partition its normalized form: the first starts at 0, each other one where the piece
    before it ends.

    Attributes:
        text: the normalized text of the piece. Its start may lie before `start`: after a token with `rstrip`, the
            library (and so this module) may encode white space again that this token took. It belongs to that token.
        token: the added token, or None for ordinary text.
        start, end: the piece's span in the normalized text, in characters.
    """

    text: str
    token: AddedToken | None
    start: int
    end: int


class SplitTexts(NamedTuple):
    """A batch of texts, split at its added tokens.

    Attributes:
        between: the text between tokens, normalized, one string per piece of ordinary text.
        tokens: for each piece the index of its token in the finder's tokens, or -1 for ordinary text.
        first_piece: the pieces of text `t` are `first_piece[t]` to `first_piece[t + 1] - 1`.
    """

    between: pa.Array
    tokens: Int32s
    first_piece: Int64s

    @property
    def has_tokens(self) -> bool:
        """Whether a text has an added token."""
        return bool((self.tokens >= 0).any())


class AddedTokenFinder:
    """Finds added tokens in texts.

    The argument `passes_special` of its methods says whether special tokens are ordinary text. Even then, no token is
    found that overlaps the spelling of one.

    Attributes:
        tokens: the tokens to find.
        ids: their ids.

    Args:
        tokens: the tokens to find.
        pre_tokenizer: says how texts are normalized.

    Raises:
        ValueError: normalization makes two tokens equal; the library would pick either.
    """

    def __init__(self, tokens: Sequence[AddedToken], pre_tokenizer: TextSplitter) -> None:
        """Prepares the search for the tokens."""
        self.tokens = tokens
        self.ids = np.array([token.id for token in tokens], np.int32)
        self._pre_tokenizer = pre_tokenizer
        spelled: dict[str, int] = {}
        for index, token in enumerate(tokens):
            if not token.normalized:
                continue
            content = pre_tokenizer.normalize(token.content)
            other = tokens[spelled.setdefault(content, index)]
            if other != token:
                raise ValueError(
                    f"the added tokens {other.content!r} and {token.content!r} are both {content!r} once "
                    "they are normalized; remove one of them, or set its flag normalized to false"
                )
        self._raw = _Pass(tokens, {t.content: index for index, t in enumerate(tokens) if not t.normalized})
        self._normalized = _Pass(tokens, spelled)

    def split_batch(self, texts: pa.Array, passes_special: bool = False) -> SplitTexts:
        r"""Splits texts, an Arrow array of strings, at their added tokens.

        Raises:
            ValueError: a text is not UTF-8.

        >>> from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
        >>> finder = AddedTokenFinder([AddedToken("<end>", id=300, rstrip=True)], PreTokenizer("gpt2"))
        >>> between, tokens, first_piece = finder.split_batch(pa.array(["a<end> b", "c", "<end>"]))
        >>> between.to_pylist(), tokens.tolist(), first_piece.tolist()
        (['a', 'b', 'c'], [-1, 0, -1, -1, 0], [0, 3, 4, 5])
        """
        raw = self._raw.split(texts, passes_special)
        between = self._pre_tokenizer.normalize_batch(texts if raw is None else raw.copy_between())
        inner = self._normalized.split(between, passes_special)
        if inner is not None:
            between = inner.copy_between()
        return _combine_passes(raw, inner, between)

    def split(self, text: str, passes_special: bool = False) -> list[Piece]:
        """Splits a text at its added tokens; returns the pieces in order, the text between tokens normalized.

        >>> from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
        >>> finder = AddedTokenFinder([AddedToken("<end>", id=300, rstrip=True)], PreTokenizer("gpt2"))
        >>> [(piece.text, piece.start, piece.end) for piece in finder.split("a<end> b")]
        [('a', 0, 1), ('<end> ', 1, 7), ('b', 7, 8)]
        """
        pieces: list[Piece] = []
        normalize = self._pre_tokenizer.normalize
        [matches] = self._raw.split_strings([text], passes_special)
        between = [normalize(text[match.start : match.stop]) for match in matches if match.token is None]
        inner = zip(between, self._normalized.split_strings(between, passes_special), strict=True)
        raw_end = end = 0  # How far the pieces reach, in the text as given and in the normalized text.
        for token, start, stop in matches:
            own_start = max(start, raw_end)
            raw_end = max(stop, raw_end)
            if token is not None:
                own = text[own_start:stop]
                pieces.append(Piece(own, token, end, end + len(own)))
                end += len(own)
                continue
            normalized, found_in_it = next(inner)
            shift = end - len(normalize(text[start:own_start]))
            for found, first, last in found_in_it:
                before, end = end, max(end, shift + last)
                pieces.append(Piece(normalized[first:last], found, before, end))
        return pieces

    def count(self, texts: pa.Array) -> Counter[str]:
        """Returns how often each token is found in texts, by its content."""
        found = self._find(texts).tokens
        numbers = np.bincount(found[found >= 0], minlength=len(self.tokens))
        return Counter({self.tokens[index].content: int(numbers[index]) for index in np.flatnonzero(numbers).tolist()})

    def find_first(self, texts: pa.Array) -> tuple[int, AddedToken] | None:
        """Returns the first token in texts, and the index of its text; None if they have no token."""
        found = self._find(texts)
        pieces = np.flatnonzero(found.tokens >= 0)
        if pieces.size == 0:
            return None
        text = int(np.searchsorted(found.first_piece, pieces[0], "right")) - 1
        return text, self.tokens[int(found.tokens[pieces[0]])]

    def check_texts(self, texts: pa.Array, special: SpecialInText) -> None:
        """Checks that no text spells one of the tokens, if `special` is `refuse`.

        Raises:
            ValueError: a text does, or `special` is not a `SpecialInText`.
        """
        if special not in get_args(SpecialInText):
            raise ValueError(f"special is {special!r}; it is one of {', '.join(get_args(SpecialInText))}")
        if special != "refuse":
            return
        found = self.find_first(texts)
        if found is not None:
            text, token = found
            raise ValueError(
                f"text {text} spells the special token {token.content!r}. Encode it with special='plain' to read it as "
                "ordinary text, or with special='allow' to read it as the token"
            )

    def _find(self, texts: pa.Array) -> SplitTexts:
        """Splits texts; does not normalize or copy the text between tokens if that is not searched."""
        if self._normalized.has_tokens:
            return self.split_batch(texts)
        return _combine_passes(self._raw.split(texts, passes_special=False), None, texts)


class _Match(NamedTuple):
    """A part of a searched text, `text[start:stop]`, and the added token found there, or None for text between."""

    token: AddedToken | None
    start: int
    stop: int


class _Parts(NamedTuple):
    """Texts split by one pass.

    Parts overlap where a token with `rstrip` took white space that a later token or the text after it has too.

    Attributes:
        data: the bytes of all texts.
        offsets: text `t` is `data[offsets[t] : offsets[t + 1]]`.
        tokens: for each part the index of its token in the finder's tokens, or -1 for text between tokens.
        starts, stops: part `p` is `data[starts[p] : stops[p]]`.
        first_part: the parts of text `t` are `first_part[t]` to `first_part[t + 1] - 1`.
    """

    data: UInt8s
    offsets: Int64s
    tokens: Int32s
    starts: Int64s
    stops: Int64s
    first_part: Int64s

    def copy_between(self) -> pa.Array:
        """Returns the text between tokens, one string per part, as `large_string`."""
        is_text = self.tokens < 0
        starts, stops = self.starts[is_text], self.stops[is_text]
        offsets = np.concatenate([np.zeros(1, np.int64), np.cumsum(stops - starts)])
        copied = np.empty(offsets[-1], np.uint8)
        _copy_spans(self.data, starts, offsets, copied)
        return pa.LargeStringArray.from_buffers(starts.size, pa.py_buffer(offsets), pa.py_buffer(copied))


class _Pass:
    """Finds tokens by their exact spelling.

    Args:
        tokens: the finder's tokens.
        spelled: spelling -> index in `tokens`, for the tokens to find.
    """

    def __init__(self, tokens: Sequence[AddedToken], spelled: dict[str, int]) -> None:
        self._tokens = tokens
        self._spelled = spelled
        self.has_tokens = bool(spelled)
        self._only_special = all(tokens[index].special for index in spelled.values())

    @cached_property
    def _tables(self) -> "_PassTables":
        spellings = [spelling.encode() for spelling in self._spelled]
        tokens = [self._tokens[index] for index in self._spelled.values()]
        flags = np.array([_pack_flags(token) for token in tokens], np.uint8)
        reads_neighbors = bool((flags & (_SINGLE_WORD | _LSTRIP | _RSTRIP)).any())
        return _PassTables(
            build_spelling_automaton(spellings),
            np.array([len(spelling) for spelling in spellings], np.int64),
            np.array(list(self._spelled.values()), np.int32),
            flags,
            _classify_characters() if reads_neighbors else np.zeros(1, np.uint8),
        )

    def split(self, texts: pa.Array, passes_special: bool) -> _Parts | None:
        """Splits texts at the tokens, in the library's order; returns None if no text spells a token.

        Raises:
            ValueError: a text spells a token, and one is not UTF-8.
        """
        if not self._spelled or (passes_special and self._only_special):
            return None
        tables = self._tables
        data, offsets = flatten_bytes(texts)
        starts, spellings = find_spelling_starts(tables.automaton, data, offsets)
        if starts.size == 0:
            return None
        check_utf8(texts)
        most_parts = 2 * starts.size + offsets.size
        parts = _Parts(
            data,
            offsets,
            np.empty(most_parts, np.int32),
            np.empty(most_parts, np.int64),
            np.empty(most_parts, np.int64),
            np.empty(offsets.size, np.int64),
        )
        passed = _SPECIAL if passes_special else 0
        num_parts = _split_at_spellings(starts, spellings, tables, np.uint8(passed), parts)
        return parts._replace(
            tokens=parts.tokens[:num_parts], starts=parts.starts[:num_parts], stops=parts.stops[:num_parts]
        )

    def split_strings(self, texts: list[str], passes_special: bool) -> list[list[_Match]]:
        r"""Returns the parts of each text, as `split` finds them, but in characters.

        >>> tokens = [AddedToken("<a>", id=300, rstrip=True), AddedToken("\n\n", id=301)]
        >>> [matches] = _Pass(tokens, {"<a>": 0, "\n\n": 1}).split_strings(["<a>\n\n\nb"], passes_special=False)
        >>> [(start, stop) for _, start, stop in matches]
        [(0, 6), (3, 5), (5, 7)]
        """
        parts = self.split(pa.array(texts, pa.large_string()), passes_special)
        if parts is None:
            return [[_Match(None, 0, len(text))] if text else [] for text in texts]
        # The number of characters before each byte, from the start of the first text.
        characters = np.concatenate([[0], np.cumsum((parts.data & 0xC0) != 0x80)])
        bounds = parts.first_part
        shifts = np.repeat(characters[parts.offsets[:-1]], np.diff(bounds))
        starts, stops = (characters[ends] - shifts for ends in (parts.starts, parts.stops))
        found = [self._tokens[index] if index >= 0 else None for index in parts.tokens.tolist()]
        matches = list(map(_Match, found, starts.tolist(), stops.tolist()))
        return [matches[first:last] for first, last in pairwise(bounds.tolist())]


def _combine_passes(raw: _Parts | None, inner: _Parts | None, between: pa.Array) -> SplitTexts:
    """Returns what both passes found.

    Args:
        raw: the first pass's parts of the texts, or None if it found nothing.
        inner: the second pass's parts of the text between them, or None if it found nothing.
        between: the text between all tokens; if `raw` and `inner` are None, the texts.
    """
    if raw is None:
        if inner is None:
            return SplitTexts(between, np.full(len(between), -1, np.int32), np.arange(len(between) + 1))
        return SplitTexts(between, inner.tokens, inner.first_part)
    if inner is None:
        return SplitTexts(between, raw.tokens, raw.first_part)
    # Each part between tokens of the first pass is replaced by its own parts.
    is_text = raw.tokens < 0
    sizes = np.ones(raw.tokens.size, np.int64)
    sizes[is_text] = np.diff(inner.first_part)
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)])
    return SplitTexts(
        between, insert_items(inner.tokens, raw.tokens[~is_text], ends[:-1][~is_text]), ends[raw.first_part]
    )


def insert_items(others: Int32s, items: Int32s, places: Int64s) -> Int32s:
    """Returns an array with `items[i]` at `places[i]`, and the others, in order, at all other places.

    >>> insert_items(np.array([1, 2, 3]), np.array([70, 80]), np.array([0, 3])).tolist()
    [70, 1, 2, 80, 3]
    """
    is_item = np.zeros(others.size + items.size, bool)
    is_item[places] = True
    joined = np.empty(is_item.size, np.int32)
    joined[is_item], joined[~is_item] = items, others
    return joined


_SPECIAL, _SINGLE_WORD, _LSTRIP, _RSTRIP = 1, 2, 4, 8  # Flags of a token, for kernels.
_IS_WORD, _IS_SPACE = 1, 2  # Classes of a character, for kernels.


def _pack_flags(token: AddedToken) -> int:
    return _SPECIAL * token.special + _SINGLE_WORD * token.single_word + _LSTRIP * token.lstrip + _RSTRIP * token.rstrip


@cache
def _classify_characters() -> UInt8s:
    """Returns for each code point whether it is a word character (`_IS_WORD`) or white space (`_IS_SPACE`)."""
    classes = load_word_characters().astype(np.uint8) * np.uint8(_IS_WORD)
    classes[[ord(character) for character in WHITE_SPACE]] |= _IS_SPACE
    return classes


class _PassTables(NamedTuple):
    """What a pass looks up, for kernels.

    Attributes:
        automaton: finds the spellings.
        sizes: the length of each spelling in bytes.
        tokens: the index of each spelling's token in the finder's tokens.
        flags: the flags of each spelling's token.
        classes: the classes of each code point; not read if no token has a flag that depends on them.
    """

    automaton: SpellingAutomaton
    sizes: Int64s
    tokens: Int32s
    flags: UInt8s
    classes: UInt8s


@device_function
def _get_class(data: UInt8s, at: Any, classes: UInt8s) -> Any:
    """Returns the classes of the character that starts at `data[at]`."""
    byte = np.int64(data[at])
    return classes[byte if byte < 0x80 else decode_code_point(data, at)]


@device_function
def _find_character_before(data: UInt8s, at: Any) -> Any:
    """Returns where the character that ends at `at` starts."""
    at -= 1
    while (data[at] & 0xC0) == 0x80:
        at -= 1
    return at


@device_function
def _is_single_word(data: UInt8s, start: Any, stop: Any, first: Any, last: Any, classes: UInt8s) -> Any:
    """Whether `data[start:stop]`, in the text `data[first:last]`, has no word character beside it."""
    if start > first and _get_class(data, _find_character_before(data, start), classes) & _IS_WORD:
        return False
    return stop == last or not _get_class(data, stop, classes) & _IS_WORD


@kernel
def _split_at_spellings(
    found_starts: Int64s, found_spellings: Int32s, tables: _PassTables, passed: Any, parts: _Parts
) -> Any:
    """Splits texts at the leftmost, longest spellings, and applies the flags of their tokens.

    Args:
        found_starts: where in `parts.data` spellings start, sorted.
        found_spellings: the longest spelling that starts there.
        tables: of these spellings.
        passed: tokens with one of these flags are ordinary text.
        parts: receives the parts; `data` and `offsets` are given.

    Returns:
        The number of parts.
    """
    data, offsets, classes = parts.data, parts.offsets, tables.classes
    found = num_parts = 0
    for text in range(offsets.size - 1):
        first, last = offsets[text], offsets[text + 1]
        parts.first_part[text] = num_parts
        searched = end = first  # How far spellings were taken, and how far parts reach.
        while found < found_starts.size and found_starts[found] < last:
            spelling = found_spellings[found]
            start, stop = found_starts[found], found_starts[found] + tables.sizes[spelling]
            found += 1
            if start < searched:
                continue
            searched = stop
            flags = tables.flags[spelling]
            if flags & passed:
                continue
            if flags & _SINGLE_WORD and not _is_single_word(data, start, stop, first, last, classes):
                continue
            if flags & _LSTRIP:
                start = max(start, end)
                while start > end:
                    before = _find_character_before(data, start)
                    if not _get_class(data, before, classes) & _IS_SPACE:
                        break
                    start = before
            if flags & _RSTRIP:
                stop = max(stop, end)
                while stop < last and _get_class(data, stop, classes) & _IS_SPACE:
                    stop += get_utf8_width(data[stop])
            if start >= stop:  # The token before has taken all of this one, which is white space.
                continue
            if start > end:
                parts.tokens[num_parts], parts.starts[num_parts], parts.stops[num_parts] = -1, end, start
                num_parts += 1
            parts.tokens[num_parts], parts.starts[num_parts] = tables.tokens[spelling], start
            parts.stops[num_parts] = end = stop  # `end` may shrink: the library goes on from the token it found last.
            num_parts += 1
        if end < last:
            parts.tokens[num_parts], parts.starts[num_parts], parts.stops[num_parts] = -1, end, last
            num_parts += 1
    parts.first_part[offsets.size - 1] = num_parts
    return num_parts


@kernel
def _copy_spans(data: UInt8s, starts: Int64s, offsets: Int64s, target: UInt8s) -> None:
    """Copies `data[starts[i] : ...]` to `target[offsets[i] : offsets[i + 1]]`."""
    for span in range(starts.size):
        copy_items(data, starts[span], starts[span] + offsets[span + 1] - offsets[span], target, offsets[span])
