"""The command line: what it prints, what it writes, and how it ends."""

import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from bpe_core import Tokenizer
from pipelines import cli
from pipelines.reading.formats.known_answers import known_answer_documents
from pipelines.running.outcome import Outcome
from pipelines.sweeping import sweep
from pipelines.tokenizing import tokenize_corpus
from pipelines.tokenizing.plan import Changes
from pipelines.tokenizing.tokenize_corpus import TokenizingResult
from pipelines.training import train_tokenizer

ROOT = Path(__file__).parent.parent

# Runs in one process and without progress bars.
QUIET = ("--run.workers", "1", "--run.progress", "false")


@pytest.fixture(autouse=True)
def no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("TOKENMILL_") or name in ("FORCE_COLOR", "TTY_COMPATIBLE"):
            monkeypatch.delenv(name)


def exit_code(*argv: str) -> Any:
    """Runs a command that must fail; returns its exit code."""
    with pytest.raises(SystemExit) as ended:
        cli.main(argv)
    return ended.value.code


def given_input(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))


def byte_tokenizer(tmp_path: Path) -> str:
    """A tokenizer of kind byte with two merges: u+g is 256, h+ug is 257."""
    Tokenizer.train(["hug pug hug"], vocab_size=258).save(tmp_path / "bytes")
    return str(tmp_path / "bytes")


def char_tokenizer(tmp_path: Path) -> str:
    Tokenizer.train(["i love cats and dogs"], kind="char", num_merges=0, special_tokens={"unk": "<unk>"}).save(
        tmp_path / "characters"
    )
    return str(tmp_path / "characters")


def project_file(tmp_path: Path, **sections: Any) -> str:
    """Writes a project in `tmp_path` with a small corpus of one JSON file; returns the path of the YAML file."""
    (tmp_path / "corpus.jsonl").write_text('{"text": "low lower lowest"}\n{"text": "new newer newest"}\n')
    content = {
        "corpus": {"files": str(tmp_path / "corpus.jsonl")},
        "tokenizer": {"kind": "byte", "vocab_size": 262, "special_tokens": {"eos": "<end>"}},
        "train": {"output": str(tmp_path / "tokenizer")},
        "shards": {"output": str(tmp_path / "shards"), "bucket_lengths": [16, 32]},
        **sections,
    }
    path = tmp_path / "project.yaml"
    path.write_text(yaml.safe_dump(content))
    return str(path)


def test_versions_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("--version") == 0
    lines = capsys.readouterr().out.splitlines()
    assert f"tokenmill {version('tokenmill')}" in lines
    assert "unicode 16.0.0" in lines


def test_train_and_tokenize_the_quickstart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    content = (ROOT / "configs" / "quickstart.yaml").read_text(encoding="utf-8")
    config = tmp_path / "quickstart.yaml"
    config.write_text(content.replace("build/", f"{tmp_path}/"), encoding="utf-8")
    cli.main(["train", "--config", str(config), *QUIET])
    tokenizer = Tokenizer.load(tmp_path / "quickstart" / "tokenizer")
    assert len(tokenizer.merges) == 200
    assert tokenizer.special_tokens == {"<pad>": 0, "<unk>": 1, "<s>": 2, "</s>": 3}
    cli.main(["tokenize", "--config", str(config), *QUIET])
    shards = tmp_path / "quickstart" / "shards"
    assert (shards / "_SUCCESS").exists()
    tables = [pq.read_table(path, partitioning=None) for path in sorted(shards.glob("bucket=*/*.parquet"))]
    rows = [row for table in tables for row in table.to_pylist()]
    rows.sort(key=lambda row: (row["source_row"], row["source_part"]))
    texts: dict[int, list[int]] = {}
    languages: dict[int, str] = {}
    for row in rows:
        texts.setdefault(row["source_row"], []).extend(row["input_ids"][: row["length"]])
        languages[row["source_row"]] = row["lang"]
    assert [(languages[row], tokenizer.decode(ids)) for row, ids in texts.items()] == [
        (language, f"{text} </s>") for language, text in known_answer_documents()
    ]
    assert capsys.readouterr().out == ""
    assert exit_code("tokenize", "--config", str(config), *QUIET) == 3
    assert "nothing to do" in capsys.readouterr().err


