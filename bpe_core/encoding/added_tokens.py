"""Finds added tokens in texts: the tokens that no merge makes, which stand in a text as they are spelled.

Added tokens are the special tokens (such as `<|endoftext|>`) and others that a vocabulary was given by hand. They are
found as Hugging Face tokenizers 0.23 finds them (`AddedVocabulary::find_matches`): the leftmost match wins, and of
several at one place the longest. Two passes are made. The first searches the text as given, for tokens that are not
`normalized`. The second normalizes what lies between those matches and searches it for the others.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import regex

from bpe_core.kernels import flatten_bytes
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
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


class _Match(NamedTuple):
    """A part of a searched text, `text[start:stop]`, and the added token found there, or None for text between."""

    token: AddedToken | None
    start: int
    stop: int


class AddedTokenFinder:
    """Finds added tokens in texts.

    Args:
        tokens: the tokens to find.
        pre_tokenizer: says how texts are normalized.
        passes_special: whether special tokens are ordinary text. Even then, no token is found that overlaps the
            spelling of one.

    Raises:
        ValueError: normalization makes two tokens equal; the library would pick either.
    """

    def __init__(self, tokens: Sequence[AddedToken], pre_tokenizer: PreTokenizer, passes_special: bool = False) -> None:
        """Prepares the search for the tokens."""
        self._pre_tokenizer = pre_tokenizer
        if passes_special and all(token.special for token in tokens):
            tokens = ()
        self._raw = _LiteralFinder({t.content: t for t in tokens if not t.normalized}, passes_special)
        normalized: dict[str, AddedToken] = {}
        for token in tokens:
            if not token.normalized:
                continue
            content = pre_tokenizer.normalize(token.content)
            if normalized.setdefault(content, token) != token:
                raise ValueError(
                    f"the added tokens {normalized[content].content!r} and {token.content!r} are both {content!r} once "
                    "they are normalized; remove one of them, or set its flag normalized to false"
                )
        self._normalized = _LiteralFinder(normalized, passes_special)

    def find_rows(self, texts: pa.Array) -> list[int]:
        """Returns the indices of the texts that may hold an added token, sorted; no other text holds one."""
        found = self._raw.find_rows(texts)
        if self._normalized.has_tokens:
            found |= self._normalized.find_rows(self._pre_tokenizer.normalize_batch(texts))
        return sorted(found)

    def split(self, text: str) -> list[Piece]:
        """Splits a text at its added tokens; returns the pieces in order, the text between tokens normalized.

        >>> finder = AddedTokenFinder([AddedToken("<end>", id=300, rstrip=True)], PreTokenizer("gpt2"))
        >>> [(piece.text, piece.start, piece.end) for piece in finder.split("a<end> b")]
        [('a', 0, 1), ('<end> ', 1, 7), ('b', 7, 8)]
        """
        pieces: list[Piece] = []
        raw_end = end = 0  # How far the pieces reach, in the text as given and in the normalized text.
        for token, start, stop in self._raw.split(text):
            own_start = max(start, raw_end)
            raw_end = max(stop, raw_end)
            if token is not None:
                own = text[own_start:stop]
                pieces.append(Piece(own, token, end, end + len(own)))
                end += len(own)
                continue
            between = self._pre_tokenizer.normalize(text[start:stop])
            shift = end - len(self._pre_tokenizer.normalize(text[start:own_start]))
            for found, first, last in self._normalized.split(between):
                before, end = end, max(end, shift + last)
                pieces.append(Piece(between[first:last], found, before, end))
        return pieces

    def count(self, texts: pa.Array) -> Counter[str]:
        """Returns how often each token is found in texts, by its content."""
        counts: Counter[str] = Counter()
        for row in self.find_rows(texts):
            counts.update(p.token.content for p in self.split(texts[row].as_py()) if p.token is not None)
        return counts


class _LiteralFinder:
    """Finds tokens by their exact spelling.

    Args:
        tokens: spelling -> token.
        passes_special: as for `AddedTokenFinder`.
    """

    def __init__(self, tokens: dict[str, AddedToken], passes_special: bool) -> None:
        self._tokens = tokens
        self._passes_special = passes_special
        # Alternatives are tried in order: longer ones come first, so that the longest match at a place is found.
        by_length = sorted(tokens, key=len, reverse=True)
        self._pattern = regex.compile("|".join(map(regex.escape, by_length))) if tokens else None

    @property
    def has_tokens(self) -> bool:
        return bool(self._tokens)

    def find_rows(self, texts: pa.Array) -> set[int]:
        """Returns the indices of the texts that hold the start of a token's spelling."""
        found: set[int] = set()
        if not self._tokens:
            return found
        data, offsets = flatten_bytes(texts)
        # One search for each common start is faster than one search for any of them. `re` searches the array without
        # copying it, and strings this short three times as fast as `bytes.find`.
        for start in _find_common_starts(list(self._tokens)):
            search = re.compile(re.escape(start.encode())).search
            match = search(data.data)
            while match:
                row = int(np.searchsorted(offsets, match.start(), "right")) - 1
                found.add(row)
                match = search(data.data, int(offsets[row + 1]))
        return found

    def split(self, text: str) -> Iterator[_Match]:
        r"""Yields the parts of a text in the library's order, tokens and the text between them.

        Parts overlap where a token with `rstrip` took white space that a later token or the text after it has too.

        >>> tokens = {"<a>": AddedToken("<a>", id=300, rstrip=True), "\n\n": AddedToken("\n\n", id=301)}
        >>> [(start, stop) for _, start, stop in _LiteralFinder(tokens, passes_special=False).split("<a>\n\n\nb")]
        [(0, 6), (3, 5), (5, 7)]
        """
        end = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            token = self._tokens[match.group()]
            start, stop = match.span()
            if token.special and self._passes_special:
                continue
            if token.single_word:
                if _is_word_character(text[max(start - 1, 0) : start]) or _is_word_character(text[stop : stop + 1]):
                    continue
            if token.lstrip:
                start = max(start, end)
                while start > end and text[start - 1] in WHITE_SPACE:
                    start -= 1
            if token.rstrip:
                stop = max(stop, end)
                while stop < len(text) and text[stop] in WHITE_SPACE:
                    stop += 1
            if start >= stop:  # The token before has taken all of this one, which is white space.
                continue
            if start > end:
                yield _Match(None, end, start)
            yield _Match(token, start, stop)
            end = stop  # This may be less than before: the library goes on from the token it found last.
        if end < len(text):
            yield _Match(None, end, len(text))


def _is_word_character(character: str) -> bool:
    return character != "" and bool(load_word_characters()[ord(character)])


def _find_common_starts(contents: list[str]) -> list[str]:
    """Returns one string for each first character: the longest start that all contents with that character share.

    >>> _find_common_starts(["<|im_start|>", "<|im_end|>", "[MASK]"])
    ['<|im_', '[MASK]']
    """
    shared: dict[str, str] = {}
    for content in contents:
        start = shared.setdefault(content[0], content)
        while not content.startswith(start):
            start = start[:-1]
        shared[content[0]] = start
    return list(shared.values())


def check_special_in_text(choice: str) -> None:
    """Checks that `choice` is a `SpecialInText`.

    Raises:
        ValueError: it is not.
    """
    if choice not in get_args(SpecialInText):
        raise ValueError(f"special is {choice!r}; it is one of {', '.join(get_args(SpecialInText))}")
