"""What the sections of a project's settings share: their base class and the types of paths."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict


class Section(BaseModel):
    """A group of settings that cannot be changed and refuses unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _list_one_path(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


Paths = Annotated[tuple[str, ...], BeforeValidator(_list_one_path)]
"""Several paths; in YAML, one path may be written without a list."""


def _refuse_glob(path: str) -> str:
    if any(mark in path for mark in "*?["):
        raise ValueError(
            f"{path!r} contains one of * ? [, which Beam's file systems read as a glob; choose another name"
        )
    return path


OutputFolder = Annotated[str, AfterValidator(_refuse_glob)]
"""A folder to write to; its name must not look like a glob."""
