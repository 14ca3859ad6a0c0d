"""WordPiece tokenizers give the ids and texts of Hugging Face's library."""

import json
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from exactness_texts import NASTY_TEXTS, NEWER_DIGITS, iterate_code_point_texts
from hypothesis import given, settings
from hypothesis import strategies as st
from real_tokenizers import find_real_tokenizer
from slow_wordpiece import encode_word

from bpe_core import Tokenizer
from bpe_core.encoding.added_tokens import SpecialInText
from bpe_core.formats.hugging_face_word_steps import read_word_steps
from bpe_core.pretokenize.step_splitter import StepSplitter

tokenizers = pytest.importorskip("tokenizers", reason="the library itself: pip install tokenmill[hf]")

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
BERT = {"type": "BertPreTokenizer"}
SPACES = {"type": "WhitespaceSplit"}
PRE_TOKENIZERS = {
    "bert": BERT,
    "words": {"type": "Whitespace"},
    "spaces": SPACES,
    "digits": {"type": "Sequence", "pretokenizers": [SPACES, {"type": "Digits", "individual_digits": True}]},
    "runs of digits": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": False}, BERT]},
    "delimiter": {"type": "CharDelimiterSplit", "delimiter": "-"},
    "none": None,
    **{
        f"punctuation, {behavior}": {"type": "Punctuation", "behavior": behavior}
        for behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")
    },
}
LATIN = "abcdeghilmnorstuvwxyz"
PIECES = (
    "the",
    "at",
    "é",
    "cafe",
    "Hello",
    "中",
    "文",
    "don",
    "'",
    ".",
    ",",
    "!",
    "-",
    "12",
    "1",
    "##",
    "👍",
    "do",
    "not",
    "#",
)
INSIDE = ("ing", "s", "at", "é", "中", "!", ".", "1", "2", "##", "ñ", "#")


def make_content(pre_tokenizer: Any = BERT, normalizer: Any = None, **entries: Any) -> dict[str, Any]:
    """Returns a `tokenizer.json`; `entries` are those of its model."""
    spellings = dict.fromkeys([*SPECIAL, *LATIN, *PIECES, *(f"##{one}" for one in (*LATIN, *INSIDE))])
    vocab = {spelling: id_ for id_, spelling in enumerate(spellings)}
    model = {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##"}
    return {
        "version": "1.0",
        "added_tokens": [
            {**dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False), "special": True}
            | {"id": vocab[token], "content": token}
            for token in SPECIAL
        ],
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": {
            "type": "BertProcessing",
            "cls": ["[CLS]", vocab["[CLS]"]],
            "sep": ["[SEP]", vocab["[SEP]"]],
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {**model, "max_input_chars_per_word": 100, "vocab": vocab, **entries},
    }


def make_normalizer(clean: bool, chinese: bool, strip: bool | None, lower: bool) -> dict[str, Any]:
    return {
        "type": "BertNormalizer",
        "clean_text": clean,
        "handle_chinese_chars": chinese,
        "strip_accents": strip,
        "lowercase": lower,
    }


CONTENTS = {
    **{name: make_content(entry) for name, entry in PRE_TOKENIZERS.items()},
    **{
        f"normalizer {flags}": make_content(BERT, make_normalizer(*flags))
        for flags in product((True, False), (True, False), (True, False, None), (True, False))
    },
    "short words": make_content(BERT, max_input_chars_per_word=3),
    "other prefix": make_content(SPACES, continuing_subword_prefix="a"),
    "no prefix": make_content(SPACES, continuing_subword_prefix=""),
    "no clean-up": make_content() | {"decoder": {"type": "WordPiece", "prefix": "##", "cleanup": False}},
    "no decoder": make_content() | {"decoder": None},
}
texts = st.one_of(
    st.text(max_size=12),
    st.lists(
        st.sampled_from([*PIECES, *INSIDE, *LATIN, " ", " ", "\n", "\u3000", "É", "\u0301", "\u0378", *SPECIAL]),
        max_size=14,
    ).map("".join),
)


class Pair:
    """Our tokenizer of a file, and the library's, as it is and with special tokens read as text."""

    def __init__(self, content: dict[str, Any]) -> None:
        text = json.dumps(content)
        self.ours = Tokenizer.from_json(text, engine="native")
        self.theirs = tokenizers.Tokenizer.from_str(text)
        self.plain = tokenizers.Tokenizer.from_str(text)
        self.plain.encode_special_tokens = True
        for library in (self.theirs, self.plain):
            library.no_padding()
            library.no_truncation()
        splitter = StepSplitter(None, read_word_steps(content["pre_tokenizer"]))
        self.splits_special = all(token not in splitter.split(token) for token in SPECIAL)

    def check(self, batch: list[str]) -> None:
        """Asserts that ids and decoded texts are the library's."""
        array = pa.array(batch, pa.large_string())
        specials: list[tuple[SpecialInText, Any]] = [("plain", self.plain), ("allow", self.theirs)]
        for special, library in specials:
            expected = [one.ids for one in library.encode_batch_fast(batch, add_special_tokens=False)]
            if special == "plain" and not self.splits_special:
                continue  # The library gives ordinary text the id of a special token.
            assert self.ours.encode_batch(array, special=special).to_pylist() == expected
        for ids in expected:
            for skip in (True, False):
                decoded = self.theirs.decode(ids, skip_special_tokens=skip)
                assert self.ours.decode(ids, skip_special_tokens=skip) == decoded


@cache
def get_pair(name: str) -> Pair:
    return Pair(CONTENTS[name])


