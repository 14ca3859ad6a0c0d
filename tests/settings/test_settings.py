"""Settings: where they come from, which source wins, and the messages about wrong ones."""

import dataclasses
import os
import re
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from pydantic import ValidationError

from bpe_core import MergeSettings
from pipelines.settings.corpus import Corpus
from pipelines.settings.jobs import SweepJob, TokenizingJob, TrainingJob
from pipelines.settings.project import Project
from pipelines.settings.project_file import load_project
from pipelines.settings.report import Report
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.settings.sweep import Sweep
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train
from pipelines.storage.manifest import read_json, write_json

CONFIGS = Path(__file__).parents[2] / "configs"


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TOKENMILL_")]:
        monkeypatch.delenv(name)


def settings_file(tmp_path: Path, **sections: Any) -> str:
    path = tmp_path / "project.yaml"
    path.write_text(yaml.safe_dump({"corpus": {"files": "a.txt"}, **sections}))
    return str(path)


def complaint(tmp_path: Path, **sections: Any) -> str:
    """The message about a wrong settings file, without the line that names the file."""
    path = settings_file(tmp_path, **sections)
    with pytest.raises(ValueError, match="to correct") as caught:
        load_project(path)
    first, *lines = str(caught.value).split("\n")
    assert first == f"{path}: {len(lines)} setting{'s' * (len(lines) > 1)} to correct"
    return "\n".join(line.removeprefix("  ") for line in lines)


def test_sections_and_defaults(tmp_path: Path) -> None:
    project = load_project(settings_file(tmp_path, shards={"output": "out", "bucket_lengths": [4, 8]}))
    assert project.corpus == Corpus(files=("a.txt",))
    assert project.shards == Shards(output="out", bucket_lengths=(4, 8))
    assert (project.tokenizer, project.train, project.run) == (None, None, Run())


def test_one_file_may_be_written_without_a_list(tmp_path: Path) -> None:
    assert load_project(settings_file(tmp_path)).corpus.files == ("a.txt",)
    assert load_project(settings_file(tmp_path, corpus={"files": ["a", "b"]})).corpus.files == ("a", "b")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"tokeniser": {}}, "tokeniser: no such setting; did you mean tokenizer?"),
        (
            {"zzz": 1},
            "zzz: no such setting; the settings here are corpus, tokenizer, train, shards, sweep, report, run",
        ),
        (
            {"tokenizer": {"vocabsize": 300, "num_merges": 1}},
            "tokenizer.vocabsize: no such setting; did you mean vocab_size?",
        ),
        ({"shards": {"output": "o", "carries": ["x"]}}, "shards.carries: no such setting; did you mean carry?"),
        (
            {"run": {"zzz": 2}},
            "run.zzz: no such setting; the settings here are workers, overwrite, progress, lock_seconds, metrics",
        ),
    ],
)
def test_an_unknown_setting_is_refused_with_the_nearest_one(
    tmp_path: Path, sections: dict[str, Any], message: str
) -> None:
    assert complaint(tmp_path, **sections) == message


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"tokenizer": {"vocab_size": "many"}},
            "tokenizer.vocab_size: Input should be a valid integer, unable to parse string as an integer, got 'many'",
        ),
        ({"tokenizer": {"kind": "word"}}, "tokenizer.kind: Input should be 'byte' or 'char', got 'word'"),
        ({"corpus": None}, "corpus: Input should be a valid dictionary or instance of Corpus, got None"),
        (
            {"shards": {"output": "o", "carry": "lang"}},
            "shards.carry: should be a list, as [first, second], got 'lang'",
        ),
        (
            {"shards": {"output": "o", "bucket_lengths": [0, 8]}},
            "shards.bucket_lengths.0: Input should be greater than 0, got 0",
        ),
        (
            {"shards": {"output": "o", "compression_level": 30}},
            "shards.compression_level: Input should be less than or equal to 22, got 30",
        ),
    ],
)
def test_a_value_of_the_wrong_type_is_refused(tmp_path: Path, sections: dict[str, Any], message: str) -> None:
    assert complaint(tmp_path, **sections) == message


def test_all_wrong_settings_are_reported_at_once(tmp_path: Path) -> None:
    sections = {"run": {"workers": -1}, "shards": {"output": "o", "overlap": "x"}, "train": {}}
    assert complaint(tmp_path, **sections) == (
        "train.output: missing; add it to the file or give --train.output\n"
        "shards.overlap: Input should be a valid integer, unable to parse string as an integer, got 'x'\n"
        "run.workers: Input should be greater than or equal to 0, got -1"
    )


