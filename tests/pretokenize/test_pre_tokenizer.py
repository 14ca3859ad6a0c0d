"""Splitting text into words, and counting, summing and partitioning words."""

import sys
import unicodedata
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import bpe_core.pretokenize.pre_tokenizer
from bpe_core import PreTokenizer, count_words
from bpe_core.pretokenize.pre_tokenizer import repair_surrogates
from bpe_core.pretokenize.word_counting import partition_word_counts, sum_word_counts

# Only characters that this Python knows: libraries with newer tables take later ones for letters, older ones do not.
assigned = st.characters(exclude_categories=["Cn", "Cs"])
spaces = st.sampled_from(" \t\n\r\x0b\x0c\x1c\x85\xa0\u1680\u2003\u2028\u200b\u202f\u3000")
apostrophes = st.sampled_from(["'s", "'ll", "'S", "'", "’s", " '", "'re"])
digits = st.sampled_from("09²¼Ⅷ٣߃𝟗")
texts = st.lists(st.one_of(assigned, spaces, apostrophes, digits, st.sampled_from("ab的é\u0301")), max_size=30).map(
    "".join
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        ("   ", ["   "]),
        ("a  b", ["a", " ", " b"]),
        ("a b ", ["a", " b", " "]),
        ("a\r\nb", ["a", "\r", "\n", "b"]),
        ("a\r\n\r\n b", ["a", "\r\n\r\n", " b"]),
        ("a\tb", ["a", "\t", "b"]),
        ("a\xa0b", ["a", "\xa0", "b"]),
        ("a \xa0 b", ["a", " \xa0", " b"]),
        ("a\x85b", ["a", "\x85", "b"]),
        ("a\u200bb", ["a", "\u200b", "b"]),  # ZERO WIDTH SPACE is not white space.
        ("a\x1cb", ["a", "\x1c", "b"]),  # Nor is FILE SEPARATOR, although str.isspace says so.
        ("\x1c\x1c !", ["\x1c\x1c", " !"]),
        ("e\u0301a", ["e", "\u0301", "a"]),
        ("éa", ["éa"]),
        ("👩\u200d👩\u200d👧 ok", ["👩\u200d👩\u200d👧", " ok"]),
        ("x² Ⅷ ٣", ["x", "²", " Ⅷ", " ٣"]),
        ("a1b2", ["a", "1", "b", "2"]),
        ("I'm we'll you'LL it’s", ["I", "'m", " we", "'ll", " you", "'", "LL", " it", "’", "s"]),
        ("snake_case __init__", ["snake", "_", "case", " __", "init", "__"]),
        ("你好,世界", ["你好", ",", "世界"]),
    ],
)
def test_gpt2_splits_difficult_texts(text: str, words: list[str]) -> None:
    assert PreTokenizer("gpt2").split(text) == words


@pytest.mark.slow
def test_gpt2_splits_every_character_as_hugging_face_does() -> None:
    byte_level = hugging_face_byte_level()
    characters = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    pre_tokenizer = PreTokenizer("gpt2")
    for start in range(0, len(characters), 1000):
        text = "".join(f" {c}a{c}1{c}!{c} x" for c in characters[start : start + 1000])
        assert pre_tokenizer.split(text) == [text[a:b] for _, (a, b) in byte_level.pre_tokenize_str(text)]


@given(text=texts)
@settings(max_examples=500, deadline=None)
def test_gpt2_splits_texts_as_hugging_face_does(text: str) -> None:
    theirs = hugging_face_byte_level().pre_tokenize_str(text)
    assert PreTokenizer("gpt2").split(text) == [text[start:end] for _, (start, end) in theirs]


@pytest.mark.parametrize("pattern", ["z*", "b*", "", "(?=b)", "(?<=a)", "a|(?<=a)", r"(?:a|b)(\d)?", "(a)|(b)"])
@pytest.mark.parametrize("text", ["\na  b1", "bba  ab", "的a的b", "é\u0301a𝄞b"])
def test_custom_patterns_split_as_hugging_face_does(pattern: str, text: str) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="compares with Hugging Face tokenizers")
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    assert PreTokenizer(pattern).split(text) == [text[start:end] for _, (start, end) in split.pre_tokenize_str(text)]


def hugging_face_byte_level() -> Any:
    pre_tokenizers = pytest.importorskip("tokenizers.pre_tokenizers", reason="compares with Hugging Face tokenizers")
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)


@pytest.mark.parametrize("pattern", ["gpt2", "whitespace", "a", r"\p{L}+", "(a)|(b+)", "b*"])
@given(text=st.one_of(st.text(), texts))
@settings(max_examples=150, deadline=None)
def test_words_join_to_the_text(pattern: str, text: str) -> None:
    words = PreTokenizer(pattern).split(text)
    assert "".join(words) == text
    assert "" not in words


