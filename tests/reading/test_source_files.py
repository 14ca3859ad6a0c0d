"""Finding the source files of a corpus."""

import gzip
import os
from pathlib import Path

import pytest
from corpus_files import find_paths, read_documents, write_bytes, write_parquet

from pipelines.reading.source_files import find_files
from pipelines.settings.corpus import Corpus


def test_patterns_find_each_file_once_sorted_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("b.txt", "a.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"):
        write_bytes(tmp_path / name, b"")
    everything = ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"]
    assert find_paths(tmp_path, "a.txt") == ["a.txt"]
    assert find_paths(tmp_path, "*.txt") == ["a.txt", "b.txt"]
    assert find_paths(tmp_path, "?.txt") == ["a.txt", "b.txt"]
    assert find_paths(tmp_path, "[b-z].txt") == ["b.txt"]
    assert find_paths(tmp_path, "*/*.txt") == ["sub/c.txt"]
    assert find_paths(tmp_path, "**.txt") == ["a.txt", "b.txt", "sub/c.txt", "sub/deep/d.txt"]
    assert find_paths(tmp_path, "sub/**") == ["sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"]
    assert find_paths(tmp_path, ".") == find_paths(tmp_path, "") == everything
    assert find_paths(tmp_path, "sub", "b.txt") == ["b.txt", "sub/c.txt", "sub/deep/d.txt", "sub/e.jsonl"]
    assert find_paths(tmp_path, "b.txt", "*.txt", "sub/../b.txt", "a.txt") == ["a.txt", "b.txt"]
    monkeypatch.chdir(tmp_path)
    assert [source.path for source in find_files(Corpus(files=("a.txt", "./a.txt", "*.txt")))] == ["./b.txt", "a.txt"]


def test_a_folder_gives_its_data_files_and_skips_the_others(tmp_path: Path) -> None:
    data = ["a.txt", "b.jsonl.gz", "c.parquet", "sub/d.ndjson", "sub/more/e.txt.zst"]
    others = [".f.txt", "_g.txt", "_temporary/h.txt", "sub/.i/j.txt", "README", "k.md", "l.parquet.crc", "m.gz"]
    for name in [*data, *others]:
        write_bytes(tmp_path / ".root" / name, b"-")
    write_parquet(tmp_path / ".root" / "c.parquet", {"text": ["a"]})
    assert find_paths(tmp_path / ".root", "") == find_paths(tmp_path / ".root", "./") == data


def test_a_folder_gives_all_but_hidden_files_if_the_format_is_set(tmp_path: Path) -> None:
    for name in ("a.md", "README", "_b.md", ".c"):
        write_bytes(tmp_path / name, b"")
    assert find_paths(tmp_path, "", format="text") == ["README", "a.md"]


@pytest.mark.parametrize("pattern", ["no.txt", "*.txt", "folder", "empty"])
def test_a_pattern_that_matches_nothing_is_refused(tmp_path: Path, pattern: str) -> None:
    write_bytes(tmp_path / "a.jsonl", b"")
    write_bytes(tmp_path / "folder" / "a.md", b"")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        FileNotFoundError, match=rf"corpus\.files: nothing matches '.*/{pattern.replace('*', '.')}'; give"
    ):
        find_paths(tmp_path, "a.jsonl", pattern)


