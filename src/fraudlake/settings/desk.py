"""Desk: how alerts become cases, and cases the queue of a day."""

from __future__ import annotations

from datetime import timedelta
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field
from pydantic_settings import NoDecode

from fraudlake.times.durations import Duration


def _origin(text: str) -> str:
    """Check an address without a path, and normalize it to the form of a browser's origin."""
    try:
        parts = urlsplit(text)
        host = (parts.hostname or "").encode("idna").decode()
        port = parts.port
    except ValueError:
        parts = urlsplit("")
        host = ""
        port = None
    is_plain = not (parts.username or parts.query or parts.fragment) and parts.path in ("", "/")
    if parts.scheme not in ("http", "https") or not host or not is_plain:
        raise ValueError("must be an address without a path, such as 'https://desk.example'")
    host = f"[{host}]" if ":" in host else host
    is_usual = port in (None, {"http": 80, "https": 443}[parts.scheme])
    return f"{parts.scheme}://{host}" if is_usual else f"{parts.scheme}://{host}:{port}"


def _networks(text: str) -> str:
    """Check addresses."""
    try:
        return ", ".join(str(ip_network(one.strip())) for one in text.split(","))
    except ValueError:
        raise ValueError("must be addresses or networks such as '127.0.0.1, 10.1.0.0/16'") from None


def _names(text: str) -> str:
    """Check names of groups."""
    names = [one.strip() for one in text.split(",")]
    if not all(names):
        raise ValueError("must be names of groups such as 'fraud-analysts, on-call'")
    return ", ".join(names)


def _texts(value: object) -> object:
    """Read a list of texts, or one text with commas between them."""
    return [text.strip() for text in value.split(",") if text.strip()] if isinstance(value, str) else value


class Desk(BaseModel):
    """What the people who look at alerts work with."""

    case_gap: Duration = Field(
        timedelta(days=1),
        gt=timedelta(0),
        description="Longest time, in event time, between an alert of a case and the next.",
    )
    case_length: Duration = Field(
        timedelta(days=7),
        gt=timedelta(0),
        description="Longest time, in event time, between the first alert of a case and its last.",
    )
    queue_size: int = Field(100, ge=1, le=100_000, description="Items of the review queue of a day.")
    explore: float = Field(
        0.1, ge=0, le=1, description="Share of the queue that is drawn at random among all other accounts of the day."
    )
    review_lock: Duration = Field(
        timedelta(minutes=30), gt=timedelta(0), description="How long an item that an analyst has taken is kept."
    )
    review_limit: Duration = Field(
        timedelta(days=2),
        gt=timedelta(0),
        description="How long an item of a queue may be open, from when the queue was built to the verdict.",
    )
    review_reasons: Annotated[tuple[str, ...], NoDecode, BeforeValidator(_texts)] = Field(
        (
            "card testing",
            "stolen card",
            "account takeover",
            "compromised terminal",
            "customer confirmed",
            "usual for the customer",
            "customer not reached",
        ),
        description="Reasons that the desk proposes for a verdict, with commas between.",
    )
    approvals: int = Field(
        1, ge=1, le=2, description="People who must agree before rules, models, verdicts and tables are changed."
    )
    public_url: Annotated[str, AfterValidator(_origin)] | None = Field(
        None, description="Where people reach the desk, if a proxy is in front of it, such as https://desk.example."
    )
    user_header: str | None = Field(
        None,
        pattern="^[A-Za-z0-9-]+$",
        description="Header in which the proxy, which has checked who it is, names the person.",
    )
    trusted_proxies: Annotated[str, AfterValidator(_networks)] | None = Field(
        None, description="Addresses or networks of the proxies whose user_header is believed."
    )
    groups_header: str | None = Field(
        None, pattern="^[A-Za-z0-9-]+$", description="Header in which the proxy names the person's groups, with commas."
    )
    analyst_groups: Annotated[str, AfterValidator(_names)] | None = Field(
        None, description="Groups, of the proxy or the workspace, whose members decide; others read."
    )
    lead_groups: Annotated[str, AfterValidator(_names)] | None = Field(
        None, description="Groups, of the proxy or the workspace, whose members are leads."
    )
    rule_author_groups: Annotated[str, AfterValidator(_names)] | None = Field(
        None, description="Groups whose members save drafts of rules at the desk; without it, analysts and leads do."
    )
    approver_groups: Annotated[str, AfterValidator(_names)] | None = Field(
        None, description="Groups whose members approve at the desk; without it, analysts and leads do."
    )
    people: Path | None = Field(
        None, description="TOML file with the names of readers, analysts and leads, instead of the proxy's groups."
    )
    warehouse: str | None = Field(
        None, description="In a workspace: id of the SQL warehouse that the desk reads and writes through."
    )

    @property
    def proxies(self) -> list[IPv4Network | IPv6Network]:
        """The networks of ``trusted_proxies``."""
        return [ip_network(one) for one in (self.trusted_proxies or "").split(", ") if one]

    @property
    def analysts(self) -> frozenset[str]:
        """The names of ``analyst_groups``."""
        return _split(self.analyst_groups)

    @property
    def leads(self) -> frozenset[str]:
        """The names of ``lead_groups``."""
        return _split(self.lead_groups)

    @property
    def rule_authors(self) -> frozenset[str]:
        """The names of ``rule_author_groups``."""
        return _split(self.rule_author_groups)

    @property
    def approvers(self) -> frozenset[str]:
        """The names of ``approver_groups``."""
        return _split(self.approver_groups)


def _split(names: str | None) -> frozenset[str]:
    return frozenset(names.split(", ") if names else ())
