"""Reads and writes tokenizers in any file or folder that a project may name: ours, or files of other tools."""

from collections.abc import Mapping
from weakref import WeakValueDictionary

from bpe_core.formats.tokenizer_json import CONFIG_FILE, SPECIAL_TOKENS_FILE, TOKENIZER_FILE, Engine
from bpe_core.pretokenize.normalizer import Normalization
from bpe_core.pretokenize.pre_tokenizer import PATTERNS
from bpe_core.tokenizer import Tokenizer
from pipelines.storage import files

_in_use: WeakValueDictionary[tuple[str, str, str | None, str | None, Engine], Tokenizer] = WeakValueDictionary()
"""The tokenizers that this process uses, by what they were read from. The local runner's worker may be the driver."""


def read_tokenizer(
    path: str,
    pattern: str | None = None,
    special_tokens: Mapping[str, Mapping[str, int]] | None = None,
    unicode: Normalization = "none",
    engine: Engine = "auto",
) -> Tokenizer:
    """Returns the tokenizer in a folder, in a `tokenizer.json` with the files beside it, or in a `.tiktoken` file.

    A folder without `tokenizer.json` may contain `vocab.json` and `merges.txt`.

    Args:
        path: the folder or the file.
        pattern: splits text into words; needed for `.tiktoken`, and for `vocab.json` with `merges.txt`, which do not
            contain it.
        special_tokens: role -> spelling -> id, for the same files.
        unicode: the Unicode normalization of the text, for the same files.
        engine: what encodes; see `Engine`.

    Raises:
        FileNotFoundError: the tokenizer does not exist.
        ValueError: see `Tokenizer.load`; or the pattern is missing, or an argument was given although the files
            contain it.
    """
    tables = [files.join(path, name) for name in ("vocab.json", "merges.txt")]
    is_ranks = path.endswith(".tiktoken")
    if is_ranks or (not files.exists(files.join(path, TOKENIZER_FILE)) and all(map(files.exists, tables))):
        if pattern is None:
            raise ValueError(
                f"{path} does not contain the pattern that splits text into words. Give the pattern that the tokenizer "
                f"was trained with (shards.pattern, --pattern): one of {', '.join(PATTERNS)}, or a regular expression. "
                "Where neither can be given, first convert the tokenizer to a tokenizer.json: "
                f"tokenmill export --format hugging-face --output FOLDER --tokenizer {path} --pattern PATTERN"
            )
        try:
            return _read_without_pattern([path] if is_ranks else tables, pattern, special_tokens or {}, unicode)
        except ValueError as error:
            raise ValueError(f"{path}: {error}") from error
    file = path if path.endswith(".json") else files.join(path, TOKENIZER_FILE)
    if not files.exists(file):
        raise FileNotFoundError(f"{file}: no such file; train the tokenizer first (tokenmill train), or name another")
    if pattern is not None or special_tokens or unicode != "none":
        raise ValueError(
            f"{path} already contains the pattern, the special tokens and the normalization; remove the pattern "
            f"{pattern!r}, the special tokens {special_tokens or 'none'} and the normalization {unicode!r} from the "
            "settings"
        )
    beside = [files.join(files.split(file)[0], name) for name in (SPECIAL_TOKENS_FILE, CONFIG_FILE)]
    special_tokens_map, config = (files.read_text(path) if files.exists(path) else None for path in beside)
    content = files.read_text(file)
    key = (file, content, special_tokens_map, config, engine)
    tokenizer = _in_use.get(key)
    if tokenizer is None:
        tokenizer = Tokenizer.from_json(content, special_tokens_map, config, source=file, engine=engine)
        _in_use[key] = tokenizer
    return tokenizer


def _read_without_pattern(
    paths: list[str], pattern: str, special_tokens: Mapping[str, Mapping[str, int]], unicode: Normalization
) -> Tokenizer:
    """Returns the tokenizer in a `.tiktoken` file, or in `vocab.json` and `merges.txt`."""
    ids = {spelling: id_ for given in special_tokens.values() for spelling, id_ in given.items()}
    roles: dict[str, str | list[str]] = {
        role: next(iter(given)) if role != "additional" and len(given) == 1 else list(given)
        for role, given in special_tokens.items()
    }
    texts = [files.read_text(path) for path in paths]
    if len(texts) == 1:
        return Tokenizer.from_tiktoken(texts[0], pattern=pattern, unicode=unicode, special_tokens=ids, roles=roles)
    tokenizer = Tokenizer.from_vocab_and_merges(
        texts[0], texts[1], pattern=pattern, unicode=unicode, special_tokens=roles
    )
    for spelling, id_ in ids.items():
        if tokenizer.special_tokens[spelling] != id_:
            raise ValueError(
                f"the special token {spelling!r} was given the id {id_}, "
                f"but it has the id {tokenizer.special_tokens[spelling]}"
            )
    return tokenizer


def write_tokenizer(folder: str, tokenizer: Tokenizer) -> None:
    """Writes the files of a tokenizer into a folder."""
    for name, text in tokenizer.files().items():
        files.write_text(files.join(folder, name), text)
