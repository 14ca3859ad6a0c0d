"""Tests of the token audit: findings in small known vocabularies, and uses compared with a slow replay of merges."""

import base64
import csv
import json
import random
import shutil
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers_made_by_hand import make_tokenizer_with_merges

from bpe_core import Tokenizer, count_words
from bpe_core.measuring.audit import (
    AuditEntry,
    audit_tokens,
    count_token_uses,
    find_least_counted,
    find_longest,
    find_mostly_intermediate,
    find_not_utf8,
    find_rare,
    find_special_look_alikes,
    find_twins,
    find_unreachable,
    find_unused,
)
from pipelines import cli


def replay_merges(tokenizer: Tokenizer, word_counts: dict[str, int]) -> tuple[list[int], list[int]]:
    """Returns final and intermediate uses by id, from merging every word step by step: lowest rank, then leftmost."""
    model = tokenizer.model
    ranks = {
        (left, right): (rank if model.ranked_by == "merge" else made, made)
        for rank, (left, right, made) in enumerate(model.merges.tolist())
    }
    ids = {token: id_ for id_, token in enumerate(model.tokens)}
    final, intermediate = [0] * len(model.tokens), [0] * len(model.tokens)
    for word, count in word_counts.items():
        if model.ignore_merges and word.encode() in ids:
            final[ids[word.encode()]] += count
            continue
        symbols = [bytes([byte]) for byte in word.encode()]
        if model.alphabet.kind == "char":
            symbols = [character.encode() for character in word]
            glued = model.alphabet.placement == "glued"
            symbols = [*symbols[:-1], symbols[-1] + b"\xff"] if glued else [*symbols, b"\xff"]
        parts = [ids[symbol] for symbol in symbols]
        while waiting := [(*ranks[pair], at) for at, pair in enumerate(pairwise(parts)) if pair in ranks]:
            _, made, at = min(waiting, key=lambda one: (one[0], one[2]))
            for part in parts[at : at + 2]:
                intermediate[part] += count
            parts[at : at + 2] = [made]
        for part in parts:
            final[part] += count
    return final, intermediate


WORDS = st.dictionaries(st.text("abAé的", min_size=1, max_size=9), st.integers(1, 50), min_size=1, max_size=8)

KINDS: list[dict[str, Any]] = [
    {"kind": "byte"},
    {"kind": "char"},
    {"kind": "char", "end_of_word_placement": "glued"},
]


def train(word_counts: dict[str, int], num_merges: int, **settings: Any) -> Tokenizer:
    texts = [" ".join([word] * count) for word, count in word_counts.items()]
    return Tokenizer.train(texts, num_merges=num_merges, **settings)


def rank_by_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """Returns a tokenizer with the same tokens that merges as tiktoken does: any two tokens that spell a third."""
    lines = [f"{base64.b64encode(token).decode()} {id_}\n" for id_, token in enumerate(tokenizer.token_bytes())]
    return Tokenizer.from_tiktoken("".join(lines), pattern="gpt2")


@settings(deadline=None, max_examples=60)
@given(learned=WORDS, counted=WORDS, num_merges=st.integers(0, 14), settings=st.sampled_from(KINDS))
def test_uses_equal_those_of_a_slow_replay(
    learned: dict[str, int], counted: dict[str, int], num_merges: int, settings: dict[str, Any]
) -> None:
    tokenizer = train(learned, num_merges, **settings)
    known = set(tokenizer.model.tokens)
    if settings["kind"] == "char":
        end = b"\xff" if settings.get("end_of_word_placement") == "glued" else b""
        counted = {
            word: count
            for word, count in counted.items()
            if {c.encode() for c in word[:-1]} | {word[-1].encode() + end} <= known
        }
    for one in [tokenizer, rank_by_tokens(tokenizer)] if settings["kind"] == "byte" else [tokenizer]:
        uses = count_token_uses(one, counted)
        assert (uses.final.tolist(), uses.intermediate.tolist()) == replay_merges(one, counted)


