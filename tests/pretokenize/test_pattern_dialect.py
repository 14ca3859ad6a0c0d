"""Patterns give the same words in tokenmill, Hugging Face tokenizers and tiktoken, or are refused."""

import json
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bpe_core import PATTERNS, PreTokenizer, Tokenizer
from bpe_core.pretokenize.pattern_dialect import (
    REFUSED,
    SAME_PROPERTIES,
    PatternDialectError,
    check_pattern,
    compile_with_regex,
    find_foreign_part,
)
from bpe_core.pretokenize.unicode_categories import load_category

tokenizers = pytest.importorskip("tokenizers", reason="compares with Hugging Face tokenizers: pip install tokenizers")
tiktoken = pytest.importorskip("tiktoken", reason="compares with tiktoken: pip install tiktoken")

DOCUMENT = Path(__file__).parents[2] / "docs" / "patterns.md"

TEXTS = (
    *"aAbBzZsSkKfF09_-&[]|~^{}<>h ,.\n\r\t\x0b\x0c\x07\x1b\x00\x7féßſ\u212aμΩ的\u0301\u3000ﬀ’\u0085\u2028\u200d\ufeff",
    *("aa", "aaa", "aaaaa", "ab", "aab", "abab", "ba", "abb", "a b", "a  b ", "a\n", "a\nb", "\na\n", "\r\n", "\r\n\n"),
    *("ss", "sS", "SS", "ſs", "ff", "st", "ﬆ", "ﬁ", "ﬂ", "s t", "Ab", "aB", "AB", "'S", "’s"),
    *("a-b", "a{1}", "a&&b", "[a]", "]a", "<a>", "e\u0301", "aé b的", "a\u200db", "\u00aa\u2177ⓐ", "x² Ⅷ 12345 a1b2"),
    "Hello world, it's 2025!\n\n  indented\tline \u3000",
)
"""Single characters are words of their own in any case; the others show what is split."""


def split_by_hugging_face(pattern: str, texts: Sequence[str]) -> Any:
    """Returns the words of each text and what lies between its matches, or None if the library refuses the pattern."""
    try:
        compiled = tokenizers.Regex(pattern)
    except Exception:
        return None
    splits = [tokenizers.pre_tokenizers.Split(compiled, behavior) for behavior in ("isolated", "removed")]
    return [[[text[a:b] for _, (a, b) in split.pre_tokenize_str(text)] for split in splits] for text in texts]


def split_by_tiktoken(pattern: str, texts: Sequence[str]) -> Any:
    """Returns the matches of each text, "crash" where one is empty, or None if the library refuses the pattern."""
    parts = {text[a:b].encode() for text in texts for a in range(len(text)) for b in range(a + 1, len(text) + 1)}
    ranks = {bytes([byte]): byte for byte in range(256)}
    for part in sorted(parts):
        ranks.setdefault(part, len(ranks))
    try:
        encoding: Any = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    except BaseException:
        return None
    found: list[Any] = []
    for text in texts:
        try:
            found.append([encoding.decode_single_token_bytes(id_).decode() for id_ in encoding.encode_ordinary(text)])
        except BaseException:  # Rust panics.
            found.append("crash")
    return found


def split_by_regex(pattern: str, texts: Sequence[str], knows_set_operations: bool = False) -> Any:
    """Returns the words, the text between matches, and the matches of each text, as the `regex` package finds them."""
    compiled = regex.compile(pattern, regex.V1 if knows_set_operations else 0)
    found: list[Any] = []
    for text in texts:
        words, gaps, matches, end = [], [], [], 0
        for match in compiled.finditer(text, timeout=10):
            gaps += [text[end : match.start()]] * (match.start() > end)
            words += gaps[-1:] * (match.start() > end) + [match.group()] * bool(match.group())
            matches += [match.group()] * bool(match.group())
            end = match.end()
        rest = [text[end:]] * (end < len(text))
        found.append((words + rest, gaps + rest, matches))
    return found