def test_train_from_word_counts_does_not_read_the_corpus(tmp_path: Path) -> None:
    counts = tmp_path / "counts"
    counts.mkdir()
    pq.write_table(pa.table({"word": [b"hug", b"pug", b"hugs"], "count": [10, 5, 5]}), counts / "a.parquet")
    path = project_file(tmp_path, corpus={"files": "/no/such/file"}, tokenizer={"num_merges": 2})
    cli.main(["train", "--config", path, "--from-counts", str(counts), *QUIET])
    assert Tokenizer.load(tmp_path / "tokenizer").merges.tolist() == [[117, 103, 256], [104, 256, 257]]
    assert exit_code("train", "--config", path, "--from-counts", str(tmp_path / "none"), *QUIET) == 2


def test_missing_word_counts_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, counts = project_file(tmp_path), str(tmp_path / "none")
    assert exit_code("train", "--config", path, "--from-counts", counts, *QUIET) == 2
    assert (
        f"tokenmill: {counts}: no word counts found (*.parquet with the columns word and count)"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize("job", ["train", "tokenize", "sweep"])
def test_settings_override_the_file_and_flags_after_two_dashes_go_to_beam(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    seen: list[tuple[Any, Sequence[str]]] = []
    done = TokenizingResult(Outcome.DONE, 0, 0, Changes(), {"counts": {}})
    module, name = {
        "train": (train_tokenizer, "run_training"),
        "tokenize": (tokenize_corpus, "run_tokenizing"),
        "sweep": (sweep, "run_sweep"),
    }[job]

    def run(settings: Any, beam_args: Sequence[str], run_id: str | None = None) -> TokenizingResult:
        seen.append((settings, beam_args))
        return done

    monkeypatch.setattr(module, name, run)
    path = project_file(tmp_path, sweep={"output": str(tmp_path / "sweep"), "num_merges": [1]})
    overrides = ["--corpus.text_column", "body", "--run.workers=3"]
    cli.main([job, "--config", path, *overrides, "--", "--runner=SparkRunner", "--", "--x", "1"])
    cli.main([job, *overrides, "--config", path])
    [(settings, beam_args), (again, nothing)] = seen
    run_settings = settings.training.run if job == "sweep" else settings.run
    assert (settings.corpus.text_column, run_settings.workers) == ("body", 3)
    assert again == settings
    assert (beam_args, nothing) == (["--runner=SparkRunner", "--", "--x", "1"], [])


def test_settings_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("train", "--config", project_file(tmp_path), "--settings") == 0
    shown = capsys.readouterr().out
    for name in ("corpus.files", "tokenizer.vocab_size", "train.output", "shards.bucket_lengths", "run.workers"):
        assert f"--{name}" in shown
    assert "base symbols, merges and special tokens together" in " ".join(shown.split())
    assert not (tmp_path / "tokenizer").exists()


def test_encode_and_decode_words_of_the_command_line(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    folder = byte_tokenizer(tmp_path)
    cli.main(["encode", "--tokenizer", folder, "hug", "hugs"])
    assert capfdbinary.readouterr().out == b"257 32 257 115\n"
    cli.main(["decode", "--tokenizer", f"{folder}/tokenizer.json", "257", "32", "257", "115"])
    assert capfdbinary.readouterr().out == b"hug hugs\n"
    cli.main(["encode", "--tokenizer", folder, "--", "--hug", "-1"])
    assert capfdbinary.readouterr().out == b"45 45 257 32 45 49\n"


def test_standard_input_comes_back_line_for_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    folder = byte_tokenizer(tmp_path)
    text = " hug\t你好\r\n\n\0\x1c\u2028\u0085𝄞é\n  \n end".encode()
    given_input(monkeypatch, text)
    cli.main(["encode", "--tokenizer", folder])
    ids = capfdbinary.readouterr().out
    assert ids.count(b"\n") == 5
    given_input(monkeypatch, ids)
    cli.main(["decode", "--tokenizer", folder])
    assert capfdbinary.readouterr().out == text + b"\n"


def test_input_that_is_not_utf8_is_repaired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    folder = byte_tokenizer(tmp_path)
    given_input(monkeypatch, b"a\xffb\nhug\n")
    cli.main(["encode", "--tokenizer", folder])
    ids = capfdbinary.readouterr().out
    assert ids == b"97 239 191 189 98\n257\n"
    given_input(monkeypatch, ids)
    cli.main(["decode", "--tokenizer", folder])
    assert capfdbinary.readouterr().out == "a\ufffdb\nhug\n".encode()


def test_ids_that_split_a_character_are_written_as_their_bytes(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    cli.main(["decode", "--tokenizer", byte_tokenizer(tmp_path), "228 189"])
    assert capfdbinary.readouterr().out == b"\xe4\xbd\n"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (
            "12 seven",
            "'seven' in '12 seven' is not an id; write whole numbers separated by spaces",
        ),
        ("1.5", "'1.5' in '1.5' is not an id"),
        ("1_0", "'1_0' in '1_0' is not an id"),
        ("258", "the id 258 is not in this vocabulary, whose ids are 0 to 257"),
        ("-1", "the id -1 is not in this vocabulary"),
        ("9" * 5000, f"{'9' * 60!r} in {'9' * 60!r} is not an id"),
    ],
)
def test_a_word_that_is_not_an_id_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    folder = byte_tokenizer(tmp_path)
    given_input(monkeypatch, line.encode() + b"\n")
    assert exit_code("decode", "--tokenizer", folder) == 2
    assert capsys.readouterr().err.startswith(f"tokenmill: {message}")


def test_a_character_without_an_id_is_refused_if_there_is_no_unk_token(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Tokenizer.train(["ab"], kind="char", num_merges=0).save(tmp_path)
    assert exit_code("encode", "--tokenizer", str(tmp_path), "aé") == 2
    assert "tokenmill: the character 'é' (U+00E9) is not in the vocabulary" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["encode", "decode", "inspect"])
def test_a_missing_tokenizer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert exit_code(command, "--tokenizer", str(tmp_path), "1") == 2
    assert capsys.readouterr().err.startswith(
        f"tokenmill: {tmp_path}/tokenizer.json: no such file; train the tokenizer first (tokenmill train), or name "
        "another. A folder may also have tekken.json, tokenizer.model, vocab.txt, vocab.json with merges.txt, "
    )


def test_inspect_shows_characters_words_and_tokens(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["inspect", "--tokenizer", char_tokenizer(tmp_path), "i love cats and i love dogs"])
    tokens, ids, counts = capsys.readouterr().out.splitlines()
    marked = "i love cats and i love dogs ".replace(" ", "_")
    assert tokens == "".join("</w>|" if c == "_" else f"{c}|" for c in marked)
    assert len(ids.split()) == 28
    assert counts == "characters 27 (21 without spaces)   words 7 (5 different)   tokens 28 (13 different)"


def test_inspect_shows_each_line_of_its_input(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    given_input(monkeypatch, b"hug\n\na\xff\n")
    cli.main(["inspect", "--tokenizer", byte_tokenizer(tmp_path)])
    assert capsys.readouterr().out.splitlines() == [
        *("hug|", "257", "characters 3 (3 without spaces)   words 1 (1 different)   tokens 1 (1 different)"),
        *("", "", "characters 0 (0 without spaces)   words 0 (0 different)   tokens 0 (0 different)"),
        *(r"a|\xef|\xbf|\xbd|", "97 239 191 189"),
        "characters 2 (2 without spaces)   words 2 (2 different)   tokens 4 (4 different)",
    ]


def test_inspect_keeps_a_text_on_one_line_and_hides_no_character(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "a\nb\tc\rd\x1b[31m\x00[bold]\x07"
    cli.main(["inspect", "--tokenizer", byte_tokenizer(tmp_path), text])
    shown = capsys.readouterr().out
    assert shown.split("\n")[0] == r"a|⏎|b|⇥|c|\r|d|\x1b|[|3|1|m|\x00|[|b|o|l|d|]|\x07|"
    assert shown.count("\n") == 3
    cli.main(["inspect", "--tokenizer", byte_tokenizer(tmp_path), "hug " * 200])
    assert capsys.readouterr().out.count("\n") == 3


def test_the_known_answers_are_printed_or_written_as_parquet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    languages, texts = map(list, zip(*known_answer_documents(), strict=True))
    cli.main(["corpus", "known-answers"])
    assert capsys.readouterr().out == "".join(f"{text}\n" for text in texts)
    path = tmp_path / "new folder" / "known.parquet"
    cli.main(["corpus", "known-answers", "--output", str(path)])
    assert capsys.readouterr().out == ""
    assert pq.read_table(path).to_pydict() == {"lang": languages, "text": texts}


def test_a_reader_that_ends_early_ends_the_command_silently() -> None:
    command = [sys.executable, "-m", "pipelines.cli", "corpus", "known-answers"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "the following arguments are required: command"),
        (["learn"], "invalid choice: 'learn' (choose from 'train', 'tokenize', 'sweep', 'report', 'corpus', "),
        (["train"], "the following arguments are required: --config"),
        (["encode"], "the following arguments are required: --tokenizer"),
        (["corpus", "none"], "invalid choice: 'none' (choose from 'known-answers')"),
        (["corpus", "known-answers", "--nope"], "unrecognized arguments: --nope"),
        (["encode", "--tokenizer", "x", "--run.workers", "1"], "unrecognized arguments: --run.workers"),
    ],
)
def test_wrong_commands_are_refused(capsys: pytest.CaptureFixture[str], argv: list[str], message: str) -> None:
    assert exit_code(*argv) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("job", ["train", "tokenize"])
def test_wrong_settings_are_named_with_a_remedy(tmp_path: Path, capsys: pytest.CaptureFixture[str], job: str) -> None:
    path = project_file(tmp_path, run={"workerz": 1})
    assert exit_code(job, "--config", path) == 2
    assert capsys.readouterr().err == (
        f"tokenmill: {path}: 1 setting to correct\n  run.workerz: no such setting; did you mean workers?\n"
    )
    assert exit_code(job, "--config", project_file(tmp_path), "--run.workers", "many") == 2
    assert "run.workers: Input should be a valid integer" in capsys.readouterr().err
    assert exit_code(job, "--config", project_file(tmp_path), "--run.workerz", "1") == 2
    refused = capsys.readouterr().err
    assert refused == (
        "tokenmill: the command line: 1 setting to correct\n  run.workerz: no such setting; did you mean workers?\n"
    )


def test_a_missing_section_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("train", "--config", project_file(tmp_path, train=None), *QUIET) == 2
    assert "the section 'train' is missing; training needs tokenizer: and train:" in capsys.readouterr().err


def test_a_config_file_that_is_missing_or_not_yaml_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "p.yaml"
    assert exit_code("train", "--config", str(path)) == 2
    assert capsys.readouterr().err == f"tokenmill: {path}: no such file\n"
    for content, message in [
        (b"corpus: [a", "is not YAML: while parsing a flow sequence"),
        (b"\xff", "is not UTF-8 text: 'utf-8' codec can't decode byte 0xff in position 0"),
        (b"", "contains no settings; start from one of the files in configs/"),
        (b"- a", "contains no settings; start from one of the files in configs/"),
    ]:
        path.write_bytes(content)
        assert exit_code("train", "--config", str(path)) == 2
        assert capsys.readouterr().err.startswith(f"tokenmill: {path} {message}")


def test_a_missing_corpus_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = project_file(tmp_path, corpus={"files": str(tmp_path / "*.parquet")})
    assert exit_code("train", "--config", path, *QUIET) == 2
    assert f"tokenmill: corpus.files: nothing matches '{tmp_path}/*.parquet'; give" in capsys.readouterr().err


def test_an_output_of_other_settings_is_replaced_only_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = project_file(tmp_path)
    cli.main(["train", "--config", path, *QUIET])
    before = (tmp_path / "tokenizer" / "tokenizer.json").read_bytes()
    assert exit_code("train", "--config", path, *QUIET, "--tokenizer.vocab_size", "260") == 2
    said = capsys.readouterr().err
    assert "settings.tokenizer.vocab_size: 262 before, 260 now" in said
    assert "--run.overwrite true" in said
    assert (tmp_path / "tokenizer" / "tokenizer.json").read_bytes() == before
    cli.main(["train", "--config", path, *QUIET, "--tokenizer.vocab_size", "260", "--run.overwrite", "true"])
    assert Tokenizer.load(tmp_path / "tokenizer").vocab_size == 260


@pytest.mark.parametrize("job", ["train", "tokenize"])
def test_an_error_in_a_worker_is_printed_with_its_file_and_row_and_no_traceback(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture, job: str
) -> None:
    offsets = b"".join(at.to_bytes(4, "little") for at in (0, 2, 4, 6))
    texts = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"ab\xff\xfecd")])
    pq.write_table(pa.table({"text": texts}), tmp_path / "bad.parquet")
    Tokenizer.train(["ab"], vocab_size=258, special_tokens={"eos": "<end>"}).save(tmp_path / "given")
    path = project_file(
        tmp_path,
        corpus={"files": str(tmp_path / "bad.parquet")},
        shards={"output": str(tmp_path / "shards"), "tokenizer": str(tmp_path / "given")},
    )
    assert exit_code(job, "--config", path, *QUIET) == 2
    said = capsys.readouterr()
    assert said.out == ""
    lines = [line for line in said.err.splitlines(keepends=True) if not line.startswith("note: shards.tokenizer names")]
    assert "".join(lines) == (
        f"tokenmill: {tmp_path}/bad.parquet, row 1: the text is not UTF-8 (invalid start byte at byte 0: "
        r"b'\xff\xfe'). Set corpus.on_invalid_utf8 to replace, skip or quarantine" + "\n"
    )
    # Beam's log also goes to the terminal, unless pytest captures it.
    assert "Traceback" not in caplog.text