def test_a_missing_section_or_setting_is_named(tmp_path: Path) -> None:
    missing = "shards.output: missing; add it to the file or give --shards.output"
    assert complaint(tmp_path, shards={"labels": True}) == missing
    path = tmp_path / "project.yaml"
    path.write_text("tokenizer: {num_merges: 5}")
    with pytest.raises(
        ValueError, match=r"project\.yaml: 1 setting to correct\n  corpus: missing; add it to the file$"
    ):
        load_project(str(path))


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ({}, "corpus: files is [] and sample is None; give exactly one of the two"),
        (
            {"files": "a", "sample": "known-answers"},
            "corpus: files is ['a'] and sample is known-answers; give exactly one of the two",
        ),
    ],
)
def test_a_corpus_is_files_or_a_sample(tmp_path: Path, corpus: dict[str, Any], message: str) -> None:
    assert complaint(tmp_path, corpus=corpus) == message


ONE_SIZE = (
    "give exactly one of the two: vocab_size counts base symbols, merges and special tokens, "
    "num_merges counts merges only"
)


@pytest.mark.parametrize(
    ("tokenizer", "message"),
    [
        ({}, f"vocab_size is None and num_merges is None; {ONE_SIZE}"),
        ({"vocab_size": 300, "num_merges": 1}, f"vocab_size is 300 and num_merges is 1; {ONE_SIZE}"),
        (
            {"kind": "char", "num_merges": 1, "pattern": "gpt2"},
            "kind char splits text at white space, which its end-of-word marker replaces; the pattern 'gpt2' would "
            "lose text. Leave the pattern out or set it to whitespace, or use kind byte",
        ),
        (
            {"num_merges": 1, "limit_alphabet": 5},
            "limit_alphabet applies only to kind char, but kind is byte; remove one of the two",
        ),
        (
            {"num_merges": 1, "end_of_word": "</w>"},
            "end_of_word applies only to kind char, but kind is byte; remove one of the two",
        ),
        (
            {"num_merges": 1, "end_of_word_placement": "glued"},
            "end_of_word_placement applies only to kind char, but kind is byte; remove one of the two",
        ),
        (
            {"kind": "char", "num_merges": 1, "whole_characters": True},
            "whole_characters applies only to kind byte, but kind is char; remove one of the two",
        ),
        (
            {"kind": "char", "num_merges": 1, "vocab_order": "gpt2"},
            "vocab_order: gpt2 applies only to kind byte, but kind is char; remove one of the two",
        ),
        (
            {"vocab_size": 257, "special_tokens": {"eos": "<a>", "pad": "<b>", "unk": "<a>"}},
            "vocab_size is 257, but 256 bytes and 2 special tokens need 258",
        ),
        (
            {"num_merges": 1, "special_tokens": {"end": "</s>"}},
            "the special token role 'end' is unknown; roles are bos, eos, unk, pad, sep, cls, mask, additional",
        ),
        (
            {"num_merges": 1, "special_tokens": {"eos": ""}},
            "the special token with the role 'eos' is empty; give its spelling",
        ),
        (
            {"num_merges": 1, "pattern": "("},
            "pattern '(' is neither one of whitespace, gpt2, cl100k, llama3, o200k, kimi-k2, qwen2, deepseek-v3 nor a "
            "regular expression: missing ) at position 1",
        ),
    ],
)
def test_tokenizer_settings_that_contradict_each_other_are_refused(
    tmp_path: Path, tokenizer: dict[str, Any], message: str
) -> None:
    assert complaint(tmp_path, tokenizer=tokenizer) == f"tokenizer: {message}"


def test_merge_settings_are_tokenizer_settings_with_the_same_types_and_defaults() -> None:
    types = get_type_hints(MergeSettings)
    for field in dataclasses.fields(MergeSettings):
        ours = TokenizerSettings.model_fields[field.name]
        assert (ours.annotation, ours.default) == (types[field.name], field.default), field.name


