"""Dossier: documents all that the lake holds about a case, for a dispute or a report to the authorities."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

from fraudlake import tables
from fraudlake.entity import ACCOUNT, title
from fraudlake.errors import UsageError
from fraudlake.review import event_log, items
from fraudlake.review.window import Window
from fraudlake.silver import source_position
from fraudlake.silver.source_position import KAFKA
from fraudlake.text import json_text, sql_text
from fraudlake.text.counts import counted
from fraudlake.text.sql_text import one_of
from fraudlake_desk.documents import charts, letters
from fraudlake_desk.documents.charts import Mark
from fraudlake_desk.documents.document import Block, Document, Prose, Section, text
from fraudlake_desk.lookup import history, money

if TYPE_CHECKING:
    from fraudlake.lake.store import Store
    from fraudlake.tables import Table

_MOST = 500
"""The largest number of alerts in a dossier; of more, the first ones are shown."""
_DRAWN = 2_000
"""The largest number of transactions of the account or key on the time axis."""
_AROUND = timedelta(days=3)
"""How far the time axis extends before and after the case."""
_SIDE_BY_SIDE = 4
"""The number of transactions whose features share a table."""
_OWN = frozenset(("transaction_id", "account_id", "timestamp", "scored_from", "scored_at", "date", "reasons", "label"))
"""Columns of predictions that are not features."""


def dossier(store: Store, name: str) -> Document:
    """Return the dossier of a case.

    Args:
        store: the lake.
        name: the id of the case, of one of its alerts, or of one of its parts.

    Raises:
        UsageError: there is no such case.
    """
    case = _Case(store, name)
    facts: dict[str, object] = {
        "lake": store.short_name,
        "case": case.row["case_id"],
        case.row["entity"] or "account": case.row["entity_key"],
        "opened" if case.row["alerts"] else "first payment": case.row["opened_at"],
        "last alert" if case.row["alerts"] else "last payment": case.row["last_alert_at"],
        "alerts": case.row["alerts"],
        **({"cases that became this one": [part.item_id for part in case.item.parts]} if case.item.parts else {}),
        "accounts": case.row["accounts"],
        "transactions": len(case.row["transaction_ids"]),
        "amount at risk": case.row["amount_at_risk"],
        "amounts are in": case.currency,
        "verdict": case.verdict,
    }
    sections = [
        Section("What happened", [case.timeline(), case.alerts()]),
        Section("What was known when", [case.chronology()]),
        Section("Where the rows are from", [case.rows(), case.landed(), case.files()]),
        Section("What decided", [case.rules(), case.model(), *case.features()]),
        Section(
            "Who decided",
            [case.events(), case.attached(), case.marks(), case.chain(), case.verdicts(), case.deliveries()],
        ),
    ]
    lead = "All that the lake holds about the case, with the places and hashes of its rows."
    title = f"Dossier of case {case.row['case_id']}"
    return Document(title, facts, sections, lead, case.currency, has_cover=True)


class _Case:
    """The blocks of a case's dossier, and the rows that they share."""

    def __init__(self, store: Store, name: str) -> None:
        self._store = store
        named = items.find(store, name)
        if named is None or named.case is None:
            raise UsageError(f"{name}: there is no such case: 'fraudlake cases' lists them")
        self.row = named.case
        self.item = named.item
        alert_ids = self.row["alert_ids"][:_MOST]
        self._alerts = self._select(
            tables.SILVER_ALERTS, "*", f"WHERE {one_of('alert_id', alert_ids)} ORDER BY timestamp, alert_id"
        )
        days = {part["timestamp"].date() for alert in self._alerts for part in alert["evidence"]}
        ids = {part["transaction_id"]: None for alert in self._alerts for part in alert["evidence"]}
        self._ids = [*dict.fromkeys([*ids, *self.row["transaction_ids"][:_MOST]])]
        if lacking := [id_ for id_ in self._ids if id_ not in ids]:  # of cases opened by hand, without alerts
            assert self.item.about is not None
            where = f"WHERE {self.item.about.sql} AND {one_of('transaction_id', lacking)}"
            days |= {row["date"] for row in self._select(tables.SILVER_TRANSACTIONS, "DISTINCT date", where)}
        self._of_days = one_of("date", sorted(days))
        of_case = f"WHERE {self._of_days} AND {one_of('transaction_id', self._ids)}"
        rows = f"{of_case} ORDER BY timestamp, source, position"
        self._transactions = self._select(tables.SILVER_TRANSACTIONS, "*", rows) if days else []
        self._landed = {(row.pop("source"), row.pop("position")): row for row in self._landed_rows()}
        scored = f"{of_case} ORDER BY timestamp, transaction_id"
        self._predictions = self._select(tables.GOLD_FRAUD_PREDICTIONS, "*", scored) if days else []
        self._events = event_log.read_events_of_items(
            store, {name, self.row["case_id"], *alert_ids, *self.item.all_names}
        )
        condition = f"WHERE {one_of('transaction_id', self._ids)} ORDER BY decided_at"
        self._verdicts = self._select(tables.SILVER_VERDICTS, "*", condition)

    def _select(self, table: Table, columns: str, clauses: str) -> list[dict[str, Any]]:
        statement = " ".join(("SELECT", columns, "FROM", table.name, clauses))
        rows: list[dict[str, Any]] = self._store.query(statement, table).to_pylist()
        return rows

    def _landed_rows(self) -> list[dict[str, Any]]:
        """Return the rows of bronze that the transactions were made from."""
        is_at = source_position.at((row["source"], row["position"]) for row in self._transactions)
        if not is_at:
            return []
        columns = f"*, {source_position.COLUMNS}"
        where = f"WHERE {self._of_days} AND ({is_at})"
        return self._select(tables.BRONZE_TRANSACTIONS, columns, where)

    @property
    def verdict(self) -> str | None:
        """The latest verdict of an analyst; None if there is none."""
        own = (event for event in reversed(self._events) if event.is_verdict and event.item_id in self.item.names)
        return next((event.verdict for event in own), None)

    @property
    def currency(self) -> str:
        """The currencies in the declared columns, or ``account currency`` if there are none, and that of sums."""
        settings = self._store.settings
        currencies = ", ".join(money.currencies(settings, self._transactions)) or "account currency"
        return currencies if settings.currency is None else f"{currencies}; sums in {settings.currency.base}"

    def timeline(self) -> Block:
        """Return the payments with the case's account or key, from three days before it to three days after."""
        named = self.row["entity"] or ACCOUNT
        is_same = history.same_key(self._store, self.item, self._transactions)
        first = self.row["opened_at"] - _AROUND
        last = self.row["last_alert_at"] + _AROUND
        clauses = (
            f"WHERE {Window(first.date(), last.date()).sql} AND {is_same} "
            f"ORDER BY {history.own_first(self._ids)}, timestamp LIMIT {_DRAWN}"
        )
        settings = self._store.settings
        wanted = {name for noun in ("currency", "country") for name in money.declared(settings, noun)}
        further = [name for name in self._columns if name in wanted]
        shown = sql_text.names(("transaction_id", "account_id", "timestamp", "amount", "label", *further))
        payments = self._select(tables.SILVER_TRANSACTIONS, shown, clauses)
        accounts = history.by_account(payments, self._alerts) if self.item.has_accounts else []
        labels = history.labels(accounts)
        completed = {alert["transaction_id"] for alert in self._alerts}
        scores = {row["transaction_id"]: row["probability"] for row in self._predictions}
        verdicts = {row["transaction_id"]: row["verdict"] for row in self._verdicts}
        marks = []
        for row in payments:
            id_ = row["transaction_id"]
            account = row["account_id"]
            kind: Literal["live"] | None = "live" if id_ in completed else None
            of_account = f" of account {letters.disambiguate(account)}" if accounts else ""
            paid = money.amount(row["amount"], money.currencies(settings, [row]))
            place = money.country(settings, row)
            said = f"{row['timestamp']:%Y-%m-%d %H:%M:%S}: {paid}{f' in {place}' if place else ''}{of_account} ({id_})"
            marks.append(
                Mark(
                    row["timestamp"],
                    row["amount"],
                    said,
                    id_ in self._ids,
                    kind,
                    scores.get(id_),
                    _verdict(verdicts.get(id_)),
                    bool(row["label"]),
                    labels.get(account, ""),
                )
            )
        keys = dict.fromkeys((one.entity, one.entity_key) for one in self.item.parts or (self.item,))
        what = ", ".join(f"{title(entity or ACCOUNT)} {letters.disambiguate(key)}" for entity, key in keys)
        note = (
            f"{what}, from three days before the case to three days after it: "
            f"{counted(len(payments), 'transaction')}. Those of the case are coloured, those that completed an alert "
            "have a ring, and a bar below is the score."
        )
        note += " The number next to a mark is that of its account." if accounts else ""
        columns = ("number", "account", "transactions", "amount", "alerts of the case") if accounts else ()
        return Block(
            f"Transactions of the {named}",
            note,
            charts.timeline(marks, f"{what}: transactions by time and amount"),
            columns,
            [tuple(one.values()) for one in accounts],
            tables.SILVER_TRANSACTIONS.name,
            is_wide=True,
        )

    def alerts(self) -> Block:
        """Return the alerts in the order of event time."""
        rows = [
            (alert["timestamp"], alert["rule"], alert["rule_version"], alert["account_id"], alert["amount"],
             alert["explanation"], alert["detected_at"], alert["alert_id"])
            for alert in self._alerts
        ]  # fmt: skip
        left = self.row["alerts"] - len(rows)
        note = f"The first {len(rows)}; the lake holds {left:,} more." if left > 0 else ""
        columns = ("time", "rule", "version", "account", "amount", "what it says", "raised at", "alert")
        missing = "" if rows else "The case has no alerts: it was opened by hand."
        return Block("Alerts", note, "", columns, rows, tables.SILVER_ALERTS.name, missing, is_wide=True)

    def chronology(self) -> Block:
        """Return the payments, alerts, scores and verdicts in the order in which they became known."""
        paid = {row["transaction_id"]: row["timestamp"] for row in self._transactions}
        rows: list[tuple[object, ...]] = []
        for id_, at in paid.items():
            rows.append((at, "paid", id_, None, None))
        for alert in self._alerts:
            by = f"{alert['rule']}, version {alert['rule_version']}"
            rows.append((alert["detected_at"], "alert", alert["transaction_id"], by, alert["explanation"]))
        for score in self._predictions:
            by = f"model, version {score['model_version']}"
            says = f"probability {text(score['probability'])}"
            rows.append((score["scored_at"], "score", score["transaction_id"], by, says))
        for row in self._verdicts:
            says = f"{_verdict(row['verdict']) or 'withdrawn'}: {_reason(row['reason'])}"
            rows.append((row["decided_at"], "verdict", row["transaction_id"], row["analyst"], says))
        rows.sort(key=_time)
        note = "An alert is known when it was raised, a score when it was computed, and a verdict when it was decided."
        read = (
            tables.SILVER_TRANSACTIONS,
            tables.SILVER_ALERTS,
            tables.GOLD_FRAUD_PREDICTIONS,
            tables.SILVER_VERDICTS,
        )
        source = ", ".join(table.name for table in read)
        columns = ("time", "what", "transaction", "by", "what it says")
        return Block("In the order of time", note, "", columns, rows, source, is_wide=True)

    def rows(self) -> Block:
        """Return each transaction with its place in the source and its role in the rules."""
        roles: dict[str, list[str]] = {}
        for alert in self._alerts:
            for part in alert["evidence"]:
                roles.setdefault(part["transaction_id"], []).append(f"{alert['rule']}: {part['variable']}")
        rows = [
            (
                row["timestamp"],
                row["account_id"],
                row["amount"],
                *(row.get(name) for name in self._columns),
                [*dict.fromkeys(roles.get(row["transaction_id"], ()))],
                _place(row["source"], row["position"]),
                row["transaction_id"],
            )
            for row in self._transactions
        ]
        columns = ("time", "account", "amount", *self._columns, "role in the rules", "place", "transaction")
        missing = "" if rows else "The lake does not hold the transactions any more."
        return Block("Rows", "", "", columns, rows, tables.SILVER_TRANSACTIONS.name, missing, is_wide=True)

    def landed(self) -> Block:
        """Return each row as it landed, with its hash."""
        rows = []
        for place in ((row["source"], row["position"]) for row in self._transactions):
            if landed := self._landed.get(place):
                fields = _canonical(landed)
                rows.append((_place(*place), fields, _sha256(fields)))
        missing = "" if rows else "Bronze does not hold the rows any more."
        columns = ("place", "as it landed", "SHA-256")
        title = "Rows as they landed"
        return Block(title, self._hashes, "", columns, rows, tables.BRONZE_TRANSACTIONS.name, missing, is_wide=True)

    @property
    def _columns(self) -> list[str]:
        """The declared columns that rows of the case have."""
        return [name for name in self._store.settings.silver_columns if any(name in row for row in self._transactions)]

    @property
    def _hashes(self) -> str:
        """A sentence on how to check the hashes, with the hash of all rows."""
        texts = sorted(_sha256(_canonical(row)) for row in self._landed.values())
        return (
            "The hash of a row is the SHA-256 of its text in the column 'as it landed': its fields as JSON, ordered by "
            "name. That of all rows, in the order of their hashes and joined by line breaks, is "
            f"{_sha256(chr(10).join(texts))}."
        )

    def files(self) -> Block:
        """Return the landed files of the rows with their hashes."""
        title = "Files"
        table = tables.BRONZE_FILES
        names = sorted({row["source"] for row in self._transactions if not row["source"].startswith(KAFKA)})
        if not names:
            return Block(title, "No row is from a file.")
        entries = self._select(
            table, "*", f"WHERE {one_of('_source_file', names)} AND status = 'accepted' ORDER BY number"
        )
        latest = {entry["_source_file"]: entry for entry in entries}
        rows = [
            (entry["_source_file"], entry["rows"], entry["size"], entry["noted_at"], entry["digest"])
            for entry in latest.values()
        ]
        columns = ("file", "rows", "bytes", "accepted at", "SHA-256")
        note = "The names of files begin at the landing folder."
        return Block(title, note, "", columns, rows, table.name, is_wide=True)

    def rules(self) -> Block:
        """Return the versions of the rules that raised the alerts, and who made them."""
        title = "Rules"
        table = tables.SILVER_RULES
        used = {(alert["rule"], alert["rule_version"]) for alert in self._alerts}
        changes = self._select(table, "*", f"WHERE {one_of('name', {name for name, _ in used})} ORDER BY change")
        rows = [
            (
                row["name"],
                row["version"],
                row["status"],
                row["author"],
                _reason(row["reason"]),
                row["changed_at"],
                row["definition"],
            )
            for row in changes
            if (row["name"], row["version"]) in used
        ]
        if not rows:
            return Block(title, missing="silver_rules does not have the rules of the alerts.")
        columns = ("rule", "version", "status", "by", "reason", "at", "definition")
        return Block(
            title, "Each change of the versions that raised the alerts.", "", columns, rows, table.name, is_wide=True
        )

    def model(self) -> Block:
        """Return the versions of the model that scored the transactions."""
        title = "Model"
        table = tables.GOLD_MODELS
        versions = sorted({row["model_version"] for row in self._predictions})
        if not versions:
            return Block(title, missing="The transactions are not scored: run 'fraudlake score'.")
        published = self._select(
            table,
            "model_version, model, published_at",
            f"WHERE {one_of('model_version', versions)} ORDER BY published_at",
        )
        rows = [
            (row["model_version"], row["published_at"], hashlib.sha256(row["model"]).hexdigest()) for row in published
        ]
        note = f"They were scored by version {', '.join(versions)}."
        return Block(
            title, note, "", ("version", "published at", "SHA-256 of the model"), rows, table.name, is_wide=True
        )

    def features(self) -> Iterator[Block]:
        """Yield the features of the transactions as they were when they were scored."""
        for number in range(0, len(self._predictions), _SIDE_BY_SIDE):
            part = self._predictions[number : number + _SIDE_BY_SIDE]
            names = [name for name in part[0] if name not in _OWN]
            rows: list[Sequence[object]] = [
                ("scored at", *(text(row["scored_at"]) for row in part)),
                *((name.replace("_", " "), *(row[name] for row in part)) for name in names),
                ("reasons", *("; ".join(row["reasons"] or ()) or None for row in part)),
            ]
            heads = (
                "feature",
                *(f"{row['timestamp']:%Y-%m-%d %H:%M:%S} · {row['transaction_id'][:12]}" for row in part),
            )
            title = "Features as known then" if number == 0 else f"Features, from transaction {number + 1} on"
            yield Block(title, "", "", heads, rows, tables.GOLD_FRAUD_PREDICTIONS.name, is_wide=True)

    def events(self) -> Block:
        """Return the review of the case."""
        title = "Review"
        table = tables.SILVER_REVIEW_EVENTS.name
        if not self._events:
            return Block(title, missing="Nobody has looked at the case yet: run 'fraudlake review take'.")
        rows = [
            (
                event.number,
                event.at,
                event.analyst,
                event.kind,
                event.verdict,
                _reason(event.reason) if event.is_verdict or event.kind == "withdrawn" else event.reason,
                Prose(event.note) if event.note else None,
                event.item_id,
                event.merged_into,
            )
            for event in self._events
        ]
        columns = ("number", "at", "by", "what", "verdict", "reason", "note", "case", "other case")
        if not any(event.merged_into for event in self._events):
            return Block(title, "", "", columns[:-2], [row[:-2] for row in rows], table, is_wide=True)
        return Block(title, "", "", columns, rows, table, is_wide=True)

    def attached(self) -> Block:
        """Return the files that analysts attached."""
        title = "Attached files"
        table = tables.SILVER_REVIEW_EVENTS
        rows = [
            (event.number, event.at, event.analyst, event.file_name, event.file_size, event.file_hash)
            for event in self._events
            if event.file_name
        ]
        if not rows:
            return Block(title, "Nobody has attached a file.")
        note = "The desk gives a file out only if its bytes still have this SHA-256."
        columns = ("event", "at", "by", "file", "bytes", "SHA-256")
        return Block(title, note, "", columns, rows, table.name, is_wide=True)

    def marks(self) -> Block:
        """Return which payments each decision calls fraud."""
        title = "Payments that were marked as fraud"
        table = tables.SILVER_REVIEW_EVENTS
        rows = [
            (
                event.number,
                event.verdict,
                len(event.transaction_ids),
                len(event.fraud_ids),
                event.fraud_amount,
                event.fraud_ids or None,
            )
            for event in self._events
            if event.is_verdict
        ]
        note = "The last decision counts. The other payments that a decision is about are genuine, unless it is unsure."
        if not rows:
            return Block(title, "Nobody has decided on the case.")
        columns = ("event", "verdict", "payments", "fraud", "amount of fraud", "payments that are fraud")
        return Block(title, note, "", columns, rows, table.name, is_wide=True)

    def chain(self) -> Block:
        """Return the hashes of the events, and the last hash of the lake."""
        title = "Chain of the events"
        table = tables.SILVER_REVIEW_EVENTS
        note = (
            "The hash of an event is the SHA-256 of the event and of the hash before it. 'fraudlake audit verify' "
            "checks the chain of all events of the lake."
        )
        for last in self._select(table, "number, hash", "WHERE hash IS NOT NULL ORDER BY number DESC LIMIT 1"):
            last_event = f"{last['number']}:{last['hash']}"
            note += f" When this was made it ended with {last_event}, which '--known' of that command looks for."
        rows = [(event.number, event.event_id, event.hash, bool(event.is_erased)) for event in self._events]
        return Block(title, note, "", ("number", "event", "hash", "erased in part"), rows, table.name, is_wide=True)

    def verdicts(self) -> Block:
        """Return the verdicts on the transactions."""
        title = "Verdicts on transactions"
        table = tables.SILVER_VERDICTS
        rows = [
            (row["transaction_id"], _verdict(row["verdict"]), row["analyst"], _reason(row["reason"]), row["decided_at"])
            for row in self._verdicts
        ]
        note = "" if rows else "No transaction of the case has a verdict."
        return Block(title, note, "", ("transaction", "verdict", "by", "reason", "at"), rows, table.name, is_wide=True)

    def deliveries(self) -> Block:
        """Return where the alerts were sent."""
        title = "Deliveries"
        table = tables.SILVER_DELIVERIES
        ids = [alert["alert_id"] for alert in self._alerts]
        clauses = f"WHERE {one_of('alert_id', ids)} ORDER BY noted_at, alert_id"
        names = ("alert_id", "destination", "status", "attempts", "reason", "noted_at")
        rows = [tuple(row.values()) for row in self._select(table, ", ".join(names), clauses)]
        note = "" if rows else "No alert of the case was sent."
        columns = ("alert", "destination", "outcome", "attempts", "reason", "at")
        return Block(title, note, "", columns, rows, table.name, is_wide=True)


