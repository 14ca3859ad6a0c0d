"""Pinned tables for Unicode normalization and lower case, so that a tokenizer gives the same ids on every machine.

The interpreter's `unicodedata` and `str.lower` change with its version, so nothing here uses them. The tables give what
the normalizers of Hugging Face tokenizers 0.23 give:

* NFC, NFD, NFKC and NFKD use the data of Unicode 9.0.0. The library still has that version. Later versions of Unicode
  only added characters: the data of a character never changes once it is assigned.
* Lower case uses the data of Unicode 17.0.0, and maps each character by itself (no final-sigma rule).

`unicode_normalization.txt` holds the data. `python -m bpe_core.pretokenize.unicode_normalization` writes it, with the
values of the package unicodedata2 16.0.0 for the characters that Hugging Face tokenizers 0.23 knows.
"""

from functools import cache
from pathlib import Path
from typing import Literal, NamedTuple, get_args

from bpe_core.pretokenize.unicode_categories import CodePointSet, make_code_point_set

NORMALIZATION_UNICODE_VERSION = "9.0.0"
LOWER_CASE_UNICODE_VERSION = "17.0.0"

Form = Literal["NFC", "NFD", "NFKC", "NFKD"]
"""A Unicode normalization form."""

_DATA_FILE = Path(__file__).with_name("unicode_normalization.txt")

# Hangul syllables are composed by arithmetic, see section 3.12 of the Unicode Standard.
HANGUL_FIRST, NUM_HANGUL = 0xAC00, 11172
HANGUL_L, HANGUL_V, HANGUL_T = 0x1100, 0x1161, 0x11A7
NUM_HANGUL_L, NUM_HANGUL_V, NUM_HANGUL_T = 19, 21, 28


class NormalizationData(NamedTuple):
    """What Unicode says of single characters. Code points that a mapping lacks stand for themselves.

    Hangul syllables are not listed.

    Attributes:
        classes: the canonical combining class of each character that has one other than 0.
        canonical: one step of the canonical decomposition of a character, one or two code points.
        compatibility: one step of the compatibility decomposition, for characters without a canonical one.
        compositions: the character that two characters are composed to.
        lower_case: the lower case of a character, one or more code points.
        folded: what a character is folded to when case is ignored, one or more code points; only where that is not
            its lower case.
    """

    classes: dict[int, int]
    canonical: dict[int, tuple[int, ...]]
    compatibility: dict[int, tuple[int, ...]]
    compositions: dict[tuple[int, int], int]
    lower_case: dict[int, tuple[int, ...]]
    folded: dict[int, tuple[int, ...]]


_TITLES = {
    "classes": "Combining classes: first and last code point, class.",
    "canonical": "Canonical decompositions that are composed again: code point, decomposition.",
    "excluded": "Canonical decompositions that are not composed again: code point, decomposition.",
    "compatibility": "Compatibility decompositions: code point, decomposition.",
    "lower_case": "Lower case: code point, its lower case.",
    "folded": "Case folding where it is not the lower case: code point, what it is folded to.",
}
"""The sections of the data file, with the comment at the start of each."""


@cache
def read_normalization_data() -> NormalizationData:
    """Returns the pinned data, read from the file beside this module."""
    sections: dict[str, dict[int, tuple[int, ...]]] = {title: {} for title in _TITLES.values()}
    section: dict[int, tuple[int, ...]] = {}
    for line in _DATA_FILE.read_text(encoding="ascii").removesuffix("\n").split("\n"):
        if line.startswith("# "):
            section = sections.setdefault(line[2:], {})
        else:
            first, *others = (int(field, 16) for field in line.split(" "))
            section[first] = tuple(others)
    runs, composed, excluded, compatibility, lower_case, folded = (sections[title] for title in _TITLES.values())
    classes = {code: class_ for first, (last, class_) in runs.items() for code in range(first, last + 1)}
    compositions = {(pair[0], pair[1]): code for code, pair in composed.items()}
    return NormalizationData(classes, composed | excluded, compatibility, compositions, lower_case, folded)