def test_merge_settings_carry_every_value() -> None:
    values: dict[str, Any] = {
        "num_merges": 9,
        "kind": "char",
        "ties": "first-seen",
        "min_frequency": 2,
        "max_token_length": 3,
        "limit_alphabet": 4,
        "end_of_word": "_",
        "end_of_word_placement": "glued",
    }
    assert TokenizerSettings(**values).merge_settings == MergeSettings(**values)


def test_the_smallest_vocabulary_has_bytes_and_special_tokens(tmp_path: Path) -> None:
    tokenizer = {"vocab_size": 258, "special_tokens": {"eos": "<a>", "additional": ["<a>", "<b>"]}}
    loaded = load_project(settings_file(tmp_path, tokenizer=tokenizer)).tokenizer
    assert loaded == TokenizerSettings(vocab_size=258, special_tokens={"eos": "<a>", "additional": ["<a>", "<b>"]})


@pytest.mark.parametrize(
    ("shards", "message"),
    [
        ({"bucket_lengths": [8, 4]}, "bucket_lengths [8, 4] must be in rising order, without repetition"),
        ({"bucket_lengths": [4, 4]}, "bucket_lengths [4, 4] must be in rising order, without repetition"),
        (
            {"overlap": 2, "on_overflow": "truncate"},
            "overlap is 2, which applies only to on_overflow: split, not truncate",
        ),
        ({"overlap": 2, "on_overflow": "drop"}, "overlap is 2, which applies only to on_overflow: split, not drop"),
        (
            {"overlap": 8, "bucket_lengths": [4, 8]},
            "overlap is 8; it must be less than the longest row, 8",
        ),
        (
            {"carry": ["lang", "labels"]},
            "carry names 'labels', which the shards use for a column of their own; rename it first",
        ),
        (
            {"carry": ["bucket"]},
            "carry names 'bucket', which the shards use for a column of their own; rename it first",
        ),
    ],
)
def test_shard_settings_that_contradict_each_other_are_refused(
    tmp_path: Path, shards: dict[str, Any], message: str
) -> None:
    assert complaint(tmp_path, shards={"output": "o", **shards}) == f"shards: {message}"


def test_the_command_line_wins_over_the_environment_and_both_over_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def vocab_size(*overrides: str) -> int | None:
        return TrainingJob.of(load_project(path, overrides)).tokenizer.vocab_size

    path = settings_file(tmp_path, tokenizer={"vocab_size": 300}, train={"output": "o"})
    assert vocab_size() == 300
    assert vocab_size("--tokenizer.vocab_size", "500") == 500
    monkeypatch.setenv("TOKENMILL_TOKENIZER__VOCAB_SIZE", "400")
    assert vocab_size() == 400
    assert vocab_size("--tokenizer.vocab_size=500") == 500


def test_overrides_leave_the_rest_of_their_section_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = settings_file(tmp_path, shards={"output": "out", "labels": True, "bucket_lengths": [4, 8]})
    monkeypatch.setenv("TOKENMILL_SHARDS__OVERLAP", "2")
    overrides = ["--shards.end_token", "false", "--shards.carry", "id,lang", "--shards.bucket_lengths", "[16,32]"]
    assert load_project(path, overrides).shards == Shards(
        output="out", labels=True, overlap=2, end_token=False, carry=("id", "lang"), bucket_lengths=(16, 32)
    )


def test_the_command_line_gives_lists_and_sections_that_the_file_lacks(tmp_path: Path) -> None:
    overrides = ["--corpus.files", "b", "--corpus.files", "c", "--train.output", "out"]
    project = load_project(settings_file(tmp_path), overrides)
    assert project.corpus.files == ("b", "c")
    assert project.train == Train(output="out")


def test_overrides_are_checked_like_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = settings_file(tmp_path, tokenizer={"num_merges": 1})
    with pytest.raises(ValueError, match=r"tokenizer\.num_merges: Input should be a valid integer.*, got 'x'"):
        load_project(path, ["--tokenizer.num_merges=x"])
    with pytest.raises(ValueError, match="tokenizer: vocab_size is 300 and num_merges is 1; give exactly one"):
        load_project(path, ["--tokenizer.vocab_size=300"])
    monkeypatch.setenv("TOKENMILL_TOKENIZER__NUM_MERGE", "5")
    with pytest.raises(ValueError, match=r"tokenizer\.num_merge: no such setting; did you mean num_merges\?"):
        load_project(path)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("--tokenizer.num_merge=5", r"tokenizer\.num_merge: no such setting; did you mean num_merges\?"),
        ("--files=a", "files: no such setting; the settings here are corpus, tokenizer"),
        ("stray", "unrecognized arguments: stray"),
    ],
)
def test_an_unknown_argument_is_refused(tmp_path: Path, override: str, message: str) -> None:
    with pytest.raises(ValueError, match=rf"the command line: 1 setting to correct\n  .*{message}"):
        load_project(settings_file(tmp_path), [override])


