"""Prints a digest of what the normalizer gives for every code point and for many pairs, by form.

Another version of Python runs it too, to prove that the results do not depend on the interpreter.
"""

import hashlib
import json
import sys

import pyarrow as pa

from bpe_core.pretokenize.normalizer import normalize_array
from bpe_core.pretokenize.unicode_normalization import read_normalization_data


def listed_characters() -> list[str]:
    """Every character with an entry in the data."""
    data = read_normalization_data()
    seconds = {second for _, second in data.compositions}
    codes = {*data.classes, *data.canonical, *data.compatibility, *data.lower_case, *seconds}
    return [chr(code) for code in sorted(codes)]


def class_representatives() -> list[str]:
    """One mark of each combining class."""
    marks = {class_: code for code, class_ in reversed(read_normalization_data().classes.items())}
    return [chr(code) for code in sorted(marks.values())]


def digests() -> dict[str, str]:
    singles = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    pairs = [one + mark for one in listed_characters() for mark in class_representatives()[::6]]
    texts = pa.array(singles + pairs, pa.large_string())
    return {
        f"{form} {lowercase}": hashlib.sha256(
            "\n".join(normalize_array(texts, form, lowercase).to_pylist()).encode()
        ).hexdigest()
        for form in ("none", "NFC", "NFD", "NFKC", "NFKD")
        for lowercase in (False, True)
    }


if __name__ == "__main__":
    print(json.dumps(digests()))
