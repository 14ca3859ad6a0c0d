"""`tokenmill verify`: a correct tokenizer passes every check, and each kind of damage fails the right checks."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from tokenizers_made_by_hand import make_tokenizer_with_merges, make_word_level_content

from bpe_core import Tokenizer
from pipelines import cli
from pipelines.checking import encoding_checks
from pipelines.checking.check import Check
from pipelines.checking.comparison import compare_ids
from pipelines.checking.verify_tokenizer import check_tokenizer
from pipelines.reading import source_files
from pipelines.reading.fingerprints import FingerprintMethod, fingerprint_file
from pipelines.settings.corpus import Corpus
from pipelines.settings.project import Project
from pipelines.training.train_tokenizer import train_tokenizer

RUN = {"workers": 1, "progress": False}
TEXTS = [
    "low lower lowest newest widest low lowest",
    "Low LOW lower  newest\n",
    "new newer 你好世界 你好 <end>",
    "xabc abc abc",
]

Damage = Callable[[dict[str, Any]], None]


def project(folder: Path, **sections: Any) -> Project:
    """Returns a project with a small corpus, which it writes to `folder`."""
    (folder / "corpus.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in TEXTS))
    content: dict[str, Any] = {
        "corpus": {"files": str(folder / "corpus.jsonl")},
        "tokenizer": {"kind": "byte", "num_merges": 20, "special_tokens": {"eos": "<end>"}},
        "train": {"output": str(folder / "tokenizer"), "num_partitions": 2},
        "run": RUN,
    }
    return Project(**(content | sections))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a trained tokenizer of kind `byte`."""
    folder = tmp_path_factory.mktemp("trained")
    train_tokenizer(project(folder))
    return folder


@pytest.fixture
def copy(trained: Path, tmp_path: Path) -> Project:
    """A project whose tokenizer tests may damage; its corpus is that of `trained`."""
    shutil.copytree(trained / "tokenizer", tmp_path / "tokenizer")
    return project(trained, train={"output": str(tmp_path / "tokenizer"), "num_partitions": 2})


def edit(checked: Project, damage: Damage) -> None:
    """Changes a saved `tokenizer.json`."""
    assert checked.train is not None
    path = Path(checked.train.output) / "tokenizer.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    damage(content)
    path.write_text(json.dumps(content), encoding="utf-8")


def by_name(checked: Project, **words: Any) -> dict[str, Check]:
    return {check.name: check for check in check_tokenizer(checked, **words)}


def failing(checks: dict[str, Check]) -> set[str]:
    return {check.name for check in checks.values() if check.status == "fail"}


def test_a_correct_tokenizer_passes_every_check(copy: Project) -> None:
    pytest.importorskip("tokenizers", reason="pip install tokenmill[dev]")
    checks = by_name(copy, positives=["lowest", "low"], negatives=["xabcx"])
    assert list(checks) == [
        *("loads", "ranks", "merges", "as recorded", "word counts", "round trip", "reachable", "prefixes"),
        *("positives", "negatives", "hugging face"),
    ]
    assert {check.status for check in checks.values()} == {"pass"}
    assert checks["ranks"].summary == "ids 0 to 276 without gaps, 20 merges at their ranks"
    assert checks["merges"].summary == "20 merges, the same when trained again"
    assert checks["round trip"].values["documents"] == len(TEXTS)
    assert checks["round trip"].summary.endswith(" ids, 0 decode differently")
    assert checks["reachable"].summary == "0 of 277 tokens are unreachable"
    assert checks["prefixes"].values["tokens_per_character_first"] == len("".join(TEXTS).encode()) / len("".join(TEXTS))
    assert checks["prefixes"].summary.endswith("in 7 steps; 257 ids to 277")
    assert checks["positives"].summary == "2 of 2 words are one token"
    assert checks["hugging face"].values["different"] == 0
    assert checks["merges"].line == "pass  merges        20 merges, the same when trained again"