def test_a_file_of_unknown_type_is_refused(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a.md", b"text")
    with pytest.raises(ValueError, match=r"a\.md: unknown file type; set corpus\.format to"):
        find_paths(tmp_path, "*")
    assert read_documents(tmp_path / "a.md", format="text").texts == ["text"]


def test_the_format_that_is_set_wins_over_the_name(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "a.txt.gz", gzip.compress(b'{"text": "a"}'))
    assert read_documents(path, format="jsonl").texts == ["a"]


def test_the_fingerprint_depends_on_bytes_and_not_on_name_or_times(tmp_path: Path) -> None:
    def fingerprint(name: str, content: bytes, seconds: int = 0) -> str:
        path = write_bytes(tmp_path / name, content)
        os.utime(path, (seconds, seconds))
        return find_files(Corpus(files=(str(path),)))[0].fingerprint

    first = fingerprint("a.txt", b"some text")
    assert fingerprint("sub/b.jsonl", b"some text", 10**9) == first
    large = b"x" * 200_000
    prints = [first, *(fingerprint("a.txt", content) for content in (b"same text", b"", large, large + b"x"))]
    prints += [fingerprint("a.txt", b"y" + large[1:]), fingerprint("a.txt", large[1:] + b"y")]
    assert len(set(prints)) == 7


def test_two_stars_between_slashes_can_match_no_folder(tmp_path: Path) -> None:
    (tmp_path / "deep" / "deeper").mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt", "deep/deeper/c.TXT"):
        (tmp_path / name).write_text(name)
    found = [source.path for source in find_files(Corpus(files=(f"{tmp_path}/**/*.[tT][xX][tT]",)))]
    assert found == [f"{tmp_path}/a.txt", f"{tmp_path}/deep/b.txt", f"{tmp_path}/deep/deeper/c.TXT"]


def test_globs_skip_hidden_files_that_they_do_not_spell_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = tmp_path / "_root"
    for name in ("a.txt", ".b.txt", "_c.txt", "_d/e.txt", ".f/g.txt", "h/i.txt", "h/_j.txt", "h/.k/l.txt"):
        write_bytes(root / name, b"-")
    assert find_paths(root, "*.txt") == ["a.txt"]
    assert find_paths(root, "*") == ["a.txt"]
    assert find_paths(root, "**") == find_paths(root, "**/*.txt") == ["a.txt", "h/i.txt"]
    assert find_paths(root, "*/*.txt") == ["h/i.txt"]
    assert find_paths(root, "_*.txt") == ["_c.txt"]
    assert find_paths(root, "_d/*") == ["_d/e.txt"]
    assert find_paths(root, "*/.k/*") == ["h/.k/l.txt"]
    assert find_paths(root, "_c.txt", ".f") == [".f/g.txt", "_c.txt"]
    monkeypatch.chdir(root)
    assert [source.path for source in find_files(Corpus(files=("*.txt", "../_root/h/*")))] == [
        "../_root/h/i.txt",
        "./a.txt",
    ]


def test_files_and_folders_with_brackets_in_their_names_can_be_named(tmp_path: Path) -> None:
    for name in ("a[1].txt", "a(1].txt", "a1.txt", "b[2]/c.txt", "b(2]/d.txt", "b[2]/[e].txt", "[f.txt"):
        write_bytes(tmp_path / name, b"-")
    assert find_paths(tmp_path, "a[1].txt") == ["a[1].txt"]
    (tmp_path / "a[1].txt").unlink()
    assert find_paths(tmp_path, "a[1].txt") == ["a1.txt"]  # A glob, because no file has this name.
    assert find_paths(tmp_path, "b[2]") == find_paths(tmp_path, "b[2]/") == ["b[2]/[e].txt", "b[2]/c.txt"]
    assert find_paths(tmp_path, "[f.txt") == ["[f.txt"]
    assert read_documents(tmp_path / "b[2]" / "[e].txt").texts == ["-"]
    with pytest.raises(FileNotFoundError, match="nothing matches"):
        find_paths(tmp_path, "a[2].txt")


def test_the_case_of_a_suffix_does_not_matter(tmp_path: Path) -> None:
    assert read_documents(write_bytes(tmp_path / "A.JSONL.GZ", gzip.compress(b'{"text": "a"}'))).texts == ["a"]
    with pytest.raises(ValueError, match=r"B\.TXT\.BZ2: a compressed file of 0 bytes is truncated"):
        read_documents(write_bytes(tmp_path / "B.TXT.BZ2", b""))


def test_a_warning_names_files_of_unknown_type_in_a_folder(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("a.txt", "b.jsonl.xz", "sub/c.csv", ".d.csv", "_e.csv", "_SUCCESS"):
        write_bytes(tmp_path / name, b"x")
    assert find_paths(tmp_path, "") == ["a.txt"]
    assert caplog.messages == [f"{tmp_path}: skipped 2 files of unknown type, such as {tmp_path}/b.jsonl.xz"]
    caplog.clear()
    assert find_paths(tmp_path, "", format="text") == ["a.txt", "b.jsonl.xz", "sub/c.csv"]
    assert caplog.messages == []


@pytest.mark.parametrize("pattern", ["", "**.txt"])
def test_a_corpus_inside_an_output_is_refused(tmp_path: Path, pattern: str) -> None:
    write_bytes(tmp_path / "a.txt", b"a")
    corpus = Corpus(files=(f"{tmp_path}/{pattern}",))
    outputs = {"shards.output": f"{tmp_path}/out/"}
    write_bytes(tmp_path / "outer.txt", b"a")
    assert len(find_files(corpus, outputs)) == 2
    write_bytes(tmp_path / "out" / "b.txt", b"b")
    with pytest.raises(ValueError, match=r"corpus\.files: matches .*/out/b\.txt, which is in shards\.output \("):
        find_files(corpus, outputs)


def test_a_warning_names_links_that_are_not_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write_bytes(tmp_path / "in" / "a.txt", b"a")
    write_bytes(tmp_path / "other" / "b.txt", b"b")
    (tmp_path / "in" / "folder").symlink_to(tmp_path / "other")
    (tmp_path / "in" / "dead.txt").symlink_to("nowhere")
    (tmp_path / "in" / "file.txt").symlink_to(tmp_path / "other" / "b.txt")
    for pattern in ("in", "in/**.txt"):
        caplog.clear()
        assert find_paths(tmp_path, pattern) == ["in/a.txt", "in/file.txt"]
        assert sorted(caplog.messages) == [
            f"{tmp_path}/in/{name}: skipped, a symbolic link to {target}; add the target to corpus.files to read it"
            for name, target in (("dead.txt", "nowhere"), ("folder", tmp_path / "other"))
        ]
    caplog.clear()
    assert find_paths(tmp_path, "in/*.txt") == ["in/a.txt", "in/file.txt"]
    (tmp_path / "link").symlink_to(tmp_path / "other")
    assert find_paths(tmp_path, "link") == ["link/b.txt"]
    assert caplog.messages == []


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.txt")
    with pytest.raises(ValueError, match=r"a\.txt is a pipe or a device, which cannot be read twice"):
        find_paths(tmp_path, "a.txt")


BAD_NAME = os.fsdecode(b"a\xff[1].txt")
"""A name that is not UTF-8; Python gives it a lone surrogate."""


@pytest.mark.parametrize("pattern", ["in", "in/*", "in/**", "in/a*.txt", "*/*.txt", "in/b.txt,in"])
def test_a_file_whose_name_is_not_utf8_is_refused(pattern: str, tmp_path: Path) -> None:
    write_bytes(tmp_path / "in" / BAD_NAME, b"a")
    write_bytes(tmp_path / "in" / "b.txt", b"b")
    with pytest.raises(ValueError, match=r"corpus\.files: matches '.*/in/a\\udcff\[1\]\.txt', whose name is not UTF-8"):
        find_paths(tmp_path, *pattern.split(","))
    assert find_paths(tmp_path, "in/b*") == ["in/b.txt"]


def test_a_folder_whose_name_is_not_utf8_is_refused(tmp_path: Path) -> None:
    write_bytes(tmp_path / "in" / os.fsdecode(b"\xe9t\xe9") / "b.txt", b"b")
    with pytest.raises(ValueError, match=r"matches '.*/\\udce9t\\udce9/b\.txt', whose name is not UTF-8"):
        find_paths(tmp_path, "in")


def test_files_that_are_skipped_may_have_any_name(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in (BAD_NAME.replace("txt", "csv"), f".{BAD_NAME}", f"_{BAD_NAME}", "b.txt"):
        write_bytes(tmp_path / name, b"a")
    assert find_paths(tmp_path, "") == ["b.txt"]
    assert len(caplog.messages) == 1