def assert_same_words(pattern: str, texts: Sequence[str]) -> None:
    """Asserts that both libraries give our words, as far as they accept the pattern, compiled and with `regex`."""
    ours = [PreTokenizer(pattern).split(text) for text in texts]
    matches = [PreTokenizer(pattern, keep_gaps=False).split(text) for text in texts]
    assert [PreTokenizer(pattern).split_with_regex(text) for text in texts] == ours
    theirs = split_by_hugging_face(pattern, texts)
    assert (theirs is None) == (find_foreign_part(pattern) is not None)
    if theirs is not None:
        assert [words for words, _ in theirs] == ours
    theirs = split_by_tiktoken(pattern, texts)
    if theirs is not None:
        crashed = "crash" in theirs
        assert [a for a in theirs if a != "crash"] == [b for a, b in zip(theirs, matches, strict=True) if a != "crash"]
        assert not crashed or regex.compile(pattern).fullmatch("") or "(?" in pattern


DIFFERENCES: dict[str, list[tuple[str, str]]] = {
    "set-operation": [
        *(("[a~~b]+", "a~"), ("[+--]", "+-"), ("[a-z--b]", "ab"), ("[&&a]", "a&"), ("[a&&]", "a&"), ("[a&&&b]", "ab&")),
        ("(?i:[ab&&[^B]]+)", "aBb"),
    ],
    "nested-set": [("[a[b]]", "ab"), ("[[a]b]", "ab"), ("[[ab]&&[b]]", "ab]"), ("[ab&&[b]a]", "aa]")],
    "posix-class": [("[[:alpha:]]+", "aé"), ("[[:^alpha:]]", "é")],
    "range-of-class": [(r"[\d-z]", "5-"), (r"[a-\d]", "5-")],
    "range-of-bracket": [("[]-a]", "-"), ("[^]-a]", "-")],
    "word-character": [
        (r"\w+", "a\u200db"),
        (r"\W+", "a\u200db"),
        (r"[^\W\d_]+", "a\u200db"),
        (r"[\w]+", "a\u200cb"),
        (r"\p{Word}+", "a\u200db"),
    ],
    "word-edge": [(r"a\b", "a\u200db"), (r"a\B", "a\u200db"), (r"\<a", "a"), (r"a\>", "a")],
    "line-anchor": [("^a", "\na"), ("a$", "a\nb"), ("(?<=^)a", "\na"), ("a(?=b|$)", "a\nb")],
    "end-anchor": [(r"a\Z", "a\n")],
    "multi-line-flag": [("(?m).+", "a\nb"), ("(?m:.+)", "a\nb")],
    "flag-within": [("a(?i)b|b", "b"), ("(?:a(?i)b|b)a", "ba")],
    "case-sequence": [
        ("(?i:ss)", "ß"),
        ("(?i:ff)", "ﬀ"),
        ("(?i:fi)", "ﬁ"),
        ("(?i:fl)", "ﬂ"),
        ("(?i)st", "ﬆ"),
        ("(?i:s(?:s))", "ß"),
        ("(?i:(?:s)s|b)", "ß"),
        (r"(?i:s\x74)", "ﬆ"),
        ("(?i:s(?#x)t)", "ﬆ"),
    ],
    "case-character": [("(?i:ß)", "ss"), ("(?i:[ß])", "ss")],
    "case-property": [(r"(?i:\p{Lu})", "a"), (r"(?i:\p{L})", "\u0345"), (r"(?i:\p{Han}|\p{Lu})", "a")],
    "counted-possessive": [("a{1,3}+", "aaaa"), ("a{2}+", "aaaa"), ("a{2,}+a", "aaa"), (r"\p{N}{1,3}+", "1234")],
    "counted-lazy": [("a{2}?", "aba")],
    "brace": [("a{,}b", "ab"), ("(?:a){e}", "ab"), ("(?:a){e<=1}", "ab")],
    "repeated-empty": [("(?:|a)+", "aab"), ("(?:a??)+", "aa"), ("(?:a?)+", "ab")],
    "empty-first": [("|ab", "ab"), ("(?:|aa)", "aa"), ("(?=a)|ab", "ab"), ("[ab]*?", "ab"), ("(?<=a)|a", "aa")],
    "merged-repeat": [
        *(
            ("b+a?b+", "b"),
            (r"\x62+a?(?:b+)", "b"),
            ("[b]+a*[\\x62]+", "b"),
            (r"\p{L}+'?\p{L}+", "b"),
            ("(b)+a?(b)+", "b"),
        ),
        *(("b+(?:a)?b+c", "bc"), ("b+(?#x)a{0,2}?b{1,}", "b"), ("(?:(?:b+)+)a?b+|c", "b"), ("(?=b+a?b+)b", "b")),
        *(("b+a??b*", "ba"), ("(?:b|bc)*a?(?:b|bc)+", "bcb"), ("(?:b+(?:ab+)?)+", "babab"), ("(?:b+a?b*)++", "baa")),
        *(("(?:b+(?:ab*)?)+c", "baac"), (r"(b+)?\1c", "c"), (r"(b+)+\1", "bbb"), (r"(b+)*\1c", "c")),
    ],
    "common-start": [
        *(("a+a|a+b", "aab"), ("a+a|(?:a)+b", "aab"), ("a+?b|a{1,}?[ab]", "aab"), ("(?i:a+a|A+b)", "aab")),
        *(("(?:a|ab)c|(?:a|ab)b", "abc"), ("c(?:a+a|a+b)", "caab"), ("(?:a+a|a+b)(?=.)", "aabd")),
        *(("[ab]+a|(?:a|b)+c", "aabc"), ("[ab]+a|[a-b]+c", "aabc"), ("[^a]xb?b|[^a]xb?c", "cxbc")),
        *((r"\Aa+a|\Aa+b", "aab"), ("b(?:a+ab+?|a+[b]+)*?b+?", "baabbbc")),
    ],
    "repeated-group": [(r"(?:[ab]+?(.*b+b?+[b]*)??)*?b+\1{1,2}|c{1,2}[ab]?+", "bbabba")],
    "look-behind": [("ab+?(?<=[^a]{1,}?[ab]++)", "abbb"), ("ab{0,2}(?<!ab.++).", "abbcaca")],
    "hexadecimal-digit": [(r"\h", "a "), (r"[\h]+", "a ")],
    "not-newline": [(r"\N", "aN"), (r"\N{LATIN SMALL LETTER A}", "a")],
    "bare-property": [(r"\pL", "a"), (r"\PL", "1")],
    "long-code": [(r"\U000000e9", "é")],
    "byte": [(r"\xe9", "é")],
    "octal": [(r"\0", "\0"), (r"\012", "\n"), (r"\101", "A")],
    "property-name": [(r"\p{print}", "\u0600"), (r"\p{graph}", "\u0600"), (r"\p{xdigit}", "\u0660")],
}
"""For each key of `REFUSED`: patterns, and texts that engines split differently by them."""


