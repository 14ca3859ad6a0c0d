"""The normalizer against the Unicode data of unicodedata2 and against the normalizers of Hugging Face tokenizers."""

import ast
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import unicodedata
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any, get_args

import normalization_digests
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bpe_core import PreTokenizer, Tokenizer
from bpe_core.pretokenize import normalizer
from bpe_core.pretokenize.normalizer import normalize_array, normalize_text
from bpe_core.pretokenize.unicode_categories import load_category, load_printable_characters
from bpe_core.pretokenize.unicode_normalization import (
    HANGUL_FIRST,
    NUM_HANGUL,
    Form,
    fold_case,
    read_normalization_data,
)

ROOT = Path(__file__).parents[2]
FORMS: tuple[Form, ...] = get_args(Form)

SINGLES = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
LISTED = normalization_digests.listed_characters()
REPRESENTATIVES = normalization_digests.class_representatives()
FIRSTS = sorted({chr(first) for first, _ in read_normalization_data().compositions})
SECONDS = sorted({chr(second) for _, second in read_normalization_data().compositions})
JAMO = [chr(code) for code in range(0x1100, 0x1200)]
HANGUL = [chr(code) for code in range(HANGUL_FIRST, HANGUL_FIRST + NUM_HANGUL, 13)]


def normalize_all(texts: Iterable[str], form: Any, lowercase: bool = False) -> list[str]:
    normalized: list[str] = normalize_array(pa.array(texts, pa.large_string()), form, lowercase).to_pylist()
    return normalized


def hugging_face(form: Any, lowercase: bool = False) -> Any:
    normalizers = pytest.importorskip("tokenizers.normalizers", reason="compares with Hugging Face tokenizers")
    steps = [] if form == "none" else [getattr(normalizers, form)()]
    return normalizers.Sequence([*steps, *[normalizers.Lowercase()] * lowercase]).normalize_str


@cache
def newer_characters() -> frozenset[str]:
    """The characters whose data is newer than Unicode 9; to the normalizer each is like any letter."""
    unicodedata2 = pytest.importorskip("unicodedata2", reason="compares with the package unicodedata2")
    data = read_normalization_data()
    known = {*data.classes, *data.canonical, *data.compatibility}
    listed = [c for c in SINGLES if unicodedata2.combining(c) or unicodedata2.decomposition(c)]
    newer = {c for c in listed if ord(c) not in known and not "가" <= c <= "힣"}
    assert len(newer) == 311
    return frozenset(newer)


def unicode_data(form: str) -> Any:
    """The oracle: normalizes with the data of Unicode 16, but passes characters newer than Unicode 9 as they are."""
    unicodedata2 = pytest.importorskip("unicodedata2", reason="compares with the package unicodedata2")
    newer = newer_characters()

    def normalize(text: str) -> str:
        parts = [text] if newer.isdisjoint(text) else re.split(f"([{''.join(newer)}])", text)
        return "".join(part if part in newer else unicodedata2.normalize(form, part) for part in parts)

    return normalize


def assert_equal(texts: list[str], form: Any, lowercase: bool, oracle: Any) -> None:
    for text, ours in zip(texts, normalize_all(texts, form, lowercase), strict=True):
        assert ours == oracle(text), ascii(text)


