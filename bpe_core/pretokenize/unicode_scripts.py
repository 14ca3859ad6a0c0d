"""The characters of scripts, in the fixed version of Unicode that `unicode_categories` names."""

from functools import cache

import numpy as np

from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS, CodePointSet

_RANGES = {
    "han": (
        *((0x2E80, 0x2E99), (0x2E9B, 0x2EF3), (0x2F00, 0x2FD5), (0x3005, 0x3005), (0x3007, 0x3007), (0x3021, 0x3029)),
        *((0x3038, 0x303B), (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFA6D), (0xFA70, 0xFAD9), (0x16FE2, 0x16FE3)),
        *((0x16FF0, 0x16FF1), (0x20000, 0x2A6DF), (0x2A700, 0x2B739), (0x2B740, 0x2B81D), (0x2B820, 0x2CEA1)),
        *((0x2CEB0, 0x2EBE0), (0x2EBF0, 0x2EE5D), (0x2F800, 0x2FA1D), (0x30000, 0x3134A), (0x31350, 0x323AF)),
    ),
}
"""For each script, by its name in lower case: the first and last code points of its runs, from Scripts-16.0.0.txt."""


def is_script(name: str) -> bool:
    """Returns whether a property's name is that of a script that is pinned here, in capitals or not."""
    return name.lower() in _RANGES


@cache
def load_script(name: str) -> CodePointSet:
    """Returns the characters of a script; do not change the array.

    >>> int(load_script("Han").sum())
    99030
    """
    members = np.zeros(NUM_CODE_POINTS, bool)
    for first, last in _RANGES[name.lower()]:
        members[first : last + 1] = True
    return members
