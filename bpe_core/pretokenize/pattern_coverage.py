"""Decides whether the matches of a pattern leave out no part of any text."""

import numpy as np
import numpy.typing as npt

from bpe_core.pretokenize.pattern_compiler import ENDS, UnsupportedPatternError, compile_patterns

_END_OF_TEXT = 255


def covers_every_text(expression: str) -> bool:
    r"""Returns whether the matches of an expression join to the text, whatever the text; False if it is not compiled.

    >>> covers_every_text(r"\w+|\W"), covers_every_text(r"\S+")
    (False, False)
    >>> covers_every_text(r"\s+|\S+"), covers_every_text(r" ?\S+|\s+(?!\S)|\s"), covers_every_text(r" ?\S+|\s+(?!\S)")
    (True, True, False)
    """
    try:
        tables = compile_patterns((expression,))
    except UnsupportedPatternError:
        return False
    rows = tables.transitions.reshape(-1, 256)
    may_end = (rows & ENDS) != 0
    states = (rows >> 2) // 256
    characters = np.concatenate([np.arange(128), 128 + np.unique(tables.classes)])
    after_character = states[int(tables.start_states[0]) // 256, characters]
    return bool((_find_matching_states(may_end, states, characters)[after_character]).all())


def _find_matching_states(
    may_end: npt.NDArray[np.bool_], states: npt.NDArray[np.int32], characters: npt.NDArray[np.int64]
) -> npt.NDArray[np.bool_]:
    """Returns for each state whether a match that has come this far ends somewhere, whatever text follows.

    Args:
        may_end: for each state and column whether a match may end there.
        states: for each state and column the next state; 0 is the dead one.
        characters: the columns of the characters.
    """
    matches = may_end[:, _END_OF_TEXT].copy()
    matches[0] = False
    while True:
        still = matches & (may_end[:, characters] | matches[states[:, characters]]).all(axis=1)
        if (still == matches).all():
            return matches
        matches = still
