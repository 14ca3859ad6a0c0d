"""The tokenizer: encodes text to ids and decodes ids to text; it can be trained, loaded and saved."""

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
from bpe_core.encoding.bpe_encoder import BpeEncoder, Encoded
from bpe_core.encoding.library_model import LibraryEncoder, LibraryModel
from bpe_core.encoding.model import (
    Model,
    SpecialIds,
    SpecialTokens,
    VocabOrder,
    check_roles,
    extend_model,
    get_size_to_learn,
    keep_first_merges,
    list_special_tokens,
    make_pre_tokenizer,
    number_tokens,
    pairs_to_resume_from,
)
from bpe_core.encoding.piece_model import PieceModel
from bpe_core.encoding.stream_decoder import StreamDecoder
from bpe_core.encoding.text_encoder import TextEncoder
from bpe_core.encoding.word_encoder import make_word_encoder
from bpe_core.formats import subword_nmt, tiktoken, tokenizer_json, vocab_and_merges
from bpe_core.formats.tokenizer_folder import (
    GivenParts,
    TokenizerFiles,
    check_given,
    find_tokenizer_files,
    name_source,
    read_tokenizer_files,
)
from bpe_core.kernels import Int32s
from bpe_core.merging.alphabet import MARKER, Alphabet
from bpe_core.merging.merges import Merges, learn_merges
from bpe_core.merging.settings import MergeOptions, MergeSettings, combine_settings
from bpe_core.pretokenize.normalizer import Normalization
from bpe_core.pretokenize.pre_tokenizer import PreTokenizer, repair_surrogates
from bpe_core.pretokenize.text_splitter import TextSplitter
from bpe_core.pretokenize.word_counting import count_words

_NEEDS_MERGES = "this needs a tokenizer with a list of merges (kind byte or char), but this one is of kind {}"


