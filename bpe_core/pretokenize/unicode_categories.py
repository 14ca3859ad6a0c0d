"""The general category of every character, pinned: an upgrade of a library must not change anyone's ids.

Unicode 16.0, which Hugging Face tokenizers since 0.21.2 and tiktoken 0.14 use. `unicode_categories.txt` holds one run
of code points a line, its first one in hexadecimal; `python -m bpe_core.pretokenize.unicode_categories` writes it anew
from the package unicodedata2 16.0.0.
"""

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

UNICODE_VERSION = "16.0.0"
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

_FILE = Path(__file__).with_name("unicode_categories.txt")

Members = npt.NDArray[np.bool_]
"""Whether each code point belongs to a set; as long as there are code points."""


def code_points(*members: int) -> Members:
    """Returns the set of these code points."""
    chosen = np.zeros(NUM_CODE_POINTS, bool)
    chosen[list(members)] = True
    return chosen


def category(name: str) -> Members:
    """Returns the characters of a general category such as `Lu`, or of a group of them such as `L`.

    Raises:
        KeyError: there is no such category.
    """
    names, numbers = _categories()
    wanted = [number for number, known in enumerate(names) if known.startswith(name)]
    if not wanted or len(name) > 2:
        raise KeyError(name)
    return np.isin(numbers, wanted)


@cache
def _categories() -> tuple[list[str], npt.NDArray[np.uint8]]:
    lines = [line.split() for line in _FILE.read_text(encoding="ascii").splitlines() if not line.startswith("#")]
    starts = [int(start, 16) for start, _ in lines]
    names = sorted({name for _, name in lines})
    numbers = np.array([names.index(name) for _, name in lines], np.uint8)
    return names, np.repeat(numbers, np.diff([*starts, NUM_CODE_POINTS]))


def _write() -> None:
    import unicodedata2  # Only this needs it.

    assert unicodedata2.unidata_version == UNICODE_VERSION, unicodedata2.unidata_version
    names = [unicodedata2.category(chr(code)) for code in range(NUM_CODE_POINTS)]
    starts = [code for code in range(NUM_CODE_POINTS) if code == 0 or names[code] != names[code - 1]]
    lines = [
        f"# General categories of Unicode {UNICODE_VERSION}: first code point of each run.",
        *(f"{code:X} {names[code]}" for code in starts),
    ]
    _FILE.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    _write()