def test_the_corpus_is_hashed_once_to_train_again(copy: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed = []

    def watched(file: BinaryIO, num_bytes: int, how: FingerprintMethod) -> str:
        hashed.append(num_bytes)
        return fingerprint_file(file, num_bytes, how)

    monkeypatch.setattr(source_files, "fingerprint_file", watched)
    assert failing(by_name(copy, positives=["low"])) == set()
    assert len(hashed) == 1


AB, ER = 7, 8
"""The ranks of two merges that do not depend on each other: a + b and e + r."""


def swapped_merges(content: dict[str, Any]) -> None:
    merges = content["model"]["merges"]
    assert (merges[AB], merges[ER]) == (["a", "b"], ["e", "r"])
    merges[AB], merges[ER] = merges[ER], merges[AB]


def swapped_merges_that_need_each_other(content: dict[str, Any]) -> None:
    merges = content["model"]["merges"]
    first = next(i for i, pair in enumerate(merges) if len("".join(pair)) > 2)
    merges.insert(0, merges.pop(first))


def swapped_merges_with_their_ids(content: dict[str, Any]) -> None:
    swapped_merges(content)
    content["model"]["vocab"] |= {"er": 256 + AB, "ab": 256 + ER}


def wrong_ids_of_merges(content: dict[str, Any]) -> None:
    vocab, merges = content["model"]["vocab"], content["model"]["merges"]
    first, last = "".join(merges[0]), "".join(merges[-1])
    vocab[first], vocab[last] = vocab[last], vocab[first]


def wrong_ids_of_bytes(content: dict[str, Any]) -> None:
    vocab = content["model"]["vocab"]
    vocab["a"], vocab["b"] = vocab["b"], vocab["a"]


def lost_merge(content: dict[str, Any]) -> None:
    content["model"]["merges"].pop()


def lower_case(content: dict[str, Any]) -> None:
    content["normalizer"] = {"type": "Lowercase"}


@pytest.mark.parametrize(
    ("damage", "lines"),
    [
        (
            swapped_merges,
            {
                "ranks": "id 263 is b'ab'; by the order of the merges it must be b'er'",
                "merges": "merge 7 is b'e' + b'r'; trained again, it is b'a' + b'b'",
            },
        ),
        (
            swapped_merges_that_need_each_other,
            {"ranks": "uses a token that no earlier merge makes", "merges": "merge 0 is b"},
        ),
        (
            swapped_merges_with_their_ids,
            {"merges": "merge 7 is b'e' + b'r'; trained again, it is b'a' + b'b'"},
        ),
        (wrong_ids_of_merges, {"ranks": "id 256 is b"}),
        (wrong_ids_of_bytes, {"ranks": "id 97 is b'b'; by the order of the merges it must be b'a'"}),
        (
            lost_merge,
            {
                "ranks": "id 275 is b",
                "merges": "merge 19 is missing; trained again, it is b",
                "reachable": "1 of 277 tokens are unreachable: ",
            },
        ),
        (lower_case, {"round trip": "1 decode differently; the first is "}),
    ],
)
def test_a_damaged_tokenizer_fails_the_right_checks(copy: Project, damage: Damage, lines: dict[str, str]) -> None:
    edit(copy, damage)
    checks = by_name(copy)
    for name, shown in lines.items():
        assert shown in checks[name].summary
    # A merge before the merges that make its parts may make them unreachable.
    may = {"reachable"} if damage is swapped_merges_that_need_each_other else set()
    assert failing(checks) - may == {*lines, "as recorded"}


def test_the_first_difference_in_a_text_is_shown(copy: Project, trained: Path) -> None:
    edit(copy, lower_case)
    figure = by_name(copy)["round trip"].summary
    assert f"the first is {trained}/corpus.jsonl, row 1: 'Low LOW lower  newest\\n' decodes to" in figure
    assert figure.endswith("'low low lower  newest\\n', from byte 0")


def test_a_repeated_merge_can_increase_the_number_of_tokens(tmp_path: Path) -> None:
    # Of equal merges the last one counts, as in the Hugging Face library; so b + c precedes a + b only with all five.
    given = make_tokenizer_with_merges([["a", "b"], ["b", "c"], ["ab", "c"], ["x", "y"], ["a", "b"]])
    given.save(tmp_path / "given")
    shards = {"output": str(tmp_path / "shards"), "tokenizer": str(tmp_path / "given")}
    checks = by_name(project(tmp_path, tokenizer=None, train=None, shards=shards))
    assert failing(checks) == {"reachable", "prefixes"}
    fewer = len("".join(TEXTS).encode()) - 6
    assert checks["prefixes"].summary.startswith(
        f"at 5 merges there are {fewer + 3} tokens, after {fewer} with fewer merges, and 260 ids"
    )
    assert "'abc' (258) becomes ['a', 'bc']" in checks["reachable"].summary


def dropped_byte(content: dict[str, Any]) -> None:
    del content["model"]["vocab"]["a"]


def dropped_byte_and_ids_closed_up(content: dict[str, Any]) -> None:
    vocab = content["model"]["vocab"]
    gone = vocab.pop("X")
    content["model"]["vocab"] = {token: id_ - (id_ > gone) for token, id_ in vocab.items()}
    for token in content["added_tokens"]:
        token["id"] -= 1


def dropped_byte_of_a_token(content: dict[str, Any]) -> None:
    vocab, merges = content["model"]["vocab"], content["model"]["merges"]
    token = "".join(merges[-1])
    vocab[token[:-1] + "Q"] = vocab.pop(token)


def id_of_another_token(content: dict[str, Any]) -> None:
    content["model"]["vocab"]["a"] = 98


def id_beyond_the_others(content: dict[str, Any]) -> None:
    content["model"]["vocab"]["a"] = 5000


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (dropped_byte, "model.vocab lacks the byte b'a'"),
        (dropped_byte_and_ids_closed_up, "model.vocab lacks the byte b'X'"),
        (dropped_byte_of_a_token, "which is not in model.vocab"),
        (id_of_another_token, "the id 98 of 'b' is taken by the token 'a'"),
    ],
)
def test_a_tokenizer_that_cannot_be_loaded_has_one_failed_check(copy: Project, damage: Damage, message: str) -> None:
    edit(copy, damage)
    (check,) = check_tokenizer(copy)
    assert (check.name, check.status) == ("loads", "fail")
    assert message in check.summary
    assert copy.train is not None
    assert check.summary.startswith(f"{copy.train.output}/tokenizer.json: ")


