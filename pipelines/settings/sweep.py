"""The section `sweep`: which vocabulary sizes to compare, and by which measures."""

from typing import Annotated, Self

from pydantic import Field, model_validator

from pipelines.settings.section import OutputFolder, Section


class Sweep(Section):
    """Compares vocabulary sizes: which sizes, on which text, and by which measures."""

    output: OutputFolder = Field(description="the folder for the results and the largest tokenizer")
    vocab_sizes: tuple[Annotated[int, Field(gt=0)], ...] = Field(
        (), description="vocabulary sizes in rising order; give this or num_merges"
    )
    num_merges: tuple[Annotated[int, Field(ge=0)], ...] = Field(
        (), description="numbers of merges in rising order; give this or vocab_sizes"
    )
    sample_bytes: int = Field(
        64 << 20, gt=0, description="about how many bytes of text to measure on, spread evenly over the corpus"
    )
    positives: tuple[Annotated[str, Field(min_length=1)], ...] = Field((), description="words that should be one token")
    negatives: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        (), description="words that should be several tokens"
    )
    language_column: str | None = Field(None, description="the column of the corpus that names a document's language")
    reference_language: str | None = Field(None, description="the language that parity compares the others with")
    rare_count: int = Field(10, ge=1, description="a token that the sample uses less often than this is rare")
    hidden_size: int = Field(4096, gt=0, description="size of the model's hidden state")
    model_parameters: int = Field(
        7_000_000_000, gt=0, description="parameters of the model, including those of its vocabulary"
    )
    tied: bool = Field(False, description="whether the model's embedding and output layer share one matrix")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if bool(self.vocab_sizes) == bool(self.num_merges):
            raise ValueError(
                f"vocab_sizes is {list(self.vocab_sizes)} and num_merges is {list(self.num_merges)}; give exactly one"
            )
        if list(self.sizes) != sorted(set(self.sizes)):
            raise ValueError(f"the sizes {list(self.sizes)} must be in rising order, without repetition")
        for name, words in (("positives", self.positives), ("negatives", self.negatives)):
            twice = [word for index, word in enumerate(words) if word in words[:index]]
            if twice:
                raise ValueError(f"{name} names {twice[0]!r} twice")
        both = [word for word in self.positives if word in self.negatives]
        if both:
            raise ValueError(f"{both[0]!r} is in both positives and negatives; remove it from one of them")
        if self.reference_language is not None and self.language_column is None:
            raise ValueError(
                f"reference_language is {self.reference_language!r}, but language_column is missing; name the column"
            )
        return self

    @property
    def sizes(self) -> tuple[int, ...]:
        """The vocabulary sizes or numbers of merges, whichever are given, in rising order."""
        return self.vocab_sizes or self.num_merges
