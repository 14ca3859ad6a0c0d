"""The general category of every code point, in a fixed version of Unicode.

The version must not change with that of a library, or an upgrade would change the ids of existing tokenizers. It is
Unicode 16.0, as in Hugging Face tokenizers since 0.21.2 and in tiktoken 0.14.

Each line of `unicode_categories.txt` is a run of code points of one category: the first code point in hexadecimal, and
the category. `python -m bpe_core.pretokenize.unicode_categories` writes the file from the package unicodedata2 16.0.0.
"""

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

UNICODE_VERSION = "16.0.0"
"""The version that saved tokenizers name. It stands for all pinned tables, also those of `unicode_normalization`."""

NUM_CODE_POINTS = 0x110000

WHITE_SPACE = "".join(
    map(
        chr,
        [*range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B), 0x2028, 0x2029, 0x202F, 0x205F, 0x3000],
    )
)
"""The 25 characters with the property White_Space, which `\\s` matches in regex, Oniguruma and Rust alike.

Python's `str.isspace` and `str.strip` also accept U+001C to U+001F.
"""

_ALPHABETIC_SYMBOLS = ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
"""The characters with the property Alphabetic that are in none of the categories L, M and Nl: letters in a circle, a
square or a box. First and last code points."""

_FILE = Path(__file__).with_name("unicode_categories.txt")

CodePointSet = npt.NDArray[np.bool_]
"""A set of code points: item `c` says whether the set holds the code point `c`; `NUM_CODE_POINTS` items."""


def make_code_point_set(*members: int) -> CodePointSet:
    """Returns the set of the given code points.

    >>> np.flatnonzero(make_code_point_set(0x41, 0x61)).tolist()
    [65, 97]
    """
    chosen = np.zeros(NUM_CODE_POINTS, bool)
    chosen[list(members)] = True
    return chosen


def load_category(name: str) -> CodePointSet:
    """Returns the code points of a general category such as `Lu`, or of a group of categories such as `L`.

    Raises:
        KeyError: Unicode has no such category.

    >>> [chr(code) for code in np.flatnonzero(load_category("Sc"))[:4]]
    ['$', '¢', '£', '¤']
    """
    names, numbers = _load_categories()
    wanted = [number for number, known in enumerate(names) if known.startswith(name)]
    if not wanted or len(name) > 2:
        raise KeyError(name)
    return np.isin(numbers, wanted)


@cache
def load_word_characters() -> CodePointSet:
    r"""Returns the code points that `\w` matches in Rust's `regex` crate, and so in Hugging Face tokenizers.

    They are Unicode's recommendation for `\w` (UTS #18, annex C): the properties Alphabetic and Join_Control, and the
    categories M, Nd and Pc.

    >>> [character for character in "aé_-²Ⅷ" if load_word_characters()[ord(character)]]
    ['a', 'é', '_', 'Ⅷ']
    """
    chosen = np.zeros(NUM_CODE_POINTS, bool)
    for name in ("L", "M", "Nd", "Nl", "Pc"):
        chosen |= load_category(name)
    for first, last in _ALPHABETIC_SYMBOLS:
        chosen[first : last + 1] = True
    chosen[[0x200C, 0x200D]] = True  # Join_Control
    return chosen


@cache
def load_printable_characters() -> CodePointSet:
    """Returns the characters that can be seen, and the space: all but controls, separators and unassigned ones."""
    members = ~load_category("C") & ~load_category("Z")
    members[ord(" ")] = True
    return members


@cache
def _load_categories() -> tuple[list[str], npt.NDArray[np.uint8]]:
    """Returns the sorted names of all categories, and for each code point the index of its category in them."""
    lines = [
        line.split() for line in _FILE.read_text(encoding="ascii").split("\n") if line and not line.startswith("#")
    ]
    starts = [int(start, 16) for start, _ in lines]
    names = sorted({name for _, name in lines})
    numbers = np.array([names.index(name) for _, name in lines], np.uint8)
    return names, np.repeat(numbers, np.diff([*starts, NUM_CODE_POINTS]))


def _write_categories() -> None:
    import unicodedata2  # Only needed here.

    assert unicodedata2.unidata_version == UNICODE_VERSION, unicodedata2.unidata_version
    names = [unicodedata2.category(chr(code)) for code in range(NUM_CODE_POINTS)]
    starts = [code for code in range(NUM_CODE_POINTS) if code == 0 or names[code] != names[code - 1]]
    lines = [
        f"# General categories of Unicode {UNICODE_VERSION}: first code point of each run.",
        *(f"{code:X} {names[code]}" for code in starts),
    ]
    _FILE.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    _write_categories()