@pytest.mark.parametrize("section", ["train", "shards", "sweep"])
def test_an_output_whose_name_is_a_glob_is_refused_where_beam_deletes_by_glob(tmp_path: Path, section: str) -> None:
    with pytest.raises(ValueError, match=rf"{section}\.output: 'gs://b/out\[1\]' contains one of \* \? \["):
        load_project(settings_file(tmp_path), [f"--{section}.output=gs://b/out[1]"])
    sizes = ["--sweep.num_merges=1"] if section == "sweep" else []
    for path in ("out[1]", "s3://b/out[1]"):
        project = load_project(settings_file(tmp_path), [f"--{section}.output={path}", *sizes])
        assert project.outputs[f"{section}.output"] == path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"corpus: [a", r"project\.yaml is not YAML: while parsing a flow sequence"),
        (
            b"corpus: {files: \xff}",
            r"project\.yaml is not UTF-8 text: 'utf-8' codec can't decode byte 0xff in position 16",
        ),
        (b"", r"project\.yaml contains no settings; start from one of the files in configs/"),
        (b"# nothing but this\n", r"project\.yaml contains no settings"),
        (b"- corpus", r"project\.yaml contains no settings"),
        (b"corpus", r"project\.yaml contains no settings"),
        (b"1: 2", r"project\.yaml: 1 setting to correct\n  1: no such setting; the settings here are corpus, "),
    ],
)
def test_a_file_without_settings_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "project.yaml"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        load_project(str(path))


def test_a_missing_settings_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no\.yaml: no such file"):
        load_project(str(tmp_path / "no.yaml"))


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    sections = {"tokenizer": {"num_merges": 1}, "train": {"output": "o"}, "shards": {"output": "o"}}
    project = load_project(settings_file(tmp_path, **sections))
    for section, name in (
        (project, "run"),
        (project.corpus, "text_column"),
        (project.tokenizer, "num_merges"),
        (project.train, "min_count"),
        (project.shards, "labels"),
        (project.run, "workers"),
    ):
        with pytest.raises(ValidationError, match="Instance is frozen"):
            setattr(section, name, 1)


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_files_in_configs_are_complete_projects(path: Path) -> None:
    project = load_project(str(path))
    training = TrainingJob.of(project)
    assert training.tokenizer == project.tokenizer
    assert training.output == f"build/{path.stem}/tokenizer"
    assert TokenizingJob.of(project).output == f"build/{path.stem}/shards"
    sweep = SweepJob.of(project)
    assert sweep.output == f"build/{path.stem}/sweep"
    assert sweep.training.output == f"build/{path.stem}/sweep/tokenizer"


