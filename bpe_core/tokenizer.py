"""The tokenizer: text -> ids and back, trained, loaded and saved."""

import hashlib
import json
import operator
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self, Unpack

import numpy as np
import pyarrow as pa

from bpe_core.encoding.added_tokens import SpecialInText
from bpe_core.encoding.model import (
    Model,
    SpecialIds,
    SpecialTokens,
    VocabOrder,
    extend_model,
    keep_first_merges,
    list_special_tokens,
    make_pre_tokenizer,
    number_tokens,
    pairs_to_resume_from,
    size_to_learn,
)
from bpe_core.encoding.stream_decoder import StreamDecoder
from bpe_core.encoding.text_encoder import Encoded, TextEncoder
from bpe_core.formats import subword_nmt, tiktoken, tokenizer_json, vocab_and_merges
from bpe_core.merging.alphabet import MARKER
from bpe_core.merging.merges import Merges, learn_merges
from bpe_core.merging.settings import MergeOptions, MergeSettings, combine_settings
from bpe_core.pretokenize.pre_tokenizer import Normalization, PreTokenizer, repair_surrogates
from bpe_core.pretokenize.word_counting import count_words


class Tokenizer:
    """A BPE tokenizer. It is not changed by use; make one with `train`, `load` or `from_merges`.

    Attributes:
        pre_tokenizer, alphabet, merges, special_roles, special_tokens: see `bpe_core.encoding.model.Model`.
        base_ids: the id of each base symbol.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.pre_tokenizer = model.pre_tokenizer
        self.alphabet = model.alphabet
        self.merges = model.merges
        self.special_roles = dict(model.special_roles)
        self.special_tokens = dict(model.special_tokens)
        self._tokens = list(model.tokens)
        self._special = frozenset(self.special_tokens.values())
        self.added_tokens = model.added_tokens
        self._encoder = TextEncoder(model)
        self.base_ids = self._encoder.base_ids

    # Making one.

    @classmethod
    def train(
        cls,
        texts: Iterable[str],
        settings: MergeSettings | None = None,
        *,
        pattern: str | None = None,
        unicode: Normalization = "none",
        lowercase: bool = False,
        special_tokens: SpecialTokens | None = None,
        special_ids: SpecialIds = "last",
        vocab_order: VocabOrder = "merges",
        **options: Unpack[MergeOptions],
    ) -> Self:
        """Learns a tokenizer from texts in memory.

        Args:
            texts: the documents.
            settings: how many merges to learn, and how.
            pattern: how text is split into words; see `PreTokenizer`.
            unicode: the Unicode normalization of the text.
            lowercase: whether the text is put in lower case.
            special_tokens: role such as `eos` -> spelling, in the order of the ids.
            special_ids: whether special tokens have the first or the last ids.
            vocab_order: the order of the other ids.
            **options: fields of `MergeSettings`; they replace those of `settings`.

        >>> Tokenizer.train(["hug pug hug"], vocab_size=258).encode("hug")
        [104, 257]
        """
        settings = combine_settings(settings, options)
        special_tokens = special_tokens or {}
        pre_tokenizer = make_pre_tokenizer(settings.kind, pattern, unicode, lowercase)
        merges = learn_merges(
            count_words(texts, pre_tokenizer), settings, special_tokens=list_special_tokens(special_tokens)
        )
        return cls.from_merges(
            merges,
            pre_tokenizer=pre_tokenizer,
            special_tokens=special_tokens,
            special_ids=special_ids,
            vocab_order=vocab_order,
        )

    @classmethod
    def from_merges(
        cls,
        merges: Merges,
        *,
        pre_tokenizer: PreTokenizer,
        special_tokens: SpecialTokens | None = None,
        special_ids: SpecialIds = "last",
        vocab_order: VocabOrder = "merges",
    ) -> Self:
        """Returns the tokenizer of these merges."""
        return cls(number_tokens(merges, pre_tokenizer, special_tokens or {}, special_ids, vocab_order))

    def train_more(self, texts: Iterable[str], *, vocab_size: int, min_frequency: int = 1) -> Self:
        """Returns a tokenizer of kind `byte` that goes on from this one's merges: every id stays, new ones follow.

        Args:
            vocab_size: ids in all, with those that there are.

        Raises:
            ValueError: kind `char`, a size below this tokenizer's, or merges that cannot be gone on from.
        """
        merges = learn_merges(
            count_words(texts, self.pre_tokenizer),
            vocab_size=size_to_learn(self._model, vocab_size),
            min_frequency=min_frequency,
            special_tokens=list(self.special_tokens),
            resume_from=pairs_to_resume_from(self._model),
        )
        return type(self)(extend_model(self._model, merges))

    def keep_first_merges(self, num_merges: int) -> Self:
        """Returns the tokenizer of this one's first merges; ids keep their order and close up."""
        return type(self)(keep_first_merges(self._model, num_merges))

    # Encoding.

    def encode(
        self,
        text: str,
        *,
        special: SpecialInText = "plain",
        add_special_tokens: bool = False,
        dropout: float = 0.0,
        seed: int = 0,
    ) -> list[int]:
        """Returns the ids of a text.

        The spelling of a special token in it is ordinary text, unless `special` is `allow` (it is the token) or
        `refuse` (an error). Added tokens that are not special are always found, as in Hugging Face tokenizers.
        Surrogates, which no encoding of Unicode holds, are repaired first, see `repair_surrogates`.

        Args:
            add_special_tokens: puts the ids around the text that the model's post-processor does.
            dropout: the probability with which each merge is left out in each step (BPE-dropout), so that a text has
                many spellings to train with; the same `seed` gives the same one.

        Raises:
            ValueError: a character that kind `char` has no symbol for, when there is no `unk` token; a special token
                in the text where `special` is `refuse`.
            TypeError: `text` is not a `str`.
        """
        _check_text(text)
        if dropout:
            ids = self._encoder.encode_with_dropout(text, special, dropout, seed)
        else:
            ids, _ = self._encoder.encode(pa.array([repair_surrogates(text)], pa.large_string()), special)
        begin, end = self._model.prefix_suffix_ids if add_special_tokens else ((), ())
        return [*begin, *ids.tolist(), *end]

    def encode_bytes(self, data: bytes, *, special: SpecialInText = "plain") -> list[int]:
        """Returns the ids of any bytes, for kind `byte`; without normalisation `decode_bytes` gives them back exactly.

        Each run of bytes that are not UTF-8 (as Python decodes it: encoded surrogates are not) is one word, whose bytes
        the merges join as they do elsewhere. The stretches of text between such runs are encoded as `encode` does, each
        as a text of its own; so bytes that are UTF-8 throughout have the ids of their text.

        Raises:
            ValueError: kind `char`, or as in `encode`.
            TypeError: `data` are not bytes.
        """
        if not isinstance(data, (bytes, bytearray)):
            raise TypeError(f"data are {type(data).__name__}, not bytes; texts go to encode, others through bytes()")
        ids: list[int] = self._encoder.encode_bytes(data, special).tolist()
        return ids

    def encode_batch(
        self, texts: pa.Array | pa.ChunkedArray, *, special: SpecialInText = "plain"
    ) -> pa.Array | pa.ChunkedArray:
        """Returns the ids of many texts: an Arrow `list<int32>` array as long as `texts`; a null stays a null.

        `texts` is an array of any string type, or a chunked one, which gives a chunked one back. The interpreter lock
        is released meanwhile. `special` is as in `encode`.

        Raises:
            ValueError: `texts` are not strings, or as in `encode`.
            TypeError: `texts` is no Arrow array.
            OverflowError: one array gives more than 2^31 - 1 ids; pass it in slices.
        """
        if isinstance(texts, pa.ChunkedArray):
            chunks = [self.encode_batch(chunk, special=special) for chunk in texts.chunks]
            return pa.chunked_array(chunks, pa.list_(pa.int32()))
        if not isinstance(texts, pa.Array):
            raise TypeError(
                f"texts are a {type(texts).__name__}, not an Arrow array; pass pyarrow.array(texts, "
                "pyarrow.large_string()), or one column of a table"
            )
        if not _is_text(texts.type):
            raise ValueError(f"texts are {texts.type}, not strings; cast the array to pyarrow.string() first")
        ids, text_ids = self._encoder.encode(texts, special)
        if ids.size > np.iinfo(np.int32).max:
            raise OverflowError(f"a batch of {len(texts)} texts has {ids.size} ids; pass it in slices")
        mask = texts.is_null() if texts.null_count else None
        return pa.ListArray.from_arrays(pa.array(text_ids.astype(np.int32)), pa.array(ids), mask=mask)

    def encode_words(self, words: pa.Array) -> pa.Array:
        """Returns the ids of words that were cut before, such as those of `WordCounter`: an Arrow `list<int32>` array.

        `words` is an array of binary values or strings, none of them empty. Each is one word as it stands: it is not
        normalised, not cut again, and no added token is looked for in it.

        Raises:
            ValueError: a null among the words, or as in `encode`.
        """
        if words.null_count:
            raise ValueError(f"{words.null_count} of {len(words)} words are null; leave them out")
        ids, word_ids = self._encoder.encode_words(words)
        return pa.ListArray.from_arrays(pa.array(word_ids.astype(np.int32)), pa.array(ids))

    def encode_with_offsets(self, text: str, *, special: SpecialInText = "plain") -> Encoded:
        """Returns the ids of a text, and where in the normalised text each token ends, in bytes and in characters.

        The first token starts at 0 and each other one where the one before it ends, so that they partition the text; a
        character belongs to the token with its first byte. The blanks between words, which kind `char` leaves out,
        belong to the token before them, those at a text's start to its first token.

        Raises:
            ValueError, TypeError: as in `encode`.
        """
        _check_text(text)
        return self._encoder.encode_with_offsets(text, special)

    def tokenize(self, text: str) -> list[Any]:
        """Returns the tokens of a text as they are spelled; a character without a symbol stands for itself.

        As `tokens`, bytes for kind `byte`, text for kind `char`.
        """
        _check_text(text)
        return [self.alphabet.spell(token) for token in self._encoder.tokenize(text)]

    def count_special(self, texts: pa.Array) -> Counter[str]:
        """Returns how often each special token is spelled out in texts."""
        return self._encoder.count_special(texts)

    # Decoding.

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False, errors: str = "replace") -> str:
        """Returns the text of ids; for kind `char`, one blank stands where blanks stood between words.

        Bytes that are not UTF-8, which is what ids cut inside a character give, follow `errors` as in `bytes.decode`.

        Raises:
            ValueError: an id that is not in the vocabulary.
            TypeError: an id that is not a whole number of Python's or NumPy's.
        """
        return self.decode_bytes(ids, skip_special_tokens=skip_special_tokens).decode(errors=errors)

    def decode_bytes(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> bytes:
        """Returns the exact bytes of ids; see `decode`."""
        spelled = [
            token for id_ in ids for token in [self._token(id_)] if not (skip_special_tokens and id_ in self._special)
        ]
        if self.alphabet.kind == "byte":
            return b"".join(spelled)
        text = b"".join(token.replace(MARKER, b" ") for token in spelled)
        return text[:-1] if spelled and spelled[-1].endswith(MARKER) else text

    def decode_batch(
        self, ids: pa.Array, *, skip_special_tokens: bool = False, errors: str = "replace"
    ) -> list[str | None]:
        """Returns the text of each list of an Arrow array of lists of ids; of a null, None."""
        options: Any = {"skip_special_tokens": skip_special_tokens, "errors": errors}
        return [None if one is None else self.decode(one, **options) for one in ids.to_pylist()]

    def stream_decoder(self, *, skip_special_tokens: bool = False, errors: str = "replace") -> StreamDecoder:
        """Returns a decoder for ids that come one after the other; for kind `byte`."""
        if self.alphabet.kind != "byte":
            raise ValueError(
                "ids of kind char cannot be decoded one by one: a blank follows a word only if another does"
            )
        return StreamDecoder(lambda id_: self.decode_bytes([id_], skip_special_tokens=skip_special_tokens), errors)

    def tokens(self, ids: Iterable[int]) -> list[Any]:
        """Returns each id's token as it is spelled: bytes (kind `byte`) or text (kind `char`, special tokens)."""
        spelled = ((id_, self._token(id_)) for id_ in ids)
        return [token.decode() if id_ in self._special else self.alphabet.spell(token) for id_, token in spelled]

    def _token(self, id_: int) -> bytes:
        try:
            id_ = operator.index(id_)
        except TypeError as error:
            raise TypeError(f"the id {id_!r} is {type(id_).__name__}, not a whole number") from error
        if not 0 <= id_ < len(self._tokens):
            raise ValueError(f"the id {id_} is not in this vocabulary, whose ids are 0 to {len(self._tokens) - 1}")
        if not self._tokens[id_]:
            raise ValueError(f"the id {id_} is not used in this vocabulary")
        return self._tokens[id_]

    # What it is.

    @property
    def vocab_size(self) -> int:
        """How many ids there are: base symbols, merges' symbols and special tokens."""
        return len(self._tokens)

    def special_id(self, role: str) -> int | None:
        """Returns the id of the special token with a role such as `eos`, or None."""
        spelling = self.special_roles.get(role)
        return None if spelling is None or not isinstance(spelling, str) else self.special_tokens[spelling]

    def token_bytes(self) -> list[bytes]:
        """Returns every id's bytes, from id 0, as `bpe_core.merging.alphabet` keeps symbols."""
        return list(self._tokens)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 (hex) over everything that the ids depend on, and the special tokens' roles."""
        return hashlib.sha256(
            json.dumps(tokenizer_json.make_files(self._model), ensure_ascii=False).encode()
        ).hexdigest()

    def __repr__(self) -> str:
        special = list(self.special_tokens) if len(self.special_tokens) < 8 else len(self.special_tokens)
        return (
            f"Tokenizer(kind={self.alphabet.kind!r}, pattern={self.pre_tokenizer.pattern!r}, "
            f"vocab_size={self.vocab_size}, merges={len(self.merges)}, special_tokens={special})"
        )

    # Files.

    @classmethod
    def from_tiktoken(
        cls,
        text: str,
        *,
        pattern: str,
        special_tokens: Mapping[str, int] | None = None,
        roles: SpecialTokens | None = None,
    ) -> Self:
        """Returns the tokenizer in the text of a `.tiktoken` file; see `tiktoken.read_tiktoken`.

        Args:
            special_tokens: spelling -> id.
            roles: role -> spelling, of some of them.
        """
        model = tiktoken.read_tiktoken(text, pattern, special_tokens)
        return cls(replace(model, special_roles=_checked_roles(roles or {}, model)))

    @classmethod
    def from_vocab_and_merges(
        cls, vocab: str, merges: str, *, pattern: str = "gpt2", special_tokens: SpecialTokens | None = None
    ) -> Self:
        """Returns the tokenizer in the texts of `vocab.json` and `merges.txt`; see
        `vocab_and_merges.read_vocab_and_merges`."""
        return cls(vocab_and_merges.read_vocab_and_merges(vocab, merges, pattern, special_tokens))

    @classmethod
    def from_codes(cls, codes: str, *, special_tokens: SpecialTokens | None = None) -> Self:
        """Returns the tokenizer in the text of subword-nmt codes; see `subword_nmt.read_subword_nmt`."""
        return cls(subword_nmt.read_subword_nmt(codes, special_tokens))

    @property
    def model(self) -> Model:
        """What the tokenizer is made of."""
        return self._model

    def files(self) -> dict[str, str]:
        """Returns the text of each file that `save` writes, by name."""
        return {
            name: tokenizer_json.format_json(content)
            for name, content in tokenizer_json.make_files(self._model).items()
        }

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json`, each whole or not at all.

        Hugging Face tokenizers load them, unless `tokenizer.json` says in its `reason` why its format cannot hold
        this model; `Tokenizer.load` always does.
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, text in self.files().items():
            temporary = target / f".{name}.tmp"
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(target / name)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Returns the tokenizer in a folder, or in a `tokenizer.json` with the files beside it.

        Raises:
            FileNotFoundError: there is none.
            ValueError: the file is damaged, or asks for something that is not supported; it is never guessed at.
        """
        file = Path(path)
        if file.is_dir():
            file = file / tokenizer_json.TOKENIZER_FILE
        if not file.is_file():
            raise FileNotFoundError(f"{file}: no such file; train a tokenizer first, or name its folder")
        beside = [file.with_name(name) for name in (tokenizer_json.SPECIAL_TOKENS_FILE, tokenizer_json.CONFIG_FILE)]
        roles = next((path.read_text(encoding="utf-8") for path in beside if path.is_file()), None)
        return cls.from_json(
            file.read_text(encoding="utf-8"),
            roles,
            source=str(file),
        )

    @classmethod
    def from_json(
        cls, text: str, special_tokens_map: str | None = None, *, source: str = tokenizer_json.TOKENIZER_FILE
    ) -> Self:
        """Returns the tokenizer in the text of a `tokenizer.json` and, for the roles, a `special_tokens_map.json`, or a
        `tokenizer_config.json` in its place.

        Raises:
            ValueError: see `load`; `source` names the file in the message.
        """
        try:
            model = tokenizer_json.read_tokenizer_json(json.loads(text))
            roles = tokenizer_json.read_special_tokens_map(json.loads(special_tokens_map)) if special_tokens_map else {}
            return cls(replace(model, special_roles=_checked_roles(roles, model) or model.special_roles))
        except json.JSONDecodeError as error:
            raise ValueError(f"{source}: this is not JSON: {error}; copy the file again, or train again") from error
        except KeyError as error:
            raise ValueError(f"{source}: the entry {error} is missing") from error
        except (AttributeError, TypeError) as error:
            raise ValueError(f"{source}: this is not a tokenizer file: {error}") from error
        except ValueError as error:
            raise ValueError(f"{source}: {error}") from error


def _checked_roles(roles: SpecialTokens, model: Model) -> dict[str, str | list[str]]:
    absent = [spelling for spelling in list_special_tokens(roles) if spelling not in model.special_tokens]
    if absent:
        raise ValueError(f"the role of {absent[0]!r} is given, but it is not among the special tokens")
    return {role: given if isinstance(given, str) else list(given) for role, given in roles.items()}


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        remedy = "pass it to encode_bytes, or decode it" if isinstance(text, bytes) else "convert it first"
        raise TypeError(f"text is {type(text).__name__} ({text!r:.60}), not str; {remedy}")


def _is_text(arrow_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(arrow_type):
        return _is_text(arrow_type.value_type)
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(is_kind(arrow_type) for is_kind in kinds)
