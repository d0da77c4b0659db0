"""The page docs/reference/settings.md, made of the settings' own fields: ``make reference`` writes it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from fraudlake.settings import DEFINITION, SECRETS, Settings
from fraudlake.times.durations import text as words
from fraudlake_cli.command import metavar

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "settings.md"
_HEAD = """# Settings

Every setting, as its field declares it; `make reference` writes this page. A flag (`--max-amount 300`) overrides the
environment (`FRAUDLAKE_MAX_AMOUNT=300`), which overrides `fraudlake.toml` in the working folder or `--config FILE`
(`max_amount = 300`), which overrides the default. A setting marked *lake* is part of the
[definition](../how-to/operations.md#what-a-lake-is) that a lake records. One marked *secret* is never shown and
has no flag.
"""


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join([_HEAD, *_sections()])


def _sections() -> Iterator[str]:
    shown: set[str] = set()
    for group in (*reversed(Settings.__mro__), Settings):
        if issubclass(group, BaseModel) and group.__module__.startswith("fraudlake."):
            names = [name for name in group.model_fields if name not in shown]
            shown.update(names)
            if names:
                about = (group.__doc__ or "").splitlines()[0]
                rows = [_row(name) for name in names]
                yield "\n".join(
                    [
                        f"## {group.__name__}",
                        "",
                        about,
                        "",
                        "| setting | value | default | meaning |",
                        "|---|---|---|---|",
                        *rows,
                        "",
                    ]
                )


def _row(name: str) -> str:
    field = Settings.model_fields[name]
    marks = [mark for mark, names in (("lake", DEFINITION), ("secret", SECRETS)) if name in names]
    marked = f" *{', '.join(marks)}*" if marks else ""
    public = str(field.validation_alias or name).removeprefix("fraudlake_")
    cells = (
        f"`{public}`{marked}",
        f"`{metavar(name)}`",
        _default(field.get_default(call_default_factory=True)),
        field.description or "",
    )
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _default(value: Any) -> str:
    if value is None or value == "" or (isinstance(value, dict | list | tuple) and not value):
        return ""
    if isinstance(value, timedelta):
        return f"`{words(value)}`"
    if isinstance(value, bool | int | float | str | Path):
        return f"`{str(value).lower() if isinstance(value, bool) else value}`"
    return "in the meaning"


if __name__ == "__main__":
    PAGE.write_text(page())
