"""How kernels are compiled, where their machine code is kept, and the small functions that all kernels share."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bpe_core
from bpe_core.hashing import FNV1A_START, finalize_splitmix64, finalize_splitmix64_in_kernel, hash_fnv1a
from bpe_core.kernels import UInt8s, UInt64s, kernel, make_cache_folder

# Compiles kernels of both jobs. For each that counts no references it prints its module, its name, whether it returns
# only numbers, and its return type.
COMPILE = """
import sys
from numba import types
from numba.core.registry import CPUDispatcher
from bpe_core import Tokenizer, count_words
from bpe_core.pretokenize.word_counting import partition_word_counts

partition_word_counts(count_words(["hug pug"]), 2)
tokenizer = Tokenizer.train(["hug pug " * 300 + "hugpug" * 300], num_merges=2, special_tokens={"eos": "<end>"})
tokenizer.encode("hug <end>" + "pughug" * 300, special="allow")
modules = [module for name, module in sys.modules.items() if name.startswith("bpe_core.")]
for module in modules:
    for name, function in vars(module).items():
        if isinstance(function, CPUDispatcher) and not function.targetoptions.get("_nrt", True):
            for overload in function.overloads.values():
                returned = overload.signature.return_type
                values = returned if isinstance(returned, types.BaseTuple) else [returned]
                no_arrays = all(isinstance(value, types.Number | types.Boolean | types.NoneType) for value in values)
                print(function.py_func.__module__, name, no_arrays, returned)
"""


@pytest.mark.slow
def test_functions_without_reference_counts_return_no_arrays(tmp_path: Path) -> None:
    # Such an array would be freed while it is in use. Return types are only known of kernels that are compiled now.
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    printed = subprocess.run(
        [sys.executable, "-c", COMPILE], env=environment, check=True, capture_output=True, text=True
    )
    compiled = printed.stdout.splitlines()
    modules = (
        *("encoding.added_tokens", "encoding.spelling_automaton", "encoding.word_encoder", "hashing", "merging.step"),
        *("pretokenize.scanner", "word_table"),
    )
    assert {f"bpe_core.{module}" for module in modules} <= {line.split()[0] for line in compiled}
    assert [line for line in compiled if " False " in line] == []


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the package, and an empty folder for the cache."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "cache"))
    copy = tmp_path / "bpe_core"
    shutil.copytree(Path(bpe_core.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    return copy


def change_one_byte(package: Path) -> None:
    source = package / "merging" / "pairs.py"
    content = source.read_bytes()
    source.write_bytes(content[:10] + bytes([content[10] ^ 1]) + content[11:])


def add_a_file(package: Path) -> None:
    (package / "encoding" / "new.py").write_bytes(b"")


def rename_a_file(package: Path) -> None:
    (package / "word_table.py").rename(package / "word_tablet.py")


def move_a_line_to_the_next_file(package: Path) -> None:
    # All files joined in the order of their names stay the same.
    first, second = package / "encoding" / "model.py", package / "encoding" / "stream_decoder.py"
    *lines, last = first.read_text(encoding="utf-8").splitlines(keepends=True)
    first.write_text("".join(lines), encoding="utf-8")
    second.write_text(last + second.read_text(encoding="utf-8"), encoding="utf-8")


@pytest.mark.parametrize("change", [change_one_byte, add_a_file, rename_a_file, move_a_line_to_the_next_file])
def test_every_change_of_the_sources_has_a_new_cache_folder(package: Path, change: Callable[[Path], None]) -> None:
    before = make_cache_folder(package)
    assert os.path.isdir(before)
    assert make_cache_folder(package) == before
    change(package)
    assert make_cache_folder(package) != before


def test_the_cache_folder_does_not_depend_on_where_the_package_is(package: Path) -> None:
    assert make_cache_folder(package) == make_cache_folder(Path(bpe_core.__file__).parent)


def test_the_cache_needs_neither_user_ids_nor_a_home_folder(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Windows has no user ids. A file in place of the folder stands for a home folder that is not writable.
    (package.parent / "cache").write_bytes(b"")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(package.parent))
    monkeypatch.setattr(os, "getuid", lambda: 7, raising=False)
    assert Path(make_cache_folder(package)).parent == package.parent / "tokenmill-7" / "tokenmill-kernels"
    monkeypatch.delattr(os, "getuid")
    assert Path(make_cache_folder(package)).parent == package.parent / "tokenmill" / "tokenmill-kernels"


def test_kernels_are_not_kept_if_no_folder_is_writable(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (package.parent / "cache").write_bytes(b"")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(package.parent / "cache"))
    assert make_cache_folder(package) == ""


@kernel
def hash_all(data: UInt8s, states: UInt64s, hashes: UInt64s) -> None:
    for i in range(states.size):
        states[i] = finalize_splitmix64_in_kernel(states[i])
        hashes[i] = hash_fnv1a(data, 0, i, FNV1A_START)


def test_hashes_are_the_published_ones() -> None:
    # The first numbers of SplitMix64 for the seed 0, whose states are the multiples of its constant; and FNV-1a of "",
    # "f", "fo", "foo", "foob", "fooba", "foobar" from its authors' test suite.
    states = np.arange(1, 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    from_array, hashes = finalize_splitmix64(states), np.empty(7, np.uint64)
    hash_all(np.frombuffer(b"foobar", np.uint8), states, hashes)
    assert states.tolist() == from_array.tolist()
    assert [hex(number) for number in states[:3]] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
    assert hex(hashes[0]) == "0xcbf29ce484222325"
    assert hex(hashes[1]) == "0xaf63db4c8601ead9"
    assert hex(hashes[6]) == "0x85944171f73967e8"


IN_PYTHON = """
from bpe_core import Tokenizer, count_words, learn_merges

texts = ["low lower lowest", "the lowest, a newer \\u8bcd", "aaaaaaaa" * 5]
counts = count_words(texts)
print(counts.to_pydict(), learn_merges(counts, num_merges=9)[:])
tokenizer = Tokenizer.train(texts, num_merges=9, special_tokens={"eos": "<e>", "pad": "<e>e"})
print([tokenizer.encode(text, special="allow") for text in (*texts, "newest" * 40, "low<e>er <e>est <e>e")])
"""


def test_kernels_run_as_plain_python_for_debugging(tmp_path: Path) -> None:
    def run(**environment: str) -> str:
        command = [sys.executable, "-W", "error", "-c", IN_PYTHON]
        # The error output is left to pytest, which shows it if the process fails.
        printed = subprocess.run(
            command, env={**os.environ, **environment}, check=True, stdout=subprocess.PIPE, text=True, cwd=tmp_path
        )
        return printed.stdout

    assert run(NUMBA_DISABLE_JIT="1") == run()
