"""Local files: globs mean what they mean to Beam, and a file that is written is complete and on the disk."""

import os
import re
from pathlib import Path

import pytest
from apache_beam.io.filesystem import FileSystem
from apache_beam.io.filesystems import FileSystems
from hypothesis import given
from hypothesis import strategies as st

from pipelines.storage import files
from pipelines.storage.local_files import compile_glob

NAMES = ["a.txt", "b/a.txt", "b/c/a.txt", "b/[x].txt", "_hidden/a.txt", "e.json"]


@pytest.mark.filterwarnings("ignore:Possible:FutureWarning")  # Beam does not escape `[` in a set.
@given(st.text("ab/\\.*?[]!^-", max_size=8), st.text("ab/\\.*?[]!^-\n", max_size=8))
def test_a_glob_matches_what_it_matches_for_beam(pattern: str, path: str) -> None:
    try:
        expected = re.compile(FileSystem.translate_pattern(pattern)).match(path)
    except re.error:
        with pytest.raises(ValueError, match="is not a valid glob"):
            compile_glob("", pattern)
        return
    assert bool(compile_glob("", pattern).match(path)) == bool(expected)


@pytest.mark.parametrize(
    "pattern", ["*.txt", "*", "**", "b/*.txt", "b/**", "*/a.txt", "b/", "?.txt", "[a-d].txt", "b/c/a.txt", "none", "b*"]
)
@pytest.mark.parametrize("is_relative", [False, True])
def test_files_are_found_as_beam_finds_them(
    pattern: str, is_relative: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    given = pattern if is_relative else f"{tmp_path}/{pattern}"
    # Beam finds no files for a glob that starts in the working folder, so files are found from `./`.
    to_beam = f"./{given}" if is_relative and re.match(r"[^/]*[*?\[]", given) else given
    expected = {m.path: m.size_in_bytes for m in FileSystems.match([to_beam])[0].metadata_list}
    assert files.match(given) == sorted(expected.items())


def test_two_stars_between_slashes_also_match_one_slash(tmp_path: Path) -> None:
    for name in NAMES:
        files.write_text(f"{tmp_path}/{name}", name)
    found = [file.path.removeprefix(f"{tmp_path}/") for file in files.match(f"{tmp_path}/b/**/*.txt")]
    assert found == ["b/[x].txt", "b/a.txt", "b/c/a.txt"]


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def record_fsync(descriptor: int) -> None:
        steps.append(f"fsync {Path(os.readlink(f'/proc/self/fd/{descriptor}')).name.partition('-')[2] or 'folder'}")
        fsync(descriptor)

    def record_replace(source: str, target: str) -> None:
        steps.append(f"rename {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", record_fsync)
    monkeypatch.setattr(os, "replace", record_replace)
    files.write_text(f"{tmp_path}/a.json", "new")
    assert steps == ["fsync a.json", "rename a.json", "fsync folder"]
    assert (tmp_path / "a.json").read_text() == "new"
    assert not list((tmp_path / "_temporary").iterdir())


def test_a_file_that_is_replaced_is_seen_whole(tmp_path: Path) -> None:
    files.write_text(f"{tmp_path}/out/a", "old")
    with files.open_raw(f"{tmp_path}/out/a") as before:
        files.write_bytes(f"{tmp_path}/out/a", b"new")
        assert before.read() == b"old"
    assert files.read_text(f"{tmp_path}/out/a") == "new"


def test_files_and_folders_are_deleted_and_what_does_not_exist_is_passed_over(tmp_path: Path) -> None:
    for name in NAMES:
        files.write_text(f"{tmp_path}/{name}", name)
    files.delete(f"{tmp_path}/b", f"{tmp_path}/never", f"{tmp_path}/e.json")
    files.delete_files(f"{tmp_path}/_hidden", "*")
    files.delete(f"{tmp_path}/_temporary")
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["_hidden", "a.txt"]
    files.delete_empty(f"{tmp_path}/_hidden/_temporary", f"{tmp_path}/_hidden", f"{tmp_path}")
    assert files.exists(f"{tmp_path}/a.txt")
    assert not files.exists(f"{tmp_path}/_hidden")


def test_a_missing_file_and_a_text_that_is_not_utf8_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.txt: no such file"):
        files.read_text(f"{tmp_path}/none.txt")
    (tmp_path / "bad.txt").write_bytes(b"\xff")
    with pytest.raises(ValueError, match=r"bad\.txt is not UTF-8 text"):
        files.read_text(f"{tmp_path}/bad.txt")