def test_every_refused_construct_has_an_example() -> None:
    assert set(DIFFERENCES) | {"other"} == set(REFUSED)


@pytest.mark.parametrize(
    ("key", "pattern", "text"), [(key, *example) for key, examples in DIFFERENCES.items() for example in examples]
)
def test_what_engines_read_differently_is_refused(key: str, pattern: str, text: str) -> None:
    with pytest.raises(PatternDialectError) as caught:
        PreTokenizer(pattern)
    assert caught.value.key == key
    # The engines do differ: this is why it is refused.
    [(words, gaps, matches)] = split_by_regex(pattern, [text])
    assert split_by_hugging_face(pattern, [text]) != [[words, gaps]] or split_by_tiktoken(pattern, [text]) != [matches]


@pytest.mark.parametrize(
    "pattern",
    [
        *(r"\X", r"a\Kb", r"\Ga", r"\R", "(?x)a b", "(?x:a b)", "(?V1)[a--b]", "(?u)a", "(?i-s:a)", "(?R)", r"(a)(?1)"),
        *(
            r"(a)?(?(1)b|c)",
            "(?|(a)|(b))",
            "(?=a)*b",
            "(?!a){2}b",
            r"\Aa|\z+",
            r"(?<n>a)(b)\1",
            r"(?P<n>a)(?P=n)",
            r"(a)+\1",
            r"(?:(a)|b)+\1",
            r"(?:(a)\1)+",
            r"(?:b(a)){2}\1",
            r"(?:(?:(a)|b)\1?c)*",
        ),
        *(r"(a)\g<1>", r"\1(a)", r"(?=(a))\1", r"\m", r"\M", r"\é", r"[\b]", "\ud800", r"\ud800", "(?r)a", "(?<é>a)"),
        *(r"\L<words>", r"(?i:(a)\1)", r"(a)\10", "(?-i)a", "(?im)a", r"\p{IsHan}", r"\p{Script=Han}", r"\p{InGreek}"),
        *(r"\p{lower}", r"\p{Cased}", r"\p{Extended_Pictographic}", r"\p{L&}"),
    ],
)
def test_what_was_not_compared_is_refused(pattern: str) -> None:
    with pytest.raises(PatternDialectError, match="which engines read differently"):
        PreTokenizer(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "[a&b]",
            "[a-]+",
            "[-a]",
            "[a-b-z]",
            "[a-z-9]+",
            "[]a]",
            "[^]a]+",
            "[^^]",
            "[a^]",
            "[.$|]",
            r"[\a]",
            r"[ -~]+",
        ),
        *(r"[\x41-\x5a]", r"[\n-\r]", r"[a-\x7a]", r"[*-/]", r"[(-+]", r"[a\]b]+", "[a{b}]+", r"[\[\^\-]", r"[\<&\~]"),
        *(
            r"[\s-]",
            r"[-\d]+",
            r"[^\S\n]+",
            r"[\p{L}]+",
            r"[^\p{L}]",
            r"[\P{L}]",
            r"[\p{^Lu}]",
            "[:alpha:]+",
            r"[a\-b]",
        ),
        *(r"\d+", r"\D+", r"\s", r"\S+", ".", ".+", r"\p{L}+", r"\P{L}", r"\p{Han}+", r"\p{Greek}", r"\p{letter}+"),
        *(
            r"\Aa",
            r"a\z",
            r"\s+\z|\s",
            r"\a",
            r"\v",
            r"\f",
            r"\x41",
            r"\u00e9",
            r"\x00",
            "\x00",
            r"\/",
            r"\'",
            r"\ ",
            r"\#",
        ),
        *(
            "a|b",
            "(a)|(b)",
            "(?:ab|a)b?",
            "(?>a+)b",
            "(?>a|ab)b",
            "a++",
            "a++a",
            "a*+b",
            "a?+a",
            "a{2}",
            "a{1,3}?",
            "a+?b",
        ),
        *(
            "a*?b",
            "a??b",
            "(?<=a)b",
            "(?<=a|ab)b",
            "(?<!a)b",
            "(?=a).",
            "(?!a).",
            "a(?!b)",
            "(?<n>a)(b)",
            "a(?#x)+",
            "}",
            "]",
        ),
        *(
            "(?i:'s|'t|'re)",
            "(?i:k)",
            "(?i:s[s])",
            "(?i:[s]s)",
            "(?i)ab|K",
            "(?i:a(?-i:b))",
            "(?i:[^s])+",
            r"(?i:[\s\d]a)",
        ),
        *("(?i:’s)", "(?i:é)", "(?i:[éж])", r"(?i:\p{N}a)", "(?i:的)", r"(a)\1", r"(?:(a)|b)\1", r"(a)?\1b", r"(.)\1+"),
        *("b+a?bb*", "b+a?[b]+", "b+a?b*", "b*a?b+", "b+a?+b+", "b+?a?b+", "(b+)a?b+", "b+(a?)b+", "(?:b+(?:a[b]+)?)+"),
        *("ca|cb", "[ab]c|[ab]b", "a+a|a+b|c", "(a+)a|(a+)b", "(?>a+)a|(?>a+)b", "a+(?=b)b|a+a(?=a)", "a+(?:a|b)"),
        *(r"(a)(?:b|\1)+", r"(?:(a)b)?\1", r"a+c|b+c", r" ?\p{L}+| ?\p{N}+|\s+"),
        *("(b+)+c", "(b+a?b*)+", "b+a{0}b+", "(?>b+)a?b+", r"\s+a?\S+", "b+a?B+", r"\p{L}+a?\P{L}+"),
        *("(aa?+)*", "(?:ab?+)+c", "(?:(?:a|b++)+c)*", "[]-]"),
        *("", "a*", "a|", "b*", "(?=b)", "(?<=a)", "ab|(?=a)", "(?s).", "(?s:a.)", "(?P<word>a)", "(?<!(a))b"),
        *(
            r"(?!\p{Han})[\p{L}\p{M}]+",
            r"[\p{L}\p{M}&&[^\p{Han}]]+",
            r"[\p{L}&&\P{Han}]+",
            r"[^\p{L}&&[^b]]+",
            r"[a-z&&[^b]&&[^c-f]]",
            r"[ab&&b-z]+",
            r"[abf&&[^b&&[bc]]]+",
            r"[ab\-&&[]^-]]",
            r"[ab\-&&^-]+",
            r"[a\&&&[&]]",
            r"\p{N}{1,3}(?=(?:\p{N}{3})*(?:\P{N}|$))",
            r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
            r"(?=(\d{3})+(?!\d))",
            r"a(?=\s|$)",
            r"b(?!\s|$)",
            r"(?<![\p{L}\p{N}])\p{L}+(?![\p{L}\p{N}])",
            r"(?<![^\n])a|a(?![^\n])",
            r"[\s\S]",
        ),
    ],
)
def test_what_is_accepted_is_split_alike(pattern: str) -> None:
    assert_same_words(pattern, TEXTS)