def test_uses_if_several_merges_make_one_token() -> None:
    # "abc" is made from a + bc, as bc is merged first; elsewhere it could be made from ab + c.
    rows = [["b", "c"], ["a", "bc"], ["a", "b"], ["ab", "c"]]
    tokenizer = make_tokenizer_with_merges(rows)
    counts = {"abc": 5, "ab": 2, "bcabc": 3}
    uses = count_token_uses(tokenizer, counts)
    assert (uses.final.tolist(), uses.intermediate.tolist()) == replay_merges(tokenizer, counts)
    ids = {token: id_ for id_, token in enumerate(tokenizer.model.tokens)}
    assert (uses.final[ids[b"abc"]], uses.intermediate[ids[b"bc"]], uses.intermediate[ids[b"ab"]]) == (8, 8, 0)


def test_a_word_that_is_looked_up_has_no_intermediate_uses() -> None:
    tokenizer = make_tokenizer_with_merges([["h", "u"], ["hu", "g"]], ignore_merges=True)
    counts = {"hug": 7, "hugs": 2}
    uses = count_token_uses(tokenizer, counts)
    assert (uses.final.tolist(), uses.intermediate.tolist()) == replay_merges(tokenizer, counts)
    hu = tokenizer.model.tokens.index(b"hu")
    assert (uses.final[hu], uses.intermediate[hu]) == (0, 2)


def test_characters_without_a_symbol_count_as_unk() -> None:
    tokenizer = Tokenizer.train(["ab"], kind="char", num_merges=0, special_tokens={"unk": "<unk>"})
    uses = count_token_uses(tokenizer, {"axx": 3})
    assert uses.final[tokenizer.special_tokens["<unk>"]] == 6
    with pytest.raises(ValueError, match=r"the character 'x' \(U\+0078\) is not in the vocabulary"):
        count_token_uses(Tokenizer.train(["ab"], kind="char", num_merges=0), {"axx": 3})


def test_unused_rare_and_intermediate_tokens() -> None:
    tokenizer = Tokenizer.train(["hugs hugs hugs"], num_merges=3, special_tokens={"eos": "<end>"})
    assert tokenizer.tokens([256, 257, 258, 259]) == [b"gs", b"hu", b"hugs", "<end>"]
    uses = count_token_uses(tokenizer, {"hugs": 30, "hu": 2, "s": 1})
    merged = [entry for entry in find_unused(tokenizer, uses) if entry.id > 255]
    assert merged == [AuditEntry(256, "gs", 30)]
    assert 259 not in {entry.id for entry in find_unused(tokenizer, uses)}
    assert find_rare(tokenizer, uses, 3) == (AuditEntry(ord("s"), "s", 1), AuditEntry(257, "hu", 2))
    assert find_mostly_intermediate(tokenizer, uses, 0.1) == (AuditEntry(256, "gs", 0.0), AuditEntry(257, "hu", 2 / 32))
    assert find_mostly_intermediate(tokenizer, uses, 0.05) == (AuditEntry(256, "gs", 0.0),)


def test_unreachable_tokens_and_what_the_merges_make_instead() -> None:
    # b + c is merged first, so "abc" never contains ab; abcd is found only by looking up whole words.
    pairs = [["b", "c"], ["a", "b"], ["ab", "c"]]
    tokenizer = make_tokenizer_with_merges(pairs, more=("abcd",))
    ids = {token: id_ for id_, token in enumerate(tokenizer.model.tokens)}
    assert find_unreachable(tokenizer) == (
        AuditEntry(ids[b"abc"], "abc", related=(ids[b"a"], ids[b"bc"])),
        AuditEntry(ids[b"abcd"], "abcd", related=(ids[b"a"], ids[b"bc"], ids[b"d"])),
    )
    looked_up = make_tokenizer_with_merges(pairs, ignore_merges=True, more=("aĠb",))
    assert [entry.token for entry in find_unreachable(looked_up)] == ["a b"]


@pytest.mark.parametrize("settings", KINDS)
def test_every_token_of_a_trained_tokenizer_is_reachable(settings: dict[str, Any]) -> None:
    chance = random.Random(5)
    texts = ["".join(chance.choice("aab é的") for _ in range(200)) for _ in range(9)]
    assert find_unreachable(Tokenizer.train(texts, num_merges=60, **settings)) == ()