def test_a_hole_in_the_ids_of_a_trained_tokenizer_fails(copy: Project) -> None:
    edit(copy, id_beyond_the_others)
    assert failing(by_name(copy)) >= {"as recorded"}


def test_a_file_that_was_cut_off_cannot_be_loaded(copy: Project) -> None:
    assert copy.train is not None
    path = Path(copy.train.output) / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-9])
    (check,) = check_tokenizer(copy)
    assert (check.name, check.status) == ("loads", "fail")


def test_other_word_counts_than_the_corpus_has_fail(copy: Project) -> None:
    assert copy.train is not None
    part = min(Path(copy.train.output).glob("word_counts/*.parquet"))
    counts = pq.read_table(part)
    pq.write_table(counts.set_column(1, "count", pa.array([7] * counts.num_rows)), part)
    checks = by_name(copy)
    assert failing(checks) == {"word counts"}
    assert "which differ from those of the corpus" in checks["word counts"].summary


def test_training_again_from_the_kept_word_counts(copy: Project) -> None:
    assert copy.train is not None
    kept = copy.train.model_copy(update={"from_counts": str(Path(copy.train.output) / "word_counts")})
    checks = by_name(copy.model_copy(update={"train": kept}))
    assert failing(checks) == set()
    assert checks["merges"].status == "pass"
    assert checks["word counts"].summary == "the tokenizer was trained from given counts, or its counts were not kept"


