"""The compiled merge loop equals a slow, obvious trainer; and cases that other implementations got wrong."""

import time
from typing import Any, get_type_hints

import numpy as np
import pyarrow as pa
import pytest
import slow
from hypothesis import given, settings
from hypothesis import strategies as st
from resources import measure_growth, measure_peak_memory

from bpe_core.merging.alphabet import GPT2_BYTE_ORDER, spell_in_bytes, word_counts_to_arrays
from bpe_core.merging.loop import MergeLoop, Progress
from bpe_core.merging.merges import learn_merges
from bpe_core.merging.settings import MergeOptions, MergeSettings
from bpe_core.merging.state import BOUNDARY, GONE

TIES = ["smaller-pair", "lexicographic", "first-seen", "larger-pair"]

# Few letters, so that runs, overlaps and different merges with the same spelling are common.
few_letters = st.text(alphabet="aab<", min_size=1, max_size=9)
any_letters = st.text(alphabet="aaabcé</w>的𝄞", min_size=1, max_size=8)
counts = st.one_of(st.integers(1, 4), st.integers(2**31, 2**33))
word_tables = st.dictionaries(st.one_of(few_letters, any_letters).map(str.encode), counts, max_size=8)


def learn_triples(words: dict[bytes, int], **settings: Any) -> list[tuple[bytes, bytes, int]]:
    """The merges as (left, right, count), which is what the slow trainer returns."""
    merges = learn_merges(words, **settings)
    spellings = [merges.alphabet.write_out_marker(symbol) for symbol in merges.symbols]
    return [
        (spellings[left], spellings[right], int(count))
        for left, right, count in zip(merges.left, merges.right, merges.counts, strict=True)
    ]


@pytest.mark.parametrize("ties", TIES)
@given(words=word_tables)
@settings(max_examples=300, deadline=None)
def test_byte_merges_equal_the_slow_trainer(ties: str, words: dict[bytes, int]) -> None:
    assert learn_triples(words, num_merges=30, ties=ties) == slow.learn_merges(words, num_merges=30, ties=ties)


@pytest.mark.slow
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("placement", ["apart", "glued"])
@given(words=word_tables, end_of_word=st.sampled_from(["</w>", "_", "a"]))
@settings(max_examples=200, deadline=None)
def test_char_merges_equal_the_slow_trainer(
    ties: str, placement: str, words: dict[bytes, int], end_of_word: str
) -> None:
    rules: dict[str, Any] = {
        "kind": "char",
        "end_of_word": end_of_word,
        "end_of_word_placement": placement,
        "num_merges": 30,
        "ties": ties,
    }
    assert learn_triples(words, **rules) == slow.learn_merges(words, **rules)


@given(
    words=word_tables,
    ties=st.sampled_from(TIES),
    min_frequency=st.integers(0, 4),
    max_token_length=st.integers(1, 6),
    whole_characters=st.booleans(),
    special_tokens=st.lists(st.sampled_from(["aa", "ab", "<a", "</w>", "a</w>", "的的"]), unique=True),
    extra=st.integers(0, 20),
)
@settings(max_examples=300, deadline=None)
def test_every_rule_equals_the_slow_trainer(words: dict[bytes, int], extra: int, **rules: Any) -> None:
    rules["vocab_size"] = 256 + len(rules["special_tokens"]) + extra
    assert learn_triples(words, **rules) == slow.learn_merges(words, **rules)


@given(
    words=word_tables,
    ties=st.sampled_from(TIES),
    limit=st.integers(1, 5),
    placement=st.sampled_from(["apart", "glued"]),
)
@settings(max_examples=200, deadline=None)
def test_limit_alphabet_equals_the_slow_trainer(words: dict[bytes, int], ties: str, limit: int, placement: str) -> None:
    rules: dict[str, Any] = {
        "kind": "char",
        "num_merges": 20,
        "ties": ties,
        "limit_alphabet": limit,
        "end_of_word_placement": placement,
    }
    if ties == "first-seen":  # The slow trainer adds up words that become equal, which changes their order.
        return
    assert learn_triples(words, **rules) == slow.learn_merges(words, **rules)


