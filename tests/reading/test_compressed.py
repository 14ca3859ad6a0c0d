"""Compressed files: all that their tools write is read, limits are not called damage, and no content is lost."""

import bz2
import contextlib
import gzip
import random
import struct
import zlib
from pathlib import Path

import pytest
import zstandard
from corpus_files import COMPRESS, read_documents, write_bytes

from pipelines.errors import BadInputError
from pipelines.reading.source_files import find_files
from pipelines.settings.corpus import Corpus

SUFFIXES = [".gz", ".zst", ".bz2"]
SKIPPABLE_FRAME = struct.pack("<II", 0x184D2A53, 5) + b"\x28\xb5\x2f\xfd!"


def compress_long(content: bytes, window_log: int) -> bytes:
    """Compresses as `zstd --long=WINDOW_LOG` does with a pipe, whose length it does not know."""
    parameters = zstandard.ZstdCompressionParameters(window_log=window_log, enable_ldm=True)
    compressor = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return compressor.compress(content) + compressor.flush()


@pytest.mark.parametrize("window_log", [27, 28, 31])
def test_zstd_with_a_long_window_is_read(tmp_path: Path, window_log: int) -> None:
    content = b"first\n" + b"x" * 300_000 + b"\nlast"
    compressed = zstandard.compress(b"zero\n") + compress_long(content, window_log)
    assert zstandard.get_frame_parameters(compress_long(content, window_log)).window_size == 1 << window_log
    path = write_bytes(tmp_path / "a.txt.zst", compressed)
    assert read_documents(path, text_document="line").texts == ["zero", "first", "x" * 300_000, "last"]


def make_zstd_with_window(window_log: int) -> bytes:
    """Returns a frame whose header asks for a window, with one empty block."""
    return b"\x28\xb5\x2f\xfd\x00" + bytes([(window_log - 10) << 3]) + b"\x01\x00\x00"


def make_zstd_with_dictionary() -> bytes:
    dictionary = zstandard.train_dictionary(1000, [b"some text %d" % n * 3 for n in range(1000)])
    return zstandard.ZstdCompressor(dict_data=dictionary).compress(b"some text 5")


