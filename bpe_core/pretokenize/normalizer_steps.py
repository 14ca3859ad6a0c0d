"""Normalizers made of steps, as `tokenizer.json` lists them for tokenizers of all families.

A step takes texts as bytes and offsets and returns them changed in the same form: text `t` is
`data[offsets[t] : offsets[t + 1]]`, in valid UTF-8, and the first offset is 0. It never changes the arrays given.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import regex

from bpe_core.kernels import Int64s, UInt8s, copy_items, device_function, flatten_bytes, kernel, store_uint64
from bpe_core.pretokenize.normalizer import lower_case_texts, make_text_array, normalize_texts
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer, check_utf8
from bpe_core.pretokenize.scanner import decode_code_point, get_utf8_width
from bpe_core.pretokenize.unicode_categories import WHITE_SPACE
from bpe_core.pretokenize.unicode_normalization import Form


class NormalizerStep(Protocol):
    """One step of a normalizer. Equal steps change all texts alike, and their `repr` is equal too."""

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the bytes and offsets of the changed texts."""


@dataclass(frozen=True)
class NormalizerSteps:
    """A normalizer that applies steps one after the other.

    Attributes:
        steps: the steps in order; none leaves texts as they are.
    """

    steps: tuple[NormalizerStep, ...] = ()

    def describe(self) -> list[str]:
        """Returns a JSON value that is equal only for normalizers that change all texts alike."""
        return [repr(step) for step in self.steps]

    def normalize(self, text: str) -> str:
        """Returns one text normalized.

        >>> NormalizerSteps((Prepend("▁"), ReplaceText(" ", "▁"))).normalize("a b")
        '▁a▁b'
        """
        encoded = np.frombuffer(text.encode(errors="surrogatepass"), np.uint8)
        data, _ = self._apply(encoded, np.array([0, encoded.size]))
        return data.tobytes().decode(errors="surrogatepass")

    def normalize_batch(self, texts: pa.Array) -> pa.Array:
        """Returns an Arrow array (`large_string`) of the normalized texts; a null stays a null.

        Raises:
            ValueError: a text is not UTF-8.
        """
        texts = check_utf8(texts)
        given, offsets = flatten_bytes(texts)
        data, new_offsets = self._apply(given, offsets)
        return texts if data is given else make_text_array(data, new_offsets, texts)

    def _apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        for step in self.steps:
            data, offsets = step.apply(data, offsets)
        return data, offsets


@dataclass(frozen=True)
class UnicodeForm:
    """Puts texts into a Unicode normalization form."""

    form: Form

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        return normalize_texts(data, offsets, self.form)


@dataclass(frozen=True)
class LowerCase:
    """Replaces each character by its lower case, without the final-sigma rule."""

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        return lower_case_texts(data, offsets)


@dataclass(frozen=True)
class Prepend:
    """Puts a string before each text that is not empty."""

    content: str

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        content = np.frombuffer(self.content.encode(), np.uint8)
        new_offsets = np.zeros_like(offsets)
        sizes = np.diff(offsets)
        np.cumsum(sizes + content.size * (sizes > 0), out=new_offsets[1:])
        target = np.empty(int(new_offsets[-1]), np.uint8)
        _prepend(data, offsets, content, target, new_offsets)
        return target, new_offsets


@dataclass(frozen=True)
class ReplaceText:
    """Replaces each occurrence of a string, which is not empty, by another string."""

    old: str
    new: str

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        old, new = (np.frombuffer(text.encode(), np.uint8) for text in (self.old, self.new))
        count = int(_count_occurrences(data, offsets, old))
        if count == 0:
            return data, offsets
        size = data.size + count * (new.size - old.size)
        target = np.empty(size + 8, np.uint8)
        new_offsets = np.empty_like(offsets)
        if old.size == 1 and new.size <= 8:
            packed = np.uint64(int.from_bytes(new.tobytes(), "little"))
            _replace_byte(data, offsets, old[0], packed, new.size, target, new_offsets)
        else:
            _replace_occurrences(data, offsets, old, new, target, new_offsets)
        return target[:size], new_offsets