@cache
def pairs() -> list[str]:
    """Pairs of all characters with an entry and some marks, of marks of all classes, of all that may be composed."""
    chosen = random.Random(1)
    partners = [*REPRESENTATIVES, *SECONDS, "\u1161", "\u11a8"]
    found = [one + partner for one in LISTED for partner in chosen.sample(partners, 5)]
    found += [partner + one for one in LISTED for partner in chosen.sample(partners, 3)]
    found += [
        start + "".join(two)
        for start in ("", "a", "é", "한", "가")
        for two in itertools.product(REPRESENTATIVES, repeat=2)
    ]
    found += ["".join(two) for two in itertools.product(FIRSTS, SECONDS)]
    found += ["".join(two) for two in itertools.product([*JAMO, *HANGUL[::9]], JAMO[0x60:])]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_every_character_and_many_pairs_equal_unicode_data(form: Form) -> None:
    assert_equal(SINGLES, form, False, unicode_data(form))
    assert_equal(pairs(), form, False, unicode_data(form))


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_every_character_and_many_pairs_equal_hugging_face(form: Form, lowercase: bool) -> None:
    assert_equal(LISTED if lowercase else SINGLES, form, lowercase, hugging_face(form, lowercase))
    assert_equal(pairs()[:: 7 if lowercase else 1], form, lowercase, hugging_face(form, lowercase))


@pytest.mark.slow
def test_lower_case_of_every_character_equals_hugging_face() -> None:
    assert_equal(SINGLES, "none", True, hugging_face("none", True))


texts = st.one_of(
    st.text(),
    st.text(st.sampled_from([*LISTED, "a", "é", "的", "한", " "])),
    st.text(st.sampled_from(FIRSTS + SECONDS), max_size=40),
    st.text(st.sampled_from(REPRESENTATIVES), max_size=80).map("a{}é".format),
    st.text(st.sampled_from(JAMO + HANGUL + ["\u0301", "a"])),
    st.text(st.sampled_from("aAΣσςİIıßẞſKÅ \n\u0307\u0301한的")),
)


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("form", ["none", *FORMS])
@given(batch=st.lists(texts, max_size=5))
@settings(max_examples=150, deadline=None)
def test_any_texts_equal_hugging_face(form: Any, lowercase: bool, batch: list[str]) -> None:
    expected = [hugging_face(form, lowercase)(text) for text in batch]
    assert normalize_all(batch, form, lowercase) == expected
    assert [normalize_text(text, form, lowercase) for text in batch] == expected


@pytest.mark.parametrize("form", FORMS)
@given(text=texts)
@settings(max_examples=150, deadline=None)
def test_any_text_equals_unicode_data(form: Any, text: str) -> None:
    assert normalize_text(text, form, False) == unicode_data(form)(text)


@pytest.mark.slow
def test_shipped_texts_equal_hugging_face() -> None:
    """Real text in many languages: the message catalogues and documentation that installed packages bring along."""
    folders = [Path(np.__file__).parents[1], Path("/usr/share/i18n"), Path("/usr/share/perl")]
    found = (path for folder in folders if folder.exists() for path in sorted(folder.rglob("*")))
    chosen = (path for path in found if path.suffix in (".po", ".md", ".rst", ".txt", ".json", ".html", ".pl"))
    shipped = []
    for path in itertools.islice(chosen, 400):
        text = path.read_bytes()[:100_000].decode(errors="ignore")
        shipped.append(text)
    for form, lowercase in itertools.product(("none", *FORMS), (False, True)):
        assert_equal(shipped[:: 1 + 3 * lowercase], form, lowercase, hugging_face(form, lowercase))


@pytest.mark.slow
@pytest.mark.parametrize("lowercase", [False, True])
@pytest.mark.parametrize("form", ["none", *FORMS])
def test_exported_tokenizers_give_the_same_ids(form: Any, lowercase: bool) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason="compares with Hugging Face tokenizers")
    tokenizer = Tokenizer.train(["Éa Σς ﬁ 한 각"] * 2, num_merges=20, unicode=form, lowercase=lowercase)
    exported = tokenizers.Tokenizer.from_str(tokenizer.files()["tokenizer.json"])
    chosen = random.Random(2)
    shown = ["".join(chosen.choices([*LISTED, *REPRESENTATIVES, "a", " "], k=40)) for _ in range(1500)]
    expected = [encoding.ids for encoding in exported.encode_batch(shown)]
    assert tokenizer.encode_batch(pa.array(shown, pa.large_string())).to_pylist() == expected