def test_training_needs_a_tokenizer_and_a_folder_for_it(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the section 'tokenizer' is missing; training needs tokenizer: and train:"):
        TrainingJob.of(load_project(settings_file(tmp_path, train={"output": "o"})))
    with pytest.raises(ValueError, match="the section 'train' is missing; training needs tokenizer: and train:"):
        TrainingJob.of(load_project(settings_file(tmp_path, tokenizer={"num_merges": 1})))
    project = load_project(settings_file(tmp_path, tokenizer={"num_merges": 1}, train={"output": "o"}))
    job = TrainingJob.of(project)
    assert (job.tokenizer, job.train) == (TokenizerSettings(num_merges=1), Train(output="o"))


def test_tokenizing_needs_a_folder_and_a_tokenizer_which_may_be_the_one_that_is_trained(tmp_path: Path) -> None:
    def shards_of(**sections: Any) -> Shards:
        return TokenizingJob.of(load_project(settings_file(tmp_path, **sections))).shards

    with pytest.raises(ValueError, match=r"the section 'shards' is missing; tokenizing needs at least shards\.output"):
        shards_of(train={"output": "trained"})
    with pytest.raises(ValueError, match=r"shards\.tokenizer is missing: name a tokenizer's folder or file"):
        shards_of(shards={"output": "o"})
    assert shards_of(shards={"output": "o"}, train={"output": "trained"}).tokenizer == "trained"
    shards = {"output": "o", "tokenizer": "given"}
    assert shards_of(shards=shards, train={"output": "trained"}).tokenizer == "given"


@pytest.mark.parametrize(
    ("sweep", "message"),
    [
        ({}, "vocab_sizes is [] and num_merges is []; give exactly one"),
        ({"vocab_sizes": [300], "num_merges": [1]}, "vocab_sizes is [300] and num_merges is [1]; give exactly one"),
        ({"vocab_sizes": [400, 300]}, "the sizes [400, 300] must be in rising order, without repetition"),
        ({"num_merges": [3, 3]}, "the sizes [3, 3] must be in rising order, without repetition"),
        ({"num_merges": [3], "positives": ["a", "b", "a"]}, "positives names 'a' twice"),
        ({"num_merges": [3], "negatives": ["a", "a"]}, "negatives names 'a' twice"),
        (
            {"num_merges": [3], "positives": ["a", "b"], "negatives": ["b"]},
            "'b' is in both positives and negatives; remove it from one of them",
        ),
        (
            {"num_merges": [3], "reference_language": "en"},
            "reference_language is 'en', but language_column is missing; name the column",
        ),
    ],
)
def test_sweep_settings_that_contradict_each_other_are_refused(
    tmp_path: Path, sweep: dict[str, Any], message: str
) -> None:
    assert complaint(tmp_path, sweep={"output": "o", **sweep}) == f"sweep: {message}"


def test_sweeping_trains_the_largest_size_in_its_own_folder(tmp_path: Path) -> None:
    def sweep_job(**sections: Any) -> SweepJob:
        return SweepJob.of(load_project(settings_file(tmp_path, **sections)))

    tokenizer = {"num_merges": 5, "special_tokens": {"eos": "<a>"}, "lowercase": True}
    job = sweep_job(
        tokenizer=tokenizer, train={"output": "t", "min_count": 7}, sweep={"output": "o", "vocab_sizes": [300, 400]}
    )
    assert job.sweep == Sweep(output="o", vocab_sizes=(300, 400))
    assert (job.training.tokenizer, job.training.train) == (
        TokenizerSettings(vocab_size=400, special_tokens={"eos": "<a>"}, lowercase=True),
        Train(output="o/tokenizer", min_count=7),
    )
    job = sweep_job(tokenizer={"vocab_size": 300}, sweep={"output": "o", "num_merges": [0, 9]})
    assert (job.training.tokenizer, job.training.train) == (
        TokenizerSettings(num_merges=9),
        Train(output="o/tokenizer"),
    )
    with pytest.raises(ValueError, match="the section 'sweep' is missing; a sweep needs tokenizer: and sweep:"):
        sweep_job(tokenizer=tokenizer)
    with pytest.raises(ValueError, match="the section 'tokenizer' is missing; a sweep needs tokenizer: and sweep:"):
        sweep_job(sweep={"output": "o", "num_merges": [1]})
    message = r"sweep\.vocab_sizes: vocab_size is 256, but 256 bytes and 1 special tokens need 257"
    with pytest.raises(ValueError, match=message):
        sweep_job(tokenizer=tokenizer, sweep={"output": "o", "vocab_sizes": [256, 400]})


def test_no_more_workers_than_asked_for() -> None:
    assert Run(workers=3).num_workers == 3
    assert Run().num_workers >= 1


def test_cores_are_counted_on_systems_without_cpu_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    # Neither macOS nor Windows has this function.
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: 3)
    assert Run().num_workers == 3
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert Run().num_workers == 1