_PROBE = "".join(first + second for first in "aA1 \n_-é中" for second in "aA1 \n_-é中")
"""Characters of all sorts side by side. A pattern that matches the empty string somewhere does so here."""


class ReplacePattern:
    """Replaces each match of a regular expression by a string, which is taken as it is."""

    def __init__(self, pattern: str, new: str) -> None:
        """Compiles the pattern.

        Raises:
            ValueError: engines read the pattern differently, or it matches the empty string.
        """
        self._splitter = PreTokenizer((pattern,), keep_gaps=False)
        if any(not match.group() for match in regex.finditer(pattern, _PROBE)) or regex.search(pattern, ""):
            raise ValueError(f"the pattern {pattern!r} matches the empty string, which is not supported in a Replace")
        self._pattern, self._new = pattern, new

    def __repr__(self) -> str:
        """Returns the arguments."""
        return f"ReplacePattern({self._pattern!r}, {self._new!r})"

    def __eq__(self, other: object) -> bool:
        """Returns whether both replace alike."""
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        """Returns a hash of the arguments."""
        return hash(repr(self))

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        new = np.frombuffer(self._new.encode(), np.uint8)
        bounds, first_bound, _ = self._splitter.split_batch(data, offsets)
        if bounds.size == 0:
            return data, offsets
        removed = int((bounds[1::2] - bounds[::2]).sum())
        target = np.empty(data.size - removed + bounds.size // 2 * new.size, np.uint8)
        new_offsets = np.empty_like(offsets)
        _replace_spans(data, offsets, bounds, first_bound, new, target, new_offsets)
        return target, new_offsets


@dataclass(frozen=True)
class Strip:
    """Removes white space at the start of texts, at their end, or at both."""

    left: bool = True
    right: bool = True

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        target = np.empty_like(data)
        new_offsets = np.empty_like(offsets)
        _strip(data, offsets, _WHITE_SPACE_CODES, self.left, self.right, target, new_offsets)
        return target[: new_offsets[-1]], new_offsets


@dataclass(frozen=True)
class SpellBytes:
    """Replaces each byte by a character that stands for it.

    Attributes:
        spellings: the character for each of the 256 bytes; it has one or two bytes in UTF-8.
    """

    spellings: str

    def apply(self, data: UInt8s, offsets: Int64s) -> tuple[UInt8s, Int64s]:
        """Returns the changed texts."""
        encoded = [character.encode() for character in self.spellings]
        firsts = np.array([one[0] for one in encoded], np.uint8)
        lasts = np.array([one[-1] for one in encoded], np.uint8)
        widths = np.array([len(one) for one in encoded], np.uint8)
        ends = np.cumsum(widths[data], dtype=np.int64)
        starts = np.concatenate([np.zeros(1, np.int64), ends])
        target = np.empty(int(starts[-1]), np.uint8)
        target[starts[:-1]] = firsts[data]
        target[ends - 1] = lasts[data]
        return target, starts[offsets]


_WHITE_SPACE_CODES = np.array([ord(character) for character in WHITE_SPACE], np.int64)


@device_function
def _put_bytes(source: UInt8s, target: UInt8s, at: Any) -> Any:
    """Writes all bytes of `source` to `target` and returns where they end."""
    for i in range(source.size):
        target[np.uint64(at + i)] = source[np.uint64(i)]
    return at + source.size


@kernel
def _prepend(data: UInt8s, offsets: Int64s, content: UInt8s, target: UInt8s, target_offsets: Int64s) -> None:
    for text in range(offsets.size - 1):
        start, stop = offsets[text], offsets[text + 1]
        if start < stop:
            end = _put_bytes(content, target, target_offsets[text])
            copy_items(data, start, stop, target, end)


@device_function
def _occurs_at(data: UInt8s, at: Any, stop: Any, old: UInt8s) -> Any:
    if data[np.uint64(at)] != old[0] or at + old.size > stop:
        return False
    for i in range(1, old.size):
        if data[np.uint64(at + i)] != old[np.uint64(i)]:
            return False
    return True


@kernel
def _count_occurrences(data: UInt8s, offsets: Int64s, old: UInt8s) -> Any:
    count: Any = 0
    if old.size == 1:
        for place in range(offsets[0], offsets[offsets.size - 1]):
            count += np.int64(data[np.uint64(place)] == old[0])
        return count
    for text in range(offsets.size - 1):
        at: Any = offsets[text]
        stop = offsets[text + 1]
        while at < stop:
            occurs = _occurs_at(data, at, stop, old)
            count += np.int64(occurs)
            at += old.size if occurs else 1
    return count


@kernel
def _replace_occurrences(
    data: UInt8s, offsets: Int64s, old: UInt8s, new: UInt8s, target: UInt8s, target_offsets: Int64s
) -> None:
    end: Any = 0
    for text in range(offsets.size - 1):
        at: Any = offsets[text]
        stop = offsets[text + 1]
        target_offsets[text] = end
        while at < stop:
            if _occurs_at(data, at, stop, old):
                end = _put_bytes(new, target, end)
                at += old.size
            else:
                target[np.uint64(end)] = data[np.uint64(at)]
                end += 1
                at += 1
    target_offsets[offsets.size - 1] = end


@kernel
def _replace_byte(
    data: UInt8s, offsets: Int64s, old: Any, new: Any, size: Any, target: UInt8s, target_offsets: Int64s
) -> None:
    """Replaces each byte `old` by the lowest `size` bytes of `new`, without branches; `target` has 8 bytes to spare."""
    end: Any = 0
    for text in range(offsets.size - 1):
        target_offsets[text] = end
        for at in range(offsets[text], offsets[text + 1]):
            byte = data[np.uint64(at)]
            is_old = byte == old
            store_uint64(target, end, new if is_old else np.uint64(byte))
            end += size if is_old else 1
    target_offsets[offsets.size - 1] = end


@kernel
def _replace_spans(
    data: UInt8s,
    offsets: Int64s,
    bounds: Int64s,
    first_bound: Int64s,
    new: UInt8s,
    target: UInt8s,
    target_offsets: Int64s,
) -> None:
    """Replaces spans, whose starts and ends are `bounds`; those of text `t` start at `bounds[first_bound[t]]`."""
    end: Any = 0
    for text in range(offsets.size - 1):
        at = offsets[text]
        target_offsets[text] = end
        for i in range(first_bound[text], first_bound[text + 1], 2):
            copy_items(data, at, bounds[i], target, end)
            end = _put_bytes(new, target, end + bounds[i] - at)
            at = bounds[i + 1]
        copy_items(data, at, offsets[text + 1], target, end)
        end += offsets[text + 1] - at
    target_offsets[offsets.size - 1] = end


@device_function
def _is_among(code: Any, codes: Int64s) -> Any:
    for i in range(codes.size):
        if codes[np.uint64(i)] == code:
            return True
    return False


@kernel
def _strip(
    data: UInt8s, offsets: Int64s, white_space: Int64s, left: Any, right: Any, target: UInt8s, target_offsets: Int64s
) -> None:
    end: Any = 0
    for text in range(offsets.size - 1):
        at: Any = offsets[text]
        stop = offsets[text + 1]
        target_offsets[text] = end
        while left and at < stop:
            byte = data[np.uint64(at)]
            code = np.int64(byte) if byte < 0x80 else decode_code_point(data, at)
            if not _is_among(code, white_space):
                break
            at += get_utf8_width(byte)
        while right and at < stop:
            start = stop - 1
            while data[np.uint64(start)] & 0xC0 == 0x80:
                start -= 1
            byte = data[np.uint64(start)]
            code = np.int64(byte) if byte < 0x80 else decode_code_point(data, start)
            if not _is_among(code, white_space):
                break
            stop = start
        copy_items(data, at, stop, target, end)
        end += stop - at
    target_offsets[offsets.size - 1] = end