def test_export_writes_what_the_format_can_hold(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    cli.main(["export", "--tokenizer", tokenizer, "--format", "vocab-and-merges", "--output", str(tmp_path / "out")])
    assert capsys.readouterr().out.split() == [str(tmp_path / "out" / name) for name in ("vocab.json", "merges.txt")]
    assert (tmp_path / "out" / "merges.txt").read_text() == "#version: 0.2\nu g\nh ug\n"
    options = ["--tokenizer", tokenizer, "--format", "subword-nmt", "--output", str(tmp_path / "codes")]
    assert exit_code("export", *options) == 2
    assert "subword-nmt codes are of kind char" in capsys.readouterr().err
    assert not (tmp_path / "codes").exists()


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["verify", "--config", "p", "--pattern", "gpt2"], "--pattern gpt2 has no effect here; it needs --tokenizer"),
        (["verify", "--config", "p", "--unicode", "NFC"], "--unicode NFC has no effect here; it needs --tokenizer"),
        (["verify", "--config", "p", "--reference", "x"], "--reference x has no effect here; it needs --against"),
        (["verify", "--config", "p", "--text-column", "x"], "--text-column x has no effect here; it needs --against"),
        (["verify", "--against", "hf", "--json", "x"], "--json x has no effect here; it needs --config"),
        (["verify", "--against", "hf", "--positives", "x"], "--positives ['x'] has no effect here; it needs --config"),
        (["verify", "--against", "tiktoken", "--reference", "x"], "--reference x has no effect here; it needs --aga"),
        (["verify", "shards", "--shards", "x", "--pattern", "gpt2"], "--pattern gpt2 has no effect here; it needs --"),
        (["verify", "shards", "--config", "x", "--unicode", "NFC"], "--unicode NFC has no effect here; it needs --t"),
        (["audit", "--tokenizer", "x", "--format", "text"], "--format text has no effect here; it needs --corpus"),
    ],
)
def test_an_option_without_effect_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    if argv[1] == "--against":
        argv = [*argv, "--tokenizer", tokenizer, "--corpus", "x"]
    argv = [tokenizer if argv[0] == "audit" and arg == "x" else arg for arg in argv]
    assert exit_code(*argv) == 2
    assert message in capsys.readouterr().err


