"""Place: the folder of a lake, or its schema in a workspace, and the paths of its files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, model_validator

from fraudlake.values import NAME


class Place(BaseModel):
    """Where a lake is."""

    lake: Path = Field(Path("lake"), description="Folder of the local lake.")
    catalog: str | None = Field(None, pattern=NAME, description="Unity Catalog's catalog of a lake in a workspace.")
    # Pydantic reserves the name `schema`, by which users know this setting.
    schema_name: str | None = Field(
        None, pattern=NAME, validation_alias="fraudlake_schema", description="Schema of a lake in a workspace."
    )
    landing: str | None = Field(
        None, description="Folder in which Flink's files land (default: LAKE/landing, or the volume landing)."
    )
    checkpoints: str | None = Field(
        None, description="Folder of the checkpoints (default: LAKE/checkpoints, or the volume checkpoints)."
    )
    experiment: str | None = Field(
        None, description="MLflow experiment (default: the model's name; in a workspace /Shared/ and that)."
    )

    @property
    def is_in_workspace(self) -> bool:
        """Whether the lake is in a Databricks workspace; otherwise it is a folder on this machine."""
        return self.catalog is not None

    @property
    def landing_path(self) -> str:
        """Folder in which Flink's files land."""
        return self.landing or (self._volume("landing") if self.is_in_workspace else str(self.lake / "landing"))

    @property
    def checkpoints_path(self) -> Path:
        """Folder of the streams' checkpoints."""
        if self.checkpoints:
            return Path(self.checkpoints)
        return Path(self._volume("checkpoints")) if self.is_in_workspace else self.lake.absolute() / "checkpoints"

    @property
    def attachments_path(self) -> Path:
        """Folder of the files that analysts attach, named by their hashes."""
        return Path(self._volume("attachments")) if self.is_in_workspace else self.lake.absolute() / "attachments"

    def _volume(self, name: str) -> str:
        return f"/Volumes/{self.catalog}/{self.schema_name}/{name}"

    @model_validator(mode="before")
    @classmethod
    def _one_kind_of_lake(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Require a folder, or a catalog and a schema; these have their own defaults for model name and experiment."""
        values = dict(values)
        # The names of the schema in flags, the environment and the file, in the order of precedence.
        schemas = [values.pop(name, None) for name in ("schema_name", "fraudlake_schema", "schema")]
        schema = next((name for name in schemas if name is not None), None)
        if schema is not None:
            values["schema_name"] = schema
        catalog = values.get("catalog")
        if (catalog is None) != (schema is None):
            raise ValueError("--catalog and --schema name a lake in a workspace together: give both, or --lake DIR")
        if catalog is not None and "lake" in values:
            raise ValueError("a lake is either a folder or in a workspace: give --lake, or --catalog and --schema")
        if catalog is not None:
            values.setdefault("model_name", f"{catalog}.{schema}.fraud_model")
            values.setdefault("experiment", f"/Shared/{values['model_name']}")
        return values