def decompose_fully(data: NormalizationData, form: Form) -> dict[int, tuple[int, ...]]:
    """Returns the full decomposition of each character that has one, in canonical order; Hangul is left out.

    >>> decompose_fully(read_normalization_data(), "NFD")[0x1EA4]  # A, circumflex, acute
    (65, 770, 769)
    """
    steps = data.canonical if form in ("NFC", "NFD") else data.canonical | data.compatibility
    full: dict[int, tuple[int, ...]] = {}

    def decompose(code: int) -> tuple[int, ...]:
        if code not in steps:
            return (code,)
        if code not in full:
            full[code] = tuple(part for step in steps[code] for part in decompose(step))
        return full[code]

    for code in steps:
        decompose(code)
    return full


def load_normalizable_characters() -> CodePointSet:
    """Returns the characters that a normalization form can change, move or combine with others."""
    data = read_normalization_data()
    pairs = {code for pair in data.compositions for code in pair}
    members = make_code_point_set(*data.classes, *data.canonical, *data.compatibility, *pairs)
    for first, count in (
        (HANGUL_FIRST, NUM_HANGUL),
        (HANGUL_L, NUM_HANGUL_L),
        (HANGUL_V, NUM_HANGUL_V),
        (HANGUL_T + 1, NUM_HANGUL_T - 1),
    ):
        members[first : first + count] = True
    return members


def fold_case(text: str) -> str:
    """Returns text without differences of case, by Unicode's full case folding.

    >>> fold_case("Straße ΣΑΣ")
    'strasse σασ'
    """
    return text.translate(_make_folding_table())


@cache
def _make_folding_table() -> dict[int, str]:
    data = read_normalization_data()
    return {code: "".join(map(chr, folded)) for code, folded in (data.lower_case | data.folded).items()}


def _write() -> None:
    import unicodedata2  # Only this function needs the two packages.
    from tokenizers import normalizers

    assert unicodedata2.unidata_version == "16.0.0", unicodedata2.unidata_version
    forms = {form: getattr(normalizers, form)().normalize_str for form in get_args(Form)}
    lowercase = normalizers.Lowercase().normalize_str
    classes: dict[int, int] = {}
    sections: dict[str, list[str]] = {name: [] for name in _TITLES}
    for code in range(0x110000):
        character = chr(code)
        if 0xD800 <= code < 0xE000 or HANGUL_FIRST <= code < HANGUL_FIRST + NUM_HANGUL:
            continue
        # The library knows a class if it moves U+0334, of class 1, before the character. It knows no later class 1.
        class_ = unicodedata2.combining(character)
        if class_ == 1 or (class_ > 1 and forms["NFD"](character + "\u0334").startswith("\u0334")):
            classes[code] = class_
        steps = unicodedata2.decomposition(character).split()
        if steps and forms["NFKD"](character) != character:
            is_canonical = not steps[0].startswith("<")
            is_composed = is_canonical and forms["NFC"](character) == character
            section = "compatibility" if not is_canonical else "canonical" if is_composed else "excluded"
            codes = steps if is_canonical else steps[1:]
            sections[section].append(" ".join([f"{code:X}", *codes]))
        lower = lowercase(character)
        if lower != character:
            sections["lower_case"].append(" ".join(f"{ord(c):X}" for c in (character, *lower)))
        # Foldings never change, so those of any version of Python do. One too old for a letter gives it as it is.
        folded = character.casefold()
        if folded != lower and (folded != character or character.lower() == lower):
            sections["folded"].append(" ".join(f"{ord(c):X}" for c in (character, *folded)))
    for code, class_ in classes.items():
        if classes.get(code - 1) != class_:
            last = next(end for end in range(code, 0x110000) if classes.get(end + 1) != class_)
            sections["classes"].append(f"{code:X} {last:X} {class_:X}")
    lines = [f"# Normalization of Unicode {NORMALIZATION_UNICODE_VERSION}, lower case of {LOWER_CASE_UNICODE_VERSION}."]
    for name, title in _TITLES.items():
        lines += [f"# {title}", *sections[name]]
    _DATA_FILE.write_text("\n".join(lines) + "\n", encoding="ascii")


if __name__ == "__main__":
    _write()
