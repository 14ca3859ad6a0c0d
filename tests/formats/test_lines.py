r"""Lines end with `\n` and with no other character, in every file that the product reads or writes.

`str.splitlines` and `str.split` also split at the characters below, which tokens, words and texts may contain.
"""

import ast
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from corpus_files import read_documents, write_bytes

from bpe_core import Tokenizer
from bpe_core.encoding.model import NotExpressibleError
from bpe_core.export import export_tokenizer
from bpe_core.formats.lines import split_lines
from bpe_core.formats.tiktoken import write_tiktoken
from bpe_core.formats.vocab_and_merges import write_vocab_and_merges
from bpe_core.merging.alphabet import Placement
from pipelines import cli
from pipelines.commands import verify
from pipelines.report.make_report import _take_start

ROOT = Path(__file__).parent.parent.parent

SEPARATORS = [
    *("\t", "\v", "\f", "\r", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0", "\u1680", "\u200b"),
    *("\u2028", "\u2029", "\u202f", "\u3000", "\ufeff"),
]
"""Characters that some programs take for the end of a line or for white space."""

each_separator = pytest.mark.parametrize("separator", SEPARATORS, ids=[f"U+{ord(one):04X}" for one in SEPARATORS])


def test_no_module_calls_splitlines() -> None:
    calls = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("bpe_core", "pipelines")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Attribute) and node.attr == "splitlines"
    ]
    assert calls == [], r"splits at more than \n; use bpe_core.formats.lines.split_lines"


@each_separator
def test_lines_end_with_a_line_feed_only(separator: str) -> None:
    text = f"a{separator}b\n\n{separator}c\nd\r\ne"
    assert split_lines(text) == [f"a{separator}b", "", f"{separator}c", "d", "e"]
    assert split_lines(f"{text}\n") == split_lines(text)
    assert split_lines("") == []


def codes_with(symbol: str) -> str:
    return f"#version: 0.2\na {symbol}\na{symbol} b</w>\n"


@each_separator
def test_codes_are_read_as_subword_nmt_reads_them(separator: str, tmp_path: Path) -> None:
    apply_bpe = pytest.importorskip("subword_nmt.apply_bpe", reason="pip install subword-nmt, or tokenmill[dev]")
    path = write_bytes(tmp_path / "codes.txt", codes_with(separator).encode())
    with path.open(encoding="utf-8", newline="\n") as codes:
        if separator == "\r":  # Dropped at the end of a line, so that a symbol is missing.
            with pytest.raises(SystemExit):
                apply_bpe.BPE(codes)
            with pytest.raises(ValueError, match="merge 1 is 'a '; a merge is two symbols"):
                Tokenizer.from_subword_nmt(codes_with(separator))
            return
        peer = apply_bpe.BPE(codes)
    model = Tokenizer.from_subword_nmt(codes_with(separator), special_tokens={"unk": "<unk>"}).model
    symbols = [token.decode().replace("\xff", "</w>") if b"\xff" not in token else "" for token in model.tokens]
    assert len(model.merges) == len(peer.bpe_codes) == 2
    assert f"a{separator}" in symbols


@each_separator
def test_exported_codes_are_read_by_subword_nmt(separator: str, tmp_path: Path) -> None:
    apply_bpe = pytest.importorskip("subword_nmt.apply_bpe", reason="pip install subword-nmt, or tokenmill[dev]")
    text = f"a{separator}b {separator}b a{separator} a{separator}b"
    trained = Tokenizer.train([text], kind="char", num_merges=8, special_tokens={"unk": "<unk>"})
    (path,) = export_tokenizer(trained, tmp_path, "subword-nmt")
    with path.open(encoding="utf-8", newline="\n") as codes:
        peer = apply_bpe.BPE(codes, separator="")
    assert len(peer.bpe_codes) == len(trained.merges) > 0
    for word in trained.pre_tokenizer.split(text):
        ours = [token.removesuffix("</w>") for token in trained.tokenize(word)]
        assert [part for part in ours if part] == peer.segment(word).split(" "), word


@pytest.mark.parametrize("symbol", ["\r", " ", "\n", "x\ny"])
def test_codes_that_subword_nmt_would_read_differently_are_refused(symbol: str) -> None:
    tokenizer = Tokenizer.from_subword_nmt("a b</w>\n", special_tokens={"unk": "<unk>"})
    content = json.loads(tokenizer.files()["tokenizer.json"])
    text = json.dumps(content).replace('"a', f'"{json.dumps(symbol)[1:-1]}')
    with pytest.raises((NotExpressibleError, ValueError)):
        export_tokenizer(Tokenizer.from_json(text), "/nonexistent", "subword-nmt")