@pytest.mark.parametrize(
    ("compressed", "message"),
    [
        (make_zstd_with_window(32), r"a zstd frame needs a window of more than 2 GiB.*--long=31"),
        (make_zstd_with_dictionary(), r"a zstd frame was compressed with a dictionary.*without a dictionary"),
    ],
    ids=["window", "dictionary"],
)
@pytest.mark.parametrize("text_document", ["line", "file"])
def test_a_limit_of_the_zstd_reader_is_not_called_damage(
    tmp_path: Path, compressed: bytes, message: str, text_document: str
) -> None:
    content = zstandard.compress(b"first\nsecond\n") + compressed
    path = write_bytes(tmp_path / "a.txt.zst", content)
    with pytest.raises(BadInputError, match=rf"a\.txt\.zst: {message}") as caught:
        read_documents(path, text_document=text_document)
    assert "damaged" not in str(caught.value)
    documents = read_documents(path, text_document=text_document, on_unreadable="quarantine")
    assert documents.texts == (["first", "second"] if text_document == "line" else [])
    assert documents.counts["quarantined_unreadable"] == 1


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("padding", [1, 3, 512, 100_000])
def test_zeros_between_and_after_members_are_padding(tmp_path: Path, suffix: str, padding: int) -> None:
    zeros = bytes(padding)
    members = [COMPRESS[suffix](part) for part in (b"one\ntw", b"", b"o\nthree\n")]
    path = write_bytes(tmp_path / f"a.txt{suffix}", zeros.join(members) + zeros)
    assert read_documents(path, text_document="line").texts == ["one", "two", "three"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("num_members", [1, 3, 1000])
def test_empty_members_have_no_content(tmp_path: Path, suffix: str, num_members: int) -> None:
    path = write_bytes(tmp_path / f"a.txt{suffix}", COMPRESS[suffix](b"") * num_members)
    assert read_documents(path, text_document="line").texts == []
    assert read_documents(path).texts == [""]


def test_skippable_zstd_frames_are_skipped(tmp_path: Path) -> None:
    frames = [
        SKIPPABLE_FRAME,
        zstandard.compress(b"one\n"),
        SKIPPABLE_FRAME,
        zstandard.compress(b"two"),
        SKIPPABLE_FRAME,
    ]
    path = write_bytes(tmp_path / "a.txt.zst", b"".join(frames))
    assert read_documents(path, text_document="line").texts == ["one", "two"]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("garbage", [b"garbage, not a member", b"\0\0garbage", b"\0" * 70_000 + b"x"])
def test_bytes_after_the_last_member_are_damage_and_the_lines_before_are_kept(
    tmp_path: Path, suffix: str, garbage: bytes
) -> None:
    path = write_bytes(tmp_path / f"a.txt{suffix}", COMPRESS[suffix](b"one\ntwo\n") + garbage)
    with pytest.raises(BadInputError, match=r"the file is damaged or truncated after 2 complete lines: "):
        read_documents(path, text_document="line")
    documents = read_documents(path, text_document="line", on_unreadable="quarantine")
    assert documents.texts == ["one", "two"]
    assert documents.counts["quarantined_unreadable"] == 1


@pytest.mark.parametrize(("offset", "what"), [(-8, "checksum"), (-1, "length")])
def test_a_wrong_checksum_or_length_of_gzip_is_damage(tmp_path: Path, offset: int, what: str) -> None:
    content = bytearray(gzip.compress(b"one\ntwo\n"))
    content[offset] ^= 1
    path = write_bytes(tmp_path / "a.txt.gz", bytes(content))
    with pytest.raises(
        BadInputError, match=r"the file is damaged or truncated after 2 complete lines: .*any line of it may be wrong"
    ):
        read_documents(path, text_document="line")


def test_a_zlib_stream_is_read_as_gzip(tmp_path: Path) -> None:
    assert read_documents(write_bytes(tmp_path / "a.txt.gz", zlib.compress(b"one"))).texts == ["one"]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_members_that_end_anywhere_in_the_blocks_of_the_reader_are_read(tmp_path: Path, suffix: str) -> None:
    chance = random.Random(11)
    sizes = [0, 1, (1 << 16) - 1, 1 << 16, (1 << 16) + 1, 1 << 20, (1 << 20) + 1, *chance.choices(range(200_000), k=9)]
    parts = [chance.randbytes(size).hex()[:size].encode() for size in sizes] + [b"z" * (5 << 20)]
    path = write_bytes(tmp_path / f"a.txt{suffix}", b"".join(COMPRESS[suffix](part) for part in parts))
    assert read_documents(path).texts == [b"".join(parts).decode()]


@pytest.mark.parametrize("suffix", [".zst", ".bz2"])
def test_everything_before_damaged_bytes_is_kept(tmp_path: Path, suffix: str) -> None:
    """The lines before the damage are those that a decoder gives that is fed byte by byte."""
    chance = random.Random(5)
    lines = [chance.randbytes(chance.randrange(1, 4000)).hex() for _ in range(600)]
    content = bytearray(COMPRESS[suffix]("".join(line + "\n" for line in lines).encode()))
    middle = len(content) * 3 // 4
    content[middle : middle + 64] = bytes(64)
    decoder = zstandard.ZstdDecompressor().decompressobj() if suffix == ".zst" else bz2.BZ2Decompressor()
    expected = []
    with contextlib.suppress(OSError, zstandard.ZstdError):
        for at in range(len(content)):
            expected.append(decoder.decompress(bytes(content[at : at + 1])))
    path = write_bytes(tmp_path / f"a.txt{suffix}", bytes(content))
    documents = read_documents(path, text_document="line", on_unreadable="quarantine")
    complete = b"".join(expected).count(b"\n")
    assert 200 < complete < 600
    assert documents.texts == lines[:complete]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("name", ["a.txt", "a.jsonl", "a.jsonl.gz"])
@pytest.mark.parametrize("policy", ["fail", "replace", "skip", "quarantine"])
def test_a_file_in_another_encoding_of_unicode_is_named(tmp_path: Path, encoding: str, name: str, policy: str) -> None:
    content = '{"text": "hello"}\n{"text": "world"}\n'.encode(encoding)
    path = write_bytes(tmp_path / name, COMPRESS[".gz" if name.endswith(".gz") else ""](content))
    message = rf"{name}: the text is encoded as UTF-(16|32), not as UTF-8.*Convert it to UTF-8"
    with pytest.raises(BadInputError, match=message):
        read_documents(path, on_invalid_utf8=policy)
    documents = read_documents(path, on_invalid_utf8=policy, on_unreadable="quarantine")
    assert documents.texts == []
    assert documents.counts["quarantined_unreadable"] == 1


def test_text_with_some_zero_bytes_is_not_taken_for_another_encoding(tmp_path: Path) -> None:
    for text in ("a\0b\0", "\0" * 40, "a\0b\0c\0d\0e\0f\0g\0h\0i\0j\0k\0l\0m\0n\0o\0p\0qq"):
        assert read_documents(write_bytes(tmp_path / "a.txt", text.encode())).texts == [text]
    assert len(find_files(Corpus(files=(str(tmp_path),)))) == 1
