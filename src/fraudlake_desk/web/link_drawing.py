"""Link drawing: draws the links of a case as boxes and lines; each box links to a page or a row of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from fraudlake.text.counts import counted
from fraudlake_desk.documents import charts
from fraudlake_desk.documents.charts import Node
from fraudlake_desk.documents.letters import shown
from fraudlake_desk.web.names import account

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markupsafe import Markup

    from fraudlake_desk.lookup.links import Account, Key, Links

_TITLES = ("Of the case", "Shared keys", "Others", "Their other keys", "Further others")


def drawing(links: Links) -> Markup:
    """Draw the accounts of a case, the keys that they share, the accounts that share them, and so on."""
    columns = [_accounts(links.accounts, links.more_accounts)]
    lines = []
    before = _places(links.accounts)
    for number, step in enumerate(links.steps):
        address = f"#keys-{number + 1}"
        keys = [_key(key, f"{address}-{place}") for place, key in enumerate(step.keys, 1)]
        columns += [keys + _more(step.more_keys, "key", address), _accounts(step.accounts, step.more_accounts, address)]
        after = _places(step.accounts)
        for place, key in enumerate(step.keys):
            lines += [(2 * number, before[one], place) for one in key.before]
            lines += [(2 * number + 1, place, after[one]) for one in key.after]
        before = after
    return charts.layers(_TITLES[: len(columns)], columns, lines, "Who shares keys with the case, two steps far")


def _places(accounts: Sequence[Account]) -> dict[str, int]:
    return {one.account_id: place for place, one in enumerate(accounts)}


def _accounts(accounts: Sequence[Account], more: int, address: str = "#links") -> list[Node]:
    return [_account(one) for one in accounts] + _more(more, "account", address)


def _account(one: Account) -> Node:
    return Node(
        shown(one.account_id), _note(one.transactions, one.fraud, one.alerts), account(one.account_id), _kind(one)
    )


def _kind(one: Account) -> Literal["fraud", "alert", ""]:
    return "fraud" if one.fraud else "alert" if one.alerts else ""


def _key(key: Key, address: str) -> Node:
    note = f"{counted(key.accounts, 'account')}{f', {key.fraud} fraud' if key.fraud else ''}"
    return Node(f"{key.entity} {shown(key.text)}", note, address, "fraud" if key.fraud else "")


def _note(transactions: int, fraud: int, alerts: int) -> str:
    marks = ([f"{fraud} fraud"] if fraud else []) + ([counted(alerts, "alert")] if alerts else [])
    return ", ".join(marks or [counted(transactions, "payment")])


def _more(number: int, noun: str, address: str) -> list[Node]:
    return [Node(f"and {counted(number, f'more {noun}')}", "", address)] if number else []
