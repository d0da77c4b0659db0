"""goAML: reports the payments of a verdict of fraud as XML, by a mapping from fields to the lake that the user fills.

The fields are those that goAML's documents call mandatory, and others that units ask for (version 4.0, "XML Schema
reporting"). The schema of the receiving unit decides: units add, drop and require fields.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree
from xml.etree.ElementTree import Element, SubElement

from fraudlake.entity import ACCOUNT
from fraudlake.errors import UsageError
from fraudlake.review import event_log, item_state
from fraudlake.tables import SILVER_TRANSACTIONS
from fraudlake.text.counts import counted
from fraudlake.text.sql_text import one_of
from fraudlake_desk.lookup import panels
from fraudlake_desk.review import marks

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.review.event import Event
    from fraudlake.review.items import Named

Kind = Literal["text", "integer", "amount", "time", "day", "country", "currency", "list"]
_PATTERNS = {"integer": r"\d+", "country": "[A-Z]{2}", "currency": "[A-Z]{3}"}
_MEANINGS = {
    "amount": "a number",
    "country": "a country such as DE",
    "currency": "a currency such as EUR",
    "integer": "a whole number",
}
_OWN_AMOUNT = {"column": "amount"}
"""What the template proposes for ``amount_local``."""
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Letters that XML 1.0 does not allow, not even escaped."""


@dataclass(frozen=True)
class Field:
    """An element with a value."""

    name: str
    kind: Kind = "text"
    is_required: bool = True
    most: int = 255
    """The maximum number of letters."""
    proposed: str = '""'
    """Its value in the template, in TOML."""
    about: str = ""


@dataclass(frozen=True)
class Group:
    """An element with child elements, in the order of the schema."""

    name: str
    parts: tuple[Field | Group | Choice, ...]
    is_required: bool = True


@dataclass(frozen=True)
class Choice:
    """Alternative elements, of which a report has exactly one; the template has the first."""

    parts: tuple[Group, ...]


_ADDRESS = (
    Field("address_type", most=50, about="a code of the receiving unit"),
    Field("address", most=100),
    Field("city"),
    Field("zip", is_required=False, most=10),
    Field("country_code", "country"),
    Field("state", is_required=False),
)
_PHONE = (
    Field("tph_contact_type", most=50, about="a code of the receiving unit"),
    Field("tph_communication_type", most=50, about="a code of the receiving unit"),
    Field("tph_number", most=50),
)
_PHONES = Group("phones", (Group("phone", _PHONE),), is_required=False)
_ADDRESSES = Group("addresses", (Group("address", _ADDRESS),), is_required=False)
_PERSON = (
    Field("gender", is_required=False, most=1, about="M or F"),
    Field("title", is_required=False, most=30),
    Field("first_name", most=100),
    Field("middle_name", is_required=False, most=100),
    Field("last_name", most=100),
    Field("birthdate", "day", is_required=False),
    Field("birth_place", is_required=False),
    Field("ssn", is_required=False, most=25),
    Field("id_number", is_required=False, most=25),
    Field("nationality1", "country", is_required=False),
    Field("residence", "country", is_required=False),
    _PHONES,
    _ADDRESSES,
    Field("email", is_required=False),
    Field("occupation", is_required=False),
)
_ENTITY = (
    Field("name"),
    Field("commercial_name", is_required=False),
    Field("incorporation_legal_form", is_required=False, most=50, about="a code of the receiving unit"),
    Field("incorporation_number", is_required=False, most=50),
    Field("business", is_required=False),
    _PHONES,
    _ADDRESSES,
    Field("incorporation_state", is_required=False),
    Field("incorporation_country_code", "country", is_required=False),
)
_SIGNATORY = (
    Field("is_primary", is_required=False, about="true or false"),
    Group("t_person", _PERSON),
    Field("role", is_required=False, most=50, about="a code of the receiving unit"),
)
_FOREIGN = (
    Field("foreign_currency_code", "currency"),
    Field("foreign_amount", "amount"),
    Field("foreign_exchange_rate", "amount"),
)