def _verdict(is_fraud: bool | None) -> Literal["fraud", "genuine"] | None:
    return None if is_fraud is None else "fraud" if is_fraud else "genuine"


def _reason(reason: str | None) -> str:
    return reason or "no reason given"


def _time(row: Sequence[Any]) -> tuple[bool, datetime]:
    """Return the key that sorts rows by their first column; rows without a time come last."""
    return row[0] is None, row[0] or datetime.min.replace(tzinfo=UTC)


def _place(source: str, position: int) -> str:
    if not source.startswith(KAFKA):
        return f"{source}, row {position}"
    topic, partition = source_position.message_source(source)
    return f"{topic}, partition {partition}, offset {position}"


def _canonical(row: Mapping[str, Any]) -> str:
    """Return the non-null fields of a row of bronze as JSON, sorted by name.

    Invisible letters are escaped, so that the text copied from the document has the same hash.
    """
    fields = {name: row[name] for name in sorted(row) if row[name] is not None and name != "date"}
    readable = {name: value.hex() if isinstance(value, bytes) else value for name, value in fields.items()}
    written = json_text.dumps(readable, ensure_ascii=False)
    return letters.replace_invisible(letters.blanks(written, r"\u0020"), lambda letter: json_text.dumps(letter)[1:-1])


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