def test_a_final_sigma_is_like_any_other() -> None:
    assert normalize_text("ΑΣ ΑΣΑ Σ", "none", True) == "ασ ασα σ"


def test_lower_case_follows_the_normalization_form() -> None:
    # NFKC gives the fullwidth letter its own, which is lowered then. Lower case may leave the form again, and stays so.
    assert normalize_text("Ａ", "NFKC", True) == "a"
    assert normalize_text("İ", "NFC", True) == "i\u0307"
    assert hugging_face("NFC", True)("\u0130\u0301 \u0399\u0308\u0301") == normalize_text(
        "\u0130\u0301 \u0399\u0308\u0301", "NFC", True
    )


def test_characters_newer_than_the_data_are_left_alone() -> None:
    # Unicode 16 composes the first two, Unicode 12.1 decomposes the last; Hugging Face tokenizers does neither.
    for text in ("\U000105d2\u0307", "\u32ff"):
        for form in FORMS:
            assert normalize_text(text, form, False) == text == hugging_face(form)(text)


@pytest.mark.parametrize("text", ["", "plain", "é 的 한", "e\u0301", "Ａ"])
def test_texts_of_an_array_do_not_touch_each_other(text: str) -> None:
    batch = pa.array(["left out", text, None, "\u0301" + text, "", "\u0327", "left out"])
    for form in FORMS:
        expected = [normalize_text(text, form, False), None, normalize_text("\u0301" + text, form, False), "", "\u0327"]
        assert normalize_array(batch.cast(pa.large_string()).slice(1, 5), form, False).to_pylist() == expected


def test_texts_in_their_form_are_not_copied() -> None:
    batch = pa.array(["plain", "é 的 한", None, "ｶﾞ"], pa.large_string())
    assert normalize_array(batch, "NFC", False) is batch
    assert normalize_array(batch, "NFKC", False) is not batch


def test_lone_surrogates_stay() -> None:
    assert normalize_text("A\ud800e\u0301", "NFC", True) == "a\ud800é"


@pytest.mark.parametrize(
    ("text", "form", "expected"),
    [
        ("q" + "\u0301\u0316" * 500_000, "NFC", "q" + "\u0316" * 500_000 + "\u0301" * 500_000),
        ("q" + "\u0301\u0316\u0334" * 300_000, "NFD", "q" + "".join(c * 300_000 for c in "\u0334\u0316\u0301")),
        ("\ufdfa" * 100_000, "NFKD", "صلى الله عليه وسلم" * 100_000),
        ("e\u0301" * 100_000, "NFC", "é" * 100_000),
    ],
)
def test_long_runs_take_linear_time(text: str, form: Form, expected: str) -> None:
    assert normalize_text(text, form, False) == expected


def test_folded_case_is_that_of_python_for_what_it_knows() -> None:
    known = [c for c in SINGLES if c.casefold() != c or c.lower() != c or fold_case(c) == c]
    assert [c for c in known if fold_case(c) != c.casefold()] == []
    assert fold_case("\ua7ce") == "\ua7cf"  # Of Unicode 17.


def test_printable_characters_are_those_of_python_for_what_it_knows() -> None:
    printable = load_printable_characters()
    unassigned = load_category("Cn")
    known = [c for c in SINGLES if unicodedata.category(c) != "Cn" and not unassigned[ord(c)]]
    assert [c for c in known if c.isprintable() != printable[ord(c)]] == []