@pytest.mark.parametrize(
    ("corpus", "message"),
    [
        ({"format": "text", "text_column": "body"}, "text_column is 'body', which has no effect with format: text"),
        ({"format": "jsonl", "text_document": "line"}, "text_document is 'line', which has no effect with format: js"),
        ({"format": "parquet", "text_document": "line"}, "text_document is 'line', which has no effect with format: p"),
        ({"weight_seed": 3}, "weight_seed is 3, which has no effect with a corpus without weights"),
        ({"format": "text", "on_null": "fail"}, "on_null is 'fail', which has no effect with format: text"),
        (
            {"format": "text", "on_wrong_type": "quarantine"},
            "on_wrong_type is 'quarantine', which has no effect with f",
        ),
        (
            {"format": "parquet", "on_bad_json": "quarantine"},
            "on_bad_json is 'quarantine', which has no effect with fo",
        ),
        (
            {"sample": "known-answers", "files": [], "on_invalid_utf8": "skip"},
            "on_invalid_utf8 is 'skip', which has no effect with sample: known-answers",
        ),
        (
            {"sample": "python-stdlib", "files": [], "on_bad_json": "quarantine"},
            "on_bad_json is 'quarantine', which has no effect with sample: python-stdlib",
        ),
        (
            {"max_bad_documents": 5},
            "max_bad_documents is 5, which has no effect, because no on_... of the corpus is quarantine",
        ),
        (
            {"max_bad_share": 0.5, "on_invalid_utf8": "skip"},
            "max_bad_share is 0.5, which has no effect, because no on_... of the corpus is quarantine",
        ),
        (
            {"files": [], "sample": "known-answers", "text_column": "x"},
            "text_column is 'x', which has no effect with sample: known-answers",
        ),
        (
            {"files": [], "sample": "python-stdlib", "format": "jsonl"},
            "format is 'jsonl', which has no effect with sample: python-stdlib",
        ),
        ({"files": [], "sample": "known-answers", "fingerprint": "sampled"}, "fingerprint is 'sampled', which has no"),
    ],
)
def test_corpus_settings_without_effect_are_refused(tmp_path: Path, corpus: dict[str, Any], message: str) -> None:
    assert complaint(tmp_path, corpus={"files": "a.txt", **corpus}).startswith(f"corpus: {message}")


def test_the_place_of_special_tokens_that_do_not_exist_is_refused(tmp_path: Path) -> None:
    said = complaint(tmp_path, tokenizer={"num_merges": 1, "special_ids": "first"})
    assert said == "tokenizer: special_ids is 'first', which has no effect without special_tokens; remove it"


def test_a_section_tokenizer_that_does_not_apply_to_the_shards_is_refused_or_noted(tmp_path: Path) -> None:
    def job(**sections: Any) -> TokenizingJob:
        return TokenizingJob.of(load_project(settings_file(tmp_path, **sections)))

    tokenizer = {"num_merges": 1, "unicode": "NFC"}
    shards = {"output": "o", "tokenizer": "qwen.tiktoken", "pattern": "qwen2"}
    with pytest.raises(
        ValueError, match=r"tokenizer.num_merges, tokenizer.unicode: no effect, because shards.tokenizer"
    ):
        job(tokenizer=tokenizer, shards=shards)
    (note,) = job(tokenizer=tokenizer, train={"output": "t"}, shards=shards).notes
    assert "so tokenizer.num_merges, tokenizer.unicode do not apply to the shards. If" in note
    assert "use shards.pattern, shards.unicode and shards.special_tokens" in note
    for own in ("t", "./t/", "t/tokenizer.json"):
        assert job(tokenizer=tokenizer, train={"output": "t"}, shards={"output": "o", "tokenizer": own}).notes == ()
    assert job(tokenizer=tokenizer, train={"output": "t"}, shards={"output": "o"}).notes == ()


def test_settings_without_effect_in_a_job_are_noted(tmp_path: Path) -> None:
    train = {"output": "t", "from_counts": "c", "num_partitions": 3}
    (note,) = TrainingJob.of(load_project(settings_file(tmp_path, tokenizer={"num_merges": 1}, train=train))).notes
    assert note.endswith("the corpus is not read, so corpus.* and train.num_partitions have no effect")
    shards = {"output": "o", "tokenizer": "t", "layout": "packed", "bucket_lengths": [8, 16]}
    (note,) = TokenizingJob.of(load_project(settings_file(tmp_path, shards=shards))).notes
    assert note.startswith("packed rows have one length: 16, the longest of shards.bucket_lengths [8, 16]")


def test_a_manifest_gives_back_every_setting(tmp_path: Path) -> None:
    settings = {"pattern": "[ 1 ]|[  2,  3  ]", "bucket_lengths": [4, -8], "empty": [], "carry": ["1", "\n[ 7 ]"]}
    write_json(str(tmp_path / "_manifest.json"), settings)
    assert read_json(str(tmp_path / "_manifest.json")) == settings
    assert '"bucket_lengths": [4, -8]' in (tmp_path / "_manifest.json").read_text()