def _side(word: str, is_client: bool, account: str) -> Group:
    """Return the element for the source or the target of the money."""
    holder = (
        Field("institution_name", about="the bank of the account"),
        Field("swift", most=11, about="its BIC"),
        Field("non_bank_institution", is_required=False, about="true or false"),
        Field("branch", is_required=False),
        Field("account", most=50, proposed=account),
        Field("currency_code", "currency", is_required=False),
        Field("account_name", is_required=False),
        Field("iban", is_required=False, most=34),
        Field("client_number", is_required=False, most=30),
        Field("personal_account_type", is_required=False, most=50, about="a code of the receiving unit"),
        Group("signatory", _SIGNATORY, is_required=False),
        Field("opened", "day", is_required=False),
        Field("status_code", is_required=False, most=50, about="a code of the receiving unit"),
    )
    name = "from" if word == "t_from" else "to"
    parts = (
        Field(f"{name}_funds_code", about="a code of the receiving unit, such as K for cash"),
        Field(f"{name}_funds_comment", is_required=False),
        Group(f"{name}_foreign_currency", _FOREIGN, is_required=False),
        Choice((Group(f"{name}_account", holder), Group(f"{name}_person", _PERSON), Group(f"{name}_entity", _ENTITY))),
        Field(f"{name}_country", "country"),
    )
    return Group(f"{word}_my_client" if is_client else word, parts)


_OF_ACCOUNT = '{ column = "account_id" }'
_TRANSACTION = Group(
    "transaction",
    (
        Field("transactionnumber", most=50, proposed='{ column = "transaction_id" }'),
        Field("internal_ref_number", is_required=False, most=50),
        Field("transaction_location", is_required=False),
        Field("transaction_description", is_required=False, most=4000),
        Field("date_transaction", "time", proposed='{ column = "timestamp" }'),
        Field("teller", is_required=False, most=50),
        Field("authorized", is_required=False, most=50),
        Field("value_date", "day", is_required=False),
        Field("transmode_code", most=50, about="a code of the receiving unit for the means of payment"),
        Field("transmode_comment", is_required=False, most=50),
        Field("amount_local", "amount", proposed='{ column = "amount" }', about="in currency_code_local"),
        Choice((_side("t_from", True, _OF_ACCOUNT), _side("t_from", False, _OF_ACCOUNT))),
        Choice((_side("t_to", False, '""'), _side("t_to", True, '""'))),
        Field("comments", is_required=False, most=4000),
    ),
)
REPORT = Group(
    "report",
    (
        Field("rentity_id", "integer", about="your number at the receiving unit"),
        Field("rentity_branch", is_required=False),
        Field("submission_code", most=1, proposed='"E"', about="electronic"),
        Field("report_code", most=50, proposed='"STR"', about="suspicious transactions"),
        Field("entity_reference", is_required=False, proposed='{ case = "case_id" }'),
        Field("fiu_ref_number", is_required=False),
        Field("submission_date", "time", proposed='{ report = "made_at" }'),
        Field("currency_code_local", "currency"),
        Group("reporting_person", _PERSON),
        Group("location", _ADDRESS, is_required=False),
        Field("reason", most=4000, proposed='{ decision = "reason" }'),
        Field("action", is_required=False, most=4000, about="what you have done, such as blocking the account"),
        _TRANSACTION,
        Group(
            "report_indicators",
            (Field("indicator", "list", most=25, proposed="[]", about="codes of the receiving unit"),),
        ),
    ),
)
"""The fields, in the order of the schema."""


@dataclass(frozen=True)
class Made:
    """A report."""

    xml: str
    payments: int
    replaced: list[str]
    """Fields in which letters that XML does not allow were replaced."""


def template() -> str:
    """Return a mapping in TOML to fill: required fields, and optional ones as comments."""
    head = (
        "# A report of transactions for goAML. Fill what is empty; a line with # is optional.",
        "# A value is the same for all reports, or is from the lake:",
        '#   { column = "amount" }                      a column of the payment (silver_transactions)',
        '#   { panel = "Customer", column = "name" }    the first row of a panel of the settings',
        '#   { case = "case_id" }                       a column of the case (gold_cases)',
        '#   { decision = "reason" }                    of the verdict: reason, note, analyst or at',
        '#   { report = "made_at" }                     when the report is made',
        "# The schema of the unit that receives the report decides what it takes.",
        "",
    )
    return "\n".join([*head, *_lines(REPORT.parts, "", "")]) + "\n"