@pytest.mark.parametrize(
    ("pattern", "words", "without_gaps"),
    [
        ("whitespace", ["\n", "a", "  ", "b1"], ["a", "b1"]),
        (r"\p{L}+", ["\n", "a", "  ", "b", "1"], ["a", "b"]),
        ("z", ["\na  b1"], []),
        ("b*", ["\n", "a", " ", " ", "b", "1"], ["b"]),  # An empty match splits too.
        (r"(?=b)", ["\na  ", "b1"], []),
        (r"(a)\s+((b)\d)", ["\n", "a  b1"], ["a  b1"]),
        (r"(?:a|b)(\d)?", ["\n", "a", "  ", "b1"], ["a", "b1"]),
    ],
)
def test_gaps_are_words_of_their_own(pattern: str, words: list[str], without_gaps: list[str]) -> None:
    assert PreTokenizer(pattern).split("\na  b1") == words
    assert PreTokenizer(pattern, keep_gaps=False).split("\na  b1") == without_gaps


def test_whitespace_leaves_out_white_space() -> None:
    spaces = "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u200a\u2028\u2029\u202f\u205f\u3000"
    assert PreTokenizer("whitespace", keep_gaps=False).split("a".join(spaces)) == ["a"] * (len(spaces) - 1)
    assert PreTokenizer("whitespace", keep_gaps=False).split("a\x1cb\u200bc\ufeffd") == ["a\x1cb\u200bc\ufeffd"]


def test_a_bad_pattern_is_refused() -> None:
    message = r"^pattern '\[a-' is neither one of whitespace, gpt2, .* nor a regular expression: .*position"
    with pytest.raises(ValueError, match=message):
        PreTokenizer("[a-")
    with pytest.raises(ValueError, match="pattern 'gpt-2\\(' is neither"):
        count_words(["a"], "gpt-2(")


def test_a_pattern_that_backtracks_forever_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe_core.pretokenize.pre_tokenizer, "_MAX_REGEX_SECONDS", 0.05)
    message = r"^pattern .* took over 0.05 s on a text of 4001 characters that starts with 'aaaaa.*nested repeats"
    with pytest.raises(ValueError, match=message):
        PreTokenizer(r"(?<!x)(?:a+)+[^a!]").split("a" * 4000 + "!")


@pytest.mark.parametrize(
    ("pre_tokenizer", "text", "normalized"),
    [
        (PreTokenizer("gpt2"), "E\u0301ﬁ", "E\u0301ﬁ"),
        (PreTokenizer("gpt2", unicode="NFC"), "E\u0301ﬁ", "Éﬁ"),
        (PreTokenizer("gpt2", unicode="NFD"), "Éﬁ", "E\u0301ﬁ"),
        (PreTokenizer("gpt2", unicode="NFKC"), "E\u0301ﬁ ①", "Éfi 1"),
        (PreTokenizer("gpt2", unicode="NFKD"), "Éﬁ", "E\u0301fi"),
        (PreTokenizer("gpt2", lowercase=True), "ÀB ΣΑΣ", "àb σασ"),  # No final sigma.
        (PreTokenizer("gpt2", lowercase=True), "İẞ", "i\u0307ß"),
        (PreTokenizer("gpt2", unicode="NFKC", lowercase=True), "ＡÉ", "aé"),
    ],
)
def test_text_is_normalized_before_it_is_split(pre_tokenizer: PreTokenizer, text: str, normalized: str) -> None:
    assert pre_tokenizer.normalize(text) == normalized
    assert "".join(pre_tokenizer.split(text)) == normalized


