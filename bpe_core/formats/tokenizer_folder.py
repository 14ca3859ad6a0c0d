"""The one place that knows which files make a tokenizer; it finds them and reads the tokenizer in them.

A new format is a row in `_FORMATS`.
"""

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import BinaryIO, NamedTuple, Protocol

from bpe_core.encoding.model import Model, SpecialTokens, check_roles
from bpe_core.formats.given_special_tokens import GivenSpecialTokens, list_given_roles
from bpe_core.formats.sentencepiece_model import read_sentencepiece_model
from bpe_core.formats.tekken import read_tekken
from bpe_core.formats.tiktoken import read_tiktoken
from bpe_core.formats.tokenizer_json import (
    CONFIG_FILE,
    SPECIAL_TOKENS_FILE,
    TOKENIZER_FILE,
    AnyModel,
    Engine,
    read_json_and_roles,
)
from bpe_core.formats.vocab_and_merges import read_vocab_and_merges
from bpe_core.formats.vocab_txt import convert_vocab_txt
from bpe_core.pretokenize.normalizer import Normalization
from bpe_core.pretokenize.pre_tokenizer import PATTERNS


class FileAccess(Protocol):
    """Where files are: on the disk, or wherever `pipelines.storage.files` finds them."""

    def exists(self, path: str, /) -> bool:
        """Whether there is such a file or folder."""

    def join(self, folder: str, /, *names: str) -> str:
        """Returns the path of a file in a folder."""

    def split(self, path: str, /) -> tuple[str, str]:
        """Returns the folder and the name of a file."""

    def open_raw(self, path: str, /) -> BinaryIO:
        """Opens a file to read its bytes."""


class _Disk:
    """The files of this machine."""

    def exists(self, path: str, /) -> bool:
        """Whether there is such a file or folder."""
        return os.path.exists(path)

    def join(self, folder: str, /, *names: str) -> str:
        """Returns the path of a file in a folder."""
        return os.path.join(folder, *names)

    def split(self, path: str, /) -> tuple[str, str]:
        """Returns the folder and the name of a file."""
        return os.path.split(path)

    def open_raw(self, path: str, /) -> BinaryIO:
        """Opens a file to read its bytes."""
        return open(path, "rb")


DISK = _Disk()


@dataclass(frozen=True)
class GivenParts:
    """What the files of some formats do not say about their tokenizer.

    Attributes:
        pattern: splits text into words: a key of `PATTERNS` or a regular expression.
        special_tokens: role -> spelling -> id.
        unicode: the Unicode normalization of the text.
    """

    pattern: str | None = None
    special_tokens: GivenSpecialTokens = field(default_factory=dict)
    unicode: Normalization = "none"

    @property
    def ids(self) -> dict[str, int]:
        """Spelling -> id of all special tokens."""
        return {spelling: id_ for given in self.special_tokens.values() for spelling, id_ in given.items()}

    @property
    def roles(self) -> SpecialTokens:
        """Role -> spelling, or a list of spellings."""
        return list_given_roles(self.special_tokens)


class TokenizerFiles(NamedTuple):
    """The files of one tokenizer.

    Attributes:
        path: the path that error messages name.
        format: a key of `_FORMATS`.
        names: the names of the files that the format needs.
        contents: name -> content, for these files and those beside them that exist.
    """

    path: str
    format: str
    names: tuple[str, ...]
    contents: dict[str, bytes]

    def read_texts(self) -> list[str]:
        """Returns the texts of the files that the format needs; raises ValueError if one is not UTF-8."""
        return [self._decode(name) for name in self.names]

    def read_beside(self, name: str) -> str | None:
        """Returns the text of a file, or None if it does not exist."""
        return self._decode(name) if name in self.contents else None

    def _decode(self, name: str) -> str:
        content = self.contents[name]
        if content.startswith(_GZIP):
            try:
                content = gzip.decompress(content)
            except (OSError, EOFError, zlib.error) as error:
                raise ValueError(f"{name} cannot be decompressed: {error}; copy the file again") from error
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            raise ValueError(f"{name} is not UTF-8 text: {error}") from error


