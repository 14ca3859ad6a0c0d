"""Special tokens that are given for a tokenizer.json."""

import pytest
from tokenizers_made_by_hand import make_word_level_content

from bpe_core.formats.given_special_tokens import GivenSpecialTokens, declare_special_tokens, list_given_roles


def list_special(content: dict[str, object], given: GivenSpecialTokens) -> dict[str, int]:
    entries = declare_special_tokens(content, given)["added_tokens"]
    return {entry["content"]: entry["id"] for entry in entries if entry["special"]}


def test_tokens_of_the_file_become_special() -> None:
    content = make_word_level_content()
    own = {"[UNK]": 0, "[CLS]": 1, "[SEP]": 2}
    assert list_special(content, {"eos": {"[SEP]": 2}}) == own
    assert list_special(content, {"eos": {"!": 6}}) == {**own, "!": 6}
    content["added_tokens"][2]["special"] = False
    assert list_special(content, {}) == {"[UNK]": 0, "[CLS]": 1}
    assert list_special(content, {"eos": {"[SEP]": 2}}) == own


def test_a_token_may_be_added_with_an_id_that_is_free() -> None:
    assert list_special(make_word_level_content(), {"pad": {"[PAD]": 7}})["[PAD]"] == 7


def test_the_vocabulary_of_unigram_is_a_list() -> None:
    content = make_word_level_content(added_tokens=[], model={"vocab": [["<unk>", 0.0], ["a", -1.0]]})
    assert list_special(content, {"unk": {"<unk>": 0}}) == {"<unk>": 0}


def test_contradictions_are_named() -> None:
    with pytest.raises(ValueError, match=r"'\[SEP\]' was given the id 6, which is that of '!'"):
        declare_special_tokens(make_word_level_content(), {"eos": {"[SEP]": 6}})
    with pytest.raises(ValueError, match=r"'\[SEP\]' was given the id 9, but it has the id 2"):
        declare_special_tokens(make_word_level_content(), {"eos": {"[SEP]": 9}})
    with pytest.raises(ValueError, match="'<b>' was given the id 9, which is that of '<a>'"):
        declare_special_tokens(make_word_level_content(), {"eos": {"<a>": 9}, "pad": {"<b>": 9}})


def test_the_content_itself_is_not_changed() -> None:
    content = make_word_level_content()
    declare_special_tokens(content, {"eos": {"!": 6}, "pad": {"[PAD]": 7}})
    assert content == make_word_level_content()


def test_several_tokens_of_a_role_are_a_list() -> None:
    given = {"eos": {"</s>": 2}, "additional": {"<a>": 7}, "pad": {"<p>": 3, "<q>": 4}}
    assert list_given_roles(given) == {"eos": "</s>", "additional": ["<a>"], "pad": ["<p>", "<q>"]}
