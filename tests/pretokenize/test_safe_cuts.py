"""Words are split between two characters exactly if no token has them side by side."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core.kernels import flatten_bytes
from bpe_core.pretokenize.safe_cuts import CutStep, make_cut_tables
from bpe_core.pretokenize.word_steps import PatternStep, start_words

MANY = "".join(map(chr, range(0x4E00, 0x4F80)))  # More than have a place in the dense table.


@given(
    known=st.text("▁abcé中👍" + MANY[::40]),
    tokens=st.lists(st.text("▁abcé中👍" + MANY[::40], max_size=4), max_size=6),
    texts=st.lists(st.text("▁abcé中👍 xñ" + MANY[::40], max_size=10), max_size=4),
    has_many=st.booleans(),
    beside_unknown=st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_words_end_where_no_token_reaches_across(
    known: str, tokens: list[str], texts: list[str], has_many: bool, beside_unknown: bool
) -> None:
    if has_many:
        tokens = [MANY, *tokens]
        known += MANY
    pairs = {left + right for token in tokens for left, right in pairwise(token)}
    has_unknown = any(not {*known}.issuperset(pair) for pair in pairs)

    def is_split(left: str, right: str) -> bool:
        num_known = (left in known) + (right in known)
        return left + right not in pairs if num_known == 2 else num_known == 1 and beside_unknown and not has_unknown

    step = CutStep(make_cut_tables(known, tokens, beside_unknown))
    batch = start_words(*flatten_bytes(pa.array(texts, pa.large_string())))
    words = step.split_words(batch, np.ones(len(texts), bool)).list_words()
    assert ["".join(one) for one in words] == texts
    for text, own in zip(texts, words, strict=True):
        ends = np.cumsum([len(word) for word in own])[:-1].tolist()
        assert ends == [at for at in range(1, len(text)) if is_split(text[at - 1], text[at])]


def test_words_with_gaps_between_them_are_split() -> None:
    batch = start_words(*flatten_bytes(pa.array(["ab cab", "", " c"], pa.large_string())))
    batch = PatternStep(" ", "Removed").split_words(batch, np.ones(3, bool))
    step = CutStep(make_cut_tables("abc", ["ab"]))
    assert step.split_words(batch, np.ones(3, bool)).list_words() == [["ab", "c", "ab"], [], ["c"]]