class _Format(NamedTuple):
    """Files that together are a tokenizer.

    Attributes:
        names: the names of the files that it needs.
        file_name: matches the name of a file that a caller may name instead of its folder.
        read: reads the model.
        is_complete: whether the files contain the pattern and the normalization.
        beside: the names of files that are read too if they exist.
    """

    names: tuple[str, ...]
    file_name: str
    read: Callable[[TokenizerFiles, GivenParts, Engine], AnyModel]
    is_complete: bool
    beside: tuple[str, ...] = ()


def find_tokenizer_files(path: str, access: FileAccess = DISK) -> TokenizerFiles:
    """Returns the files of the tokenizer in a folder, or of the one that a file belongs to.

    If a folder has the files of several formats, the first one in `_FORMATS` is taken.

    Raises:
        FileNotFoundError: there is no tokenizer; the message says which files are missing.
    """
    parent, name = access.split(path)
    # From the last format on: the first one takes any name that ends in `.json`.
    own = [key for key, one in reversed(_FORMATS.items()) if re.fullmatch(one.file_name, name)]
    if own and not access.exists(access.join(path, TOKENIZER_FILE)):
        names = _FORMATS[own[0]].names
        return _read_contents(own[0], path, parent, names if len(names) > 1 else (name,), access)
    incomplete = []
    for key, (names, *_) in _FORMATS.items():
        missing = [one for one in names if not access.exists(access.join(path, one))]
        if not missing:
            return _read_contents(key, path if len(names) > 1 else access.join(path, names[0]), path, names, access)
        if len(missing) < len(names):
            incomplete.append(f". It has files of another tokenizer, but lacks {' and '.join(missing)}")
    if re.search(r"\.\w+$", name) and access.exists(path) and not incomplete:
        raise FileNotFoundError(
            f"{path}: this is neither a tokenizer's file of a known format nor a folder with one; name a file such as "
            f"{', '.join(one.names[0] for one in _FORMATS.values())}"
        )
    others = ", ".join(" with ".join(one.names) for one in list(_FORMATS.values())[1:])
    raise FileNotFoundError(
        f"{access.join(path, TOKENIZER_FILE)}: no such file; train the tokenizer first (tokenmill train), or name "
        f"another. A folder may also have {others}{incomplete[0] if incomplete else ''}"
    )


def _read_contents(key: str, path: str, folder: str, names: tuple[str, ...], access: FileAccess) -> TokenizerFiles:
    contents = {name: _read_file(access.join(folder, name), access) for name in names}
    if key == "tokenizer.model" and _RANKS_LINE.match(contents[names[0]]):
        key = "tiktoken"  # Llama 3 has such a file under SentencePiece's name.
    for name in _FORMATS[key].beside:
        if access.exists(access.join(folder, name)):
            contents[name] = _read_file(access.join(folder, name), access)
    return TokenizerFiles(path, key, names, contents)


def _read_file(path: str, access: FileAccess) -> bytes:
    try:
        with access.open_raw(path) as file:
            return file.read()
    except FileNotFoundError as error:
        raise FileNotFoundError(
            f"{path}: no such file; train the tokenizer first (tokenmill train), or name another"
        ) from error


def read_tokenizer_files(files: TokenizerFiles, given: GivenParts, engine: Engine = "auto") -> AnyModel:
    """Returns the model in a tokenizer's files.

    Args:
        files: from `find_tokenizer_files`.
        given: what the files do not say; see `check_given`.
        engine: see `Engine`.

    Raises:
        KeyError, AttributeError, TypeError, ValueError: a file is damaged or asks for something that is not supported;
            see `name_source`.
    """
    return _FORMATS[files.format].read(files, given, engine)


def check_given(files: TokenizerFiles, given: GivenParts, engine: Engine) -> None:
    """Raises ValueError if the pattern is missing, or if something is given although the files say it."""
    is_complete = _FORMATS[files.format].is_complete
    if is_complete and (given.pattern is not None or given.unicode != "none"):
        raise ValueError(
            f"{files.path} already contains the pattern and the normalization; remove the pattern {given.pattern!r} "
            f"and the normalization {given.unicode!r} from the settings"
        )
    if not is_complete and given.pattern is None:
        raise ValueError(
            f"{files.path} does not contain the pattern that splits text into words. Give the pattern that the "
            f"tokenizer was trained with (shards.pattern, --pattern): one of {', '.join(PATTERNS)}, or a regular "
            "expression. Where neither can be given, first convert the tokenizer to a tokenizer.json: tokenmill export "
            f"--format hugging-face --output FOLDER --tokenizer {files.path} --pattern PATTERN"
        )
    if engine == "hf" and files.format != "tokenizer.json":
        raise ValueError(f"{files.path}: the engine is hf, but that library reads only a tokenizer.json")


