"""The section `shards`: where job 2 writes training rows, and what the rows look like."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from bpe_core.encoding.added_tokens import SpecialInText
from pipelines.settings.section import OutputFolder, Section
from pipelines.storage.output_files import ROW_COLUMNS


class BucketChoice(Section):
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


class Shards(Section):
    """Job 2: where the training rows go, and what they look like."""

    output: OutputFolder = Field(description="the folder of the shards")
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