def _lines(parts: Sequence[Field | Group | Choice], path: str, mark: str) -> Iterator[str]:
    # In TOML the values of a table come before the tables in it.
    for part in parts:
        if isinstance(part, Field):
            optional = "" if part.is_required else "# "
            about = f"  # {part.about}" if part.about else ""
            yield f"{mark or optional}{part.name} = {part.proposed}{about}"
    for part in parts:
        if isinstance(part, Choice):
            others = " or ".join(f"[{path}{one.name}]" for one in part.parts[1:])
            yield f"\n# Instead of the next table: {others}"
        if not isinstance(part, Field):
            group = part.parts[0] if isinstance(part, Choice) else part
            inner = mark or ("" if group.is_required else "# ")
            yield f"\n{inner}[{path}{group.name}]"
            yield from _lines(group.parts, f"{path}{group.name}.", inner)


def report(store: Store, named: Named, mapping: Mapping[str, Any], made_at: datetime) -> Made:
    """Return the report of the payments that the decision on an item calls fraud.

    Args:
        store: the lake.
        named: the item.
        mapping: the filled mapping, as parsed from its file.
        made_at: when it is made (UTC).

    Raises:
        UsageError: the item has no verdict of fraud, a payment is gone, or fields are missing, unknown or invalid: the
            message lists all of them.
    """
    item = named.item
    decision = item_state.state(event_log.read_events_of_items(store, item.names), made_at).decision
    if decision is None or decision.verdict != "fraud" or not decision.fraud_ids:
        raise UsageError(f"{item.item_id} has no verdict of fraud: only payments that one calls fraud are reported")
    silver = SILVER_TRANSACTIONS
    where = (
        f"{marks.days(item).sql} AND {one_of('transaction_id', decision.fraud_ids)} ORDER BY timestamp, transaction_id"
    )
    payments = store.query(f"SELECT * FROM {silver.name} WHERE {where}", silver).to_pylist()
    if gone := set(decision.fraud_ids) - {row["transaction_id"] for row in payments}:
        raise UsageError(f"the lake does not hold {counted(len(gone), 'payment')} of the verdict any more: {min(gone)}")
    filling = _Filling(store, named, decision, made_at, payments)
    root = Element(REPORT.name)
    filling.fill(root, REPORT.parts, mapping, "", {"account_id": item.account_id})
    filling.require_local_amounts(mapping)
    if filling.problems:
        raise UsageError("; ".join(filling.sentences))
    ElementTree.indent(root)
    xml = ElementTree.tostring(root, "unicode")
    return Made(f'<?xml version="1.0" encoding="UTF-8"?>\n{xml}\n', len(payments), sorted(filling.replaced))


