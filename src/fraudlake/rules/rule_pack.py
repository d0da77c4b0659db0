"""Rule packs: documented files of rules against a kind of fraud, which come with the package."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fraudlake.errors import UsageError
from fraudlake.text import text_file

_FOLDER = Path(__file__).with_name("packs")
_NEEDS = "# Needs: "


@dataclass(frozen=True)
class RulePack:
    """A file of rules; its comments name the fraud that they detect, the data that they need, and how to set limits."""

    name: str
    file: Path

    @property
    def text(self) -> str:
        """The file's text."""
        return text_file.text(self.file)

    @property
    def title(self) -> str:
        """What the rules alert on: the first comment."""
        return self.text.partition("\n")[0].removeprefix("# ")

    @property
    def needs(self) -> str:
        """The columns and entities that the lake must declare."""
        line = next(line for line in self.text.splitlines() if line.startswith(_NEEDS))
        return line.removeprefix(_NEEDS)


def find_all() -> list[RulePack]:
    """Return all packs, by name."""
    return [RulePack(file.stem, file) for file in sorted(_FOLDER.glob("*.toml"))]


def find(name: str) -> RulePack:
    """Return a pack.

    Raises:
        UsageError: no pack has this name.
    """
    packs = {pack.name: pack for pack in find_all()}
    if name not in packs:
        raise UsageError(f"there is no pack '{name}'; there are {', '.join(packs)}")
    return packs[name]