def test_an_unreachable_token_of_kind_char() -> None:
    tokenizer = Tokenizer.train(["abc abc abc"], kind="char", num_merges=3, special_tokens={"unk": "<unk>"})
    assert tokenizer.tokens(tokenizer.merges[:, 2]) == ["ab", "abc", "abc</w>"]
    model = tokenizer.model
    swapped = Tokenizer(replace(model, merges=model.merges[[1, 2]]))
    ids = {token: id_ for id_, token in enumerate(model.tokens)}
    single = [ids[letter] for letter in (b"a", b"b", b"c", b"\xff")]
    assert {entry.id: list(entry.related) for entry in find_unreachable(swapped)} == {
        ids[b"ab"]: single[:2],
        ids[b"abc"]: single[:3],
        ids[b"abc\xff"]: single,
    }


def test_a_token_with_a_character_that_has_no_symbol_is_unreachable() -> None:
    model = Tokenizer.train(["ab"], kind="char", num_merges=0).model
    tokenizer = Tokenizer(replace(model, tokens=[*model.tokens, "aé".encode(), b"aa\xff"]))
    a, marker = model.tokens.index(b"a"), model.tokens.index(b"\xff")
    assert find_unreachable(tokenizer) == (
        AuditEntry(3, "aé", related=(a,)),
        AuditEntry(4, "aa</w>", related=(a, a, marker)),
    )


def test_tokens_that_are_not_valid_utf8() -> None:
    tokenizer = Tokenizer.train(["你 你"], num_merges=2)  # Two bytes of the character, then all three.
    assert tokenizer.model.tokens[257] == "你".encode()
    found = find_not_utf8(tokenizer)
    assert [entry.id for entry in found if entry.id < 256] == list(range(128, 256))
    assert [(entry.id, entry.figure) for entry in found if entry.id >= 256] == [(256, 2)]
    assert find_not_utf8(Tokenizer.train(["你"], kind="char", num_merges=0)) == ()


def test_tokens_that_look_like_special_ones() -> None:
    alike = [
        "<|EndOfText|>",
        "<|startoftext|>",
        "Ġ<pad>",
        "[unk]",
        "<|endof",
        "endoftext",
        "mask",
        "</div>",
        "<s",
        "end",
    ]
    tokenizer = make_tokenizer_with_merges([], more=tuple(alike))
    assert [(entry.token, entry.note) for entry in find_special_look_alikes(tokenizer)] == [
        ("<|EndOfText|>", "<|endoftext|>"),
        ("<|startoftext|>", "<|…|>"),
        (" <pad>", "<pad>"),
        ("[unk]", "[UNK]"),
        ("<|endof", "a part of <|endoftext|>"),
        ("endoftext", "endoftext"),
    ]


def test_tokens_that_look_like_the_tokenizers_own_special_ones() -> None:
    tokenizer = Tokenizer.train(["halt halt"], num_merges=4, special_tokens={"eos": "HALT"})
    assert [(entry.token, entry.note) for entry in find_special_look_alikes(tokenizer)] == [
        ("halt", "HALT"),
        (" halt", "HALT"),
    ]


def test_the_rarest_tokens_are_listed_and_all_that_do_not_occur() -> None:
    tokenizer = Tokenizer.train(["hu"], num_merges=1, special_tokens={"pad": "<pad>"})
    counts = np.full(258, 9, np.int64)
    counts[[256, 65, 257]] = 0, 3, 1
    assert find_least_counted(tokenizer, counts, 2) == (AuditEntry(256, "hu", 0), AuditEntry(257, "<pad>", 1))
    counts[[70, 71]] = 0
    assert [entry.id for entry in find_least_counted(tokenizer, counts, 1)] == [70, 71, 256]
    for wrong in (counts[:-1], counts.astype(float), -counts):
        with pytest.raises(ValueError, match=r"each of the 258 ids needs an integer, 0 or more"):
            find_least_counted(tokenizer, wrong, 2)


def test_the_longest_tokens() -> None:
    tokenizer = make_tokenizer_with_merges([], more=("hugs", "hug", "pugs"))
    assert find_longest(tokenizer, 3) == (
        AuditEntry(256, "hugs", 4),
        AuditEntry(258, "pugs", 4),
        AuditEntry(257, "hug", 3),
    )