@pytest.mark.parametrize("name", sorted(PATTERNS))
def test_named_patterns_are_accepted(name: str) -> None:
    for expression in PATTERNS[name]:
        check_pattern(expression)
        assert find_foreign_part(expression) is None


ATOMS = st.sampled_from(
    ["a", "b", "ab", "[ab]", "[^a]", ".", "c", r"\1", r"\2", r"\A", r"\z", "(?<n>a)", "(?#c)", "()"]
)
CASE_ATOMS = st.sampled_from([*"stSkfli' éß", "[s]", "[a-hj-z]", "[^s]", r"\p{N}"])
REPEATS = st.sampled_from(
    ["", "", "", "?", "*", "+", "?+", "*+", "++", "??", "*?", "+?", "{2}", "{1,2}", "{0,2}", "{2,}", "{1,2}?", "{1,}?"]
)


def make_patterns(atoms: st.SearchStrategy[str], openings: Sequence[str]) -> st.SearchStrategy[str]:
    def extend(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        groups = st.tuples(st.sampled_from(openings), inner, st.just(")")).map("".join)
        repeated = st.tuples(st.one_of(atoms, groups), REPEATS).map("".join)
        return st.lists(st.lists(repeated, max_size=3).map("".join), min_size=1, max_size=3).map("|".join)

    return st.recursive(st.tuples(atoms, REPEATS).map("".join), extend, max_leaves=8)


STRUCTURES = make_patterns(ATOMS, ["(", "(?:", "(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!"])
CASES = make_patterns(CASE_ATOMS, ["(", "(?:", "(?i:", "(?-i:"]).map(lambda pattern: f"(?i:{pattern})s")


def assert_same_words_or_refused(pattern: str, texts: Sequence[str]) -> None:
    try:
        check_pattern(pattern)
        compile_with_regex(pattern)
    except (PatternDialectError, regex.error):
        assume(False)
    ours = split_by_regex(pattern, texts, knows_set_operations="&&" in pattern)
    theirs = split_by_hugging_face(pattern, texts)
    assert theirs is None or [words for words, _ in theirs] == [words for words, _, _ in ours]
    theirs = split_by_tiktoken(pattern, texts)
    expected = [matches for _, _, matches in ours]
    assert theirs is None or all(a in ("crash", b) for a, b in zip(theirs, expected, strict=True))
    assert [PreTokenizer(pattern).split(text) for text in texts] == [words for words, _, _ in ours]


@pytest.mark.slow
@given(pattern=STRUCTURES, texts=st.lists(st.text("aabbc", max_size=7), min_size=8, max_size=8))
@settings(max_examples=3000, deadline=None)
def test_any_structure_is_split_alike_or_refused(pattern: str, texts: list[str]) -> None:
    assert_same_words_or_refused(pattern, texts)


@pytest.mark.slow
@given(pattern=CASES, texts=st.lists(st.text("sStTkKfliß'ſ\u212aﬀﬁﬂﬆ éÉ1", max_size=6), min_size=8, max_size=8))
@settings(max_examples=1500, deadline=None)
def test_any_case_is_split_alike_or_refused(pattern: str, texts: list[str]) -> None:
    assert_same_words_or_refused(pattern, texts)


SET_ITEMS = st.sampled_from(
    [
        *(*"ab-]^&|~[{:.", "a-c", "--", "&&", "||", "~~", r"\d", r"\s", r"\p{L}", r"\-", r"\]", r"\x41", r"\&"),
        *("&&[", "&&[^", "[^", "&&", "]", "&&[^b]", "b-d"),
    ]
)


@pytest.mark.slow
@given(items=st.lists(SET_ITEMS, min_size=1, max_size=5), negative=st.booleans())
@settings(max_examples=400, deadline=None)
def test_any_set_is_split_alike_or_refused(items: list[str], negative: bool) -> None:
    pattern = f"[{'^' * negative}{''.join(items)}]"
    assert_same_words_or_refused(pattern, ["a-b]c^", "&|~[{:.", "1 aAb\n", "--&&", "abcd&]b]"])


SIMPLE_SETS = st.lists(
    st.sampled_from([*"abcd-&^", r"\p{L}", r"\P{Han}", r"\p{Han}", r"\s", r"\d", "b-d", r"\-", r"\]"]),
    min_size=1,
    max_size=3,
).map("".join)
OPERANDS = st.one_of(SIMPLE_SETS, SIMPLE_SETS.map("[{}]".format), SIMPLE_SETS.map("[^{}]".format))


@pytest.mark.slow
@given(first=SIMPLE_SETS, others=st.lists(OPERANDS, min_size=1, max_size=3), negative=st.booleans())
@settings(max_examples=300, deadline=None)
def test_any_intersection_is_split_alike_or_refused(first: str, others: list[str], negative: bool) -> None:
    pattern = f"[{'^' * negative}{'&&'.join([first, *others])}]+"
    try:
        check_pattern(pattern)
        compile_with_regex(pattern)
    except (PatternDialectError, regex.error):
        assume(False)
    assert_same_words(pattern, ["a-b]c^", "&|~[{:.", "1 aAb\n", "--&&", "abcd的々ab的]]]"])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(SAME_PROPERTIES))
