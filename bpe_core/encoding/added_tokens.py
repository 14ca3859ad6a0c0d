"""Tokens that stand in the text as they are spelled: special ones, and others that a vocabulary was given by hand.

Which of them count is the caller's choice. How they are found is that of Hugging Face tokenizers 0.23
(`AddedVocabulary::find_matches`): leftmost, and of those the longest; first in the text as it is, for tokens that are
not `normalized`, then in what lies between once that is normalised.
"""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import pyarrow as pa
import regex

from bpe_core.kernels import flat_bytes
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer

SpecialInText = Literal["plain", "allow", "refuse"]
"""What the spelling of a special token in a text is: letters like any other, the token, or an error."""


class AddedToken(NamedTuple):
    """A token outside the merges, with the flags of Hugging Face tokenizers.

    `single_word`: not where a letter, digit or the like stands beside it. `lstrip`, `rstrip`: white space on that side
    belongs to it. `normalized`: it is looked for, itself normalised, in the normalised text.
    """

    content: str
    id: int
    special: bool = True
    single_word: bool = False
    lstrip: bool = False
    rstrip: bool = False
    normalized: bool = False


class Piece(NamedTuple):
    """Part of a text: normalised text to be cut into words, or an added token."""

    text: str
    token: AddedToken | None


class AddedTokens:
    """Finds added tokens in texts.

    Args:
        tokens: those that count.
        pre_tokenizer: normalizes texts the way the model does.
        passes_special: special tokens are letters; still none is found that overlaps one of them.

    Raises:
        ValueError: two tokens are the same once they are normalised; the library would take either.
    """

    def __init__(self, tokens: Sequence[AddedToken], pre_tokenizer: PreTokenizer, passes_special: bool = False) -> None:
        self._pre_tokenizer = pre_tokenizer
        if passes_special and all(token.special for token in tokens):
            tokens = ()
        self._raw = _Finder({t.content: t for t in tokens if not t.normalized}, passes_special)
        normalized: dict[str, AddedToken] = {}
        for token in tokens:
            if token.normalized and normalized.setdefault(pre_tokenizer.normalize(token.content), token) != token:
                other = normalized[pre_tokenizer.normalize(token.content)].content
                raise ValueError(f"the added tokens {other!r} and {token.content!r} are one once they are normalised")
        self._normalized = _Finder(normalized, passes_special)

    def rows(self, texts: pa.Array) -> list[int]:
        """Returns the numbers of the texts that may hold one of the tokens; all others hold none."""
        found = self._raw.rows(texts)
        if self._normalized.looks_for_any:
            found |= self._normalized.rows(self._pre_tokenizer.normalize_batch(texts))
        return sorted(found)

    def pieces(self, text: str) -> list[Piece]:
        """Returns a text's pieces in order; one without a token is not empty."""
        pieces = []
        for raw in self._raw.split(text):
            if raw.token is not None:
                pieces.append(raw)
            else:
                pieces += self._normalized.split(self._pre_tokenizer.normalize(raw.text))
        return pieces

    def count(self, texts: pa.Array) -> Counter[str]:
        """Returns how often each token stands in texts, by its content."""
        counts: Counter[str] = Counter()
        for row in self.rows(texts):
            counts.update(p.token.content for p in self.pieces(texts[row].as_py()) if p.token is not None)
        return counts


class _Finder:
    """Finds literal spellings."""

    def __init__(self, tokens: dict[str, AddedToken], passes_special: bool) -> None:
        self._tokens = tokens
        self._passes_special = passes_special
        # Longer ones first, so that of several at one place the longest is found.
        by_length = sorted(tokens, key=len, reverse=True)
        self._pattern = regex.compile("|".join(map(regex.escape, by_length))) if tokens else None

    @property
    def looks_for_any(self) -> bool:
        return bool(self._tokens)

    def rows(self, texts: pa.Array) -> set[int]:
        found: set[int] = set()
        if not self._tokens:
            return found
        data, offsets = flat_bytes(texts)
        # One after the other: a plain search for a string is faster than one for any of a few, and many share a start.
        # `re` searches the array as it is, and for so short strings three times as fast as `bytes.find`.
        for start in _common_starts(list(self._tokens)):
            search = re.compile(re.escape(start.encode())).search
            match = search(data.data)
            while match:
                row = int(np.searchsorted(offsets, match.start(), "right")) - 1
                found.add(row)
                match = search(data.data, int(offsets[row + 1]))
        return found

    def split(self, text: str) -> list[Piece]:
        """Returns the pieces of a text. Empty is only a token in white space that the token before has taken too."""
        pieces: list[Piece] = []
        end = 0
        for match in self._pattern.finditer(text) if self._pattern else ():
            token = self._tokens[match.group()]
            start, stop = match.span()
            if token.special and self._passes_special:
                continue
            if token.single_word and (_is_word(text[max(start - 1, 0) : start]) or _is_word(text[stop : stop + 1])):
                continue
            if token.lstrip:
                start = max(start, end)
                while start > end and text[start - 1] in _WHITE_SPACE:
                    start -= 1
            if token.rstrip:  # White space up to `end` is the token's before, which took all that followed it.
                stop = max(stop, end)
                while stop < len(text) and text[stop] in _WHITE_SPACE:
                    stop += 1
            if start >= stop:  # The token before has taken all of it, as white space on its right.
                continue
            if start > end:
                pieces.append(Piece(text[end:start], None))
            pieces.append(Piece(text[max(start, end) : stop], token))
            end = stop
        if end < len(text):
            pieces.append(Piece(text[end:], None))
        return pieces


# The White_Space property of Unicode; Python's own `strip` takes U+001C to U+001F as well.
_WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
_WHITE_SPACE += "\u2028\u2029\u202f\u205f\u3000"

_WORD = regex.compile(r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]")


def _is_word(character: str) -> bool:
    return bool(_WORD.match(character))


def _common_starts(spellings: list[str]) -> list[str]:
    """Returns few strings such that every spelling starts with one of them: all of a first character, shortened."""
    shared: dict[str, str] = {}
    for spelling in spellings:
        start = shared.setdefault(spelling[0], spelling)
        while not spelling.startswith(start):
            start = start[:-1]
        shared[spelling[0]] = start
    return list(shared.values())


def check_special_in_text(choice: str) -> None:
    """Raises ValueError for what is not a `SpecialInText`."""
    if choice not in get_args(SpecialInText):
        raise ValueError(f"special is {choice!r}; it is one of {', '.join(get_args(SpecialInText))}")