@dataclass
class _Filling:
    """Fills the elements of a report, and collects the faults of the mapping."""

    store: Store
    named: Named
    decision: Event
    made_at: datetime
    payments: Sequence[Mapping[str, Any]]
    problems: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """The faulty fields, by fault."""
    replaced: set[str] = field(default_factory=set)
    _rows: dict[tuple[str, object], Mapping[str, Any]] = field(default_factory=dict)

    @property
    def sentences(self) -> list[str]:
        """The faults, a sentence for each kind."""
        return [f"{what}: {', '.join(sorted(fields))}" for what, fields in self.problems.items()]

    def fill(
        self,
        parent: Element,
        parts: Sequence[Field | Group | Choice],
        mapping: Mapping[str, Any],
        path: str,
        payment: Mapping[str, Any],
    ) -> None:
        """Add elements to their parent.

        Args:
            parent: the parent element.
            parts: its child elements.
            mapping: the part of the mapping for them.
            path: the names of the elements above, each followed by a dot.
            payment: the payment that the elements describe; outside of transactions only its account.
        """
        names: set[str] = set()
        for part in parts:
            options = part.parts if isinstance(part, Choice) else (part,)
            names |= {one.name for one in options}
            chosen = [one for one in options if one.name in mapping] or [options[0]]
            if len(chosen) > 1:
                self.problems["give only one of"].add(" or ".join(f"{path}{one.name}" for one in chosen))
            elif isinstance(chosen[0], Field):
                self._fill_field(parent, chosen[0], mapping.get(chosen[0].name), path, payment)
            else:
                self._fill_group(parent, chosen[0], mapping, path, payment)
        for name in set(mapping) - names:
            self.problems["there are no such fields"].add(f"{path}{name}")

    def require_local_amounts(self, mapping: Mapping[str, Any]) -> None:
        """Note a fault if a payment's own amount, in another currency, is to be the amount in local currency."""
        currency = self.store.settings.currency
        transaction = mapping.get(_TRANSACTION.name)
        if currency is None or not isinstance(transaction, dict) or transaction.get("amount_local") != _OWN_AMOUNT:
            return
        codes = {str(row[currency.column]).strip().upper() for row in self.payments if row[currency.column]}
        if others := codes - {mapping.get("currency_code_local")}:
            what = f"in {', '.join(sorted(others))} and not in currency_code_local, such as base_amount would be"
            self.problems[what].add("transaction.amount_local")

    def _fill_group(
        self, parent: Element, group: Group | Choice, mapping: Mapping[str, Any], path: str, payment: Mapping[str, Any]
    ) -> None:
        assert isinstance(group, Group)  # the parts of a choice are groups
        inner = mapping.get(group.name)
        if inner is None and not group.is_required:
            return
        if not isinstance(inner or {}, dict):
            self.problems["must be tables"].add(f"{path}{group.name}")
            return
        for one in self.payments if group is _TRANSACTION else (payment,):
            self.fill(SubElement(parent, group.name), group.parts, inner or {}, f"{path}{group.name}.", one)

    def _fill_field(self, parent: Element, part: Field, source: object, path: str, payment: Mapping[str, Any]) -> None:
        name = f"{path}{part.name}"
        values = source if isinstance(source, list) and part.kind == "list" else [source]
        texts = [text for one in values if (text := self._text(part, name, self._value(one, name, payment)))]
        if not texts and part.is_required:
            where = "without a value in a payment" if isinstance(source, dict) and "column" in source else "missing"
            self.problems[where].add(name)
        for text in texts:
            allowed = _NO_XML.sub("\ufffd", text)
            if allowed != text:
                self.replaced.add(name)
            SubElement(parent, part.name).text = allowed

    def _value(self, source: object, name: str, payment: Mapping[str, Any]) -> object:
        """Return the value of a source: a constant, or a reference to a value of the lake."""
        if not isinstance(source, dict):
            return source
        case = self.named.case or {}
        decided = {name: getattr(self.decision, name) for name in ("reason", "note", "analyst", "at")}
        places = {"column": payment, "case": case, "decision": decided, "report": {"made_at": self.made_at}}
        if set(source) == {"panel", "column"}:
            return self._panel_row(str(source["panel"]), payment).get(str(source["column"]))
        place, key = next(iter(source.items()), ("", ""))
        if len(source) != 1 or place not in places or (key not in places[place] and places[place]):
            self.problems["there is no such source"].add(f"{name} = {source}")
            return None
        return places[place].get(key)

    def _panel_row(self, title: str, payment: Mapping[str, Any]) -> Mapping[str, Any]:
        panel = next((one for one in self.store.settings.panels if one.title == title), None)
        if panel is None:
            self.problems["there is no such panel in the settings"].add(title)
            return {}
        columns = self.store.settings.entity_columns(panel.entity) if self._is_known(panel.entity) else ()
        key = payment.get(columns[0]) if len(columns) == 1 else None
        if (title, key) not in self._rows:
            self._rows[title, key] = panels.first_row(self.store, panel, key) if key is not None else {}
        return self._rows[title, key]

    def _is_known(self, entity: str) -> bool:
        return entity == ACCOUNT or entity in self.store.settings.entities

    def _text(self, part: Field, name: str, value: object) -> str:
        """Return a value as text for XML, and note a fault if the field does not accept it."""
        if value is None or value == "":
            return ""
        text = _written(value, part.kind)
        if text is None or not re.fullmatch(_PATTERNS.get(part.kind, "(?s:.*)"), text):
            self.problems[f"must be {_MEANINGS.get(part.kind, f'a {part.kind}')}"].add(name)
        elif len(text) > part.most:
            self.problems[f"longer than {part.most:,} letters"].add(name)
        return text or "?"


def _written(value: object, kind: Kind) -> str | None:
    """Return a value as text; None if it does not have the kind."""
    match kind:
        case "amount":
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            return f"{value:.2f}" if is_number else None
        case "time" | "day":
            return f"{_in_utc(value):%Y-%m-%dT%H:%M:%S}" if isinstance(value, date) else None
    return f"{_in_utc(value):%Y-%m-%d %H:%M:%S}" if isinstance(value, datetime) else str(value)


def _in_utc(value: date) -> date:
    return value.astimezone(UTC) if isinstance(value, datetime) and value.tzinfo else value
