"""The section `corpus`: which documents the jobs read."""

from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from pipelines.settings.section import Paths, Section

CorpusFormat = Literal["auto", "parquet", "jsonl", "text"]
SampleCorpus = Literal["known-answers", "python-stdlib"]
OnBad = Literal["fail", "quarantine"]


def _spell_off(value: Any) -> Any:
    return "off" if value is False else value  # YAML reads the word `off` as False.


class Corpus(Section):
    """Which documents are read."""

    files: Paths = Field((), description="files, globs (** crosses folders) and folders, local or URLs")
    sample: SampleCorpus | None = Field(
        None, description="a corpus that needs no files: known-answers or python-stdlib"
    )
    format: CorpusFormat = Field("auto", description="auto: by each file's name; jsonl and text may be .gz, .zst, .bz2")
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
    deduplicate: Annotated[Literal["off", "exact"], BeforeValidator(_spell_off)] = Field(
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