def test_all_engines_define_a_property_alike(name: str) -> None:
    assigned = ~load_category("Cn") & ~load_category("Cs")
    assigned[0x295] = False  # Unicode has changed its category since version 16.
    text = "".join(map(chr, np.flatnonzero(assigned)))
    pattern = rf"\p{{{name}}}"
    found = "".join(regex.findall(pattern, text))
    split = tokenizers.pre_tokenizers.Split(tokenizers.Regex(f"(?:{pattern})+"), "removed")
    gaps = "".join(text[a:b] for _, (a, b) in split.pre_tokenize_str(text))
    assert len(gaps) + len(found) == len(text)
    assert not set(gaps) & set(found)
    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding: Any = tiktoken.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    assert bytes(encoding.encode_ordinary(text)).decode() == found


def test_the_error_names_the_construct_its_position_and_a_rewrite() -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        PreTokenizer((r"\p{N}", r"[\p{L}--\p{Han}]+"))
    assert str(caught.value) == (
        r"pattern '[\\p{L}--\\p{Han}]+' has '--' at character 6, which engines read differently, so the same text "
        "could be split into other words elsewhere. The regex package: ordinary characters. Oniguruma (Hugging Face "
        "tokenizers): ordinary characters; `&&` intersects, also with nothing, and before case is ignored. Rust "
        "(tiktoken): `--` subtracts, `~~` takes what is in one set only; `&&` intersects, also with nothing, and where "
        "case is ignored. Write instead: `[a&&[^b]]`, with something on both sides and outside of `(?i:...)`; for the "
        r"characters, `\&`, `\-`, `\~`"
    )
    copied = pickle.loads(pickle.dumps(caught.value))
    assert (str(copied), copied.key) == (str(caught.value), "set-operation")


