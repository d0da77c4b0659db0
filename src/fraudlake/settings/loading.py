"""Loading: reads settings from flags, the environment, ``fraudlake.toml`` and defaults, or reports a one-line error."""

from __future__ import annotations

import os
import re
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pydantic_settings import SettingsConfigDict, SettingsError

from fraudlake.errors import UsageError, reason_of
from fraudlake.process.host import is_utf8
from fraudlake.settings.settings import DEFINITION, ENV_PREFIX, SECRETS, Settings

if TYPE_CHECKING:
    from pydantic_core import ErrorDetails

DEFAULT_FILE = Path("fraudlake.toml")


def load(file: Path | None = None, **flags: Any) -> Settings:
    """Load the settings from flags (unless None), the environment, the file and defaults, in this order of precedence.

    Raises:
        UsageError: a value is out of range, a name is unknown, or the file cannot be read.
    """
    if file is not None:
        try:
            is_there = file.is_file()
        except OSError as error:
            raise UsageError(f"--config {file}: {error.strerror}") from None
        if not is_there:
            raise UsageError(f"--config {file}: no such file")
    _reject_unknown_environment()
    path = file or (DEFAULT_FILE if DEFAULT_FILE.is_file() else None)

    class FromFile(Settings):
        model_config = SettingsConfigDict(toml_file=path)

    # A bundle passes a variable without a value as an empty flag.
    arguments = {
        name: value for name, value in flags.items() if value is not None and not (name in DEFINITION and value == "")
    }
    try:
        values = FromFile(**arguments)
    except ValidationError as error:
        raise UsageError(" ".join(_one_line(error, set(arguments), path).splitlines())) from None
    except SettingsError as error:  # a value in the environment is not JSON
        match = re.search(r'field "(\w+)"', str(error))
        where = f"{ENV_PREFIX}{match[1]}".upper() if match else str(path)
        raise UsageError(f"{where}: must be JSON") from None
    except RecursionError:
        raise UsageError(f"{path or 'the environment'}: brackets are nested too deeply") from None
    except (ValueError, OSError) as error:  # tomllib, unreadable file
        raise UsageError(f"{path}: {error}") from None
    made = Settings.model_construct(values.model_fields_set, **dict(values))
    made._origins = {name: _origin(name, set(arguments), path) for name in DEFINITION}
    return made


def _public_name(name: str) -> str:
    """Return a setting's name as users write it: ``schema`` for ``schema_name``."""
    return "schema" if name in ("schema_name", "fraudlake_schema") else name


def _reject_unknown_environment() -> None:
    names = {f"{ENV_PREFIX}{_public_name(name)}".upper() for name in Settings.model_fields}
    for name, value in os.environ.items():
        if name.startswith(ENV_PREFIX) and name not in names:
            raise UsageError(f"environment variable {name}: there is no such setting")
        if name.startswith(ENV_PREFIX) and not is_utf8(value):
            raise UsageError(f"{name}: must be UTF-8")


def _origin(name: str, flags: set[str], file: Path | None) -> str:
    """Return the source of a setting (a flag, the environment or a file), with its name as users write it."""
    if name in flags or (name == "schema" and "schema_name" in flags):
        return f"--{name.replace('_', '-')}"
    variable = f"{ENV_PREFIX}{name}".upper()
    return variable if os.environ.get(variable) else str(file)


def _alike(location: list[str], refusals: list[ErrorDetails]) -> str:
    """Return a question that suggests the likely name: that of a setting, or of a value that is missing nearby."""
    missing = [str(one["loc"][-1]) for one in refusals if one["type"] == "missing"]
    names = missing if len(location) > 1 else [_public_name(name) for name in Settings.model_fields]
    alike = get_close_matches(location[-1], names, n=1)
    return f": did you mean '{alike[0]}'?" if alike else ""


def _one_line(error: ValidationError, flags: set[str], file: Path | None) -> str:
    """Describe an invalid setting, an unknown one first: its name, its value, its source, and what is allowed."""
    refusals = error.errors()
    first = next((one for one in refusals if one["type"] == "extra_forbidden"), refusals[0])
    location = [str(part) for part in first["loc"]]
    if location[:1] == ["rules"]:  # a rule's kind follows its number
        del location[2:3]
    reason = reason_of(first)
    if not location:
        return reason
    location[0] = _public_name(location[0])
    name = ".".join(location)
    origin = _origin(location[0], flags, file)
    where = name if origin == str(file) else ".".join(location[1:])
    if first["type"] == "extra_forbidden":
        return f"{origin}: there is no setting '{name}'{_alike(location, refusals)}"
    where = f"{origin}: {where}" if where else origin
    value = first["input"]
    is_secret = location[0] in SECRETS
    shown = f" = {value!r}" if isinstance(value, str | int | float) and not is_secret else ""
    return f"{where}{shown}: {reason}"