def test_twins_differ_in_case_and_a_leading_space_only() -> None:
    tokenizer = make_tokenizer_with_merges([], more=("hug", "Ġhug", "Hug", "ĠĠhug", "hugs"))
    groups = {entry.token: (entry.figure, entry.related) for entry in find_twins(tokenizer)}
    assert groups["hug"] == (3, (257, 258))
    assert groups["A"] == (2, (ord("a"),))
    assert len(groups) == 27
    words = Tokenizer.train(["ab ab ab abc"], kind="char", num_merges=2)
    assert [(entry.token, words.tokens(entry.related)) for entry in find_twins(words)] == [("ab", ["ab</w>"])]


def test_an_audit_has_the_findings_that_its_counts_allow() -> None:
    tokenizer = Tokenizer.train(["hugs\n hugs \xff"], num_merges=3, special_tokens={"eos": "<end>"})
    alone = audit_tokens(tokenizer)
    assert [finding.name for finding in alone.findings] == [
        *("unreachable", "not-utf8", "special-look-alike", "longest", "twins"),
    ]
    assert (alone.vocab_size, alone.num_special) == (260, 1)
    whole = audit_tokens(tokenizer, {"hugs": 9}, np.ones(260, np.int64), num_listed=2)
    assert [finding.name for finding in whole.findings][:4] == ["unused", "rare", "intermediate", "under-trained"]
    assert [len(whole[name].entries) for name in ("under-trained", "longest")] == [2, 2]
    rows = list(whole.iter_rows())
    assert len(rows) == sum(len(finding.entries) for finding in whole.findings)
    assert ("unused", 10, r"\n", 0, "", "") in rows
    assert ("not-utf8", 255, r"\xff", 1, "", "") in rows


def test_the_command_prints_findings_and_writes_all_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = Tokenizer.train(["hugs\n hugs hug, hu"], num_merges=3, special_tokens={"eos": "<end>"})
    tokenizer.save(tmp_path)
    texts, counts, ids = tmp_path / "a.txt", tmp_path / "counts", tmp_path / "ids.npy"
    texts.write_text("hugs hug" * 20 + "\n")
    counts.mkdir()
    pq.write_table(count_words([texts.read_text()], tokenizer.pre_tokenizer), counts / "part-0.parquet")
    np.save(ids, np.arange(260)[::-1])
    command = ["audit", "--tokenizer", str(tmp_path), "--show", "1"]
    written = []
    shards = tmp_path / "shards"
    shards.mkdir()
    shutil.copy(ids, shards / "_token_counts.npy")
    for source, path in ((["--corpus", str(texts)], ids), (["--counts", str(counts)], shards)):
        table, records = tmp_path / "a.csv", tmp_path / "a.json"
        cli.main([*command, *source, "--id-counts", str(path), "--json", str(records), "--csv", str(table)])
        written.append((capsys.readouterr().out, table.read_bytes(), records.read_bytes()))
    assert written[0] == written[1]
    lines = written[0][0].splitlines()
    assert lines[0] == "260 ids, 1 of them special tokens"
    names = ["unused", "rare", "intermediate", "under-trained", "unreachable", "not-utf8", "special-look-alike"]
    assert [line.split()[0] for line in lines[1:] if line[0] != " "] == [*names, "longest", "twins"]
    assert "under-trained            100   38.5%  rarest in the training data; figure: how often" in lines
    assert "      259 '<end>'  0" in lines
    found = audit_tokens(tokenizer, count_words([texts.read_text()], tokenizer.pre_tokenizer), np.arange(260)[::-1])
    rows = list(csv.reader(written[0][1].decode().splitlines()))
    assert rows[0] == ["finding", "id", "token", "figure", "related", "note"]
    assert [row[:2] for row in rows[1:]] == [[name, str(id_)] for name, id_, *_ in found.iter_rows()]
    content = json.loads(written[0][2])
    assert content == json.loads(json.dumps(asdict(found)))
    assert content["findings"][-1]["entries"][0]["related"]


def test_two_sources_of_counts_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Tokenizer.train(["x"], num_merges=0).save(tmp_path)
    with pytest.raises(SystemExit) as ended:
        cli.main(["audit", "--tokenizer", str(tmp_path), "--corpus", "a", "--counts", "b"])
    assert ended.value.code == 2
    assert "give --corpus or --counts, not both" in capsys.readouterr().err
