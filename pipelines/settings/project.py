"""The settings of one corpus project, for both jobs: what they are, what they default to, what contradicts what."""

import os
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from bpe_core.encoding.added_tokens import SpecialInText
from bpe_core.encoding.model import SpecialIds, VocabOrder, list_special_tokens, make_pre_tokenizer
from bpe_core.merging.alphabet import Kind, Placement
from bpe_core.merging.loop import Ties
from bpe_core.merging.merges import check_settings
from bpe_core.pretokenize.pre_tokenizer import Normalization, PreTokenizer
from pipelines.storage import files
from pipelines.storage.output_files import ROW_COLUMNS, WORD_COUNTS_FOLDER

Format = Literal["auto", "parquet", "jsonl", "text"]
Sample = Literal["known-answers", "python-stdlib"]
OnBad = Literal["fail", "quarantine"]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_listed)]


def _no_glob(path: str) -> str:
    if any(mark in path for mark in "*?["):
        raise ValueError(
            f"{path!r} holds one of * ? [, which Beam's file systems take for a pattern; choose another name"
        )
    return path


Folder = Annotated[str, AfterValidator(_no_glob)]


def _off(value: Any) -> Any:
    return "off" if value is False else value  # As YAML reads the word.


class _Group(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Corpus(_Group):
    """Which documents are read."""

    files: Paths = Field((), description="files, globs (** crosses folders) and folders, on any of Beam's file systems")
    sample: Sample | None = Field(None, description="a corpus that needs no files: known-answers or python-stdlib")
    format: Format = Field("auto", description="auto goes by each file's name; jsonl and text may be .gz, .zst or .bz2")
    text_column: str = Field("text", description="the column, JSON key, or dotted path to it, that holds the text")
    text_document: Literal["file", "line"] = Field("file", description="what one document is in a text file")
    on_invalid_utf8: Literal["fail", "replace", "skip", "quarantine"] = Field(
        "fail",
        description="a document that is not UTF-8: stop, put U+FFFD for the bad bytes, leave it out, or list it too",
    )
    fingerprint: Literal["whole", "sampled"] = Field(
        "whole",
        description="what tells that a file changed: all its bytes, or its size and 64 pieces of it, for huge corpora",
    )
    on_null: Literal["skip", "fail", "quarantine"] = Field(
        "skip", description="a document without text: leave it out, stop, or leave it out and list it in _quarantine/"
    )
    on_bad_json: OnBad = Field("fail", description="a line that is not JSON, or lacks the text or a carried key")
    on_wrong_type: OnBad = Field("fail", description="a column or JSON value that should hold text and does not")
    on_unreadable: OnBad = Field("fail", description="a file or row group that is damaged, cut off, or not its format")
    max_document_bytes: int | None = Field(None, gt=0, description="a document of more bytes of UTF-8 is too long")
    on_long_document: OnBad = Field("fail", description="a document above max_document_bytes")
    max_bad_documents: int | None = Field(None, ge=0, description="fail when more documents are in quarantine")
    max_bad_share: float | None = Field(
        None, ge=0, le=1, description="fail when a larger share of all documents is in quarantine"
    )
    deduplicate: Annotated[Literal["off", "exact"], BeforeValidator(_off)] = Field(
        "off",
        description="exact: of documents that are equal once the tokenizer has normalised them, the first alone stays",
    )
    weights: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (), description="for each of files, how often its documents occur: 2.3 is twice, and 3 of 10 once more"
    )
    weight_seed: int = Field(0, ge=0, description="of the draw which documents occur once more")

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that decide which documents there are and what they hold: all but the limits."""
        return self.model_dump(mode="json", exclude={"max_bad_documents", "max_bad_share"})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.on_long_document == "quarantine" and self.max_document_bytes is None:
            raise ValueError("on_long_document is quarantine, but max_document_bytes is missing; say what is too long")
        if self.weights and len(self.weights) != len(self.files):
            raise ValueError(
                f"weights has {len(self.weights)} numbers and files has {len(self.files)} entries; give one for each"
            )
        if len(set(self.files)) < len(self.files) and self.weights:
            raise ValueError(f"files {list(self.files)} names one entry twice, and weights go by entry; name it once")
        if bool(self.files) == bool(self.sample):
            raise ValueError(f"files is {list(self.files)} and sample is {self.sample}; give exactly one of the two")
        return self


class TokenizerSettings(_Group):
    """What the tokenizer is. `Tokenizer.train` takes the same settings and describes them."""

    kind: Kind = Field("byte", description="what base symbols are: the 256 bytes, or the corpus's characters")
    pattern: str | None = Field(None, description="a named pattern or a regular expression; gpt2 for kind byte")
    vocab_size: int | None = Field(None, gt=0, description="base symbols, merges and special tokens together")
    num_merges: int | None = Field(None, ge=0, description="merges to learn, in place of vocab_size")
    ties: Ties | None = Field(None, description="which of several equally frequent pairs is merged first")
    min_frequency: int = Field(1, ge=1, description="a pair that occurs less often is not merged")
    max_token_length: int | None = Field(None, ge=1, description="longest token, in bytes or characters")
    limit_alphabet: int | None = Field(None, ge=1, description="how many different characters to keep (kind char)")
    whole_characters: bool = Field(False, description="no merge joins part of a character with more (kind byte)")
    unicode: Normalization = Field("none", description="Unicode normalisation of the text")
    lowercase: bool = Field(False, description="put the text in lower case")
    end_of_word: str = Field("</w>", min_length=1, description="how the end-of-word marker is written (kind char)")
    end_of_word_placement: Placement = Field("apart", description="marker apart, or glued to the last character")
    special_tokens: dict[str, str | list[str]] = Field(
        {}, description="role (bos, eos, unk, pad, sep, cls, mask, additional) to spelling, in the order of the ids"
    )
    special_ids: SpecialIds = Field("last", description="special tokens have the first or the last ids")
    vocab_order: VocabOrder = Field("merges", description="ids as merges were learned, sorted, or as gpt2")

    @model_validator(mode="after")
    def _check(self) -> Self:
        check_settings(self.kind, num_merges=self.num_merges, vocab_size=self.vocab_size, ties=self.ties)
        make_pre_tokenizer(self.kind, self.pattern)
        num_special = len(list_special_tokens(self.special_tokens))
        if self.kind == "byte":
            if self.vocab_size is not None and self.vocab_size < 256 + num_special:
                raise ValueError(
                    f"vocab_size is {self.vocab_size}, but 256 bytes and {num_special} special tokens need "
                    f"{256 + num_special}"
                )
            only_char = {"limit_alphabet", "end_of_word", "end_of_word_placement"} & self.model_fields_set
            if only_char:
                raise ValueError(f"{sorted(only_char)[0]} is for kind char, and kind is byte; remove one of the two")
        elif self.whole_characters or self.vocab_order == "gpt2":
            name = "whole_characters" if self.whole_characters else "vocab_order: gpt2"
            raise ValueError(f"{name} is for kind byte, and kind is char; remove one of the two")
        return self

    def resized(self, *, vocab_size: int | None = None, num_merges: int | None = None) -> Self:
        """Returns the same settings for another size, given one way; raises ValueError where they do not allow it."""
        size = {"vocab_size": vocab_size, "num_merges": num_merges}
        try:
            return type(self)(**{**self.model_dump(exclude_unset=True), **size})
        except ValidationError as error:
            raise ValueError(str(error.errors()[0]["msg"]).removeprefix("Value error, ")) from error

    @property
    def pre_tokenizer(self) -> PreTokenizer:
        """The pre-tokenizer that these settings ask for."""
        return make_pre_tokenizer(self.kind, self.pattern, self.unicode, self.lowercase)


LEARNING_SETTINGS = {"vocab_size", "num_merges", "ties", "min_frequency", "max_token_length", "whole_characters"}
"""The settings of a tokenizer that say how merges are learned, and not what its files hold."""


class Train(_Group):
    """Job 1: where the tokenizer goes, and how it is learned."""

    output: Folder = Field(description="the tokenizer's folder")
    from_counts: str | None = Field(None, description="a folder of word counts to train from; the corpus is not read")
    start_from: str | None = Field(
        None, description="a tokenizer of kind byte to go on from: its ids stay, vocab_size counts them too"
    )
    min_count: int = Field(1, ge=1, description="words that occur less often are left out of the merge loop")
    num_partitions: int = Field(16, ge=1, le=10_000, description="files that the word counts are kept in")
    checkpoint_seconds: float = Field(30, gt=0, description="how often the merges so far are kept")

    @property
    def kept_counts(self) -> str:
        """The folder that the word counts of the corpus are kept in."""
        return files.join(self.output, WORD_COUNTS_FOLDER)

    @property
    def counts_folder(self) -> str:
        """The folder of the word counts to train from."""
        return self.from_counts or self.kept_counts


class BucketChoice(_Group):
    """Which bucket lengths to choose from; those are taken that pad least over the corpus."""

    count: int = Field(8, ge=1, description="buckets, at most")
    max_length: int = Field(4096, gt=0, description="the longest bucket that is allowed, in tokens")
    multiple_of: int = Field(8, ge=1, description="what divides all bucket lengths")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_length % self.multiple_of:
            raise ValueError(
                f"max_length is {self.max_length}, which is no multiple of multiple_of, {self.multiple_of}"
            )
        return self


class Shards(_Group):
    """Job 2: where the training rows go, and what they look like."""

    output: Folder = Field(description="the folder of the shards")
    tokenizer: str | None = Field(
        None, description="a tokenizer's folder, tokenizer.json or .tiktoken file; train.output if left out"
    )
    pattern: str | None = Field(
        None, description="how text is cut, for a tokenizer that does not say: .tiktoken, vocab.json with merges.txt"
    )
    special_tokens: dict[str, dict[str, int]] = Field(
        {}, description="for such a tokenizer: role to spelling to id, as {eos: {<|endoftext|>: 100257}}"
    )
    bucket_lengths: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (128, 256, 512, 1024, 2048),
        min_length=1,
        description="row lengths in tokens; a row goes to the smallest that holds it",
    )
    buckets: BucketChoice | None = Field(
        None,
        description="in place of bucket_lengths: the lengths that pad least over the corpus, read once more for it",
    )
    layout: Literal["padded", "packed"] = Field(
        "padded", description="one document in a row, padded to its bucket; or several, with position and segment ids"
    )
    row_length: int | None = Field(
        None, gt=0, description="tokens in a packed row; the longest of bucket_lengths if left out"
    )
    shuffle_seed: int | None = Field(
        None,
        ge=0,
        description="shuffle row groups over tasks and the rows of a task; in the corpus's order if left out",
    )
    on_overflow: Literal["split", "truncate", "drop"] = Field(
        "split", description="a document longer than the longest row: several rows, its first row only, or none"
    )
    overlap: int = Field(0, ge=0, description="tokens that a row repeats from the row before (on_overflow: split)")
    begin_token: bool = Field(False, description="put the bos token before each document")
    end_token: bool = Field(True, description="put the eos token after each document")
    special_in_text: SpecialInText = Field(
        "plain", description="a special token spelled out in a text: letters like any other, the token, or an error"
    )
    labels: bool = Field(False, description="add labels: input_ids where the mask is 1, -100 elsewhere")
    carry: tuple[str, ...] = Field((), description="columns of the corpus to carry along, by name")
    provenance: bool = Field(True, description="add source_file, source_row and source_part to each row")
    task_bytes: int | None = Field(
        None,
        gt=0,
        description="text that one task reads, in bytes, about; a 64th of the corpus, 4 to 64 MiB, if left out",
    )
    row_group_bytes: int = Field(32 << 20, gt=0, description="padded ids in one row group, in bytes, about")
    compression_level: int = Field(1, ge=1, le=22, description="of zstd")
    on_changed: Literal["fail", "replace"] = Field(
        "fail", description="a source file that changed since the last run: stop, or do its tasks anew"
    )
    on_removed: Literal["fail", "keep", "drop"] = Field(
        "fail", description="a source file that is gone since the last run: stop, keep its rows, or delete them"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if list(self.bucket_lengths) != sorted(set(self.bucket_lengths)):
            raise ValueError(f"bucket_lengths {list(self.bucket_lengths)} must rise from each to the next")
        self._check_lengths()
        if self.overlap and self.on_overflow != "split":
            raise ValueError(f"overlap is {self.overlap}, which is for on_overflow: split, not {self.on_overflow}")
        if self.overlap >= self.longest_row:
            raise ValueError(f"overlap is {self.overlap}; it must be less than the longest row, {self.longest_row}")
        if len(set(self.carry)) < len(self.carry):
            raise ValueError(f"carry {list(self.carry)} names a column twice")
        taken = set(self.carry) & {*ROW_COLUMNS, "bucket"}
        if taken:
            raise ValueError(
                f"carry names {sorted(taken)[0]!r}, which is a column of the shards themselves; rename it first"
            )
        return self

    def _check_lengths(self) -> None:
        """Row lengths are given one way."""
        if self.layout == "padded" and self.row_length is not None:
            raise ValueError(f"row_length is {self.row_length}, which is for layout: packed, not padded")
        if self.layout == "packed" and self.buckets is not None:
            raise ValueError("buckets is for layout: padded, and layout is packed; give row_length in its place")
        for name in ("buckets", "row_length"):
            if getattr(self, name) is not None and "bucket_lengths" in self.model_fields_set:
                raise ValueError(f"bucket_lengths and {name} are both given; remove one of the two")

    @property
    def longest_row(self) -> int:
        """Where documents are cut, in tokens."""
        if self.layout == "packed":
            return self.row_length or self.bucket_lengths[-1]
        return self.buckets.max_length if self.buckets else self.bucket_lengths[-1]


class Sweep(_Group):
    """How large the vocabulary should be: which sizes are compared, on which text, and by what."""

    output: Folder = Field(description="the folder of sweep.json, sweep.csv, languages.csv and the largest tokenizer")
    vocab_sizes: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (), description="vocabulary sizes, from the smallest; this or num_merges"
    )
    num_merges: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="numbers of merges, from the smallest; this or vocab_sizes"
    )
    sample_bytes: int = Field(64 << 20, gt=0, description="text to measure on, in bytes, about, evenly spread")
    positives: tuple[Annotated[str, Field(min_length=1)], ...] = Field((), description="words that should be one token")
    negatives: tuple[Annotated[str, Field(min_length=1)], ...] = Field((), description="words that should be in pieces")
    language_column: str | None = Field(None, description="the column of the corpus that names a document's language")
    reference_language: str | None = Field(None, description="the language that parity compares the others with")
    rare_count: int = Field(10, ge=1, description="a token that the sample uses less often is rare")
    hidden_size: int = Field(4096, gt=0, description="numbers in the model's hidden state")
    model_parameters: int = Field(7_000_000_000, gt=0, description="parameters of the model, with its vocabulary's")
    tied: bool = Field(False, description="the embedding and the output layer of the model are one matrix")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.vocab_sizes) == bool(self.num_merges):
            raise ValueError(
                f"vocab_sizes is {list(self.vocab_sizes)} and num_merges is {list(self.num_merges)}; give exactly one"
            )
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"the sizes {list(self.sizes)} must rise from each to the next")
        for name, words in (("positives", self.positives), ("negatives", self.negatives)):
            twice = [word for index, word in enumerate(words) if word in words[:index]]
            if twice:
                raise ValueError(f"{name} names {twice[0]!r} twice")
        both = [word for word in self.positives if word in self.negatives]
        if both:
            raise ValueError(f"{both[0]!r} is among the positives and the negatives; it can be one only")
        if self.reference_language is not None and self.language_column is None:
            raise ValueError(
                f"reference_language is {self.reference_language!r}, but language_column is missing; name the column"
            )
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """The vocabulary sizes or numbers of merges, whichever are given, in rising order."""
        return self.vocab_sizes or self.num_merges


class Report(_Group):
    """The report: where it goes, and what it shows beside the tokenizer itself."""

    output: Folder = Field(description="the folder of report.html, report.json and the CSV files")
    tokenizer: str | None = Field(None, description="a tokenizer's folder or tokenizer.json; train.output if left out")
    words: tuple[str, ...] = Field(
        (), description="words to show in pieces as merges grow; of the sweep, or of the vocabulary, if left out"
    )
    samples: tuple[str, ...] = Field(
        (), description="texts to show in tokens; the start of some documents of the corpus if left out"
    )
    sweep: str | None = Field(None, description="the JSON file of a sweep over vocabulary sizes")
    audit: str | None = Field(None, description="the JSON file of an audit of the tokens")


class Run(_Group):
    """How jobs run; nothing here changes a byte of any output."""

    workers: int = Field(0, ge=0, description="processes of the local runner; 0: as many as there are cores")
    overwrite: bool = Field(False, description="replace another run's output in the same folder")
    progress: bool = Field(True, description="show progress bars")
    lock_seconds: float = Field(
        120, gt=0, description="a run on another machine without a sign of life for so many seconds is dead"
    )
    metrics: str | None = Field(None, description="a file, *.prom, for metrics of the run in Prometheus' text format")

    @property
    def num_workers(self) -> int:
        """Processes of the local runner."""
        return self.workers or len(os.sched_getaffinity(0))


class Project(BaseSettings):
    """One corpus project: the corpus, its tokenizer, both jobs, and how large the vocabulary should be."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="forbid",
        env_prefix="TOKENMILL_",
        env_nested_delimiter="__",
        cli_implicit_flags=False,
        cli_avoid_json=True,
        cli_hide_none_type=True,
    )

    corpus: Corpus
    tokenizer: TokenizerSettings | None = None
    train: Train | None = None
    shards: Shards | None = None
    sweep: Sweep | None = None
    report: Report | None = None
    run: Run = Run()

    @property
    def outputs(self) -> dict[str, str]:
        """Setting -> folder of each output that must be apart from the others and from the corpus."""
        sections = {"train": self.train, "shards": self.shards, "sweep": self.sweep}
        return {f"{name}.output": section.output for name, section in sections.items() if section}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return env_settings, init_settings
