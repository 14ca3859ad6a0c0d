"""Reading text files, plain and compressed."""

import random
from pathlib import Path

import pytest
from corpus_files import COMPRESS, read_documents, write_bytes


def test_a_text_file_is_one_document_byte_for_byte(tmp_path: Path) -> None:
    text = "\ufeffa\r\nb\0c\n\n\u2028d\re\n"
    assert read_documents(write_bytes(tmp_path / "a.txt", text.encode())) == (
        [0],
        [text],
        {},
        {"documents": 1, "text_bytes": 18},
    )
    assert read_documents(write_bytes(tmp_path / "empty.txt", b"")) == ([0], [""], {}, {"documents": 1})


@pytest.mark.parametrize("suffix", COMPRESS)
def test_only_lf_and_crlf_end_a_line_of_text(tmp_path: Path, suffix: str) -> None:
    text = "\ufeffa\r\n\nb\x1cc\u0085d\u2028e\rf\x0bg\0\n\r\nend"
    path = write_bytes(tmp_path / f"a.txt{suffix}", COMPRESS[suffix](text.encode()))
    documents = read_documents(path, text_document="line")
    assert documents.texts == ["\ufeffa", "", "b\x1cc\u0085d\u2028e\rf\x0bg\0", "", "end"]
    assert documents.rows == [0, 1, 2, 3, 4]


def test_a_line_feed_at_the_end_of_a_text_starts_no_new_line(tmp_path: Path) -> None:
    assert read_documents(write_bytes(tmp_path / "a.txt", b"a\nb\n"), text_document="line").texts == ["a", "b"]
    assert read_documents(write_bytes(tmp_path / "b.txt", b""), text_document="line").texts == []


def test_invalid_utf8_in_text_names_its_line(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "a.txt", b"a\n\xff\nb")
    with pytest.raises(ValueError, match=r"a\.txt, row 1: the text is not UTF-8"):
        read_documents(path, text_document="line")
    assert read_documents(path, text_document="line", on_invalid_utf8="skip").rows == [0, 2]


def test_lines_longer_than_a_block_are_complete(tmp_path: Path) -> None:
    lines = ["x" * (3 << 20), "é" * (1 << 20), "", "y" * ((1 << 20) - 1)]
    path = write_bytes(tmp_path / "a.txt", "\r\n".join(lines).encode())
    assert read_documents(path, text_document="line").texts == lines


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2"])
def test_concatenated_compressed_files_are_read_to_their_end(tmp_path: Path, suffix: str) -> None:
    parts = [b"first\nsec", b"ond\n" + b"x" * (2 << 20), b"\nlast"]
    path = write_bytes(tmp_path / f"a.txt{suffix}", b"".join(COMPRESS[suffix](part) for part in parts))
    assert read_documents(path, text_document="line").texts == ["first", "second", "x" * (2 << 20), "last"]


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2"])
def test_a_truncated_compressed_file_is_named_wherever_it_ends(tmp_path: Path, suffix: str) -> None:
    random_text = random.Random(5).randbytes(3000).hex().encode()
    whole = COMPRESS[suffix](random_text)
    assert read_documents(write_bytes(tmp_path / f"whole.txt{suffix}", whole)).texts == [random_text.decode()]
    for end in (0, 1, 3, 9, 10, 30, len(whole) // 2, len(whole) - 8, len(whole) - 4, len(whole) - 1):
        path = write_bytes(tmp_path / f"cut.txt{suffix}", whole[:end])
        message = "the file is damaged or truncated: Truncated" if end else "a compressed file of 0 bytes is truncated"
        with pytest.raises(ValueError, match=rf"cut\.txt\{suffix}: {message}"):
            read_documents(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2"])
def test_a_file_that_is_not_compressed_despite_its_name_is_named(tmp_path: Path, suffix: str) -> None:
    path = write_bytes(tmp_path / f"a.jsonl{suffix}", b'{"text": "plain"}')
    with pytest.raises(
        ValueError, match=rf"a\.jsonl\{suffix}: the file is damaged or truncated after 0 complete lines"
    ):
        read_documents(path)


@pytest.mark.parametrize("suffix", [".gz", ".zst", ".bz2"])
def test_every_complete_line_of_a_truncated_compressed_file_is_kept(tmp_path: Path, suffix: str) -> None:
    chance = random.Random(5)
    lines = [chance.randbytes(chance.randrange(1, 9000)).hex() for _ in range(600)]
    content = COMPRESS[suffix]("".join(line + "\n" for line in lines).encode())
    path = write_bytes(tmp_path / f"a.txt{suffix}", content[:-30])
    documents = read_documents(path, text_document="line", on_unreadable="quarantine")
    num_kept = len(documents.texts)
    assert documents.texts == lines[:num_kept]
    assert num_kept > 300
    assert documents.counts["quarantined_unreadable"] == 1
    assert documents.counts["documents"] == num_kept + 1
    whole = write_bytes(tmp_path / f"b.txt{suffix}", content)
    assert read_documents(whole, text_document="line").texts == lines