# What gives other results in other versions of Python, or is not the pinned property.
_UNPINNED = {"lower", "upper", "casefold", "title", "swapcase", "capitalize"} | {
    *("isalpha", "isalnum", "isdigit", "isdecimal", "isnumeric", "isspace", "isupper", "islower", "isprintable"),
}
_PINNED_MODULES = [
    "bpe_core/pretokenize/normalizer.py",
    "bpe_core/pretokenize/unicode_normalization.py",
    "bpe_core/pretokenize/unicode_categories.py",
    "bpe_core/pretokenize/pattern_compiler.py",
    "bpe_core/pretokenize/pinned_regex.py",
    "bpe_core/pretokenize/pre_tokenizer.py",
    "bpe_core/pretokenize/scanner.py",
    "bpe_core/pretokenize/word_counting.py",
    "bpe_core/encoding/added_tokens.py",
    "bpe_core/encoding/text_encoder.py",
    "bpe_core/measuring/audit.py",
    "bpe_core/measuring/token_display.py",
    "pipelines/reading/deduplicate.py",
    "pipelines/report/figures.py",
    "pipelines/report/page.py",
]


@pytest.mark.parametrize("module", _PINNED_MODULES)
def test_nothing_comes_from_the_interpreter(module: str) -> None:
    tree = ast.parse((ROOT / module).read_text(encoding="utf-8"))
    # `_write` makes the data files, for which the interpreter's case folding will do: see there.
    nodes = [node for node in tree.body if not (isinstance(node, ast.FunctionDef) and node.name == "_write")]
    for node in (inner for outer in nodes for inner in ast.walk(outer)):
        called = node.func if isinstance(node, ast.Call) else node
        is_method = called is not node or ast.unparse(node).startswith("str.")
        assert not (is_method and isinstance(called, ast.Attribute) and called.attr in _UNPINNED), ast.unparse(node)
        imported = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        imported += [str(node.module)] if isinstance(node, ast.ImportFrom) else []
        assert "unicodedata" not in imported


@pytest.mark.slow
def test_the_normalizer_works_without_unicodedata() -> None:
    program = (
        "import unicodedata\n"
        "for name in ('normalize', 'category', 'combining', 'decomposition', 'is_normalized'):\n"
        "    setattr(unicodedata, name, None)\n"
        "from bpe_core.pretokenize.normalizer import normalize_text\n"
        "print(ascii(normalize_text('E\\u0301\\ufb01', 'NFKC', True)))"
    )
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert shown.strip() == ascii("éfi")


def other_pythons() -> list[str]:
    """Returns interpreters of other versions of Python in which the packages that the normalizer needs are installed.

    `TOKENMILL_OTHER_PYTHON` names one; CI sets it.
    """
    given = [os.environ.get("TOKENMILL_OTHER_PYTHON"), *(shutil.which(f"python3.{minor}") for minor in range(11, 20))]
    given += [str(path) for path in sorted(Path.home().glob(".pyenv/versions/3.1*/bin/python"))]
    needed = "import sys, numba, numpy, pyarrow, regex; print(sys.version_info[:2])"
    found = {str(sys.version_info[:2]): ""}
    for python in filter(None, given):
        run = subprocess.run([python, "-c", needed], capture_output=True, text=True, cwd=ROOT)
        if run.returncode == 0:
            found.setdefault(run.stdout.strip(), python)
    return [python for python in found.values() if python]


@pytest.mark.slow
def test_other_versions_of_python_give_the_same() -> None:
    pythons = other_pythons()
    if not pythons:
        pytest.skip("no other version of Python with numba, numpy, pyarrow and regex is installed")
    ours = normalization_digests.digests()
    for python in pythons:
        script = str(Path(normalization_digests.__file__))
        run = subprocess.run(
            [python, script], capture_output=True, text=True, check=True, cwd=ROOT, env={"PYTHONPATH": str(ROOT)}
        )
        assert json.loads(run.stdout) == ours, python


def test_the_pre_tokenizer_uses_the_normalizer() -> None:
    pre_tokenizer = PreTokenizer("gpt2", unicode="NFC", lowercase=True)
    assert pre_tokenizer.normalize_batch(pa.array(["E\u0301", None])).to_pylist() == ["é", None]
    assert pre_tokenizer.split("E\u0301 B") == ["é", " b"]
    assert normalizer.normalize_text("E\u0301", "NFC", True) == "é"
