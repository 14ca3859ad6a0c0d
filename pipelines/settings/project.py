"""The settings of one corpus project: all sections together, and what each job needs of them."""

from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from pipelines.settings.corpus import Corpus
from pipelines.settings.report import Report
from pipelines.settings.run import Run
from pipelines.settings.shards import Shards
from pipelines.settings.sweep import Sweep
from pipelines.settings.tokenizer import TokenizerSettings
from pipelines.settings.train import Train


class Project(BaseSettings):
    """One corpus project: the corpus, its tokenizer, and what each job does with them."""

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
        """The setting and folder of each output; they must differ from each other and not contain the corpus."""
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
        """Lets the environment win over the file, whose settings arrive as arguments."""
        return env_settings, init_settings
