"""Tokenizers that Hugging Face's library runs: same ids and texts as the library gives when called directly."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from exactness_texts import NASTY_TEXTS
from tokenizers_made_by_hand import make_word_level_content

from bpe_core import Tokenizer

tokenizers = pytest.importorskip("tokenizers", reason="the library itself: pip install tokenmill[hf]")


ROOT = Path(__file__).parents[2]


def load(content: dict[str, Any]) -> Tokenizer:
    return Tokenizer.from_json(json.dumps(content), '{"unk_token": "[UNK]", "sep_token": "[SEP]"}', engine="hf")


def test_ids_and_texts_are_the_library_s() -> None:
    content = make_word_level_content()
    tokenizer = load(content)
    library = tokenizers.Tokenizer.from_str(json.dumps({**content, "truncation": None}))
    library.encode_special_tokens = True
    texts = [*NASTY_TEXTS, "hug pugs HUG!", "hug[SEP]pug"]
    theirs = [library.encode(text, add_special_tokens=False).ids for text in texts]
    assert tokenizer.encode_batch(pa.array(texts)).to_pylist() == theirs
    assert [tokenizer.decode(ids) for ids in theirs] == [library.decode(i, skip_special_tokens=False) for i in theirs]
    assert tokenizer.kind == "library"
    assert tokenizer.vocab_size == 7


def test_special_tokens_are_found_if_they_are_allowed() -> None:
    tokenizer = load(make_word_level_content())
    assert tokenizer.encode("hug[SEP]pug", special="allow") == [3, 2, 4]
    assert tokenizer.encode("hug[SEP]pug") == [3, 0, 0, 0, 4]
    assert tokenizer.count_special(pa.array(["hug[SEP]pug [SEP]", "[CLS]"])) == {"[SEP]": 2, "[CLS]": 1}
    with pytest.raises(ValueError, match=r"text 0 spells the special token '\[SEP\]'"):
        tokenizer.encode("hug[SEP]", special="refuse")


def test_a_template_is_found_whatever_its_kind() -> None:
    tokenizer = load(make_word_level_content())
    assert tokenizer.encode("hug", add_special_tokens=True) == [1, 3, 2]
    assert load(make_word_level_content(post_processor=None)).encode("hug", add_special_tokens=True) == [3]


def test_decoding_can_leave_special_tokens_out() -> None:
    tokenizer = load(make_word_level_content())
    assert tokenizer.decode([1, 3, 4, 2]) == "[CLS] hug pug [SEP]"
    assert tokenizer.decode([1, 3, 4, 2], skip_special_tokens=True) == "hug pug"
    with pytest.raises(ValueError, match="the id 7 is not in this vocabulary"):
        tokenizer.decode([7])


def test_nulls_and_an_empty_batch() -> None:
    tokenizer = load(make_word_level_content())
    assert tokenizer.encode_batch(pa.array(["hug", None, ""])).to_pylist() == [[3], None, []]
    assert tokenizer.encode_batch(pa.array([], pa.string())).to_pylist() == []


def test_it_pickles_and_its_files_load_again() -> None:
    tokenizer = load(make_word_level_content())
    for copy in (pickle.loads(pickle.dumps(tokenizer)), Tokenizer.from_json(tokenizer.files()["tokenizer.json"])):
        assert copy.encode("hug pug") == [3, 4]
    assert pickle.loads(pickle.dumps(tokenizer)).fingerprint == tokenizer.fingerprint


def test_the_library_is_only_used_for_what_is_not_compiled(caplog: pytest.LogCaptureFixture) -> None:
    text = json.dumps(make_word_level_content())
    with pytest.raises(ValueError, match="WordLevel"):
        Tokenizer.from_json(text, engine="native")
    assert Tokenizer.from_json(text).kind == "library"
    (record,) = (found for found in caplog.records if "library encodes" in found.getMessage())
    assert "Hugging Face's library encodes texts" in record.getMessage()
    assert "WordLevel" in record.getMessage()
    byte_level = Tokenizer.train(["hug"], num_merges=1).files()["tokenizer.json"]
    assert Tokenizer.from_json(byte_level).kind == "byte"
    forced = Tokenizer.from_json(byte_level, engine="hf")
    assert forced.kind == "library"
    assert forced.encode("hug é") == Tokenizer.from_json(byte_level).encode("hug é")


OTHER_VERSION = """
import json, sys
import pyarrow as pa
import tokenizers
from bpe_core import Tokenizer

files, roles, texts = json.load(sys.stdin)
found = [tokenizers.__version__]
for file in files:
    tokenizer = Tokenizer.from_json(file, roles, engine="hf")
    ids = [tokenizer.encode_batch(pa.array(texts), special=s).to_pylist() for s in ("plain", "allow")]
    found += [ids, tokenizer.decode_batch(pa.array(ids[0])), tokenizer.encode("hug", add_special_tokens=True)]
print(json.dumps(found))
"""


@pytest.mark.slow
def test_version_1_of_the_library_gives_the_same() -> None:
    python = os.environ.get("TOKENMILL_OTHER_PYTHON")
    if python is None:
        pytest.skip("TOKENMILL_OTHER_PYTHON names no Python with tokenizers 1.0; .ci/run makes one")
    files = [
        json.dumps(make_word_level_content()),
        Tokenizer.train(["hug pug"], num_merges=4).files()["tokenizer.json"],
    ]
    given = json.dumps([files, None, [*NASTY_TEXTS, "hug pugs HUG!", "hug[SEP]pug"]])
    mine, other = (
        json.loads(
            subprocess.run(
                [one, "-c", OTHER_VERSION], input=given, capture_output=True, text=True, check=True, cwd=ROOT
            ).stdout
        )
        for one in (sys.executable, python)
    )
    assert mine[0].startswith("0.")
    assert other[0].startswith("1.")
    assert mine[1:] == other[1:]


def test_methods_for_merges_say_that_there_are_none() -> None:
    tokenizer = load(make_word_level_content())
    for use in (lambda: tokenizer.merges, lambda: tokenizer.encode_with_offsets("hug"), lambda: tokenizer.alphabet):
        with pytest.raises(ValueError, match="kind byte or char"):
            use()
    with pytest.raises(ValueError, match="texts only"):
        tokenizer.encode_words(pa.array([b"hug"]))


def test_without_the_library_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ValueError, match=r"WordLevel.*pip install tokenmill\[hf\]"):
        Tokenizer.from_json(json.dumps(make_word_level_content()))
    with pytest.raises(ModuleNotFoundError, match=r"pip install tokenmill\[hf\]"):
        Tokenizer.from_json(json.dumps(make_word_level_content()), engine="hf")


def test_a_file_that_the_library_refuses_too_keeps_the_first_reason() -> None:
    content = make_word_level_content(pre_tokenizer={"type": "NoSuchStep"})
    with pytest.raises(ValueError, match=r"tokenizer\.json: model\.type is 'WordLevel'"):
        Tokenizer.from_json(json.dumps(content))
