"""The section `report`: where the report goes, and what it shows."""

from pydantic import Field

from pipelines.settings.section import OutputFolder, Section


class Report(Section):
    """The report: where it goes, and what it shows beside the tokenizer itself."""

    output: OutputFolder = Field(description="the folder of report.html, report.json and the CSV files")
    tokenizer: str | None = Field(None, description="a tokenizer's folder or tokenizer.json; train.output if left out")
    words: tuple[str, ...] = Field(
        (), description="words to show in pieces as merges grow; of the sweep, or of the vocabulary, if left out"
    )
    samples: tuple[str, ...] = Field(
        (), description="texts to show in tokens; the start of some documents of the corpus if left out"
    )
    sweep: str | None = Field(None, description="the JSON file of a sweep over vocabulary sizes")
    audit: str | None = Field(None, description="the JSON file of an audit of the tokens")
