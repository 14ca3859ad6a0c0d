"""A project's settings, read: a YAML file, then the environment, then the command line; and what is wrong with them.

A later source wins: `tokenizer.vocab_size` in the file, `TOKENMILL_TOKENIZER__VOCAB_SIZE` in the environment,
`--tokenizer.vocab_size` on the command line.
"""

import difflib
import json
import os
import re
from collections.abc import Sequence
from typing import Any, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError
from pydantic_settings import SettingsError

from pipelines.settings.project import Project
from pipelines.storage import files


def load_project(path: str, overrides: Sequence[str] = (), *, command: str = "tokenmill") -> Project:
    """Returns the settings in a YAML file, with those of the environment and the command line over them.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not YAML, or a setting is unknown, of the wrong type, missing, or contradicts another; the
            message names the file, each such setting, its value, and what to do.
    """
    try:
        content = yaml.load(files.read_text(path), _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no settings; start from one of the files in configs/")
    _refuse_unknown_in_environment()
    unknown = set(content) - set(Project.model_fields)
    if unknown:
        raise ValueError(_message(path, [_unknown(str(key), Project) for key in sorted(map(str, unknown))]))
    try:
        return Project(
            **content,
            _cli_parse_args=list(overrides),
            _cli_prog_name=command,
            _cli_exit_on_error=False,
        )
    except SettingsError as error:
        if "EnvSettingsSource" in str(error):
            raise ValueError(_message("the environment", _not_json_in_environment() or [str(error)])) from error
        names = re.findall(r"--([\w.]+)", str(error)) if "unrecognized" in str(error) else []
        lines = [_unknown(name, _model_at(name.split(".")[:-1])) for name in names] or [str(error)]
        raise ValueError(_message("the command line", lines)) from error
    except ValidationError as error:
        # A list with a wrong item counts as empty for pydantic, which then says that as well.
        items = [item for item in error.errors() if item["type"] != "too_short" or not item["input"]]
        raise ValueError(_message(path, [_explain(dict(item)) for item in items])) from error


def _refuse_unknown_in_environment() -> None:
    prefix = str(Project.model_config["env_prefix"])
    names = [name for name in sorted(os.environ) if name.startswith(prefix) and "__" in name.removeprefix(prefix)]
    sections = {name: name.removeprefix(prefix).partition("__")[0].lower() for name in names}
    unknown = [f"{name}: {_unknown(to, Project)}" for name, to in sections.items() if not _models_of(Project, to)]
    if unknown:
        raise ValueError(_message("the environment", unknown))


def _not_json_in_environment() -> list[str]:
    """Returns a line for each variable that should hold a list or a table and does not."""
    prefix = str(Project.model_config["env_prefix"])
    lines = []
    for name, value in sorted(os.environ.items()):
        *sections, setting = name.removeprefix(prefix).lower().split("__")
        field = _model_at(sections).model_fields.get(setting)
        if name.startswith(prefix) and field is not None and get_origin(field.annotation) in (tuple, dict):
            try:
                json.loads(value)
            except ValueError:
                lines.append(f"{name}: {value!r} is not JSON; write a list as [8, 16], with texts in double quotes")
    return lines


class _Loader(yaml.SafeLoader):
    """Reads YAML as it is meant to be, and refuses a key that is given twice, where PyYAML keeps the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [index for index, key in enumerate(keys) if key in keys[:index]]
        if twice:
            what, where = f"the key {keys[twice[0]]!r} is given twice", node.value[twice[0]][0].start_mark
            raise yaml.constructor.ConstructorError(None, None, what, where)
        return super().construct_mapping(node, deep)


def _message(path: str, lines: list[str]) -> str:
    return "\n".join(
        [f"{path}: {len(lines)} setting{'s' if len(lines) > 1 else ''} to correct", *(f"  {line}" for line in lines)]
    )


def _explain(error: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return _unknown(where, _model_at([str(part) for part in error["loc"][:-1]]))
    if error["type"] == "missing":
        # The option of a whole section takes JSON and is not in --help.
        option = "" if _models_of(Project, where) else f" or give --{where}"
        return f"{where}: missing; add it to the file{option}"
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "tuple_type":
        message = "should be a list, as [first, second]"
    if error["type"] == "value_error":
        return f"{where}: {message}"
    return f"{where}: {message}, got {error['input']!r}"


def _model_at(path: Sequence[str]) -> type[BaseModel]:
    """Returns the settings model at a path of keys."""
    model: type[BaseModel] = Project
    for name in path:
        model = next(iter(_models_of(model, name)), model)
    return model


def _models_of(model: type[BaseModel], name: str) -> list[type[BaseModel]]:
    """Returns the settings model that a field holds, in a list; none where it holds plain values or is not there."""
    field = model.model_fields.get(name)
    if field is None:
        return []
    kinds = [field.annotation, *get_args(field.annotation)]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]


def _unknown(where: str, model: type[BaseModel]) -> str:
    name = where.rpartition(".")[2]
    close = difflib.get_close_matches(name, model.model_fields, 1)
    hint = f"did you mean {close[0]}?" if close else f"there are {', '.join(model.model_fields)}"
    return f"{where}: no such setting; {hint}"