class Tokenizer:
    """A byte-pair-encoding tokenizer.

    Make one with `train`, `from_merges` or `load`. A tokenizer never changes, and threads may share it.

    >>> tokenizer = Tokenizer.train(["hug pug hugs"], vocab_size=259, special_tokens={"eos": "<end>"})
    >>> tokenizer.encode("hugs")
    [257, 115]
    >>> tokenizer.tokens([257, 115, 258])
    [b'hug', b's', '<end>']
    >>> tokenizer.decode([257, 115])
    'hugs'

    Attributes:
        special_roles: role, such as `eos` -> spelling; for the role `additional` a list of spellings.
        special_tokens: spelling -> id of every special token.
        added_tokens: all tokens that are found in texts by their spelling: the special tokens and others.
    """

    def __init__(self, model: tokenizer_json.AnyModel) -> None:
        """Makes the tokenizer of a model; most callers use a class method instead."""
        self._any_model = model
        self._encoder: TextEncoder | LibraryEncoder
        if isinstance(model, Model):
            self._encoder = BpeEncoder(model)
        elif isinstance(model, LibraryModel):
            self._encoder = LibraryEncoder(model)
        else:
            self._encoder = TextEncoder(model, make_word_encoder(model.rules, model.whole_words))
        self._tokens = list(model.tokens)
        self._special_ids = frozenset(model.special_tokens.values())
        self.special_roles = dict(model.special_roles)
        self.special_tokens = dict(model.special_tokens)
        self.added_tokens = model.added_tokens

    # Make a tokenizer.

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
            pattern: how text is split into words; see `PreTokenizer`. None is `gpt2` for kind `byte` and `whitespace`
                for kind `char`.
            unicode: the Unicode normalization of the text.
            lowercase: whether the text is put in lower case.
            special_tokens: role such as `eos` -> spelling, in the order of the ids.
            special_ids: whether special tokens have the first or the last ids.
            vocab_order: the order of the other ids.
            **options: fields of `MergeSettings`; they replace those of `settings`.

        Raises:
            ValueError: a setting is not supported, or settings contradict each other.
            TypeError: a text is not a `str`.

        >>> Tokenizer.train(["hug pug hug"], vocab_size=258).encode("hug")
        [257]
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
        """Returns the tokenizer of learned merges.

        Args:
            merges: from `learn_merges`.
            pre_tokenizer: the one that made the words that the merges were learned from.
            special_tokens: as for `train`; `learn_merges` needs the same ones.
            special_ids: whether special tokens have the first or the last ids.
            vocab_order: the order of the other ids.

        Raises:
            ValueError: a special token has an unknown role or no spelling, or `vocab_order` does not go with the kind.

        >>> merges = learn_merges({"hug": 2, "pug": 1}, num_merges=2)
        >>> Tokenizer.from_merges(merges, pre_tokenizer=PreTokenizer("gpt2")).encode("hug")
        [257]
        """
        return cls(number_tokens(merges, pre_tokenizer, special_tokens or {}, special_ids, vocab_order))

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        *,
        pattern: str | None = None,
        special_tokens: Mapping[str, Mapping[str, int]] | None = None,
        unicode: Normalization = "none",
        engine: tokenizer_json.Engine = "auto",
    ) -> Self:
        """Returns the tokenizer that `save` wrote, or one in the files of another tool.

        Args:
            path: the folder of the tokenizer's files, or one of them. Files are `tokenizer.json`, with the roles of
                special tokens in `special_tokens_map.json` or `tokenizer_config.json` beside it; or those of another
                format, see `bpe_core.formats.tokenizer_folder`.
            pattern: how text is split into words, for files that do not say it: a key of `PATTERNS` or a regular
                expression.
            special_tokens: role -> spelling -> id. They become special tokens, with roles that replace those of the
                files.
            unicode: the Unicode normalization of the text, for the same files.
            engine: as for `from_json`.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: a file is damaged, asks for something that is not supported, or was saved with another version
                of the Unicode tables; the pattern is missing, or given although the files contain it. Nothing is
                guessed.

        >>> Tokenizer.load("tokenizers/english").encode("hug")  # doctest: +SKIP
        [257]
        """
        given = GivenParts(pattern, special_tokens or {}, unicode)
        return cls.from_files(find_tokenizer_files(os.fspath(path)), given, engine)

    @classmethod
    def from_files(
        cls, files: TokenizerFiles, given: GivenParts | None = None, engine: tokenizer_json.Engine = "auto"
    ) -> Self:
        """Returns the tokenizer in files that `find_tokenizer_files` found.

        Args:
            files: the files.
            given: what they do not say.
            engine: as for `from_json`.

        Raises:
            ValueError: as for `load`.
        """
        given = given or GivenParts()
        check_given(files, given, engine)
        with name_source(files.path):
            return cls(read_tokenizer_files(files, given, engine))

    @classmethod
    def from_json(
        cls,
        text: str,
        special_tokens_map: str | None = None,
        tokenizer_config: str | None = None,
        *,
        source: str = tokenizer_json.TOKENIZER_FILE,
        engine: tokenizer_json.Engine = "auto",
    ) -> Self:
        """Returns the tokenizer in the text of a `tokenizer.json`.

        Args:
            text: the file's text.
            special_tokens_map: the text of a `special_tokens_map.json` or `tokenizer_config.json`, for the roles of the
                special tokens.
            tokenizer_config: the text of a `tokenizer_config.json`, for the version of Unicode, and for the roles if
                `special_tokens_map` is not given.
            source: the name of the file in error messages.
            engine: `native` for our compiled code; `hf` for Hugging Face's library, many times slower; `auto` for the
                library only if our code does not support the file.

        Raises:
            ValueError: as for `load`.

        >>> files = Tokenizer.train(["hug pug hugs"], num_merges=2).files()
        >>> Tokenizer.from_json(files["tokenizer.json"]).encode("hug")
        [257]
        """
        with name_source(source):
            return cls(tokenizer_json.read_json_and_roles(text, special_tokens_map, tokenizer_config, engine))

    @classmethod
    def from_tiktoken(
        cls,
        text: str,
        *,
        pattern: str,
        unicode: Normalization = "none",
        special_tokens: Mapping[str, int] | None = None,
        roles: SpecialTokens | None = None,
    ) -> Self:
        """Returns the tokenizer in the text of a `.tiktoken` file.

        Args:
            text: the file's text.
            pattern: how text is split into words, which the file does not say: a key of `PATTERNS` or a regular
                expression.
            unicode: the Unicode normalization of the text, which the file does not say either; Qwen has `NFC`.
            special_tokens: spelling -> id, which the file does not say either.
            roles: role -> spelling, for those of the special tokens that have a role.

        Raises:
            ValueError: the file is damaged, or the special tokens do not go with it; see `read_tiktoken`.

        >>> text = Path("cl100k_base.tiktoken").read_text()  # doctest: +SKIP
        >>> Tokenizer.from_tiktoken(text, pattern="cl100k", special_tokens={"<|endoftext|>": 100257})  # doctest: +SKIP
        Tokenizer(kind='byte', pattern='cl100k', vocab_size=100258, ...)
        """
        model = tiktoken.read_tiktoken(text, pattern, special_tokens, unicode)
        return cls(replace(model, special_roles=check_roles(roles or {}, model.special_tokens)))

    @classmethod
    def from_vocab_and_merges(
        cls,
        vocab: str,
        merges: str,
        *,
        pattern: str = "gpt2",
        unicode: Normalization = "none",
        special_tokens: SpecialTokens | None = None,
    ) -> Self:
        """Returns the tokenizer in the texts of a `vocab.json` and a `merges.txt`, as GPT-2 has them.

        Args:
            vocab: the text of `vocab.json`.
            merges: the text of `merges.txt`.
            pattern: how text is split into words, which the files do not say.
            unicode: the Unicode normalization of the text, which the files do not say either; Qwen has `NFC`.
            special_tokens: role -> spelling, of entries of `vocab.json`.

        Raises:
            ValueError: a file is damaged, or does not have a special token; see `read_vocab_and_merges`.

        >>> vocab, merges = Path("vocab.json").read_text(), Path("merges.txt").read_text()  # doctest: +SKIP
        >>> Tokenizer.from_vocab_and_merges(vocab, merges, special_tokens={"eos": "<|endoftext|>"})  # doctest: +SKIP
        Tokenizer(kind='byte', pattern='gpt2', vocab_size=50257, ...)
        """
        return cls(vocab_and_merges.read_vocab_and_merges(vocab, merges, pattern, special_tokens, unicode))

    @classmethod
    def from_subword_nmt(cls, codes: str, *, special_tokens: SpecialTokens | None = None) -> Self:
        r"""Returns the tokenizer of kind `char` in the text of a subword-nmt codes file.

        Args:
            codes: the file's text.
            special_tokens: role -> spelling.

        Raises:
            ValueError: the file is damaged or of an unknown version; see `read_subword_nmt`.

        >>> Tokenizer.from_subword_nmt("#version: 0.2\nu g</w>\nh ug</w>\n").tokenize("hug")
        ['hug</w>']
        """
        return cls(subword_nmt.read_subword_nmt(codes, special_tokens))

    def train_more(self, texts: Iterable[str], *, vocab_size: int, min_frequency: int = 1) -> Self:
        """Learns more merges from other texts; returns the larger tokenizer, in which every id of this one stays.

        Args:
            texts: the documents.
            vocab_size: the number of ids of the larger tokenizer, this one's included.
            min_frequency: pairs that occur less often are not merged.

        Raises:
            ValueError: the tokenizer is of kind `char`, already has more ids, or has merges that training cannot make.

        >>> tokenizer = Tokenizer.train(["hug pug hugs"], vocab_size=259, special_tokens={"eos": "<end>"})
        >>> tokenizer.train_more(["pug pug"], vocab_size=261).tokens(range(256, 261))
        [b'ug', b'hug', '<end>', b'pug', b' pug']
        """
        merges = learn_merges(
            count_words(texts, self.pre_tokenizer),
            vocab_size=get_size_to_learn(self.model, vocab_size),
            min_frequency=min_frequency,
            special_tokens=list(self.special_tokens),
            resume_from=pairs_to_resume_from(self.model),
        )
        return type(self)(extend_model(self.model, merges))

    def keep_first_merges(self, num_merges: int) -> Self:
        """Returns the smaller tokenizer that has only the first merges of this one.

        Tokens that only later merges make are removed. The other ids keep their order and close up.

        Raises:
            ValueError: the tokenizer has fewer merges, or pairs are ranked by tokens.

        >>> tokenizer = Tokenizer.train(["hug pug hugs"], vocab_size=259, special_tokens={"eos": "<end>"})
        >>> tokenizer.keep_first_merges(1).tokens(range(256, 258))
        [b'ug', '<end>']
        """
        return type(self)(keep_first_merges(self.model, num_merges))

    # Encode.

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

        Surrogates, which UTF-8 cannot hold, are repaired first, see `repair_surrogates`.

        Args:
            text: the text.
            special: what the spelling of a special token in the text means. `plain`: ordinary text, so that no text can
                produce a special token's id. `allow`: the special token. `refuse`: an error. Added tokens that are not
                special are always found, as in Hugging Face tokenizers.
            add_special_tokens: whether to add the ids that the model puts before and after a text.
            dropout: the probability with which each merge is left out in each step (BPE-dropout). With it, the same
                text gets different ids for different seeds.
            seed: decides which merges dropout leaves out.

        Raises:
            ValueError: a character is not in the vocabulary of a tokenizer of kind `char` without an `unk` token; the
                text spells a special token and `special` is `refuse`; `dropout` is not a probability below 1.
            TypeError: `text` is not a `str`.

        >>> tokenizer = Tokenizer.train(["hug pug hugs"], vocab_size=259, special_tokens={"eos": "<end>"})
        >>> tokenizer.encode("hug<end>")
        [257, 60, 101, 110, 100, 62]
        >>> tokenizer.encode("hug<end>", special="allow")
        [257, 258]
        """
        _check_text(text)
        if dropout:
            ids = self._bpe_encoder.encode_with_dropout(text, special, dropout, seed)
        else:
            ids, _ = self._encoder.encode(pa.array([repair_surrogates(text)], pa.large_string()), special)
        prefix, suffix = self._any_model.prefix_suffix_ids if add_special_tokens else ((), ())
        return [*prefix, *ids.tolist(), *suffix]

    def encode_batch(
        self, texts: pa.Array | pa.ChunkedArray, *, special: SpecialInText = "plain"
    ) -> pa.Array | pa.ChunkedArray:
        """Returns the ids of many texts, as an Arrow `list<int32>` array with one list per text.

        The interpreter lock is released meanwhile, so threads can encode at the same time.

        Args:
            texts: an array of any string type; a null stays a null. For a chunked array, a chunked one is returned.
            special: as for `encode`.

        Raises:
            ValueError: `texts` are not strings, or as for `encode`.
            TypeError: `texts` is not an Arrow array.
            OverflowError: an array has more than 2^31 - 1 ids; pass it in slices.

        >>> tokenizer = Tokenizer.train(["hug pug hugs"], num_merges=2)
        >>> tokenizer.encode_batch(pa.array(["hug", None, "pug"])).to_pylist()
        [[257], None, [112, 256]]
        """
        if isinstance(texts, pa.ChunkedArray):
            chunks = [self.encode_batch(chunk, special=special) for chunk in texts.chunks]
            return pa.chunked_array(chunks, pa.list_(pa.int32()))
        if not isinstance(texts, pa.Array):
            raise TypeError(
                f"texts are a {type(texts).__name__}, not an Arrow array; pass pyarrow.array(texts, "
                "pyarrow.large_string()), or one column of a table"
            )
        if not _is_string_type(texts.type):
            raise ValueError(f"texts are {texts.type}, not strings; cast the array to pyarrow.string() first")
        ids, starts = self._encoder.encode(texts, special)
        if ids.size > np.iinfo(np.int32).max:
            raise OverflowError(
                f"{len(texts)} texts have {ids.size} ids, more than an Arrow array of lists holds; pass slices"
            )
        mask = texts.is_null() if texts.null_count else None
        return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), pa.array(ids), mask=mask)

    def encode_with_offsets(self, text: str, *, special: SpecialInText = "plain") -> Encoded:
        """Returns the ids of a text, and where in the normalized text each token ends, in bytes and in characters.

        The tokens partition the normalized text: the first starts at 0, each other one where the token before it ends.
        A character that several tokens share belongs to the token with its first byte. White space that no token
        spells (kind `char`) belongs to the token before it, or at a text's start to the first token.

        Args:
            text: the text.
            special: as for `encode`.

        Raises:
            ValueError: as for `encode`.
            TypeError: `text` is not a `str`.

        >>> tokenizer = Tokenizer.train(["hug pug hugs"], num_merges=2)
        >>> tokenizer.encode_with_offsets("pug é")
        Encoded(ids=[112, 256, 32, 195, 169], byte_ends=[1, 3, 4, 5, 6], character_ends=[1, 3, 4, 5, 5])
        """
        _check_text(text)
        return self._bpe_encoder.encode_with_offsets(text, special)

    def encode_bytes(self, data: bytes, *, special: SpecialInText = "plain") -> list[int]:
        r"""Returns the ids of any bytes, for kind `byte`; bytes that are UTF-8 have the ids of their text.

        Each run of bytes that are not UTF-8 is one word. The text between such runs is encoded as by `encode`. Encoded
        surrogates are not UTF-8, as for Python. Unless text is normalized, `decode_bytes` returns exactly `data`.

        Args:
            data: the bytes.
            special: as for `encode`.

        Raises:
            ValueError: the tokenizer is of kind `char`, or as for `encode`.
            TypeError: `data` is not `bytes`.

        >>> Tokenizer.train(["hug pug hugs"], num_merges=2).encode_bytes(b"hug\xff")
        [257, 255]
        """
        if not isinstance(data, (bytes, bytearray)):
            raise TypeError(
                f"data is {type(data).__name__}, not bytes; pass text to encode, and other types as bytes()"
            )
        ids: list[int] = self._bpe_encoder.encode_bytes(data, special).tolist()
        return ids

    def encode_words(self, words: pa.Array) -> pa.Array:
        """Returns the ids of words, such as those that `count_words` counts, as an Arrow `list<int32>` array.

        Each value is taken as one word: it is not normalized, not split, and not searched for added tokens.

        Args:
            words: binary values or strings, none of them empty.

        Raises:
            ValueError: a word is null, or as for `encode`.

        >>> Tokenizer.train(["hug pug hugs"], num_merges=2).encode_words(pa.array([b"hug", b" pug"])).to_pylist()
        [[257], [32, 112, 256]]
        """
        if words.null_count:
            raise ValueError(f"{words.null_count} of {len(words)} words are null; leave them out")
        ids, starts = self._encoder.encode_words(words)
        return pa.ListArray.from_arrays(pa.array(starts.astype(np.int32)), pa.array(ids))

    def tokenize(self, text: str) -> list[Any]:
        """Returns the tokens of a text: bytes for kind `byte`, text for kind `char`.

        A character that is not in the vocabulary is a token of its own. Special tokens are ordinary text.

        Raises:
            TypeError: `text` is not a `str`.

        >>> Tokenizer.train(["hug pug hugs"], num_merges=2).tokenize("hugs pug")
        [b'hug', b's', b' ', b'p', b'ug']
        """
        _check_text(text)
        if isinstance(self._encoder, BpeEncoder):
            return [self.alphabet.spell(token) for token in self._encoder.tokenize(text)]
        return self.tokens(self.encode(text))

    def count_special(self, texts: pa.Array) -> Counter[str]:
        """Returns how often texts, an Arrow array of strings, spell each special token.

        >>> tokenizer = Tokenizer.train(["hug pug hugs"], vocab_size=259, special_tokens={"eos": "<end>"})
        >>> tokenizer.count_special(pa.array(["hug<end>", "<end>"]))
        Counter({'<end>': 2})
        """
        return self._encoder.count_special(texts)

    # Decode.

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = False, errors: str = "replace") -> str:
        """Returns the text of ids.

        For kind `byte` this is the encoded text after normalization. For kind `char` words are joined by one space,
        whatever white space was there.

        Args:
            ids: Python or NumPy integers.
            skip_special_tokens: whether to leave special tokens out.
            errors: what to do with bytes that are not UTF-8, as for `bytes.decode`. A slice of a text's ids can start
                or end inside a character.

        Raises:
            ValueError: an id is not in the vocabulary.
            TypeError: an id is not an integer.
            UnicodeDecodeError: with `errors="strict"`, the bytes are not UTF-8.

        >>> tokenizer = Tokenizer.train(["hug pug hugs"], vocab_size=259, special_tokens={"eos": "<end>"})
        >>> tokenizer.decode([257, 258])
        'hug<end>'
        >>> tokenizer.decode([257, 258], skip_special_tokens=True)
        'hug'
        """
        if isinstance(self._any_model, PieceModel):
            return self._any_model.decoder.decode([t.decode() for t in self._list_tokens(ids, skip_special_tokens)])
        if isinstance(self._any_model, LibraryModel):
            ids = list(ids)
            self._list_tokens(ids, skip_special_tokens)  # Raises an error for an id that is not in the vocabulary.
            return self._any_model.library.decode(ids, skip_special_tokens)
        return self.decode_bytes(ids, skip_special_tokens=skip_special_tokens).decode(errors=errors)

    def decode_bytes(self, ids: Iterable[int], *, skip_special_tokens: bool = False) -> bytes:
        r"""Returns the bytes of ids, also where they are not UTF-8; for the rest see `decode`.

        Raises:
            ValueError: an id is not in the vocabulary.
            TypeError: an id is not an integer.

        >>> Tokenizer.train(["hug pug hugs"], num_merges=2).decode_bytes([257, 195])
        b'hug\xc3'
        """
        if not isinstance(self._any_model, Model):
            return self.decode(ids, skip_special_tokens=skip_special_tokens).encode()
        tokens = self._list_tokens(ids, skip_special_tokens)
        if self.alphabet.kind == "byte":
            return b"".join(tokens)
        text = b"".join(token.replace(MARKER, b" ") for token in tokens)
        return text[:-1] if tokens and tokens[-1].endswith(MARKER) else text

    def decode_batch(
        self, ids: pa.Array, *, skip_special_tokens: bool = False, errors: str = "replace"
    ) -> list[str | None]:
        """Returns the text of each list of ids in an Arrow array; None for a null.

        Args:
            ids: an Arrow array of lists of integers, as `encode_batch` returns.
            skip_special_tokens: as for `decode`.
            errors: as for `decode`.

        Raises:
            ValueError: as for `decode`.
            TypeError: an id is null or not an integer.

        >>> Tokenizer.train(["hug pug hugs"], num_merges=2).decode_batch(pa.array([[257, 115], None]))
        ['hugs', None]
        """
        options: Any = {"skip_special_tokens": skip_special_tokens, "errors": errors}
        return [None if one is None else self.decode(one, **options) for one in ids.to_pylist()]

    def make_stream_decoder(self, *, skip_special_tokens: bool = False, errors: str = "replace") -> StreamDecoder:
        """Returns a decoder for ids that arrive one after the other, such as a model's output; for kind `byte`.

        Raises:
            ValueError: the tokenizer is of kind `char`.

        >>> decoder = Tokenizer.train(["hug pug hugs"], num_merges=2).make_stream_decoder()
        >>> [decoder.push([257]), decoder.push([195]), decoder.push([169])]
        ['hug', '', 'é']
        """
        if self.kind != "byte":
            raise ValueError(
                f"ids of kind {self.kind} cannot be decoded one by one, because the text of an id depends on the ids "
                "beside it; collect the ids and use decode"
            )
        return StreamDecoder(lambda id_: self.decode_bytes([id_], skip_special_tokens=skip_special_tokens), errors)

    # Inspect.

    @property
    def kind(self) -> str:
        """The family: `byte` or `char` for byte-pair encoding, a `PieceKind`, or `library` (Hugging Face's)."""
        return self._any_model.kind

    @property
    def has_merges(self) -> bool:
        """Whether it is a byte-pair encoding with a list of merges, of kind `byte` or `char`."""
        return isinstance(self._any_model, Model)

    @property
    def splitter(self) -> TextSplitter:
        """How text is normalized and split into words, for a tokenizer of any family."""
        return self._any_model.pre_tokenizer

    @property
    def model(self) -> Model:
        """The tokenizer's parts.

        Like the properties below and other methods for byte-pair encoding, it raises ValueError for another family.
        """
        if not isinstance(self._any_model, Model):
            raise ValueError(_NEEDS_MERGES.format(self.kind))
        return self._any_model

    @property
    def pre_tokenizer(self) -> PreTokenizer:
        """How text is normalized and split into words."""
        return self.model.pre_tokenizer

    @property
    def alphabet(self) -> Alphabet:
        """The base symbols."""
        return self.model.alphabet

    @property
    def merges(self) -> Int32s:
        """The ids of left, right and the token that they make: int32, shape `(num_merges, 3)`, in merge order."""
        return self.model.merges

    @property
    def base_ids(self) -> dict[bytes, int]:
        """Base symbol, in bytes -> id."""
        return self._bpe_encoder.base_ids

    @property
    def _bpe_encoder(self) -> BpeEncoder:
        if not isinstance(self._encoder, BpeEncoder):
            raise ValueError(_NEEDS_MERGES.format(self.kind))
        return self._encoder

    @property
    def vocab_size(self) -> int:
        """The number of ids: base symbols, tokens that merges make, special tokens and other added tokens."""
        return len(self._tokens)

    def tokens(self, ids: Iterable[int]) -> list[Any]:
        """Returns the token of each id: bytes for kind `byte`, text for other kinds and for special tokens.

        Raises:
            ValueError: an id is not in the vocabulary.
            TypeError: an id is not an integer.

        >>> tokenizer = Tokenizer.train(["hug pug hugs"], vocab_size=259, special_tokens={"eos": "<end>"})
        >>> tokenizer.tokens([104, 257, 258])
        [b'h', b'hug', '<end>']
        """
        tokens = ((id_, self._token(id_)) for id_ in ids)
        if not isinstance(self._any_model, Model):
            return [token.decode() for _, token in tokens]
        return [token.decode() if id_ in self._special_ids else self.alphabet.spell(token) for id_, token in tokens]

    def token_bytes(self) -> list[bytes]:
        """Returns the bytes of every token, in the order of the ids; an id that is not used has none.

        For kind `char` they contain the end-of-word marker as `bpe_core.merging.alphabet.MARKER`.

        >>> Tokenizer.train(["hug pug hugs"], num_merges=2).token_bytes()[256:]
        [b'ug', b'hug']
        """
        return list(self._tokens)

    @property
    def begin_id(self) -> int | None:
        """The id that goes before a document: of the role `bos`, or else `cls`; None if no token has either."""
        bos = self.special_id("bos")
        return self.special_id("cls") if bos is None else bos

    @property
    def end_id(self) -> int | None:
        """The id that goes after a document: of the role `eos`, or else `sep`; None if no token has either."""
        eos = self.special_id("eos")
        return self.special_id("sep") if eos is None else eos

    def special_id(self, role: str) -> int | None:
        """Returns the id of the special token with a role such as `eos`; None if no token has it.

        >>> Tokenizer.train(["hug"], vocab_size=257, special_tokens={"eos": "<end>"}).special_id("eos")
        256
        """
        spelling = self.special_roles.get(role)
        return None if spelling is None or not isinstance(spelling, str) else self.special_tokens[spelling]

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of everything that ids depend on and of the special tokens' roles."""
        files = tokenizer_json.make_files(self._any_model)
        return hashlib.sha256(json.dumps(files, ensure_ascii=False).encode()).hexdigest()

    def __repr__(self) -> str:
        """Returns the kind, the pattern and the sizes; not the whole vocabulary."""
        special = list(self.special_tokens) if len(self.special_tokens) < 8 else len(self.special_tokens)
        parts: dict[str, Any] = {"kind": self.kind}
        if isinstance(self._any_model, Model):
            parts |= {"pattern": self.pre_tokenizer.pattern}
        parts |= {"vocab_size": self.vocab_size}
        if isinstance(self._any_model, Model):
            parts |= {"merges": len(self.merges)}
        parts |= {"special_tokens": special}
        return f"Tokenizer({', '.join(f'{name}={value!r}' for name, value in parts.items())})"

    def _list_tokens(self, ids: Iterable[int], skip_special_tokens: bool) -> list[bytes]:
        """Returns the bytes of ids, which may come from a caller, with or without those of special tokens."""
        return [
            token
            for id_ in ids
            for token in [self._token(id_)]
            if not (skip_special_tokens and id_ in self._special_ids)
        ]

    def _token(self, id_: int) -> bytes:
        """Returns the bytes of an id, which may come from a caller."""
        try:
            id_ = operator.index(id_)
        except TypeError as error:
            raise TypeError(f"the id {id_!r} is {type(id_).__name__}, not an integer") from error
        if not 0 <= id_ < len(self._tokens):
            raise ValueError(f"the id {id_} is not in this vocabulary, whose ids are 0 to {len(self._tokens) - 1}")
        if not self._tokens[id_]:
            raise ValueError(f"the id {id_} is not used in this vocabulary")
        return self._tokens[id_]

    # Save.

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `tokenizer.json`, `tokenizer_config.json` and `special_tokens_map.json` to a folder.

        Each file is written completely or not at all. `load` always reads them. Hugging Face tokenizers and
        transformers read them too, unless their format cannot hold this tokenizer exactly; then the entry `reason` of
        `tokenizer.json` says why.

        Raises:
            OSError: the folder cannot be made or written to.

        >>> Tokenizer.train(["hug pug hugs"], num_merges=2).save("tokenizers/english")  # doctest: +SKIP
        """
        target = Path(folder)
        target.mkdir(parents=True, exist_ok=True)
        for name, text in self.files().items():
            temporary = target / f".{name}.tmp"
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(target / name)

    def files(self) -> dict[str, str]:
        """Returns the files that `save` writes: name -> text.

        >>> list(Tokenizer.train(["hug pug hugs"], num_merges=2).files())
        ['tokenizer.json', 'tokenizer_config.json', 'special_tokens_map.json']
        """
        files = tokenizer_json.make_files(self._any_model)
        return {name: tokenizer_json.format_json(content) for name, content in files.items()}


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        remedy = "pass it to encode_bytes, or decode it" if isinstance(text, bytes) else "convert it first"
        raise TypeError(f"text is {type(text).__name__} ({text!r:.60}), not str; {remedy}")


def _is_string_type(arrow_type: pa.DataType) -> bool:
    if pa.types.is_dictionary(arrow_type):
        return _is_string_type(arrow_type.value_type)
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_null)
    return any(is_kind(arrow_type) for is_kind in kinds)
