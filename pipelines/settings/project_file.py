"""Reads a project's settings from a YAML file, the environment and the command line, and explains what is wrong.

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

_FILES_OPTION = "--corpus.files"


def load_project(path: str, overrides: Sequence[str] = (), *, command: str = "tokenmill") -> Project:
    """Returns the settings of a YAML file; those of the environment and the command line replace them.

    Args:
        path: the YAML file.
        overrides: settings in the form of the command line, such as `["--run.workers", "2"]`.
        command: the name of the command, for the list of settings.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: it is not YAML, or a setting is unknown, missing, of the wrong type, or contradicts another. The
            message names the file, each such setting, its value, and what to do.
        SystemExit: `overrides` has `--help`; the list of settings was printed.
    """
    try:
        content = yaml.load(files.read_text(path), _Loader)
    except yaml.YAMLError as error:
        raise ValueError(f"{path} is not YAML: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} contains no settings; start from one of the files in configs/")
    _refuse_unknown_in_environment()
    unknown = set(content) - set(Project.model_fields)
    if unknown:
        raise ValueError(
            _format_problems(path, [_describe_unknown(str(key), Project) for key in sorted(map(str, unknown))])
        )
    try:
        return Project(
            **content,
            _cli_parse_args=_quote_existing_paths(overrides),
            _cli_prog_name=command,
            _cli_exit_on_error=False,
        )
    except SettingsError as error:
        if "EnvSettingsSource" in str(error):
            raise ValueError(
                _format_problems("the environment", _find_bad_json_in_environment() or [str(error)])
            ) from error
        names = re.findall(r"--([\w.]+)", str(error)) if "unrecognized" in str(error) else []
        lines = [_describe_unknown(name, _find_model(name.split(".")[:-1])) for name in names] or [str(error)]
        raise ValueError(_format_problems("the command line", lines)) from error
    except ValidationError as error:
        # For pydantic, a list with a wrong item is also empty; report only the wrong item.
        items = [item for item in error.errors() if item["type"] != "too_short" or not item["input"]]
        raise ValueError(_format_problems(path, [_describe_error(dict(item)) for item in items])) from error


def _quote_existing_paths(overrides: Sequence[str]) -> list[str]:
    """Returns the overrides, with a path of `--corpus.files` that exists as a list of one item in quotes.

    On the command line, lists may be written as `a,b` or `[a, b]`, but a file may have such a name too.
    """
    quoted: list[str] = []
    for override in overrides:
        option, equals, value = override.partition("=")
        if equals and option == _FILES_OPTION:
            quoted.append(f"{option}={_quote_existing_path(value)}")
        else:
            quoted.append(_quote_existing_path(override) if quoted[-1:] == [_FILES_OPTION] else override)
    return quoted


def _quote_existing_path(path: str) -> str:
    # Pydantic takes everything between the quotes as it is, and knows no way to write a quote.
    return f'["{path}"]' if '"' not in path and files.exists(path) else path


def _refuse_unknown_in_environment() -> None:
    prefix = str(Project.model_config["env_prefix"])
    names = [name for name in sorted(os.environ) if name.startswith(prefix) and "__" in name.removeprefix(prefix)]
    sections = {name: name.removeprefix(prefix).partition("__")[0].lower() for name in names}
    unknown = [
        f"{name}: {_describe_unknown(to, Project)}" for name, to in sections.items() if not _find_models(Project, to)
    ]
    if unknown:
        raise ValueError(_format_problems("the environment", unknown))


def _find_bad_json_in_environment() -> list[str]:
    """Returns a line for each variable that should be a JSON list or object and is not JSON."""
    prefix = str(Project.model_config["env_prefix"])
    lines = []
    for name, value in sorted(os.environ.items()):
        *sections, setting = name.removeprefix(prefix).lower().split("__")
        field = _find_model(sections).model_fields.get(setting)
        if name.startswith(prefix) and field is not None and get_origin(field.annotation) in (tuple, dict):
            try:
                json.loads(value)
            except ValueError:
                lines.append(f"{name}: {value!r} is not JSON; write a list as [8, 16], with strings in double quotes")
    return lines


class _Loader(yaml.SafeLoader):
    """Reads YAML, and refuses a key that occurs twice; PyYAML itself keeps the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = [index for index, key in enumerate(keys) if key in keys[:index]]
        if twice:
            what, where = f"the key {keys[twice[0]]!r} is given twice", node.value[twice[0]][0].start_mark
            raise yaml.constructor.ConstructorError(None, None, what, where)
        return super().construct_mapping(node, deep)


def _format_problems(path: str, lines: list[str]) -> str:
    return "\n".join(
        [f"{path}: {len(lines)} setting{'s' if len(lines) > 1 else ''} to correct", *(f"  {line}" for line in lines)]
    )


def _describe_error(error: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return _describe_unknown(where, _find_model([str(part) for part in error["loc"][:-1]]))
    if error["type"] == "missing":
        # A whole section can be given only as JSON, which --help does not show.
        option = "" if _find_models(Project, where) else f" or give --{where}"
        return f"{where}: missing; add it to the file{option}"
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "tuple_type":
        message = "should be a list, as [first, second]"
    if error["type"] == "value_error":
        return f"{where}: {message}"
    return f"{where}: {message}, got {error['input']!r}"


def _find_model(path: Sequence[str]) -> type[BaseModel]:
    """Returns the settings model at a path of keys."""
    model: type[BaseModel] = Project
    for name in path:
        model = next(iter(_find_models(model, name)), model)
    return model


def _find_models(model: type[BaseModel], name: str) -> list[type[BaseModel]]:
    """Returns a list of the settings model of a field; an empty list if it has plain values or does not exist."""
    field = model.model_fields.get(name)
    if field is None:
        return []
    kinds = [field.annotation, *get_args(field.annotation)]
    return [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel)]


def _describe_unknown(where: str, model: type[BaseModel]) -> str:
    name = where.rpartition(".")[2]
    close = difflib.get_close_matches(name, model.model_fields, 1)
    hint = f"did you mean {close[0]}?" if close else f"the settings here are {', '.join(model.model_fields)}"
    return f"{where}: no such setting; {hint}"