def test_the_normalization_of_a_tiktoken_file_is_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["export", "--tokenizer", byte_tokenizer(tmp_path), "--format", "tiktoken", "--output", str(tmp_path)])
    capsys.readouterr()
    given = ["--tokenizer", str(tmp_path / "tokenizer.tiktoken"), "--pattern", "gpt2"]
    printed = []
    for unicode in ("none", "NFC"):
        cli.main(["encode", *given, "--unicode", unicode, "e\u0301"])
        printed.append(capsys.readouterr().out)
    assert printed == ["101 204 129\n", "195 169\n"]


def test_cut_writes_a_tokenizer_with_the_first_merges(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tokenizer = byte_tokenizer(tmp_path)
    cli.main(["cut", "--tokenizer", tokenizer, "--merges", "1", "--output", str(tmp_path / "cut")])
    cut = Tokenizer.load(tmp_path / "cut")
    assert cut.tokens(cut.encode("hug")) == [b"h", b"ug"]
    assert capsys.readouterr().out == f"{tmp_path / 'cut'}: 1 merges, {cut.vocab_size} ids\n"
    options = ["--tokenizer", tokenizer, "--merges", "9", "--output", str(tmp_path / "none")]
    assert exit_code("cut", *options) == 2
    assert "num_merges is 9; this tokenizer has 2" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize("library", ["hf", "tiktoken"])
def test_verify_compares_every_document(tmp_path: Path, capsys: pytest.CaptureFixture[str], library: str) -> None:
    pytest.importorskip("tokenizers" if library == "hf" else library, reason="pip install tokenmill[dev]")
    pq.write_table(pa.table({"text": ["hug pug", "<|endoftext|> 的", ""]}), tmp_path / "a.parquet")
    options = ["verify", "--tokenizer", byte_tokenizer(tmp_path), "--against", library]
    cli.main([*options, "--corpus", str(tmp_path / "a.parquet")])
    assert capsys.readouterr().out == "3 documents, 21 ids, 0 documents with different ids\n"


def test_verify_shows_the_first_difference(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("tokenizers", reason="pip install tokenmill[dev]")
    pq.write_table(pa.table({"text": ["xyz", "say hug"]}), tmp_path / "a.parquet")
    Tokenizer.train(["hu hu"], vocab_size=257).save(tmp_path / "other")
    reference = ["--reference", str(tmp_path / "other" / "tokenizer.json"), "--corpus", str(tmp_path / "a.parquet")]
    assert exit_code("verify", "--tokenizer", byte_tokenizer(tmp_path), "--against", "hf", *reference) == 1
    printed = capsys.readouterr().out
    assert "2 documents, 8 ids, 1 documents with different ids" in printed
    assert "row 1: the first difference is at id 4, about character 4" in printed
    assert "ours         [257] [b'hug']" in printed
    assert "theirs       [256, 103]" in printed
    assert "code points  U+0068 U+0075 U+0067" in printed


WAIT_SECONDS = 120


def processes_of(group: int) -> list[str]:
    """The command lines of the processes of a group that have not ended."""
    listed = subprocess.run(["ps", "-e", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True).stdout
    lines = [line.split(maxsplit=2) for line in listed.splitlines()]
    return [line[2] for line in lines if int(line[0]) == group and not line[1].startswith("Z")]


def wait_for(what: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_job_that_is_stopped_leaves_no_process_and_says_what_to_do(number: signal.Signals, tmp_path: Path) -> None:
    command = ["-m", "pipelines.cli", "train", "--config", project_file(tmp_path), "--run.workers", "2"]
    with subprocess.Popen([sys.executable, *command], stderr=subprocess.PIPE, cwd=ROOT, start_new_session=True) as job:
        wait_for(lambda: any("pipelines.running.worker" in process for process in processes_of(job.pid)))
        job.send_signal(number)
        _, said = job.communicate(timeout=WAIT_SECONDS)
    assert job.returncode == -number
    wait_for(lambda: not processes_of(job.pid))
    assert b"Traceback" not in said
    assert (b"tokenmill: interrupted; the same command resumes the work" in said) == (number == signal.SIGINT)
    assert not (tmp_path / "tokenizer" / "_manifest.json").exists()


@pytest.mark.parametrize("command", ["encode", "decode", "inspect"])
def test_a_closed_standard_input_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert exit_code(command, "--tokenizer", byte_tokenizer(tmp_path)) == Outcome.BAD_INPUT
    assert "no text was given and standard input is closed" in capsys.readouterr().err


@pytest.mark.slow
def test_text_and_output_are_the_same_bytes_in_every_locale(tmp_path: Path) -> None:
    folder = byte_tokenizer(tmp_path)
    for locale in ({"LC_ALL": "C.UTF-8"}, {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}):

        def said(*argv: str, locale: dict[str, str] = locale) -> bytes:
            run = [sys.executable, "-m", "pipelines.cli", *argv]
            return subprocess.run(run, cwd=ROOT, env={**os.environ, **locale}, capture_output=True, check=True).stdout

        assert said("encode", "--tokenizer", folder, "\u00e9") == b"195 169\n"
        assert said("corpus", "known-answers").decode().splitlines()[0] == next(known_answer_documents())[1]


def test_a_missing_or_damaged_tokenizer_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, message in (
        (None, "no such file; train the tokenizer first (tokenmill train), or name another"),
        (b"\xff", "is not UTF-8 text: "),
        (b'{"version', "this is not JSON: "),
    ):
        if content is not None:
            (tmp_path / "tokenizer.json").write_bytes(content)
        assert exit_code("encode", "--tokenizer", str(tmp_path), "a") == Outcome.BAD_INPUT
        said = capsys.readouterr().err
        assert said.startswith(f"tokenmill: {tmp_path}/tokenizer.json")
        assert message in said


def test_the_number_of_tokens_to_show_is_not_negative(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code("audit", "--tokenizer", byte_tokenizer(tmp_path), "--show", "-1") == Outcome.BAD_INPUT
    assert "--show is -1; give 0 or more" in capsys.readouterr().err


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_disk_is_reported_with_a_remedy() -> None:
    with open("/dev/full", "wb") as full:
        run = [sys.executable, "-m", "pipelines.cli", "corpus", "known-answers"]
        ended = subprocess.run(run, cwd=ROOT, stdout=full, stderr=subprocess.PIPE)
    assert ended.returncode == Outcome.FAILED
    assert b"No space left on device; free some space and run the same command again\n" in ended.stderr


def test_counts_by_id_that_are_not_an_array_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.npy").write_bytes(b"x")
    given = ("--id-counts", str(tmp_path / "x.npy"))
    assert exit_code("audit", "--tokenizer", byte_tokenizer(tmp_path), *given) == Outcome.BAD_INPUT
    assert f"{tmp_path}/x.npy is not an array of numbers as NumPy saves it; write it again" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["train", "tokenize", "sweep", "report", "verify"])
def test_a_corpus_with_a_name_that_is_not_utf8_is_bad_input(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / os.fsdecode(b"a\xff.txt")).write_text("hug")
    config = tmp_path / os.fsdecode(b"p\xff.yaml")
    sections = {
        "corpus": {"files": str(tmp_path / "in")},
        "tokenizer": {"vocab_size": 257},
        "train": {"output": str(tmp_path / "train")},
        "shards": {"output": str(tmp_path / "shards"), "tokenizer": byte_tokenizer(tmp_path), "end_token": False},
        "sweep": {"output": str(tmp_path / "sweep"), "num_merges": [1]},
        "report": {"output": str(tmp_path / "report"), "tokenizer": byte_tokenizer(tmp_path)},
        "run": {"metrics": str(tmp_path / "run.prom")},
    }
    if command == "verify":
        del sections["train"]
    config.write_text(yaml.safe_dump(sections))
    options = [] if command == "verify" else ["--log-json", *QUIET]
    if command == "verify":
        with pytest.raises(SystemExit):
            cli.main([command, "--config", str(config), *options])
    else:
        assert exit_code(command, "--config", str(config), *options) == Outcome.BAD_INPUT
    shown = "".join(capsys.readouterr())
    assert "whose name is not UTF-8" in shown