def test_a_corpus_that_has_changed(tmp_path: Path) -> None:
    mine = project(tmp_path)
    train_tokenizer(mine)
    with open(tmp_path / "corpus.jsonl", "a") as file:
        file.write(json.dumps({"text": "zebra " * 50}) + "\n")
    checks = by_name(mine)
    assert failing(checks) == {"merges", "as recorded", "word counts"}
    assert checks["as recorded"].summary.startswith(f"inputs.{tmp_path}/corpus.jsonl.bytes: ")
    assert checks["as recorded"].summary.endswith(" and 1 more")


def test_positives_in_pieces_and_whole_negatives_are_named(copy: Project) -> None:
    checks = by_name(copy, positives=["low", "xyz"], negatives=["lowest", "zyx"])
    assert failing(checks) == {"positives", "negatives"}
    assert checks["positives"].summary == "1 of 2 words are one token; 'xyz' is [b'x', b'y', b'z']"
    assert checks["negatives"].summary.startswith("1 of 2 words are several tokens; 'lowest' is [b'low")


def test_words_come_from_the_section_sweep_or_the_known_answers(copy: Project, tmp_path: Path) -> None:
    sweep = {"output": str(tmp_path / "sweep"), "num_merges": [1], "positives": ["low"], "negatives": ["lowest", "x"]}
    assert copy.train is not None
    mine = project(tmp_path, train=copy.train.model_dump(), sweep=sweep)
    checks = by_name(mine)
    assert (checks["positives"].status, checks["negatives"].status) == ("pass", "fail")
    assert "'lowest' is [b'low', b'est']" in checks["negatives"].summary
    assert by_name(mine, negatives=["zyx"])["negatives"].status == "pass"
    known = project(tmp_path, corpus={"sample": "known-answers"}, train=copy.train.model_dump())
    checks = by_name(known)
    assert checks["positives"].summary.startswith("0 of 8 words are one token; '模型' is ")
    assert checks["negatives"].summary == "3 of 3 words are several tokens"


@pytest.mark.parametrize("placement", ["apart", "glued"])
def test_kind_char_with_characters_left_out(tmp_path: Path, placement: str) -> None:
    settings = {"kind": "char", "num_merges": 5, "limit_alphabet": 10, "end_of_word_placement": placement}
    mine = project(tmp_path, tokenizer={**settings, "special_tokens": {"unk": "<unk>"}})
    train_tokenizer(mine)
    checks = by_name(mine)
    assert failing(checks) == set()
    letters = "".join("".join(TEXTS).split())
    kept = sorted(set(letters), key=lambda letter: (-letters.count(letter), letter))[:10]
    unknown = sum(letter not in kept for letter in letters)
    if placement == "apart":
        assert checks["round trip"].values["unknown"] == unknown > 10
        assert checks["hugging face"].status == "skip"
    else:
        assert checks["round trip"].values["unknown"] >= unknown
    mine = project(tmp_path, tokenizer=settings, train={"output": str(tmp_path / "without")})
    train_tokenizer(mine)
    checks = by_name(mine)
    assert failing(checks) == {"round trip", "prefixes"}
    assert "is not in the vocabulary, and there is no unk token" in checks["round trip"].summary


def test_a_damaged_tokenizer_in_our_own_layout(tmp_path: Path) -> None:
    mine = project(tmp_path, tokenizer={"kind": "char", "num_merges": 9})
    train_tokenizer(mine)

    def swap(content: dict[str, Any]) -> None:
        content["merges"][0], content["merges"][1] = content["merges"][1], content["merges"][0]

    edit(mine, swap)
    checks = by_name(mine)
    assert {"ranks", "merges", "as recorded"} <= failing(checks) <= {"ranks", "merges", "as recorded", "reachable"}

    def wrong(content: dict[str, Any]) -> None:
        content["merges"][3][2] -= 1

    edit(mine, wrong)
    (check,) = check_tokenizer(mine)
    assert (check.name, check.status) == ("loads", "fail")
    assert "merge 3 makes " in check.summary