@pytest.mark.parametrize("placement", ["glued", "apart"])
def test_codes_without_merges_are_refused_as_subword_nmt_refuses_them(placement: Placement, tmp_path: Path) -> None:
    apply_bpe = pytest.importorskip("subword_nmt.apply_bpe", reason="pip install subword-nmt, or tokenmill[dev]")
    for codes in ("", "#version: 0.2\n", "#version: 0.1", "#version: 0.2\n\n"):
        with pytest.raises(SystemExit):
            apply_bpe.BPE(io.StringIO(codes))
    trained = Tokenizer.train(
        ["ab"], kind="char", num_merges=0, special_tokens={"unk": "<unk>"}, end_of_word_placement=placement
    )
    with pytest.raises(NotExpressibleError, match="subword-nmt refuses codes without merges, and this tokenizer has"):
        export_tokenizer(trained, tmp_path, "subword-nmt")
    assert not list(tmp_path.iterdir())


@each_separator
def test_merges_and_vocab_keep_every_character(separator: str, tmp_path: Path) -> None:
    text = f"a{separator}b"
    trained = Tokenizer.train([text] * 3, vocab_size=258, special_tokens={"eos": f"<{separator}>"})
    for format in ("vocab-and-merges", "hugging-face", "tiktoken"):
        export_tokenizer(trained, tmp_path, format)
    vocab, merges, ranks = (
        (tmp_path / name).read_bytes().decode() for name in ("vocab.json", "merges.txt", "tokenizer.tiktoken")
    )
    special = {"eos": f"<{separator}>"}
    for end in ("\n", "\r\n"):
        read = Tokenizer.from_vocab_and_merges(vocab, merges.replace("\n", end), special_tokens=special)
        assert read.encode(text) == trained.encode(text)
        ids = {f"<{separator}>": trained.special_tokens[f"<{separator}>"]}
        read = Tokenizer.from_tiktoken(ranks.replace("\n", end), pattern="gpt2", special_tokens=ids)
        assert read.encode(text) == trained.encode(text)
    assert Tokenizer.load(tmp_path).encode(text) == trained.encode(text)


@each_separator
def test_a_separator_inside_a_line_of_a_tokenizer_file_is_refused(separator: str) -> None:
    if separator == "\r":
        return  # Dropped at the end of a line.
    trained = Tokenizer.train(["hug"], vocab_size=257)
    ranks = write_tiktoken(trained.model)
    with pytest.raises(ValueError, match="line 1 is "):
        Tokenizer.from_tiktoken(ranks.replace("\n", f"{separator}\n", 1), pattern="gpt2")
    vocab, _ = write_vocab_and_merges(trained.model)
    with pytest.raises(ValueError, match="merge 0 "):
        Tokenizer.from_vocab_and_merges(vocab, f"#version: 0.2\nu{separator}g\n")


@each_separator
def test_lists_of_words_are_read_line_by_line(separator: str, tmp_path: Path) -> None:
    words = [f"a{separator}b", "c", "d"]
    path = write_bytes(tmp_path / "words.txt", f"{words[0]}\n\nc\r\nd".encode())
    assert verify._read_words([str(path), f"e{separator}f"]) == [*words, f"e{separator}f"]


@each_separator
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl"])
def test_lines_of_a_corpus_keep_every_character(separator: str, name: str, tmp_path: Path) -> None:
    texts = [f"a{separator}b", f"{separator}c", "d"]
    is_json = name.endswith("jsonl")
    lines = [json.dumps({"text": text}, ensure_ascii=False) if is_json else text for text in texts]
    path = write_bytes(tmp_path / name, "".join(f"{line}\n" for line in lines).encode())
    assert read_documents(path, text_document="line").texts == texts


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., bytes]:
    Tokenizer.train(["hug"], vocab_size=257).save(tmp_path / "tok")

    def run_command(command: str, content: bytes) -> bytes:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="ascii"))
        cli.main([command, "--tokenizer", str(tmp_path / "tok")])
        sys.stdout.flush()
        return capfdbinary.readouterr().out

    return run_command


@each_separator
def test_the_command_line_reads_and_writes_lines(separator: str, run: Callable[..., bytes]) -> None:
    lines = [f"a{separator}b", f"{separator}hug{separator}", "c"]
    content = "".join(f"{line}\n" for line in lines).encode()
    ids = run("encode", content)
    assert ids.count(b"\n") == 3
    assert run("decode", ids) == content
    assert run("inspect", content).count(b"\n") >= 9


@each_separator
def test_ids_are_separated_by_spaces(separator: str, run: Callable[..., bytes]) -> None:
    if separator in "\t\r":
        assert run("decode", f"97{separator}98\n".encode()) == b"ab\n"
        return
    with pytest.raises(SystemExit, match="2"):
        run("decode", f"97{separator}98\n".encode())


@each_separator
def test_samples_of_the_report_are_cut_at_line_feeds(separator: str) -> None:
    text = f"a{separator}b\n" * 20
    assert _take_start(text) == text[: len(_take_start(text))]
    assert _take_start(text).count("\n") == _take_start(text).count(separator)