def test_a_manifest_that_is_not_json_is_named_and_a_missing_one_is_none(tmp_path: Path) -> None:
    path = tmp_path / "_manifest.json"
    assert read_json(str(path)) is None
    path.write_text('{"a": ')
    with pytest.raises(
        ValueError, match=r"_manifest\.json is not JSON .*; delete this file and run the job that wrote it again"
    ):
        read_json(str(path))


def test_every_setting_has_a_description() -> None:
    for section in (Corpus, TokenizerSettings, Train, Shards, Sweep, Report, Run):
        assert [name for name, field in section.model_fields.items() if not field.description] == []
    assert list(Project.model_fields) == ["corpus", "tokenizer", "train", "shards", "sweep", "report", "run"]


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.yaml"
    path.write_text("corpus: {files: a, files: b}\n")
    with pytest.raises(
        ValueError, match=r"twice\.yaml is not YAML: the key 'files' is given twice\n.*line 1, column 20"
    ):
        load_project(str(path))


def test_a_column_carried_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "carry.yaml"
    path.write_text("corpus: {files: a}\nshards: {output: b, carry: [id, id]}\n")
    with pytest.raises(ValueError, match=r"shards: carry \['id', 'id'\] names a column twice"):
        load_project(str(path))


def test_outputs_must_differ(tmp_path: Path) -> None:
    shards = {"output": f"{tmp_path}/out/", "tokenizer": "x"}
    project = load_project(settings_file(tmp_path, train={"output": f"{tmp_path}/out"}, shards=shards))
    message = f"train.output and shards.output are both '{tmp_path}/out'; give each a folder of its own"
    for make_job in (TrainingJob.of, TokenizingJob.of):
        with pytest.raises(ValueError, match=re.escape(message)):
            make_job(project)


@pytest.mark.parametrize("lengths", [[0], [8, "a"]])
def test_one_wrong_item_is_reported_once(tmp_path: Path, lengths: list[Any]) -> None:
    said = complaint(tmp_path, shards={"output": "o", "bucket_lengths": lengths})
    assert said.startswith(f"shards.bucket_lengths.{len(lengths) - 1}: Input should be")
    assert "\n" not in said


def test_a_setting_that_should_be_a_list_is_asked_for_as_a_list(tmp_path: Path) -> None:
    said = complaint(tmp_path, shards={"output": "o", "carry": "lang"})
    assert said == "shards.carry: should be a list, as [first, second], got 'lang'"
    said = complaint(tmp_path, shards={"output": "o", "bucket_lengths": []})
    assert said.startswith("shards.bucket_lengths: Tuple should have at least 1 item")


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "TOKENMILL_SHARDS__BUCKET_LENGTHS",
            "4,8",
            "'4,8' is not JSON; write a list as [8, 16], with strings in double quotes",
        ),
        ("TOKENMILL_SHARD__LABELS", "true", "shard: no such setting; did you mean shards?"),
    ],
)
def test_a_wrong_variable_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    path = settings_file(tmp_path, shards={"output": "o"})
    monkeypatch.setenv(name, value)
    with pytest.raises(ValueError, match=re.escape(f"the environment: 1 setting to correct\n  {name}: {message}")):
        load_project(path)


@pytest.mark.parametrize("name", ["a,b", "[1]", "[f", "[1].x", "{a,b}?", " lead", "null", "a\\b", "two words"])
def test_a_path_on_the_command_line_that_exists_is_not_read_as_a_list(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).write_text("")
    (tmp_path / "other").write_text("")
    file = settings_file(tmp_path)
    assert load_project(file, [f"--corpus.files={name}"]).corpus.files == (name,)
    assert load_project(file, ["--corpus.files", name, "--corpus.files=other"]).corpus.files == (name, "other")


@pytest.mark.parametrize(
    "setting", ["corpus.files", "train.output", "train.from_counts", "shards.tokenizer", "run.metrics"]
)
def test_a_path_that_is_not_utf8_is_refused(setting: str, tmp_path: Path) -> None:
    path = os.fsdecode(b"a\xff")
    with pytest.raises(ValueError, match=rf"{setting}.*'a\\udcff'|{setting}.*unable to parse raw data"):
        load_project(settings_file(tmp_path), [f"--{setting}={path}"])
