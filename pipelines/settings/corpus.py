"""The section `corpus`: which documents the jobs read."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from pipelines.settings.section import Paths, Section

CorpusFormat = Literal["auto", "parquet", "jsonl", "text"]
SampleCorpus = Literal["known-answers", "python-stdlib"]
OnBad = Literal["fail", "quarantine"]

_POLICIES_OF_TYPED_FILES = ["on_null", "on_bad_json", "on_wrong_type"]
"""Settings about files that have columns or keys, and so values that may be missing or of another type."""
_POLICIES_OF_CONTENT = [*_POLICIES_OF_TYPED_FILES, "on_invalid_utf8", "on_unreadable"]
"""Settings about what files hold, whatever their size."""


def _spell_off(value: Any) -> Any:
    return "off" if value is False else value  # YAML reads the word `off` as False.


class Corpus(Section):
    """Says which documents the jobs read, and what to do with bad ones."""

    files: Paths = Field((), description="files, globs (** crosses folders) and folders, local or URLs")
    sample: SampleCorpus | None = Field(
        None, description="a corpus that needs no files: known-answers or python-stdlib"
    )
    format: CorpusFormat = Field("auto", description="auto: by each file's name; jsonl and text may be .gz, .zst, .bz2")
    text_column: str = Field("text", description="the column or JSON key that holds the text, or the dotted path to it")
    text_document: Literal["file", "line"] = Field(
        "file", description="whether a document is a whole text file or one line of it"
    )
    on_invalid_utf8: Literal["fail", "replace", "skip", "quarantine"] = Field(
        "fail",
        description="a document that is not UTF-8: stop, replace bad bytes by U+FFFD, leave it out, or also list it",
    )
    fingerprint: Literal["whole", "sampled"] = Field(
        "whole",
        description="how to notice a changed file: by all its bytes, or (huge corpora) its size and 64 pieces of it",
    )
    on_null: Literal["skip", "fail", "quarantine"] = Field(
        "skip", description="a document without text: leave it out, stop, or leave it out and list it in _quarantine/"
    )
    on_bad_json: OnBad = Field("fail", description="a line that is not JSON, or lacks the text or a carried key")
    on_wrong_type: OnBad = Field("fail", description="a column or JSON value that should be text and is not")
    on_unreadable: OnBad = Field(
        "fail", description="a file or row group that is damaged, truncated, encrypted, or in another format"
    )
    max_document_bytes: int | None = Field(
        None, gt=0, description="the longest document that is not too long, in bytes of UTF-8"
    )
    on_long_document: OnBad = Field("fail", description="a document longer than max_document_bytes")
    max_bad_documents: int | None = Field(None, ge=0, description="stop if more documents than this are in quarantine")
    max_bad_share: float | None = Field(
        None, ge=0, le=1, description="stop if a larger share of all documents than this is in quarantine"
    )
    deduplicate: Annotated[Literal["off", "exact"], BeforeValidator(_spell_off)] = Field(
        "off",
        description="exact: keep only the first of all documents that are equal after the tokenizer's normalization",
    )
    weights: tuple[Annotated[float, Field(gt=0)], ...] = Field(
        (), description="how often the documents of each entry of files occur; 2.3: all twice, and 3 in 10 a third time"
    )
    weight_seed: int = Field(0, ge=0, description="seed of the choice of the documents that occur once more")

    @property
    def identity(self) -> dict[str, Any]:
        """The settings that decide which documents are read and what they contain: all except the limits."""
        return self.model_dump(mode="json", exclude={"max_bad_documents", "max_bad_share"})

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.on_long_document == "quarantine" and self.max_document_bytes is None:
            raise ValueError("on_long_document is quarantine, but max_document_bytes is missing; set it")
        if self.weights and len(self.weights) != len(self.files):
            raise ValueError(
                f"weights has {len(self.weights)} numbers and files has {len(self.files)} entries; "
                "give one weight for each entry"
            )
        if len(set(self.files)) < len(self.files) and self.weights:
            raise ValueError(
                f"files {list(self.files)} names an entry twice, but each entry has its own weight; name it once"
            )
        if bool(self.files) == bool(self.sample):
            raise ValueError(f"files is {list(self.files)} and sample is {self.sample}; give exactly one of the two")
        self._refuse_without_effect()
        return self

    def _refuse_without_effect(self) -> None:
        """Raises ValueError if a setting cannot change anything because of the others."""
        if self.sample == "known-answers":
            names = ["format", "text_column", "text_document", "fingerprint", *_POLICIES_OF_CONTENT]
            self._refuse_given(names, "sample: known-answers")
        elif self.sample:
            self._refuse_given(["format", "text_column", *_POLICIES_OF_TYPED_FILES], f"sample: {self.sample}")
        elif self.format == "text":
            self._refuse_given(["text_column", *_POLICIES_OF_TYPED_FILES], "format: text")
        elif self.format != "auto":
            policies = ["on_bad_json"] if self.format == "parquet" else []
            self._refuse_given(["text_document", *policies], f"format: {self.format}")
        if "quarantine" not in (getattr(self, name) for name in type(self).model_fields if name.startswith("on_")):
            for name in ("max_bad_documents", "max_bad_share"):
                if getattr(self, name) is not None:
                    raise ValueError(
                        f"{name} is {getattr(self, name)}, which has no effect, because no on_... of the corpus is "
                        "quarantine; remove it, or set one of them to quarantine"
                    )
        if not self.weights:
            self._refuse_given(["weight_seed"], "a corpus without weights")

    def _refuse_given(self, names: Sequence[str], reason: str) -> None:
        """Raises ValueError if one of these settings has another value than its default."""
        for name in names:
            value = getattr(self, name)
            if value != type(self).model_fields[name].default:
                raise ValueError(f"{name} is {value!r}, which has no effect with {reason}; remove one of the two")