@given(words=word_tables, ties=st.sampled_from(TIES), num_done=st.integers(0, 25))
@settings(max_examples=200, deadline=None)
def test_a_resumed_run_equals_an_unbroken_one(words: dict[bytes, int], ties: Any, num_done: int) -> None:
    loops: list[Any] = []
    whole = learn_merges(words, num_merges=25, ties=ties, on_progress=lambda _, loop: loops.append(loop))
    done = loops[-1].copy_pairs()[:num_done]
    resumed = learn_merges(words, num_merges=25, ties=ties, resume_from=done)
    assert resumed == whole
    assert resumed.counts.tolist() == whole.counts.tolist()


@given(words=word_tables, ties=st.sampled_from(["smaller-pair", "lexicographic", "larger-pair"]), seed=st.randoms())
@settings(max_examples=100, deadline=None)
def test_merges_do_not_depend_on_the_order_of_the_words(words: dict[bytes, int], ties: Any, seed: Any) -> None:
    items = list(words.items())
    seed.shuffle(items)
    assert learn_merges(dict(items), num_merges=25, ties=ties) == learn_merges(words, num_merges=25, ties=ties)


@given(words=word_tables, k=st.integers(0, 20))
@settings(max_examples=50, deadline=None)
def test_the_first_k_merges_are_the_run_with_k_merges(words: dict[bytes, int], k: int) -> None:
    assert learn_merges(words, num_merges=20)[:k] == learn_merges(words, num_merges=k)


def test_long_words_and_many_merges_equal_the_slow_trainer() -> None:
    random = np.random.default_rng(7)
    words = {bytes(random.choice([97, 98, 99], size)): int(size) for size in (400, 300, 299, 2, 3)}
    for ties in TIES:
        assert learn_triples(words, num_merges=150, ties=ties) == slow.learn_merges(words, num_merges=150, ties=ties)


def test_one_step_changes_words_and_pairs_as_the_example_in_the_step_module_shows() -> None:
    h, u, g, s, p = (GPT2_BYTE_ORDER.index(byte) for byte in b"hugsp")
    ug, dot = 256, BOUNDARY
    words = spell_in_bytes(*word_counts_to_arrays({"hug": 10, "hugs": 5, "pug": 5}))
    loop = MergeLoop(words, MergeSettings(num_merges=1))
    assert loop._arrays.words.symbols.tolist() == [dot, h, u, g, dot, h, u, g, s, dot, p, u, g, dot]
    assert list_pairs(loop) == {(h, u): (15, [1, 5]), (u, g): (20, [2, 6, 11]), (p, u): (5, [10]), (g, s): (5, [7])}
    loop.run()
    assert loop._arrays.words.symbols.tolist() == [dot, h, ug, -2, dot, h, ug, -2, s, dot, p, ug, -2, dot]
    assert {pair: changed for pair, changed in list_pairs(loop).items() if changed[0] > 0} == {
        (h, ug): (15, [1, 5]),
        (p, ug): (5, [10]),
        (ug, s): (5, [6]),
    }
    longer = MergeLoop(words, MergeSettings(num_merges=2))
    longer.run()
    assert longer._arrays.words.symbols[:5].tolist() == [dot, 257, GONE, -3, dot]


def list_pairs(loop: MergeLoop) -> dict[tuple[int, int], tuple[int, list[int]]]:
    """Each pair's count and places."""
    pairs = loop._arrays.pairs
    listed = {}
    for pair in range(loop.size.num_pairs):
        start, size, key = (int(column[pair]) for column in (pairs.list_starts, pairs.list_sizes, pairs.keys))
        listed[key >> 32, key & 0xFFFFFFFF] = (int(pairs.counts[pair]), pairs.places[start : start + size].tolist())
    return listed


def test_counts_above_32_bits_stay_exact() -> None:
    merges = learn_merges({"aa": 3_000_000_000, "bc": 10, "aab": 2**40}, num_merges=3)
    assert merges[:] == [(b"a", b"a"), (b"aa", b"b"), (b"b", b"c")]
    assert merges.counts.tolist() == [2**40 + 3_000_000_000, 2**40, 10]


