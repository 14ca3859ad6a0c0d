"""What the sections of a project's settings share: their base class and the types of paths."""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, field_validator

from pipelines.storage.local_files import has_glob_mark, is_utf8


class Section(BaseModel):
    """A group of settings that cannot be changed and refuses unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @field_validator("*")
    @classmethod
    def _refuse_text_that_is_not_utf8(cls, value: Any) -> Any:
        for text in _find_texts(value):
            if not is_utf8(text):
                raise ValueError(f"{text!r} is not UTF-8, so no output could record it; use another name")
        return value


def _find_texts(value: Any) -> Iterator[str]:
    """Yields the strings in a value, also those in lists and dictionaries."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _find_texts([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _find_texts(item)


def _list_one_path(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_list_one_path)]
"""Several paths; in YAML, one path may be written without a list."""


def _refuse_remote_glob(path: str) -> str:
    if "://" in path and not path.startswith("s3://") and has_glob_mark(path):
        raise ValueError(
            f"{path!r} contains one of * ? [, which Beam reads as a glob when it deletes files on this file system; "
            "choose another name"
        )
    return path


OutputFolder = Annotated[str, AfterValidator(_refuse_remote_glob)]
"""A folder to write to. On stores that Beam itself reaches, such as `gs://`, its name must not look like a glob."""