def test_lower_case_equals_hugging_face() -> None:
    normalizers = pytest.importorskip("tokenizers.normalizers", reason="compares with Hugging Face tokenizers")
    characters = [chr(c) for c in range(sys.maxunicode + 1) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
    text = "".join(characters)
    assert PreTokenizer("gpt2", lowercase=True).normalize(text) == normalizers.Lowercase().normalize_str(text)


def test_surrogates_are_repaired() -> None:
    assert repair_surrogates("a\ud83d\ude00b\ud83dc\ude00") == "a😀b\ufffdc\ufffd"


def count(texts: Any, pre_tokenizer: PreTokenizer | str = "gpt2") -> list[tuple[bytes, int]]:
    table = count_words(texts, pre_tokenizer)
    assert table.schema == pa.schema([pa.field("word", pa.binary(), False), pa.field("count", pa.int64(), False)])
    return list(zip(table["word"].to_pylist(), table["count"].to_pylist(), strict=True))


def test_words_are_counted_in_the_order_of_first_appearance() -> None:
    assert count(["b a", "c a b a"]) == [(b"b", 1), (b" a", 3), (b"c", 1), (b" b", 1)]
    assert count(["b a", "c a b a"], PreTokenizer("whitespace", keep_gaps=False)) == [(b"b", 2), (b"a", 3), (b"c", 1)]


@pytest.mark.parametrize("texts", [[], [""], pa.array([], pa.string()), pa.array([None], pa.string())])
def test_empty_texts_have_no_words(texts: Any) -> None:
    assert count(texts) == []


def test_documents_of_white_space() -> None:
    assert count(["", " ", "\n", " "]) == [(b" ", 2), (b"\n", 1)]
    assert count(["", " ", "\n"], PreTokenizer("whitespace", keep_gaps=False)) == []


@pytest.mark.parametrize("string_type", [pa.string(), pa.large_string(), pa.string_view()])
def test_texts_may_be_any_array_of_strings(string_type: pa.DataType) -> None:
    array = pa.array(["left out", "b a", None, "", "的 a", "left out"], string_type)
    expected = [(b"b", 1), (b" a", 2), ("的".encode(), 1)]
    assert count(array.slice(1, 4)) == expected
    assert count(pa.chunked_array([array.slice(1, 2), array.slice(3, 0), array.slice(3, 2)])) == expected


def test_surrogates_in_lists_are_repaired_before_they_are_count() -> None:
    assert count(["\ud83d\ude00", "😀", "a\ud800"]) == [("😀".encode(), 2), (b"a", 1), ("\ufffd".encode(), 1)]


def word_counts(items: list[tuple[bytes, int]]) -> pa.Table:
    schema = pa.schema([pa.field("word", pa.binary(), False), pa.field("count", pa.int64(), False)])
    columns = [pa.array([word for word, _ in items], pa.binary()), pa.array([n for _, n in items], pa.int64())]
    return pa.table(columns, schema=schema)


items = st.lists(st.tuples(st.one_of(st.binary(max_size=5), st.sampled_from([b"a", b"b"])), st.integers(1, 2**40)))


def test_counts_above_32_bits_are_summed_exactly() -> None:
    tables = [word_counts([(b"b", 2**31), (b"a", 2**40)]), word_counts([(b"b", 2**31), (b"\xff", 2**62)])]
    assert sum_word_counts(tables).to_pydict() == {"word": [b"a", b"b", b"\xff"], "count": [2**40, 2**32, 2**62]}
    assert sum_word_counts([]).to_pydict() == {"word": [], "count": []}


@given(rows=items, seed=st.randoms(), edges=st.lists(st.integers(0, 20), max_size=3))
@settings(max_examples=200, deadline=None)
def test_sums_do_not_depend_on_the_tables(rows: list[tuple[bytes, int]], seed: Any, edges: list[int]) -> None:
    expected: dict[bytes, int] = {}
    for word, count in rows:
        expected[word] = expected.get(word, 0) + count
    seed.shuffle(rows)
    table = word_counts(rows)
    bounds = sorted([0, *(min(edge, len(rows)) for edge in edges), len(rows)])
    tables = [table.slice(start, end - start) for start, end in pairwise(bounds)]
    seed.shuffle(tables)
    summed = sum_word_counts(tables)
    assert summed.schema == table.schema
    assert list(zip(*summed.to_pydict().values(), strict=True)) == sorted(expected.items())


@given(rows=items, num_partitions=st.integers(1, 9), before=st.integers(0, 3), edge=st.integers(0, 20))
@settings(max_examples=200, deadline=None)
def test_partitions_hold_every_row_once_and_in_order(
    rows: list[tuple[bytes, int]], num_partitions: int, before: int, edge: int
) -> None:
    table = word_counts(rows)
    parts = partition_word_counts(table, num_partitions)
    assert len(parts) == num_partitions
    partition_of: dict[bytes, int] = {}
    for index, part in enumerate(parts):
        held = list(zip(*part.to_pydict().values(), strict=True))
        assert all(partition_of.setdefault(word, index) == index for word, _ in held)
        assert held == [row for row in rows if partition_of.get(row[0]) == index]
    assert sum(part.num_rows for part in parts) == len(rows)

    padded = word_counts([(b"x", 1)] * before + rows + [(b"y", 1)])
    sliced = padded.slice(before, len(rows))
    chunked = pa.concat_tables([sliced.slice(0, edge), sliced.slice(edge)])
    assert [part.to_pydict() for part in partition_word_counts(sliced, num_partitions)] == [
        part.to_pydict() for part in parts
    ]
    assert [part.to_pydict() for part in partition_word_counts(chunked, num_partitions)] == [
        part.to_pydict() for part in parts
    ]


def test_partitions_are_those_of_fnv1a() -> None:
    table = word_counts([(b"", 1), (b"a", 2), (b" the", 3), ("的".encode(), 4), (b"\x00\xff", 5)])
    # The 64-bit FNV-1a hash, its upper half mixed into the lower one.
    expected: list[list[bytes]] = [[], [], []]
    for word in table["word"].to_pylist():
        hashed = 0xCBF29CE484222325
        for byte in word:
            hashed = ((hashed ^ byte) * 0x100000001B3) % 2**64
        expected[(hashed ^ (hashed >> 32)) % 3].append(word)
    assert [part["word"].to_pylist() for part in partition_word_counts(table, 3)] == expected