def test_runs_count_every_neighbouring_pair() -> None:
    assert learn_merges({"zzzz": 1, "bc": 2}, num_merges=1)[:] == [(b"z", b"z")]
    assert learn_merges({"xy": 1, "k": 1, "kkk": 1}, num_merges=1).counts.tolist() == [2]


def test_the_loop_ends_when_pairs_run_out_and_says_so() -> None:
    merges = learn_merges({"ab": 1, "cd": 1}, num_merges=50)
    assert (len(merges), merges.ended_by) == (2, "no-pairs")
    rare = learn_merges({"ab": 1, "cd": 5}, num_merges=50, min_frequency=2)
    assert (rare[:], rare.ended_by) == ([(b"c", b"d")], "min-frequency")
    assert learn_merges({"ab": 1, "cd": 1}, num_merges=1).ended_by == "size"
    assert learn_merges({}, num_merges=5).ended_by == "no-pairs"


def test_vocab_size_counts_bytes_merges_and_special_tokens() -> None:
    words = {bytes([a, b]): 1 for a in range(97, 110) for b in range(97, 110)}
    merges = learn_merges(words, vocab_size=300, special_tokens=["<|endoftext|>"])
    assert len(merges) == 300 - 256 - 1


def test_an_alphabet_larger_than_the_vocabulary_is_refused() -> None:
    words = {chr(0x4E00 + i): 1 for i in range(40)}
    with pytest.raises(ValueError, match=r"room for 20 symbols .* base alphabet alone has 41.*limit_alphabet"):
        learn_merges(words, kind="char", vocab_size=20)


def test_settings_may_be_given_as_an_object_or_as_keywords_or_both() -> None:
    words = {"hug": 10, "pug": 5, "hugs": 5}
    settings = MergeSettings(num_merges=9, max_token_length=2, ties="first-seen")
    by_object = learn_merges(words, settings)
    assert by_object == learn_merges(words, num_merges=9, max_token_length=2, ties="first-seen")
    assert learn_merges(words, settings, num_merges=1) == by_object[:1]