def test_a_tokenizer_json_with_a_refused_construct_is_refused_or_run_by_the_library(
    caplog: pytest.LogCaptureFixture,
) -> None:
    content = json.loads(Tokenizer.train(["ab"], num_merges=1, pattern=r"\p{L}+").files()["tokenizer.json"])
    split = content["pre_tokenizer"]["pretokenizers"][0]
    assert split["pattern"] == {"Regex": r"\p{L}+"}
    split["pattern"] = {"Regex": r"[\p{L}~~\p{Han}]+"}
    text = json.dumps(content)
    with pytest.raises(ValueError, match=r"^tokenizer\.json: pattern .* has '~~' at character 6, which engines read"):
        Tokenizer.from_json(text, engine="native")
    assert not caplog.records
    tokenizer = Tokenizer.from_json(text)
    assert tokenizer.kind == "library"
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "has '~~' at character 6, which engines read differently" in record.getMessage()
    library = tokenizers.Tokenizer.from_str(text)
    assert tokenizer.encode("ab 的ab") == library.encode("ab 的ab", add_special_tokens=False).ids


def test_the_documentation_lists_every_refused_construct() -> None:
    lines = DOCUMENT.read_text(encoding="utf-8").splitlines()
    rows = ["| " + " | ".join(cell.replace("|", r"\|") for cell in construct) + " |" for construct in REFUSED.values()]
    start = lines.index(rows[0])
    assert lines[start : start + len(rows)] == rows
