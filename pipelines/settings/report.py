"""The section `report`: where the report goes, and what it shows."""

from pydantic import Field

from pipelines.settings.section import OutputFolder, Section


class Report(Section):
    """The report: where to write it, and what it shows besides the tokenizer itself."""

    output: OutputFolder = Field(description="the folder of report.html, report.json and the CSV files")
    tokenizer: str | None = Field(None, description="a tokenizer's folder or tokenizer.json; train.output if left out")
    words: tuple[str, ...] = Field(
        (), description="words to show split into tokens; if left out, words of the sweep or of the vocabulary"
    )
    samples: tuple[str, ...] = Field(
        (), description="texts to show split into tokens; if left out, the start of some documents of the corpus"
    )
    sweep: str | None = Field(None, description="the JSON file of a sweep over vocabulary sizes")
    audit: str | None = Field(None, description="the JSON file of an audit of the tokens")