def test_keyword_settings_are_the_fields_of_the_settings_object() -> None:
    assert get_type_hints(MergeOptions) == get_type_hints(MergeSettings)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "vocab_size is None and num_merges is None"),
        ({"num_merges": 1, "vocab_size": 300}, "vocab_size is 300 and num_merges is 1"),
        ({"num_merges": 1, "ties": "random"}, "ties is 'random'; it is one of smaller-pair"),
        ({"num_merges": 1, "kind": "word"}, "kind is 'word'"),
        ({"num_merges": -1}, "num_merges is -1; give 0 or more"),
        ({"num_merges": 1, "max_token_length": 0}, "max_token_length is 0; give 1 or more"),
        ({"num_merges": 1, "limit_alphabet": 0}, "limit_alphabet is 0; give 1 or more"),
        ({"num_merges": 1, "end_of_word_placement": "before"}, "end_of_word_placement is 'before'"),
        ({"num_merges": 1, "special_tokens": ["a"]}, "special token b'a' is also a base symbol"),
        ({"num_merges": 1, "resume_from": [[1, 256]]}, "resume_from names symbols"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        learn_merges({"ab": 1}, **arguments)


def test_bad_word_tables_are_refused() -> None:
    with pytest.raises(ValueError, match="lack the column 'count'; they have"):
        learn_merges(pa.table({"word": [b"a"]}), num_merges=1)
    with pytest.raises(ValueError, match="b'ab' has the count -3"):
        learn_merges({"ab": -3}, num_merges=1)
    with pytest.raises(ValueError, match="hold a null"):
        learn_merges(pa.table({"word": pa.array([b"a", None]), "count": [1, 2]}), num_merges=1)


def test_word_tables_may_be_chunked_strings_or_slices() -> None:
    table = pa.table({"word": pa.array(["xx", "hug", "pug", "hugs"]), "count": pa.array([9, 10, 5, 5], pa.int32())})
    chunked = pa.concat_tables([table.slice(1, 1), table.slice(2, 2)])
    assert learn_merges(chunked, num_merges=2)[:] == [(b"u", b"g"), (b"h", b"ug")]


def test_more_places_than_can_be_numbered_are_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = {"hug": 10, "pug": 5}
    monkeypatch.setattr("bpe_core.merging.loop.MAX_PLACES", 9)  # Six symbols, and a boundary before each word and last.
    assert len(learn_merges(counts, num_merges=1)) == 1
    monkeypatch.setattr("bpe_core.merging.loop.MAX_PLACES", 8)
    with pytest.raises(ValueError, match=r"2 different words with 6 symbols.*\(8\).*min_count"):
        learn_merges(counts, num_merges=1)


@pytest.mark.parametrize("num_letters", [60, 700], ids=["table of all pairs", "hash table"])
def test_more_pairs_than_the_pair_table_starts_with(num_letters: int) -> None:
    random = np.random.default_rng(1)
    letters = [chr(ord("一") + i) for i in range(num_letters)]
    words = {"".join(random.choice(letters, 6)).encode(): int(count) for count in random.integers(1, 9, 800)}
    rules: dict[str, Any] = {"kind": "char", "num_merges": 30, "ties": "lexicographic"}
    pairs = {(word[i : i + 1], word[i + 1 : i + 2]) for word in map(bytes.decode, words) for i in range(5)}
    assert len(pairs) > 1024
    assert learn_triples(words, **rules) == slow.learn_merges(words, end_of_word="</w>", **rules)


def test_progress_names_the_pair_and_the_count() -> None:
    seen: list[Progress] = []

    def watch(progress: Progress, loop: MergeLoop) -> None:
        assert loop.size.num_words == 3
        seen.append(progress)

    learn_merges({"hug": 10, "pug": 5, "hugs": 5}, num_merges=2, on_progress=watch)
    assert seen[0] == Progress(num_merges=0, max_merges=2)
    assert seen[-1] == Progress(num_merges=2, max_merges=2, last_pair=(b"h", b"ug"), last_count=15)


@given(counts=st.dictionaries(st.binary(min_size=1, max_size=12), st.integers(1, 5), min_size=1, max_size=12))
@settings(max_examples=100, deadline=None)
def test_the_lists_of_places_stay_within_the_stated_memory(counts: dict[bytes, int]) -> None:
    table = pa.table({"word": pa.array(counts, pa.binary()), "count": pa.array(counts.values(), pa.int64())})
    loop = MergeLoop(spell_in_bytes(*word_counts_to_arrays(table)), MergeSettings(num_merges=60))
    max_list_bytes = loop.size.max_list_bytes
    loop.run()
    spellings = [left + right for left, right in learn_merges(counts, num_merges=60)]
    if len(set(spellings)) == len(spellings):  # A symbol that is made twice may exceed the limit.
        assert 4 * loop._arrays.state.num_places <= max_list_bytes


@pytest.mark.parametrize("count", [1.5, "3", 2**64, None])
def test_counts_that_are_not_whole_numbers_are_refused(count: Any) -> None:
    with pytest.raises((ValueError, TypeError), match="give whole numbers of up to 64 bits"):
        learn_merges({"hug": count}, num_merges=1)


def test_counts_whose_sum_exceeds_64_bits_are_refused() -> None:
    held = learn_merges({"ab": 2**61, "cd": 2**60}, num_merges=1)
    assert (held[:], held.counts.tolist()) == ([(b"a", b"b")], [2**61])
    with pytest.raises(ValueError, match="more than 64 bits can count; divide all counts by one number"):
        learn_merges({"aab": 2**62, "aac": 2**62}, num_merges=1)


@pytest.mark.parametrize("placement", ["apart", "glued"])
@given(
    words=st.dictionaries(st.text("ab#", min_size=1, max_size=9).map(str.encode), st.integers(1, 4), max_size=8),
    ties=st.sampled_from(TIES),
    min_frequency=st.integers(1, 3),
    end_of_word=st.sampled_from(["</w>", "#"]),
)
@settings(max_examples=200, deadline=None)
def test_with_a_marker_and_a_longest_token_every_count_is_that_of_a_recount(
    placement: str, words: dict[bytes, int], min_frequency: int, **rules: Any
) -> None:
    rules |= {"kind": "char", "end_of_word_placement": placement, "max_token_length": 3, "num_merges": 40}
    merges = learn_triples(words, min_frequency=min_frequency, **rules)
    assert merges == slow.learn_merges(words, min_frequency=min_frequency, **rules)
    assert all(count >= min_frequency for _, _, count in merges)


@pytest.mark.parametrize("kind", ["byte", "char"])
@pytest.mark.parametrize("ties", TIES)
def test_runs_of_every_length_are_counted_and_merged_as_by_the_slow_trainer(kind: str, ties: str) -> None:
    words = {b"z" * size: 10 - size for size in range(2, 10)}
    rules: dict[str, Any] = {"kind": kind, "ties": ties, "num_merges": 20}
    assert learn_triples(words, **rules) == slow.learn_merges(words, **rules)
    assert learn_triples(words, **rules)[0] == (b"z", b"z", sum((size - 1) * (10 - size) for size in range(2, 10)))


LETTERS = "".join(np.random.default_rng(1).choice(list("ACGT"), 1_000_000))
"""A text without spaces."""

LINEAR = 24
"""Eight times as much work may take this many times as long; if it were quadratic, it would take 64 times as long."""


def test_one_word_of_a_million_letters_is_merged_in_linear_time() -> None:
    assert measure_growth(lambda size: learn_merges({LETTERS[:size]: 1}, vocab_size=300), 10_000) < LINEAR
    assert len(learn_merges({LETTERS: 1}, vocab_size=300)) == 44


def test_one_word_of_a_repeated_letter_is_merged_in_linear_time() -> None:
    assert measure_growth(lambda size: learn_merges({"k" * size: 1}, num_merges=30), 10_000) < LINEAR
    merges = learn_merges({"k" * 100_000: 1}, num_merges=30)
    assert merges.counts[:3].tolist() == [99_999, 49_999, 24_999]


def test_a_few_enormous_words_among_many_short_ones_change_no_count() -> None:
    chance = np.random.default_rng(2)
    words = {bytes(chance.choice(list(b"abcde"), 5)): 1 for _ in range(2000)}
    words |= {bytes(chance.choice(list(b"abcde"), 4000)): 1 for _ in range(3)}
    assert learn_triples(words, num_merges=12) == slow.learn_merges(words, num_merges=12)


@pytest.mark.slow
def test_enormous_words_take_as_long_beside_short_ones_as_alone() -> None:
    chance = np.random.default_rng(2)
    letters = [*b"abcdefghijklmnopqrstuvwxyz"]
    short = {bytes(chance.choice(letters, 5)): 1 for _ in range(100_000)}
    enormous = {bytes(chance.choice(letters, 200_000)): 1 for _ in range(5)}

    def measure(words: dict[bytes, int]) -> float:
        started = time.process_time()
        learn_merges(words, num_merges=2000)
        return time.process_time() - started

    assert measure(short | enormous) < 3 * (measure(short) + measure(enormous))


@pytest.mark.slow
def test_two_million_different_words_stay_within_the_stated_memory() -> None:
    program = """
import sys
import numpy as np, pyarrow as pa
from bpe_core import learn_merges
letters = np.random.default_rng(1).integers(0x4E00, 0x4E00 + 5000, 2_000_000 * 4).astype("<u4")
text = letters.tobytes().decode("utf-32-le")
words = pa.array([text[at : at + 4] for at in range(0, len(text), 4)])
stated = []
if sys.argv[1] == "merge":
    table = pa.table({"word": words, "count": pa.array(np.ones(len(words), np.int64))})
    learn_merges(table, vocab_size=1000, on_progress=lambda _, loop: stated.append(loop.size))
    assert stated[0].num_words > 1_900_000 and stated[0].num_bytes + stated[0].max_list_bytes < 1e9
"""
    assert measure_peak_memory(program, "merge") - measure_peak_memory(program, "prepare") < 2e9