@cache
def get_real(name: str) -> Pair:
    """Returns the tokenizers with BERT's published vocabulary, or with one learned here from texts in many scripts."""
    normalizer = make_normalizer(True, True, None, True)
    if name == "bert":
        vocab = {
            spelling: id_ for id_, spelling in enumerate(json.loads(find_real_tokenizer("bert-vocab").read_text()))
        }
    else:
        trained = tokenizers.Tokenizer(tokenizers.models.WordPiece(unk_token="[UNK]"))
        trained.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
        trainer = tokenizers.trainers.WordPieceTrainer(vocab_size=2000, special_tokens=list(SPECIAL))
        trained.train_from_iterator(NASTY_TEXTS, trainer)
        vocab, normalizer = trained.get_vocab(), make_normalizer(True, True, False, False)
    content = make_content(normalizer=normalizer, vocab=vocab)
    for token in content["added_tokens"]:
        token["id"] = vocab[token["content"]]
    for side, token in (("cls", "[CLS]"), ("sep", "[SEP]")):
        content["post_processor"][side][1] = vocab[token]
    return Pair(content)


@pytest.mark.parametrize("name", CONTENTS)
@given(batch=st.lists(texts, max_size=4))
@settings(max_examples=40, deadline=None)
def test_ids_and_texts_are_the_library_s(name: str, batch: list[str]) -> None:
    get_pair(name).check(batch)


@pytest.mark.parametrize("name", CONTENTS)
def test_nasty_texts(name: str) -> None:
    get_pair(name).check(list(NASTY_TEXTS))


@given(text=texts)
@settings(max_examples=100, deadline=None)
def test_ids_are_those_of_the_slow_twin(text: str) -> None:
    pair = get_pair("bert")
    vocab = {spelling: id_ for spelling, id_ in CONTENTS["bert"]["model"]["vocab"].items() if spelling not in SPECIAL}
    words = StepSplitter(None, read_word_steps(BERT)).split(text)
    expected = [id_ for word in words for id_ in encode_word(word, vocab, "##", 1, 100)]
    assert pair.ours.encode(text) == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "learned"])
def test_ids_of_real_vocabularies_are_the_library_s(name: str) -> None:
    pair = get_real(name)
    pair.check(list(NASTY_TEXTS))
    pieces = [token.decode().removeprefix("##") for token in pair.ours.token_bytes()]
    generator = np.random.default_rng(1)
    for separator in ("", " "):
        for size in (min(2000, len(pieces)), len(pieces)):
            pair.check([separator.join(pieces[at] for at in generator.integers(0, size, 12)) for _ in range(1000)])


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert", "learned"])
def test_every_code_point_has_the_library_s_ids(name: str) -> None:
    pair = get_real(name)
    for batch in iterate_code_point_texts():
        expected = [one.ids for one in pair.plain.encode_batch_fast(batch, add_special_tokens=False)]
        assert pair.ours.encode_batch(pa.array(batch, pa.large_string())).to_pylist() == expected


@pytest.mark.slow
@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_every_code_point_is_split_as_in_the_library(name: str) -> None:
    ours = StepSplitter(None, read_word_steps(PRE_TOKENIZERS[name]))
    if name == "none":
        return
    library = tokenizers.Tokenizer.from_str(json.dumps(CONTENTS[name])).pre_tokenizer
    for texts in iterate_code_point_texts(contexts=("a{}b", "{}{} ", "1{}-")):
        known = [text for text in texts if NEWER_DIGITS.isdisjoint(text)]
        batch = ours.split_pieces(pa.array(known, pa.large_string()), np.ones(len(known), bool))
        for text, words in zip(known, batch.list_words(), strict=True):
            assert words == [word for word, _ in library.pre_tokenize_str(text)], ascii(text)


@pytest.mark.parametrize("name", PRE_TOKENIZERS)
def test_the_patterns_are_compiled(name: str, caplog: pytest.LogCaptureFixture) -> None:
    splitter = StepSplitter(None, read_word_steps(PRE_TOKENIZERS[name]))
    assert splitter.split("ab-12 a.") != []
    assert caplog.text == ""  # The regex package, which is slow, takes a pattern over with a warning.


def test_ordinary_text_never_gets_the_id_of_a_special_token() -> None:
    tokenizer = get_pair("spaces").ours
    assert tokenizer.encode("a [CLS] b", special="plain") == tokenizer.encode("a 的 b")
    assert tokenizer.encode("a [CLS] b", special="allow")[1] == tokenizer.special_tokens["[CLS]"]


def test_the_ids_around_a_text_are_those_of_the_post_processor() -> None:
    tokenizer = get_pair("bert").ours
    ids = tokenizer.encode("a", add_special_tokens=True)
    assert tokenizer.tokens(ids) == ["[CLS]", "a", "[SEP]"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"unk_token": "<none>"}, "model.unk_token '<none>' is not in model.vocab"),
        ({"pre_tokenizer": {"type": "Unheard"}}, "pre_tokenizer"),
        ({"normalizer": {"type": "Unheard"}}, "normalizer"),
        ({"decoder": {"type": "Unheard"}}, "decoder"),
    ],
)
def test_what_is_not_supported_is_refused(change: dict[str, Any], message: str) -> None:
    content = make_content()
    for key, value in change.items():
        (content if key in content else content["model"])[key] = value
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_json(json.dumps(content), engine="native")


def test_a_saved_tokenizer_is_the_same(tmp_path: Any) -> None:
    tokenizer = get_pair("bert").ours
    tokenizer.save(tmp_path)
    again = Tokenizer.load(tmp_path)
    assert again.kind == "wordpiece"
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode("the cats") == tokenizer.encode("the cats")