def test_a_tokenizer_trained_elsewhere_skips_the_checks_of_training(tmp_path: Path) -> None:
    Tokenizer.train(TEXTS, num_merges=20).save(tmp_path / "given")
    shards = {"output": str(tmp_path / "shards"), "tokenizer": str(tmp_path / "given")}
    checks = by_name(project(tmp_path, tokenizer=None, train=None, shards=shards))
    skipped = {check.name for check in checks.values() if check.status == "skip"} - {"hugging face"}
    assert skipped == {"ranks", "merges", "as recorded", "word counts", "positives", "negatives"}
    assert failing(checks) == set()


def test_different_ids_of_another_library_fail(copy: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers", reason="pip install tokenmill[dev]")
    other = Tokenizer.train(["xabc"], num_merges=3)
    monkeypatch.setattr(encoding_checks, "export_tokenizer", lambda tokenizer, folder, format: other.save(folder))
    checks = by_name(copy)
    assert failing(checks) == {"hugging face"}
    assert "4 documents with different ids; " in checks["hugging face"].summary


def test_the_command_prints_lines_writes_json_and_fails_by_its_exit_code(
    copy: Project, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, words, output = tmp_path / "project.yaml", tmp_path / "words.txt", tmp_path / "checks.json"
    config.write_text(yaml.safe_dump(copy.model_dump(mode="json", exclude_unset=True)))
    words.write_text("low\nlowest\n")
    command = ["verify", "--config", str(config), "--positives", str(words), "newest", "--json", str(output)]
    cli.main(command)
    lines = capsys.readouterr().out.splitlines()
    assert lines[2] == "pass  merges        20 merges, the same when trained again"
    assert "pass  positives     3 of 3 words are one token" in lines
    found = json.loads(output.read_text())
    assert found["passed"] is True
    assert found["checks"][2] == {
        "name": "merges",
        "status": "pass",
        "figure": "20 merges, the same when trained again",
        "values": {"merges": 20},
    }
    edit(copy, wrong_ids_of_bytes)
    with pytest.raises(SystemExit) as ended:
        cli.main(command)
    assert ended.value.code == 1
    assert "fail  ranks         id 97 is b'b'; by the order of the merges it must be b'a'" in capsys.readouterr().out
    assert json.loads(output.read_text())["passed"] is False


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "give --config FILE, or all of --tokenizer, --against and --corpus"),
        (["--tokenizer", "x"], "give --config FILE, or all of --tokenizer, --against and --corpus"),
        (["--config", "x", "--against", "hf"], "--config names the tokenizer and the corpus; leave out --tokenizer"),
    ],
)
def test_missing_arguments_are_named(capsys: pytest.CaptureFixture[str], options: list[str], message: str) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", *options])
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_a_tokenizer_that_was_never_trained_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "project.yaml"
    config.write_text(yaml.safe_dump(project(tmp_path).model_dump(mode="json", exclude_unset=True)))
    with pytest.raises(SystemExit) as ended:
        cli.main(["verify", "--config", str(config)])
    assert ended.value.code == 2
    assert "tokenizer.json: no such file" in capsys.readouterr().err


def test_a_reference_that_is_not_a_tokenizer_is_named(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="pip install tokenizers, or tokenmill[dev]")
    (tmp_path / "tokenizer.json").write_text("{}")
    reference = str(tmp_path / "tokenizer.json")
    with pytest.raises(ValueError, match=r"tokenizer\.json: the library tokenizers .* cannot read it: "):
        compare_ids(Tokenizer.train(["hug"], num_merges=1), "hf", Corpus(sample="known-answers"), reference)


def test_a_tokenizer_without_merges_is_compared_with_the_library(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers", reason="pip install tokenmill[hf]")
    content = make_word_level_content()
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    given = {"corpus": {"sample": "known-answers"}, "shards": {"output": "out", "tokenizer": str(tmp_path)}}
    checks = {check.name: check for check in check_tokenizer(Project.model_validate(given))}
    assert {name: check.status for name, check in checks.items()} == dict.fromkeys(
        ("loads", "decoding", "hugging face"), "pass"
    )
    assert "of kind library" in checks["loads"].summary
