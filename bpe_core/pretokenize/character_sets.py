"""Sets of characters that Hugging Face tokenizers 0.23 treats alike when it normalizes or splits texts.

The library takes them from Unicode tables of several versions. They are pinned here, so that ids never depend on what
is installed. `python -m bpe_core.pretokenize.character_sets` writes `character_sets.txt` by asking the library about
each code point.
"""

import base64
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS, CodePointSet

SetName = Literal[
    "removed",
    "nonspacing",
    "combining",
    "joining",
    "prepended",
    "control",
    "pictographic",
    "consonant",
    "linker",
    "punctuation",
]
"""The name of a set:

* `removed`: what BertNormalizer leaves out when it cleans a text.
* `nonspacing`: the marks that BertNormalizer leaves out.
* `combining`: the marks that StripAccents leaves out.
* `joining`: characters that belong to the grapheme cluster of the character before them (Extend, SpacingMark, ZWJ).
* `prepended`: characters that belong to the cluster of the character after them (Prepend).
* `control`: characters that are clusters of their own; those of ASCII are left out.
* `pictographic`: characters that a zero-width joiner joins to a symbol before it; those of `joining` are left out.
* `consonant`: Indic consonants that a linker joins to one before it; those of four bytes are left out.
* `linker`: the signs of `joining` that join consonants.
* `punctuation`: what BertPreTokenizer and Punctuation split off. It is that of Unicode 8, and all symbols of ASCII.
"""

_SETS_FILE = Path(__file__).with_name("character_sets.txt")


@cache
def load_character_set(name: SetName) -> CodePointSet:
    """Returns a set, read from the file beside this module.

    >>> bool(load_character_set("nonspacing")[0x301]), bool(load_character_set("nonspacing")[0x61])
    (True, False)
    """
    members = np.zeros(NUM_CODE_POINTS, bool)
    section = ""
    for line in _SETS_FILE.read_text(encoding="ascii").split("\n"):
        if line.startswith("# "):
            section = line[2:]
        elif line and section == name:
            first, last = (int(field, 16) for field in line.split(" "))
            members[first : last + 1] = True
    return members


def make_byte_charsmap(keys: Sequence[int], replacement: str) -> bytes:
    """Returns a precompiled charsmap that replaces each of some single bytes, which are not 0.

    It is made by hand, since SentencePiece only makes charsmaps that replace whole characters. With a key that is the
    first byte of characters, the library replaces each grapheme cluster that starts with one of them as a whole.
    """
    units = np.zeros(1024, np.uint32)
    units[0] = 256 << 10
    for index, byte in enumerate(keys):
        place, leaf = 256 ^ byte, 512 + index
        units[place] = (place ^ leaf) << 10 | 1 << 8 | byte
        units[leaf] = 1 << 31
    return (units.nbytes).to_bytes(4, "little") + units.astype("<u4").tobytes() + replacement.encode() + b"\0"


def _load_library_charsmap(charsmap: bytes) -> Callable[[str], str]:
    """Returns the library's normalizer of a charsmap."""
    from tokenizers import Tokenizer, models  # Only needed to write the file.

    content = json.loads(Tokenizer(models.BPE()).to_str())
    content["normalizer"] = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}
    normalizer: Any = Tokenizer.from_str(json.dumps(content)).normalizer
    return lambda text: str(normalizer.normalize_str(text))


def _write_sets() -> None:
    from tokenizers import normalizers, pre_tokenizers

    clean = normalizers.BertNormalizer(True, False, False, False).normalize_str
    strip = normalizers.BertNormalizer(False, False, True, False).normalize_str
    strip_accents = normalizers.StripAccents().normalize_str
    split = pre_tokenizers.Punctuation().pre_tokenize_str
    replace_a = _load_library_charsmap(make_byte_charsmap(b"a", "X"))
    replace_clusters = _load_library_charsmap(make_byte_charsmap(range(0xC2, 0xF5), "X"))
    tests: dict[SetName, Callable[[str], bool]] = {
        "removed": lambda c: clean(c) == "",
        "nonspacing": lambda c: strip(c) == "",
        "combining": lambda c: strip_accents(c) == "",
        "joining": lambda c: replace_a("a" + c) == "X",
        "prepended": lambda c: c >= "\x80" and replace_clusters(c + "a") == "X",
        # The library looks up clusters of less than six bytes only. No control has four.
        "control": lambda c: "\x80" <= c < "\U00010000" and replace_clusters(c + "\u0301") == "XX",
        "pictographic": lambda c: replace_clusters("\xa9\u200d" + c) == "XXX" and replace_a("a" + c) != "X",
        "consonant": lambda c: (
            (replace_a("a" + c), replace_clusters(c + "\u0301")) == ("X" + c, "X")
            and replace_clusters(f"\u0915\u094d{c}\u0301") == "XXXX"
        ),
        "linker": lambda c: replace_a("a" + c) == "X" and replace_clusters(f"\u0915{c}\u0915\u0301") == "XXXX",
        "punctuation": lambda c: len(split("a" + c)) == 2,
    }
    assert tuple(tests) == get_args(SetName)
    lines = ["Sets of characters in Hugging Face tokenizers 0.23: first and last code point of each run."]
    for name, test in tests.items():
        members = [code for code in range(NUM_CODE_POINTS) if not 0xD800 <= code < 0xE000 and test(chr(code))]
        chosen = np.zeros(NUM_CODE_POINTS + 1, np.int8)
        chosen[members] = 1
        steps = np.diff(chosen, prepend=0)
        firsts, ends = np.flatnonzero(steps == 1).tolist(), np.flatnonzero(steps == -1).tolist()
        lines += [f"# {name}", *(f"{first:X} {end - 1:X}" for first, end in zip(firsts, ends, strict=True))]
    _SETS_FILE.write_text("\n".join(["# " + lines[0], *lines[1:]]) + "\n", encoding="ascii")


if __name__ == "__main__":
    _write_sets()
