"""Settings: composes all groups of settings into one typed, validated object."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import PrivateAttr, SecretStr, TypeAdapter
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource

from fraudlake.settings.columns import Columns, DeclaredColumn
from fraudlake.settings.currency import Currencies
from fraudlake.settings.delivery import Delivery
from fraudlake.settings.desk import Desk
from fraudlake.settings.detection import Detection
from fraudlake.settings.disputes import Disputes
from fraudlake.settings.entities import Entities
from fraudlake.settings.features import Features
from fraudlake.settings.files import Files
from fraudlake.settings.kafka import Kafka
from fraudlake.settings.model import Model
from fraudlake.settings.panels import Panels
from fraudlake.settings.payload import Payload
from fraudlake.settings.place import Place
from fraudlake.settings.quality import Quality
from fraudlake.settings.spark import Spark
from fraudlake.settings.storage import Storage
from fraudlake.settings.streams import Streams
from fraudlake.text import toml_file
from fraudlake.values import BASE_AMOUNT

ENV_PREFIX = "FRAUDLAKE_"
DEFINITION = (
    "payload",
    "columns",
    "currency",
    "entities",
    "features",
    "label_delay",
    "ordering",
    "max_out_of_orderness",
    "buckets",
    "clustering",
    "approvals",
)
"""The settings that define a lake, which records them (:mod:`fraudlake.lake.definition`)."""
_BASE_AMOUNT = DeclaredColumn.model_validate({"from": BASE_AMOUNT, "type": "double"})


class _File(TomlConfigSettingsSource):
    def _read_file(self, file_path: Any) -> dict[str, Any]:
        return toml_file.read(Path(file_path))


# Pydantic collects the fields from the last base to the first, and the first wrong setting is reported.
class Settings(
    Spark,
    Storage,
    Panels,
    Desk,
    Disputes,
    Model,
    Delivery,
    Quality,
    Detection,
    Features,
    Entities,
    Currencies,
    Columns,
    Payload,
    Files,
    Streams,
    Kafka,
    Place,
    BaseSettings,
):
    """All settings. Made once, at the entry point, by :func:`load`, and passed on.

    Durations are read as ``"10 seconds"``; amounts are in the account's currency.
    """

    model_config = SettingsConfigDict(
        env_prefix=ENV_PREFIX,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        env_ignore_empty=True,
        allow_inf_nan=False,
    )

    _origins: dict[str, str] = PrivateAttr(default_factory=dict)

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Give flags precedence over the environment, and the environment over the file."""
        return init_settings, env_settings, _File(settings_cls)

    @property
    def silver_columns(self) -> dict[str, DeclaredColumn]:
        """The further columns of ``silver_transactions``: the declared ones and, with ``currency``, ``base_amount``."""
        return self.columns if self.currency is None else {**self.columns, BASE_AMOUNT: _BASE_AMOUNT}

    @property
    def origins(self) -> dict[str, str]:
        """The source of each given setting of :data:`DEFINITION`: the flag, the environment variable or the file."""
        return {name: self._origins.get(name, name) for name in DEFINITION if name in self.model_fields_set}

    @property
    def definition(self) -> dict[str, Any]:
        """The settings of :data:`DEFINITION`, as JSON values."""
        return {
            name: DEFINITION_TYPES[name].dump_python(getattr(self, name), mode="json", by_alias=True)
            for name in DEFINITION
        }

    def defined(self, values: Mapping[str, object]) -> Settings:
        """Return these settings with a lake's values of :data:`DEFINITION`, none of which then counts as given."""
        return Settings.model_construct(self.model_fields_set.difference(DEFINITION), **{**dict(self), **values})

    def giving(self, *names: str) -> Settings:
        """Return these settings as if only some of :data:`DEFINITION` were given."""
        others = set(DEFINITION).difference(names)
        defaults = {name: Settings.model_fields[name].get_default(call_default_factory=True) for name in others}
        return Settings.model_construct(self.model_fields_set - others, **{**dict(self), **defaults})


def _type_of(name: str) -> TypeAdapter[Any]:
    kind: Any = Annotated[Settings.model_fields[name].annotation, Settings.model_fields[name]]
    return TypeAdapter(kind)


DEFINITION_TYPES = {name: _type_of(name) for name in DEFINITION}
"""Readers and writers of :data:`DEFINITION` as JSON."""


def _is_secret(annotation: Any) -> bool:
    return annotation is SecretStr or any(map(_is_secret, get_args(annotation)))


SECRETS = tuple(name for name, field in Settings.model_fields.items() if _is_secret(field.annotation))
"""Settings whose values are never shown."""