@contextmanager
def name_source(source: str) -> Iterator[None]:
    """Turns errors from reading the content of a tokenizer's files into ValueErrors that name the source."""
    try:
        yield
    except json.JSONDecodeError as error:
        raise ValueError(f"{source}: this is not JSON: {error}; copy the file again, or train again") from error
    except KeyError as error:
        raise ValueError(f"{source}: the entry {error} is missing") from error
    except (AttributeError, TypeError) as error:
        raise ValueError(f"{source}: this is not a tokenizer file: {error}") from error
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def _read_tokenizer_json_files(files: TokenizerFiles, given: GivenParts, engine: Engine) -> AnyModel:
    [text] = files.read_texts()
    beside = files.read_beside(SPECIAL_TOKENS_FILE), files.read_beside(CONFIG_FILE)
    return read_json_and_roles(text, *beside, engine, given.special_tokens)


def _read_sentencepiece_file(files: TokenizerFiles, given: GivenParts, engine: Engine) -> AnyModel:
    return read_sentencepiece_model(files.contents[files.names[0]])


def _read_vocab_txt_files(files: TokenizerFiles, given: GivenParts, engine: Engine) -> AnyModel:
    [vocab] = files.read_texts()
    config = files.read_beside(CONFIG_FILE)
    content, roles = convert_vocab_txt(vocab, config)
    return read_json_and_roles(json.dumps(content), json.dumps(roles), config, engine, given.special_tokens)


def _read_tiktoken_file(files: TokenizerFiles, given: GivenParts, engine: Engine) -> Model:
    [text] = files.read_texts()
    model = read_tiktoken(text, given.pattern or "", given.ids, given.unicode)
    return replace(model, special_roles=check_roles(given.roles, model.special_tokens))


def _read_tekken_file(files: TokenizerFiles, given: GivenParts, engine: Engine) -> Model:
    [text] = files.read_texts()
    model = read_tekken(text)
    _check_given_ids(given, model)
    return replace(model, special_roles={**model.special_roles, **check_roles(given.roles, model.special_tokens)})


def _read_vocab_files(files: TokenizerFiles, given: GivenParts, engine: Engine) -> Model:
    vocab, merges = files.read_texts()
    model = read_vocab_and_merges(vocab, merges, given.pattern or "", given.roles, given.unicode)
    _check_given_ids(given, model)
    return model


def _check_given_ids(given: GivenParts, model: Model) -> None:
    for spelling, id_ in given.ids.items():
        if model.special_tokens.get(spelling) != id_:
            raise ValueError(
                f"the special token {spelling!r} was given the id {id_}, but it has the id "
                f"{model.special_tokens.get(spelling)}"
            )


_GZIP = b"\x1f\x8b"
_RANKS_LINE = re.compile(rb"[A-Za-z0-9+/]+=* [0-9]+\r?\n")

_FORMATS = {
    "tokenizer.json": _Format(
        (TOKENIZER_FILE,),
        r".*\.json",
        _read_tokenizer_json_files,
        is_complete=True,
        beside=(SPECIAL_TOKENS_FILE, CONFIG_FILE),
    ),
    "tekken": _Format(("tekken.json",), r".*tekken.*\.json", _read_tekken_file, is_complete=True),
    "tokenizer.model": _Format(("tokenizer.model",), r".*\.model(\.v\w+)?", _read_sentencepiece_file, is_complete=True),
    "vocab.txt": _Format(("vocab.txt",), r"vocab\.txt", _read_vocab_txt_files, is_complete=True, beside=(CONFIG_FILE,)),
    "vocab.json": _Format(
        ("vocab.json", "merges.txt"), r"vocab\.json|merges\.txt", _read_vocab_files, is_complete=False
    ),
    "encoder.json": _Format(
        ("encoder.json", "vocab.bpe"), r"encoder\.json|vocab\.bpe", _read_vocab_files, is_complete=False
    ),
    "tiktoken": _Format(("tokenizer.tiktoken",), r".*\.tiktoken(\.gz)?", _read_tiktoken_file, is_complete=False),
}
"""The formats, from the one that is taken first if a folder has several."""
