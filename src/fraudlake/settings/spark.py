"""Spark: master, memory and options of the local Spark process, and the partitions of an exchange."""

from __future__ import annotations

import shlex
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_settings import NoDecode

from fraudlake.values import MOST_INT, flattened, from_json


def _spark_options(value: object) -> object:
    """Read Spark's configuration by name, as JSON or as a table, whose names a TOML file may write as nested tables."""
    example = '{"spark.sql.adaptive.enabled": "false"}'
    tree = from_json(value, example)
    if not isinstance(tree, dict):
        raise ValueError(f"must be JSON such as {example}")
    options = {}
    for name, option in flattened(tree):
        if not name.startswith("spark."):
            raise ValueError(f"'{name}' is not an option of Spark, whose names begin with 'spark.'")
        if not isinstance(option, str | int | float):
            raise ValueError(f"'{name}' must be a text, a number or a boolean")
        options[name] = str(option).lower() if isinstance(option, bool) else str(option)
    return options


def _java_options(text: str) -> str:
    """Check options of Java, which Spark splits like a shell."""
    try:
        words = shlex.split(text)
    except ValueError:
        raise ValueError("has an unmatched quote") from None
    if any(word.startswith("-Xmx") for word in words):
        raise ValueError("-Xmx has its own setting: driver_memory")
    return text


SparkOptions = Annotated[dict[str, str], NoDecode, BeforeValidator(_spark_options)]
JavaOptions = Annotated[str, AfterValidator(_java_options)]


class Spark(BaseModel):
    """How Spark runs."""

    spark_master: str = Field(
        "local[*]",
        pattern=r"^(local\[(\*|[1-9][0-9]{0,3})\]|spark://[^\s/:]+:[0-9]{1,5})$",
        description="Where the local Spark computes: in this machine's cores (local[N]), or on a standalone cluster "
        "(spark://HOST:PORT).",
    )
    driver_memory: str = Field("4g", pattern=r"^[1-9][0-9]{0,6}[mg]$", description="Memory of the local Spark process.")
    java_options: JavaOptions = Field("", description="Further options for the Java of the local Spark process.")
    spark_options: SparkOptions = Field(
        {}, description='Further configuration of the local Spark process, as JSON: {"spark.…": "…"}.'
    )
    shuffle_partitions: int | None = Field(
        None,
        ge=1,
        le=MOST_INT,
        description="Partitions of an exchange, and of new state (default: one a core, in a workspace one a bucket).",
    )
