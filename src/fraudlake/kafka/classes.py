"""Kafka's classes: names in the options of a client become those of the classes that the compute has."""

from __future__ import annotations

import re

_SHADED = {"org.apache.kafka.": "kafkashaded.", "software.amazon.msk.": "shadedmskiam."}
"""Databricks has Kafka's client, and Amazon's login for it, under other names (Databricks documentation,
"Authentication" of the Kafka connector)."""
_CLASS = rf"(?:{'|'.join(map(re.escape, _SHADED.values()))})?({'|'.join(map(re.escape, _SHADED))})"
# A login module is the first word of its line; what follows are its options, and among them passwords.
_LOGIN_MODULE = re.compile(rf"\A(\s*){_CLASS}")
_LISTED = re.compile(rf"(\A\s*|,\s*){_CLASS}")
_NAMES_CLASSES = re.compile(
    r"\.class(es)?\Z|\A(metric\.reporters|partition\.assignment\.strategy|security\.providers)\Z"
)


def renamed(options: dict[str, str], is_workspace: bool) -> dict[str, str]:
    """Return a Kafka client's options, with classes named as in a workspace or as in Kafka itself.

    Both forms of a name are accepted everywhere, so one secret serves both. Only places where Kafka expects a class
    are looked at.
    """

    def own(match: re.Match[str]) -> str:
        return f"{match[1]}{_SHADED[match[2]] if is_workspace else ''}{match[2]}"

    return {name: pattern.sub(own, value) if (pattern := _pattern(name)) else value for name, value in options.items()}


def _pattern(option: str) -> re.Pattern[str] | None:
    if option.endswith("sasl.jaas.config"):
        return _LOGIN_MODULE
    return _LISTED if _NAMES_CLASSES.search(option) else None
