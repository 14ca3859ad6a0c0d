"""Tokenizers of Hugging Face's library: added tokens, splits, post-processors and whole words give the same ids."""

import json
import random
import string
from collections import Counter
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import slow
from hypothesis import example, given, reject, settings
from hypothesis import strategies as st
from resources import measure_growth

from bpe_core import Tokenizer
from bpe_core.encoding.added_tokens import AddedToken, AddedTokenFinder
from bpe_core.encoding.bpe_encoder import Encoded
from bpe_core.pretokenize.normalizer import Normalization
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer
from bpe_core.pretokenize.unicode_categories import NUM_CODE_POINTS, load_word_characters

tokenizers = pytest.importorskip("tokenizers", reason="pip install tokenizers, or tokenmill[dev]")

TEXTS = ["the cat sat on the mat, the cat's hat", "low lower lowest 2025 x² naïve É", "你好世界 a\n\nb", "Hello Hello"]
BASE = json.loads(Tokenizer.train(TEXTS, vocab_size=300, vocab_order="gpt2").files()["tokenizer.json"])
SIZE = len(BASE["model"]["vocab"])
CONTENTS = ["<a>", "<a>b", "a", "ab", " x", "Éa", "<|e|>", "\n\n", "the"]
TEMPLATE = {
    "type": "TemplateProcessing",
    "single": [{"SpecialToken": {"id": "<a>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
    "special_tokens": {"<a>": {"id": "<a>", "ids": [SIZE], "tokens": ["<a>"]}},
}


def changed(**entries: Any) -> dict[str, Any]:
    """Returns the small tokenizer's file with other entries; `model_x=` replaces the entry `x` of `model`."""
    content: dict[str, Any] = json.loads(json.dumps(BASE))
    for key, value in entries.items():
        if key.startswith("model_"):
            content["model"][key.removeprefix("model_")] = value
        else:
            content[key] = value
    return content


def added(content: str, id_: int, **flags: bool) -> dict[str, Any]:
    all_flags = {"special": False, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": id_, "content": content, **all_flags, **flags}


def both(content: dict[str, Any]) -> tuple[Tokenizer, Any]:
    text = json.dumps(content)
    return Tokenizer.from_json(text, engine="native"), tokenizers.Tokenizer.from_str(text)


def encode_with_library(tokenizer: Any, text: str) -> Any:
    """Encodes without the post-processor's ids; skips texts on which the library panics (an lstrip after an rstrip)."""
    try:
        return tokenizer.encode(text, add_special_tokens=False)
    except BaseException as error:
        if type(error).__name__ == "PanicException":
            reject()
        raise


flags = st.fixed_dictionaries(
    {name: st.booleans() for name in ("special", "single_word", "lstrip", "rstrip", "normalized")}
)


def numbered(chosen: dict[str, dict[str, bool]]) -> list[dict[str, Any]]:
    """Returns added tokens with their ids in the vocabulary, or the next free ids for those that it does not have."""
    vocab = BASE["model"]["vocab"]
    new = [content for content in chosen if content not in vocab]
    ids = {**vocab, **{content: SIZE + i for i, content in enumerate(new)}}
    # A token that merges make cannot be special, because any text could then get its id.
    return [
        added(content, ids[content], **{**of, "special": of["special"] and content in new})
        for content, of in chosen.items()
    ]


added_tokens = st.dictionaries(st.sampled_from(CONTENTS), flags, max_size=5).map(numbered)
NORMALIZERS: list[Any] = [
    None,
    {"type": "NFC"},
    {"type": "Lowercase"},
    {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "Lowercase"}]},
]
texts = st.lists(
    st.sampled_from([*CONTENTS, " ", "\t", "\u3000", "e\u0301", "E\u0301", "b", "B", "1", "_", "的", "<", "\n"]),
    max_size=12,
).map("".join)


@given(tokens=added_tokens, normalizer=st.sampled_from(NORMALIZERS), text=texts)
@settings(max_examples=400, deadline=None)
def test_added_tokens_are_found_as_the_library_finds_them(tokens: list[Any], normalizer: Any, text: str) -> None:
    ours, theirs = both(changed(added_tokens=tokens, normalizer=normalizer))
    assert ours.encode(text, special="allow") == encode_with_library(theirs, text).ids
    theirs.encode_special_tokens = True
    assert ours.encode(text) == encode_with_library(theirs, text).ids


# Spellings that overlap and are prefixes of each other, with white space, combining characters and upper case.
LETTERS = [
    "a",
    "b",
    "A",
    "<",
    "_",
    " ",
    "\n",
    "\u3000",
    "\u00e9",
    "e",
    "\u0301",
    "\u1e9b",
    "\u0323",
    "的",
    "\u24b6",
    "😀",
]
random_contents = st.text(st.sampled_from(LETTERS), min_size=1, max_size=5)
random_tokens = st.dictionaries(random_contents, flags, max_size=30)


def draw_text(data: st.DataObject, contents: list[str]) -> str:
    parts = [st.text(st.sampled_from(LETTERS), max_size=4), *([st.sampled_from(contents)] if contents else [])]
    return "".join(data.draw(st.lists(st.one_of(parts), max_size=10)))


@given(chosen=random_tokens, normalizer=st.sampled_from(NORMALIZERS), data=st.data())
@settings(max_examples=150, deadline=None)
def test_random_added_tokens_are_found_as_the_library_finds_them(
    chosen: dict[str, dict[str, bool]], normalizer: Any, data: st.DataObject
) -> None:
    content = changed(added_tokens=numbered(chosen), normalizer=normalizer)
    try:
        ours, theirs = both(content)
    except ValueError:  # Two tokens are equal once normalized.
        reject()
    text = draw_text(data, list(chosen))
    allowed = encode_with_library(theirs, text)
    assert ours.encode(text, special="allow") == allowed.ids
    if ours.kind == "library":  # A token is spelled as the vocabulary writes a byte.
        with pytest.raises(ValueError, match="of kind library"):
            ours.encode_with_offsets(text, special="allow")
    elif normalizer is None:
        ends = ours.encode_with_offsets(text, special="allow").character_ends
        assert ends == list(accumulate((end for _, end in allowed.offsets), max))
    theirs.encode_special_tokens = True
    assert ours.encode(text) == encode_with_library(theirs, text).ids


@given(
    chosen=random_tokens,
    unicode=st.sampled_from(["none", "NFC", "NFD", "NFKC"]),
    lowercase=st.booleans(),
    passes_special=st.booleans(),
    data=st.data(),
)
@settings(max_examples=150, deadline=None)
def test_texts_are_split_as_a_simple_loop_splits_them(
    chosen: dict[str, dict[str, bool]],
    unicode: Normalization,
    lowercase: bool,
    passes_special: bool,
    data: st.DataObject,
) -> None:
    tokens = [AddedToken(content, id_, **of) for id_, (content, of) in enumerate(chosen.items())]
    pre_tokenizer = PreTokenizer("gpt2", unicode=unicode, lowercase=lowercase)
    try:
        finder = AddedTokenFinder(tokens, pre_tokenizer)
    except ValueError:
        reject()
    texts = [draw_text(data, list(chosen)) for _ in range(3)]
    expected = [slow.split_at_added_tokens(text, tokens, pre_tokenizer.normalize, passes_special) for text in texts]
    found = [[(p.text, p.token) for p in finder.split(text, passes_special)] for text in texts]
    assert [[token or text for text, token in pieces] for pieces in found] == [
        [token or text for text, token in pieces] for pieces in expected
    ]
    split = finder.split_batch(pa.array(texts), passes_special)
    between = iter(split.between.to_pylist())
    pieces = [tokens[index] if index >= 0 else next(between) for index in split.tokens.tolist()]
    assert [
        [piece for piece in pieces[first:last] if piece] for first, last in pairwise(split.first_piece.tolist())
    ] == [[token or text for text, token in pieces] for pieces in expected]
    assert next(between, None) is None
    if not passes_special:
        counted = Counter(token.content for pieces in expected for _, token in pieces if token is not None)
        assert finder.count(pa.array(texts)) == counted
        firsts = [(row, token) for row, pieces in enumerate(expected) for _, token in pieces if token is not None]
        assert finder.find_first(pa.array(texts)) == next(iter(firsts), None)


def test_single_word_knows_the_word_characters_of_the_library() -> None:
    # Both sides of every end of a run of word characters, and some characters within each run.
    is_word = load_word_characters()
    edges = np.flatnonzero(np.diff(is_word)) + 1
    codes = {code + shift for code in edges.tolist() for shift in (-2, -1, 0, 1)} | set(range(0, NUM_CODE_POINTS, 997))
    characters = [chr(code) for code in sorted(codes) if not 0xD800 <= code < 0xE000]
    texts = [text for character in characters for text in (f"{character}<a>", f"<a>{character}")]
    ours, theirs = both(changed(added_tokens=[added("<a>", SIZE, single_word=True)]))
    found = [SIZE in ids for ids in ours.encode_batch(pa.array(texts), special="allow").to_pylist()]
    assert found == [SIZE in encoding.ids for encoding in theirs.encode_batch(texts, add_special_tokens=False)]
    assert found[::2] == [not is_word[ord(character)] for character in characters]


def test_thousands_of_tokens_in_one_text() -> None:
    tokens = [added(f"<loc_{number}>", SIZE + number, special=True) for number in range(5000)]
    ours, theirs = both(changed(added_tokens=tokens))
    text = "".join(f"the cat{token['content']}" for token in reversed(tokens))
    assert ours.encode(text, special="allow") == encode_with_library(theirs, text).ids
    assert ours.count_special(pa.array([text, text])) == {token["content"]: 2 for token in tokens}
    assert ours.encode_with_offsets(text, special="allow").character_ends[-1] == len(text)


@pytest.mark.slow
def test_the_time_to_encode_does_not_grow_with_the_number_of_added_tokens() -> None:
    chosen = random.Random(1)
    words = ["".join(chosen.choices(string.ascii_lowercase, k=6)) for _ in range(20_000)]
    tokens = [added(f"{word[:5]}{number}", SIZE + number, special=True) for number, word in enumerate(words[:4000])]
    by_size = {size: both(changed(added_tokens=tokens[:size]))[0] for size in (500, 4000)}
    text = pa.array([" ".join(words)])

    def run(size: int) -> None:
        by_size[size].encode_batch(text, special="allow")
        by_size[size].count_special(text)

    assert measure_growth(run, 500) < 4  # It would be 8 if each token were looked for.


def test_a_text_that_is_not_utf8_is_named_by_its_row_beside_added_tokens() -> None:
    ours, _ = both(changed(added_tokens=[added("<a>", SIZE, special=True, lstrip=True)]))
    values = pa.array([b"the", b"x<a>", b"<a>", b"\xe3\x80", b"\x80<a>\xe3"], pa.large_binary())
    batch = pa.LargeStringArray.from_buffers(len(values), values.buffers()[1], values.buffers()[2])
    with pytest.raises(ValueError, match="row 3 of the texts is not UTF-8"):
        ours.encode_batch(batch, special="allow")
    with pytest.raises(ValueError, match="row 3 of the texts is not UTF-8"):
        ours.count_special(batch)


@given(tokens=added_tokens, batch=st.lists(st.one_of(st.none(), texts), max_size=8), start=st.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_a_batch_has_the_ids_of_its_texts(tokens: list[Any], batch: list[str | None], start: int) -> None:
    ours, _ = both(changed(added_tokens=tokens))
    array = pa.array(batch, pa.string())[start:]
    expected = [None if text is None else ours.encode(text, special="allow") for text in array.to_pylist()]
    assert ours.encode_batch(array, special="allow").to_pylist() == expected
    chunked = pa.chunked_array([array[:2], array[2:]], pa.string())
    assert ours.encode_batch(chunked, special="allow").to_pylist() == expected


@given(tokens=added_tokens, text=texts)
@settings(max_examples=150, deadline=None)
def test_text_never_gives_a_special_id_unless_asked(tokens: list[Any], text: str) -> None:
    ours, _ = both(changed(added_tokens=tokens))
    assert not set(ours.encode(text)) & set(ours.special_tokens.values())


def assert_offsets_cover(encoded: Encoded, num_bytes: int, num_characters: int) -> None:
    assert len(encoded.ids) == len(encoded.byte_ends) == len(encoded.character_ends)
    assert encoded.byte_ends == sorted(encoded.byte_ends)
    assert encoded.character_ends == sorted(encoded.character_ends)
    assert [0, *encoded.byte_ends][-1] == num_bytes
    assert [0, *encoded.character_ends][-1] == num_characters


@given(tokens=added_tokens, text=texts)
@example([added("<a>", SIZE, rstrip=True), added("\n\n", SIZE + 1)], "<a>\n\n\n\n")
@settings(max_examples=400, deadline=None)
def test_offsets_partition_the_text_as_the_library_does(tokens: list[Any], text: str) -> None:
    ours, theirs = both(changed(added_tokens=tokens))
    encoded = ours.encode_with_offsets(text, special="allow")
    assert encoded.ids == ours.encode(text, special="allow")
    assert_offsets_cover(encoded, len(text.encode()), len(text))
    # The library gives white space that a token's rstrip took to the next token again; here it belongs to the first.
    library_ends = [end for _, end in encode_with_library(theirs, text).offsets]
    assert encoded.character_ends == list(accumulate(library_ends, max))
    if not tokens:
        data = text.encode()
        parts = [data[a:b] for a, b in zip([0, *encoded.byte_ends], encoded.byte_ends, strict=False)]
        assert parts == [ours.token_bytes()[id_] for id_ in encoded.ids]
    # A character that several tokens share belongs to the token with its first byte.
    for in_bytes, in_characters in zip(encoded.byte_ends, encoded.character_ends, strict=True):
        assert len(text[: in_characters - 1].encode()) < in_bytes <= len(text[:in_characters].encode()) or not in_bytes


@given(tokens=added_tokens, normalizer=st.sampled_from(NORMALIZERS), text=texts)
@settings(max_examples=200, deadline=None)
def test_offsets_count_the_bytes_of_the_normalized_text(tokens: list[Any], normalizer: Any, text: str) -> None:
    tokens = [{**token, "lstrip": False, "rstrip": False} for token in tokens]
    ours, _ = both(changed(added_tokens=tokens, normalizer=normalizer))
    spelled = dict(enumerate(ours.token_bytes()))
    for token in tokens:
        if token["normalized"]:
            spelled[token["id"]] = ours.pre_tokenizer.normalize(token["content"]).encode()
    encoded = ours.encode_with_offsets(text, special="allow")
    sizes = [b - a for a, b in pairwise([0, *encoded.byte_ends])]
    assert sizes == [len(spelled[id_]) for id_ in encoded.ids]


# U+3000, the ideographic space, has three bytes.
@pytest.mark.parametrize(
    ("tokens", "text", "byte_ends", "character_ends"),
    [
        ([added("<a>", SIZE, rstrip=True), added("\n\n", SIZE + 1)], "<a>\n\n\n\n", [7, 7, 7], [7, 7, 7]),
        # The library encodes the third line feed, which <a> has taken, again as ordinary text.
        ([added("<a>", SIZE, rstrip=True), added("\n\n", SIZE + 1)], "<a>\n\n\nb", [6, 6, 6, 7], [6, 6, 6, 7]),
        ([added("<a>", SIZE, lstrip=True, rstrip=True)], "b\u3000<a>\u3000\u3000b", [1, 13, 14], [1, 7, 8]),
    ],
)
def test_white_space_that_two_tokens_take_belongs_to_the_first(
    tokens: list[Any], text: str, byte_ends: list[int], character_ends: list[int]
) -> None:
    ours, theirs = both(changed(added_tokens=tokens))
    encoded = ours.encode_with_offsets(text, special="allow")
    assert encoded.ids == encode_with_library(theirs, text).ids
    assert encoded.byte_ends == byte_ends
    assert encoded.character_ends == character_ends


def test_shared_white_space_is_counted_once_where_normalization_shortens_it() -> None:
    tokens = [added("<a>", SIZE, rstrip=True), added("\u3000\n", SIZE + 1)]
    ours, theirs = both(changed(added_tokens=tokens, normalizer={"type": "NFKC"}))
    text = "<a>\u3000\n\u3000b"  # <a> takes all white space; the last of it is also ordinary text, one space.
    encoded = ours.encode_with_offsets(text, special="allow")
    assert encoded.ids == encode_with_library(theirs, text).ids
    assert ours.tokens(encoded.ids) == [b"<a>", "\u3000\n".encode(), b" ", b"b"]
    assert encoded.byte_ends == [10, 10, 10, 11]
    assert encoded.character_ends == [6, 6, 6, 7]


BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
PLAIN = {**BYTE_LEVEL, "use_regex": False}


def split(pattern: dict[str, str], **others: Any) -> dict[str, Any]:
    return {"type": "Split", "pattern": pattern, "behavior": "Isolated", "invert": False, **others}


@pytest.mark.parametrize(
    "steps",
    [
        [BYTE_LEVEL],
        [{"type": "Digits", "individual_digits": True}, {**BYTE_LEVEL, "use_regex": True}],
        [{"type": "Digits", "individual_digits": False}, {**BYTE_LEVEL, "use_regex": True}],
        [split({"String": "a."}), PLAIN],
        [split({"Regex": r"\p{N}"}), split({"Regex": r"\s+|\S+"}), PLAIN],
        [split({"Regex": "[^\r\n\\p{L}]+|\\p{L}+"}), PLAIN],
    ],
    ids=str,
)
@given(text=st.text(st.sampled_from("aB1٣²Ⅷ .'s的\n\r\t\u0301"), max_size=20))
@settings(max_examples=150, deadline=None)
def test_texts_are_split_as_the_library_splits_them(steps: list[Any], text: str) -> None:
    pre_tokenizer = {"type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else steps[0]
    ours, theirs = both(changed(pre_tokenizer=pre_tokenizer))
    assert ours.encode(text) == theirs.encode(text).ids
    again = Tokenizer.from_json(ours.files()["tokenizer.json"])
    assert again.encode(text) == theirs.encode(text).ids


@pytest.mark.parametrize(
    "processor",
    [
        None,
        {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True},
        TEMPLATE,
        {"type": "Sequence", "processors": [{**BYTE_LEVEL, "use_regex": True}, TEMPLATE]},
        {"type": "BertProcessing", "sep": ["<b>", SIZE + 1], "cls": ["<a>", SIZE]},
        {
            "type": "RobertaProcessing",
            "sep": ["<b>", SIZE + 1],
            "cls": ["<a>", SIZE],
            "trim_offsets": True,
            "add_prefix_space": False,
        },
    ],
    ids=lambda processor: processor["type"] if processor else "none",
)
def test_post_processors_add_their_ids_before_and_after_a_text(processor: Any) -> None:
    tokens = [added("<a>", SIZE, special=True), added("<b>", SIZE + 1, special=True)]
    ours, theirs = both(changed(added_tokens=tokens, post_processor=processor))
    for text in ("the cat", ""):
        expected = theirs.encode(text).ids
        assert ours.encode(text, add_special_tokens=True) == expected
        written = ours.files()["tokenizer.json"]
        assert Tokenizer.from_json(written).encode(text, add_special_tokens=True) == expected
        assert tokenizers.Tokenizer.from_str(written).encode(text).ids == expected


@pytest.mark.parametrize("ignore_merges", [False, True])
def test_with_ignore_merges_a_word_that_is_a_token_is_not_merged(ignore_merges: bool) -> None:
    vocab = {**BASE["model"]["vocab"], "Ġwhole": SIZE, "whole": SIZE + 1}  # No merge makes these.
    ours, theirs = both(changed(model_vocab=vocab, model_ignore_merges=ignore_merges))
    for text in ("whole", "a whole", "wholes", " whole whole", "the cat"):
        assert ours.encode(text) == theirs.encode(text).ids
        assert (SIZE in ours.encode(" whole")) == ignore_merges
        assert Tokenizer.from_json(ours.files()["tokenizer.json"]).encode(text) == theirs.encode(text).ids


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"normalizer": {"type": "Replace", "pattern": {"String": "a"}, "content": "b"}}, "normalizer .*Replace"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "pre_tokenizer .*Metaspace"),
        ({"pre_tokenizer": PLAIN}, "use_regex false and no Split"),
        (
            {
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [split({"String": "a"}, behavior="Removed"), PLAIN],
                }
            },
            "Removed",
        ),
        (
            {"pre_tokenizer": {"type": "Sequence", "pretokenizers": [split({"Regex": "^a|[^a]+"}), PLAIN]}},
            r"has '\^' at character 0, which engines read differently",
        ),
        ({"added_tokens": [added("<a>", SIZE), added("<a>", SIZE + 1)]}, "'<a>' twice"),
        ({"added_tokens": [added("Ġthe", SIZE)]}, "added token 'Ġthe' has the id"),
        ({"added_tokens": [added("<a>", SIZE + 1)]}, f"the library tokenizers would give it the id {SIZE}; add it to"),
        ({"post_processor": {"type": "Other"}}, "post_processor .*Other"),
        ({"post_processor": {**TEMPLATE, "single": []}}, "no place for the text"),
        ({"model_dropout": 0.1}, "model.dropout is 0.1"),
        ({"model_fuse_unk": True, "model_unk_token": "the"}, "model.fuse_unk"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value,
)
def test_unsupported_entries_are_refused_by_name(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_json(json.dumps(changed(**entries)), engine="native")


def test_tokens_that_normalization_makes_equal_are_refused() -> None:
    tokens = [added("Éa", SIZE, normalized=True), added("éa", SIZE + 1, normalized=True)]
    with pytest.raises(ValueError, match="'Éa' and 'éa' are both 'éa' once they are normalized"):
        Tokenizer.from_json(json.dumps(changed(added_tokens=tokens, normalizer={"type": "Lowercase"})), engine="native")


def test_a_merge_that_makes_a_special_token_is_refused() -> None:
    spelled = next(left + right for left, right in BASE["model"]["merges"] if (left + right).isascii())
    tokens = [added(spelled, BASE["model"]["vocab"][spelled], special=True)]
    with pytest.raises(ValueError, match=f"a merge makes the special token '{spelled}'"):
        Tokenizer.from_json(json.dumps(changed(added_tokens=tokens)), engine="native")


def test_special_tokens_in_texts_are_refused_or_counted() -> None:
    ours, _ = both(changed(added_tokens=[added("<a>", SIZE, special=True), added("<b>", SIZE + 1)]))
    batch = pa.array(["the", None, "x<a>y<a>", "<b>"])
    with pytest.raises(ValueError, match="text 2 spells the special token '<a>'"):
        ours.encode_batch(batch, special="refuse")
    assert ours.count_special(batch) == {"<a>": 2}
    with pytest.raises(ValueError, match="special is 'all'; it is one of plain, allow, refuse"):
        ours.encode("the", special="all")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        # The library uses white space twice: for the token before it, and for the next token.
        ([added("<a>", SIZE, rstrip=True), added(" x", SIZE + 1)], "<a> x"),
        ([added("\n\n", SIZE, rstrip=True)], "a\n\n\n\nb"),
        # A special token that is read as ordinary text still hides the tokens that it overlaps.
        ([added("<a>b", SIZE, special=True), added("<a>", SIZE + 1)], "<a>b"),
        ([added("<a>", SIZE, special=True), added("a>b", SIZE + 1)], "<a>b"),
        # A special token may be one character, if that is not one byte.
        ([added("的", SIZE, special=True)], "的a的"),
        ([added("<|", SIZE, special=True), added("zz", SIZE + 1, single_word=True)], "<| zz_ zz"),
    ],
)
@pytest.mark.parametrize("ignore_merges", [False, True])
def test_corner_cases_equal_the_library(tokens: list[Any], text: str, ignore_merges: bool) -> None:
    ours, theirs = both(changed(added_tokens=tokens, model_ignore_merges=ignore_merges))
    written = tokenizers.Tokenizer.from_str(ours.files()["tokenizer.json"])
    again = Tokenizer.from_json(ours.files()["tokenizer.json"])
    allowed = theirs.encode(text, add_special_tokens=False).ids
    theirs.encode_special_tokens = True
    plain = theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, special="allow") == again.encode(text, special="allow") == allowed
    assert ours.encode(text) == again.encode(text) == plain
    assert written.encode(text, add_special_tokens=False).ids == allowed
    written.encode_special_tokens = True
    assert written.encode(text, add_special_tokens=False).ids == plain
    assert len(ours.encode_with_offsets(text, special="allow").byte_ends) == len(allowed)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"added_tokens": [added("é", BASE["model"]["vocab"]["é"])]}, "'é' is also how model.vocab writes a byte"),
        ({"added_tokens": [added("a", BASE["model"]["vocab"]["a"], special=True)]}, "'a', or it is a byte"),
        ({"post_processor": {**TEMPLATE, "special_tokens": {"<a>": {"ids": [0]}}}}, "the id 0 around texts"),
        ({"pre_tokenizer": {"type": "Sequence", "pretokenizers": []}}, "not every byte has a token"),
        (
            {
                "added_tokens": [added("the", BASE["model"]["vocab"]["the"], single_word=True)],
                "model_ignore_merges": True,
            },
            "'the' is single_word and in model.vocab",
        ),
    ],
)
def test_ambiguous_tokens_are_refused(entries: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Tokenizer.from_json(json.dumps(changed(**entries)), engine="native")


def test_training_further_keeps_all_ids() -> None:
    first = Tokenizer.train(TEXTS, vocab_size=290, special_tokens={"eos": "<|e|>"})
    more = first.train_more(TEXTS, vocab_size=300)
    assert more.token_bytes()[:290] == first.token_bytes()
    assert more.vocab_size == 300
    at_once = Tokenizer.train(TEXTS, num_merges=len(more.merges), special_tokens={"eos": "<|e|>"})
    for text in TEXTS:
        assert [more.token_bytes()[i] for i in more.encode(text)] == [
            at_once.token_bytes()[i] for i in at_once.encode(text)
        ]
    again = more.keep_first_merges(len(first.merges))
    assert again.token_bytes() == first.token_bytes()
    assert again.special_tokens == first.special_tokens
    assert [again.encode(text) for text in TEXTS] == [first.encode(text) for text in TEXTS]
    with pytest.raises(ValueError, match="vocab_size is 200; this tokenizer already has 290 ids"):
        first.train_more(TEXTS, vocab_size=200)
    with pytest.raises(ValueError, match="num_merges is 500; this tokenizer has"):
        first.keep_first_merges(500)
