"""The section `shards`: where job 2 writes training rows, and what the rows look like."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bpe_core.encoding.added_tokens import SpecialInText
from bpe_core.formats.tokenizer_json import Engine
from bpe_core.pretokenize.normalizer import Normalization
from pipelines.settings.section import OutputFolder, Section
from pipelines.storage.output_files import ROW_COLUMNS


class BucketChoice(Section):
    """Which bucket lengths to choose from: the job takes those that need the least padding over the corpus."""

    count: int = Field(8, ge=1, description="the largest number of buckets")
    max_length: int = Field(4096, gt=0, description="the longest bucket allowed, in tokens")
    multiple_of: int = Field(8, ge=1, description="every bucket length is a multiple of this")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.max_length % self.multiple_of:
            raise ValueError(
                f"max_length is {self.max_length}, which is not a multiple of multiple_of, {self.multiple_of}"
            )
        return self


class Shards(Section):
    """Job 2: where to write training rows, and what they look like."""

    output: OutputFolder = Field(description="the folder of the shards")
    tokenizer: str | None = Field(
        None, description="a tokenizer's folder, or one of its files; train.output if left out"
    )
    pattern: str | None = Field(
        None, description="the pattern of a tokenizer whose files have none, such as .tiktoken and vocab.json"
    )
    unicode: Normalization = Field(
        "none", description="the Unicode normalization of such a tokenizer, such as NFC for Qwen's files"
    )
    special_tokens: dict[str, dict[str, int]] = Field(
        {},
        description="special tokens that the tokenizer's files do not declare, or give no role: role to spelling to "
        "id, such as {eos: {<|endoftext|>: 100257}}",
    )
    engine: Engine = Field(
        "auto",
        description="what encodes: compiled code (native), Hugging Face's library (hf), or the library only for a "
        "tokenizer.json that compiled code does not support (auto)",
    )
    bucket_lengths: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (128, 256, 512, 1024, 2048),
        min_length=1,
        description="row lengths in tokens; a row goes to the shortest bucket that holds it",
    )
    buckets: BucketChoice | None = Field(
        None,
        description="instead of bucket_lengths: choose the lengths with least padding; reads the corpus once more",
    )
    layout: Literal["padded", "packed"] = Field(
        "padded", description="one document per row, padded to its bucket; or several, with position and segment ids"
    )
    row_length: int | None = Field(
        None, gt=0, description="tokens in a packed row; the longest of bucket_lengths if left out"
    )
    shuffle_seed: int | None = Field(
        None,
        ge=0,
        description="shuffle row groups over tasks and the rows of each task; if left out, keep the corpus's order",
    )
    on_overflow: Literal["split", "truncate", "drop"] = Field(
        "split", description="a document longer than the longest row: write several rows, only the first row, or none"
    )
    overlap: int = Field(
        0, ge=0, description="how many tokens a row repeats from the previous row (on_overflow: split)"
    )
    begin_token: bool = Field(False, description="put the bos token, or else the cls token, before each document")
    end_token: bool = Field(True, description="put the eos token, or else the sep token, after each document")
    special_in_text: SpecialInText = Field(
        "plain", description="a special token's spelling inside a text is ordinary text, the special token, or an error"
    )
    repeated_ends: Literal["keep", "drop"] = Field(
        "keep",
        description="a text that itself begins with the bos token or ends with the eos token (special_in_text: allow): "
        "add another one all the same, or add none there",
    )
    token_type_ids: bool = Field(
        False, description="add token_type_ids, all 0, for models such as BERT that want them in each batch"
    )
    labels: bool = Field(False, description="add labels: input_ids where the mask is 1, -100 elsewhere")
    carry: tuple[str, ...] = Field((), description="names of corpus columns to copy into the rows")
    provenance: bool = Field(True, description="add source_file, source_row and source_part to each row")
    task_bytes: int | None = Field(
        None,
        gt=0,
        description="about how many bytes of text a task reads; if left out, a 64th of the corpus, 4 to 64 MiB",
    )
    row_group_bytes: int = Field(
        32 << 20, gt=0, description="about how many bytes of padded ids, or of carried values, a row group holds"
    )
    compression_level: int = Field(1, ge=1, le=22, description="compression level of zstd")
    on_changed: Literal["fail", "replace"] = Field(
        "fail", description="a source file that changed since the last run: stop, or run its tasks again"
    )
    on_removed: Literal["fail", "keep", "drop"] = Field(
        "fail", description="a source file deleted since the last run: stop, keep its rows, or delete them"
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if list(self.bucket_lengths) != sorted(set(self.bucket_lengths)):
            raise ValueError(f"bucket_lengths {list(self.bucket_lengths)} must be in rising order, without repetition")
        self._check_lengths()
        if self.overlap and self.on_overflow != "split":
            raise ValueError(
                f"overlap is {self.overlap}, which applies only to on_overflow: split, not {self.on_overflow}"
            )
        if self.overlap >= self.longest_row:
            raise ValueError(f"overlap is {self.overlap}; it must be less than the longest row, {self.longest_row}")
        if self.repeated_ends == "drop" and self.special_in_text != "allow":
            raise ValueError(
                f"repeated_ends: drop has no effect with special_in_text: {self.special_in_text}, because then no text "
                "has special tokens; remove it, or set special_in_text to allow"
            )
        if self.repeated_ends == "drop" and not (self.begin_token or self.end_token):
            raise ValueError("repeated_ends: drop has no effect without begin_token and end_token; remove it")
        if len(set(self.carry)) < len(self.carry):
            raise ValueError(f"carry {list(self.carry)} names a column twice")
        taken = set(self.carry) & {*ROW_COLUMNS, "bucket"}
        if taken:
            raise ValueError(
                f"carry names {sorted(taken)[0]!r}, which the shards use for a column of their own; rename it first"
            )
        return self

    def _check_lengths(self) -> None:
        """Raises ValueError unless row lengths are given in exactly one way, which suits the layout."""
        if self.layout == "padded" and self.row_length is not None:
            raise ValueError(f"row_length is {self.row_length}, which applies only to layout: packed, not padded")
        if self.layout == "packed" and self.buckets is not None:
            raise ValueError("buckets applies only to layout: padded, but layout is packed; give row_length instead")
        for name in ("buckets", "row_length"):
            if getattr(self, name) is not None and "bucket_lengths" in self.model_fields_set:
                raise ValueError(f"bucket_lengths and {name} are both given; remove one of the two")

    @property
    def longest_row(self) -> int:
        """The length of the longest row, in tokens; longer documents overflow."""
        if self.layout == "packed":
            return self.row_length or self.bucket_lengths[-1]
        return self.buckets.max_length if self.buckets else self.bucket_lengths[-1]
