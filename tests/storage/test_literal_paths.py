"""The path of a file or folder that exists means that file or folder, even if its name looks like a glob."""

from collections.abc import Iterator
from pathlib import Path

import memory_files
import pytest

from pipelines.reading.source_files import find_files
from pipelines.settings.corpus import Corpus
from pipelines.storage import files
from pipelines.storage.lock import OutputLock, new_run_id
from pipelines.training.word_counts import find_word_counts

SIBLINGS = {
    "run[1]": "run1",
    "wh?t": "what",
    "st*r": "star",
    "**": "a",
    "[": "x",
    "]": "x",
    "[!a]b": "cb",
    "[a": "a",
    "[z-a]": "z",
    "two words": "two",
    " [1] ": " 1 ",
    "a#b": "a",
    "50%": "50",
    "%5B1%5D": "[1]",
    "-d[1]": "-d1",
    "dots[1]..": "dots1..",
    "{a,b}?": "{a,b}c",
    "~*": "~x",
    "new\nline?": "new\nlines",
    "ünï[ö]": "ünïö",
}
"""Name -> another name, which the first would match if it were a glob, and which must not be touched."""

# A path is given as: absolute, relative, with a dot first, with a needless slash, in a store without folders.
WAYS = ["absolute", "relative", "dotted", "slashed", "store"]


@pytest.fixture(params=WAYS)
def root(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """What a name follows in a path, so that the path names an entry of an empty folder."""
    monkeypatch.chdir(tmp_path)
    yield {
        "absolute": f"{tmp_path}/",
        "relative": "",
        "dotted": "./",
        "slashed": f"{tmp_path}//",
        "store": f"{memory_files.SCHEME}://folder/",
    }[request.param]
    memory_files.OBJECTS.clear()


def write(path: str, text: str = "") -> None:
    with files.create_raw(path) as file:
        file.write((text or path).encode())


def find(*paths: str) -> list[str]:
    return [source.path for source in find_files(Corpus(files=paths))]


@pytest.mark.parametrize("name", SIBLINGS)
@pytest.mark.parametrize("has_sibling", [False, True])
def test_a_path_that_exists_is_that_path(name: str, has_sibling: bool, root: str) -> None:
    for folder in [name, SIBLINGS[name]] if has_sibling else [name]:
        for path in (f"{folder}.txt", f"{folder}/part.txt", f"{folder}/sub/{folder}.txt", f"{folder}/_lock/c.json"):
            write(f"{root}{path}")
    below = [f"{root}{name}/part.txt", f"{root}{name}/sub/{name}.txt"]
    assert find(f"{root}{name}.txt") == [f"{root}{name}.txt"]
    assert find(below[1]) == [below[1]]
    assert find(f"{root}{name}") == sorted(below)
    assert find(f"{root}{name}/*.txt") == [below[0]]
    assert find(f"{root}{name}/**/*.txt") == sorted(below)
    assert [file.path for file in files.match(f"{root}{name}.txt")] == [f"{root}{name}.txt"]
    assert [file.path for file in files.list_files(f"{root}{name}", "*/*.json")] == [f"{root}{name}/_lock/c.json"]
    assert files.get_size(below[0]) == len(below[0].encode())
    assert files.exists(f"{root}{name}")
    assert files.exists(f"{root}{name}.txt")
    assert files.read_text(below[0]) == below[0]


@pytest.mark.parametrize("name", SIBLINGS)
def test_deleting_and_writing_leaves_similar_names_alone(name: str, root: str) -> None:
    sibling = SIBLINGS[name]
    for folder in (name, sibling):
        for path in ("a.txt", "b/c.txt", "bucket=8/part-0.parquet"):
            write(f"{root}{folder}/{path}")
    files.delete_files(f"{root}{name}", "bucket=*/part-*.parquet")
    assert [file.path for file in files.list_files(f"{root}{name}")] == [f"{root}{name}/a.txt", f"{root}{name}/b/c.txt"]
    files.delete(f"{root}{name}/b")
    files.write_text(f"{root}{name}/b", "new")
    files.publish([(f"{root}{name}/a.txt", f"{root}{name}/d/a.txt")])
    assert files.read_text(f"{root}{name}/b") == "new"
    files.delete(f"{root}{name}")
    assert not files.exists(f"{root}{name}")
    assert len(files.list_files(f"{root}{sibling}")) == 3


@pytest.mark.parametrize("name", SIBLINGS)
def test_a_name_that_does_not_exist_is_a_glob(name: str, root: str) -> None:
    sibling = f"{root}{SIBLINGS[name]}.txt"
    write(sibling)
    try:
        found = find(f"{root}{name}.txt")
    except (FileNotFoundError, ValueError) as error:
        message = str(error)
    else:
        message = repr(f"{name}.txt")
        assert [path.removeprefix("./") for path in found] == [sibling.removeprefix("./")]
    assert repr(f"{name}.txt")[1:-1] in message


@pytest.mark.parametrize("name", SIBLINGS)
def test_locks_and_word_counts_of_similar_names_are_not_confused(name: str, tmp_path: Path) -> None:
    folder, sibling = f"{tmp_path}/{name}", f"{tmp_path}/{SIBLINGS[name]}"
    write(f"{sibling}/part-0.parquet")
    with pytest.raises(FileNotFoundError, match="no word counts found"):
        find_word_counts(folder)
    with OutputLock(sibling, new_run_id(), 60), OutputLock(folder, new_run_id(), 60):
        assert len(files.list_files(f"{folder}/_lock")) == 1
