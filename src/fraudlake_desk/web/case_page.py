"""The case's page: the history and evidence of an item, and the forms to take it, give it back and decide on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, get_args
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.responses import HTMLResponse, RedirectResponse
from starlette.routing import Route

from fraudlake.entity import ACCOUNT
from fraudlake.review import cases, event_log, item_state, items, opened
from fraudlake.review.event import Verdict
from fraudlake.review.item import Item
from fraudlake.review.items import Named
from fraudlake.review.window import Window
from fraudlake_desk import list_entries, lists, rules
from fraudlake_desk.documents import charts, document, dossier
from fraudlake_desk.documents.charts import Mark
from fraudlake_desk.documents.letters import shown
from fraudlake_desk.lookup import history, links, money, panels
from fraudlake_desk.lookup.money import amount
from fraudlake_desk.review import actions, attachments, marks, verdicts
from fraudlake_desk.web import boxes, finding, forms, link_drawing, matter_forms
from fraudlake_desk.web.cut import brief
from fraudlake_desk.web.errors import MissingError, PageError
from fraudlake_desk.web.names import account, segment, sha256
from fraudlake_desk.web.queue_filter import STATES, QueueFilter
from fraudlake_desk.web.queue_page import day_of
from fraudlake_desk.web.site import done, moment, share

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response

    from fraudlake.detection.list_entries import Entry
    from fraudlake.lake.store import Store
    from fraudlake.review.event import Event
    from fraudlake.review.item_state import State
    from fraudlake.settings import Settings
    from fraudlake_desk.lookup.history import History
    from fraudlake_desk.review.actions import SetAside
    from fraudlake_desk.web.forms import Fields
    from fraudlake_desk.web.site import Site

SPANS = (14, 30, 90)
"""Choices for the days of history before a case; the first is the default."""
_ALERTS = 5
"""Alerts whose evidence is shown; more if more rules have alerts, since each rule shows one."""
_CASES = 10
"""Most cases that the page of an account lists."""
_TEXTS = {
    "taken": "took it",
    "released": "gave it back",
    "verdict": "decided:",
    "corrected": "corrected:",
    "withdrawn": "withdrew the verdict",
    "noted": "noted",
    "attached": "attached",
    "waiting": "lets it wait",
    "assigned": "assigned it",
    "escalated": "gave it to a lead",
    "opened": "opened the case",
    "merged": "merged",
    "separated": "separated",
}
_DONE = {
    "taken": "It is yours.",
    "released": "You gave it back.",
    "withdrawn": "The verdict is withdrawn; it is open again.",
    "noted": "The note is saved.",
    "attached": "The file is attached.",
    "waiting": "It waits. The next item: n.",
    "assigned": "It is assigned. The next item: n.",
    "escalated": "A lead decides. The next item: n.",
    "opened": "The case is open.",
    "merged": "The two are one case now.",
    "separated": "It is a case of its own again.",
}
"""The notice after a form has written an event, by the event's kind."""
ASIDE: dict[str, SetAside] = {"note": "noted", "wait": "waiting", "assign": "assigned", "escalate": "escalated"}
"""The kinds of events without a verdict, by the word in the form's address."""


def routes(site: Site) -> list[Route]:
    """Return the routes."""

    def item(request: Request) -> Response:
        named = _find(*_arguments(site, request))
        if named.part is not None:
            query = urlencode({**request.query_params, "part": named.part.item_id})
            return RedirectResponse(f"/items/{segment(named.item.item_id)}?{query}", 303)
        return _page(site, request, site.store_of(request.state.person), named)

    def find(request: Request) -> Response:
        query = request.query_params.get("name", "")
        store = site.store_of(request.state.person)
        if not query.strip():
            raise MissingError("give the name of what to find")
        for name in dict.fromkeys((query, query.strip())):  # blanks may be part of the name, or copied by accident
            matches = finding.named(store, name)
            if len(matches) == 1 and matches[0].is_page:
                return RedirectResponse(matches[0].address, 303)
            if matches:
                return site.page(request, "found.html", page="Queue", name=name, matches=matches)
        name = query.strip()
        if name.lower() in STATES:
            day = day_of(request.query_params.get("day"))
            return RedirectResponse(QueueFilter(state=name.lower()).address(day), 303)
        raise MissingError(
            f"there is no account, case, alert, drawn account or transaction '{shown(name)}', and no case of such a key"
        )

    def shared(request: Request) -> Response:
        store = site.store_of(request.state.person)
        named = _find(*_arguments(site, request))
        shares = history.shared(store, named.item, _about(named.item), _days(request))
        return site.page(request, "shared.html", shares=shares, entities=bool(store.settings.entities))

    def linked(request: Request) -> Response:
        store = site.store_of(request.state.person)
        named = _find(*_arguments(site, request))
        network = links.find_links(store, named.item, _about(named.item), _days(request))
        drawn = link_drawing.drawing(network)
        return site.page(request, "links.html", links=network, drawing=drawn, entities=bool(store.settings.entities))

    def dossier_(request: Request) -> Response:
        store = site.store_of(request.state.person)
        name = request.path_params["name"]
        case = _find(store, name).case
        if case is None:
            raise MissingError("a drawn account has no dossier: it has no case")
        made = document.render(dossier.dossier(store, name), datetime.now(UTC))
        file = f"dossier-{re.sub(r'[^A-Za-z0-9-]', '', case['case_id'])[:16]}.html"
        # The pages' content policy forbids the dossier's own style, so it is downloaded.
        return HTMLResponse(made, headers={"content-disposition": f'attachment; filename="{file}"'})

    def of_account(request: Request) -> Response:
        store = site.store_of(request.state.person)
        return _page(site, request, store, Named(_account(store, request), None, None))

    def item_panels(request: Request) -> Response:
        store = site.store_of(request.state.person)
        named = _find(*_arguments(site, request))
        return site.page(request, "panels.html", panels=panels.fill_panels(store, named.item, _about(named.item)))

    def account_panels(request: Request) -> Response:
        store = site.store_of(request.state.person)
        item = _account(store, request)
        return site.page(request, "panels.html", panels=panels.fill_panels(store, item, _about(item)))

    def form(carry_out: Callable[[Store, str, Item, Fields], Event]) -> Callable[[Request], Any]:
        async def answer(request: Request) -> Response:
            fields = await forms.read(request, site.access)
            return done(request, await forms.carried_out(lambda: sent(request, fields)))

        def sent(request: Request, fields: Fields) -> str:
            person = request.state.person
            name = request.path_params["name"]
            store = site.store_of(person)
            day = day_of(fields.get("day"))
            chosen = QueueFilter.read(fields)
            named = _find(store, name, day)
            if named.part is not None:
                raise PageError(f"this is part of case {named.item.item_id} now: load the page again")
            event = carry_out(store, person.name, named.item, fields)
            query = {"done": event.event_id} | ({"day": str(day)} if day else {}) | chosen.fields
            return f"/items/{segment(name)}?{urlencode(query)}"

        return answer

    async def add_entry(request: Request) -> Response:
        fields = await forms.read_of_lead(request, site.access)
        return done(request, await forms.carried_out(lambda: added(request, fields)))

    def added(request: Request, fields: Fields) -> str:
        person = request.state.person
        name = request.path_params["name"]
        store = site.store_of(person)
        until = day_of(fields.get("until"))
        if until is None:
            raise PageError("give the day until which it is on the list: nothing was written")
        item = _find(store, name, day_of(fields.get("day"))).item
        chosen = QueueFilter.read(fields)
        # A rule has a list of its own, of the keys for which it raises no alerts.
        add = lists.add if "list" in fields else list_entries.suppress
        name_of_list = fields.get("list", fields.get("rule", "")).strip()
        wanted = list_entries.NewEntry(person.name, fields.get("reason", ""), until, forms.event_id(fields))
        entry = add(store, rules.read(store)[0], wanted, name_of_list, item.entity, item.entity_key)
        day = {"day": fields["day"]} if fields.get("day") else {}
        return f"/items/{segment(name)}?{urlencode({'listed': entry.entry_id} | day | chosen.fields)}"

    return [
        Route("/items/{name:text}", item),
        Route("/items/{name:text}/shared", shared),
        Route("/items/{name:text}/links", linked),
        Route("/items/{name:text}/dossier", dossier_),
        Route("/items/{name:text}/take", form(_take), methods=["POST"]),
        Route("/items/{name:text}/release", form(_release), methods=["POST"]),
        Route("/items/{name:text}/verdict", form(_decide), methods=["POST"]),
        Route("/items/{name:text}/withdraw", form(_withdraw), methods=["POST"]),
        Route("/items/{name:text}/suppress", add_entry, methods=["POST"]),
        Route("/items/{name:text}/list", add_entry, methods=["POST"]),
        *(
            Route(f"/items/{{name:text}}/{word}", form(partial(_set_aside, kind)), methods=["POST"])
            for word, kind in ASIDE.items()
        ),
        *matter_forms.routes(site),
        Route("/items/{name:text}/panels", item_panels),
        Route("/accounts/{name:text}", of_account),
        Route("/accounts/{name:text}/panels", account_panels),
        Route("/accounts/{name:text}/{digest:str}", of_account),
        Route("/accounts/{name:text}/{digest:str}/panels", account_panels),
        Route("/find", find),
    ]


def _take(store: Store, analyst: str, item: Item, fields: Fields) -> Event:
    id_ = forms.event_id(fields)
    lock = store.settings.review_lock
    return verdicts.record_one(store, item, id_, lambda before: actions.take(item, before, analyst, lock, id_))


def _release(store: Store, analyst: str, item: Item, fields: Fields) -> Event:
    id_ = forms.event_id(fields)
    return verdicts.record_one(store, item, id_, lambda before: actions.release(item, before, analyst, id_))


def _decide(store: Store, analyst: str, item: Item, fields: Fields) -> Event:
    id_ = forms.event_id(fields)
    verdict = fields.get("verdict")
    decision = next((one for one in get_args(Verdict) if one == verdict), None)
    if decision is None:
        raise PageError("a verdict is fraud, genuine or unsure")
    reason = fields.get("reason")
    note = fields.get("note")
    is_correction = bool(fields.get("correct"))
    payments = fields.getlist("fraud") if decision == "fraud" else []
    if decision == "fraud" and "others" in fields:
        own = [row["transaction_id"] for row in _in_order(marks.rows(store, item, item.transaction_ids).values())]
        payments += [id_ for value in fields.getlist("others") for id_ in boxes.ids(value, own)]
    if decision == "fraud" and not payments:
        raise PageError("mark the payments that are fraud: nothing was written")
    fraud = marks.amounts(store, item, payments)
    parts = str(len(item.parts))

    def make(before: State) -> Event:
        if fields.get("parts", parts) != parts:
            raise PageError("cases were merged or separated since this page was made: load it again")
        return actions.decide(item, before, analyst, decision, id_, fraud, reason, note, is_correction)

    event = verdicts.record_one(store, item, id_, make)
    # The first of several forms with one id counts: another verdict from the same page is not written.
    if event.verdict != decision:
        raise PageError(f"this page has recorded {event.verdict} already: load it again to correct that")
    return event


def _withdraw(store: Store, analyst: str, item: Item, fields: Fields) -> Event:
    id_ = forms.event_id(fields)
    reason = fields.get("reason")
    return verdicts.record_one(store, item, id_, lambda before: actions.withdraw(item, before, analyst, id_, reason))


def _set_aside(kind: SetAside, store: Store, analyst: str, item: Item, fields: Fields) -> Event:
    id_ = forms.event_id(fields)
    day = day_of(fields.get("until"))
    until = datetime.combine(day, time(), UTC) if day else None
    reason, note, assignee = (fields.get(name) for name in ("reason", "note", "assignee"))

    def make(before: State) -> Event:
        return actions.set_aside(item, before, analyst, kind, id_, reason, note, until, assignee)

    return verdicts.record_one(store, item, id_, make)


def _page(site: Site, request: Request, store: Store, named: Named) -> Response:
    item = named.item
    case = named.case
    row = named.row
    events = history.events(store, item)
    own = [event for event in events if event.item_id in item.names]
    state = item_state.state(own, datetime.now(UTC))
    days = _days(request)
    past = history.read_history(store, item, _about(item), days, case["alert_ids"] if case else ())
    alerts = [alert for alert in past.alerts if _is_of(alert, item, case)]
    shown = _latest_of_each_rule(alerts)
    payments = _payments(store, item, past, state)
    currency_of = {row["transaction_id"]: money.currencies(store.settings, [row]) for row in past.transactions}
    paid_in = sorted({name for payment in payments for name in currency_of.get(payment["transaction_id"], ())})
    currencies = money.sum_currencies(store.settings, paid_in)
    covered = {*item.transaction_ids}
    raising = [payment for payment in payments if payment["transaction_id"] in covered]
    sharing = {payment["transaction_id"] for payment in raising[boxes.MOST :]}
    with_box = [payment for payment in payments if payment["transaction_id"] not in sharing]
    of_account = [] if case else cases.read_cases_of_account(store, item.account_id, _CASES)
    by_hand = [] if case else opened.rows(store, lambda event: event.account_id == item.account_id)
    on_day = [one for one in of_account if row and cases.is_on_day(one, row["day"])]
    with_dossier = case or next(iter(on_day), None)
    accounts = history.by_account(past.transactions, alerts) if item.has_accounts else []
    # The choices cost queries, and readers have no form to merge.
    may_merge = case is not None and state.decision is None and request.state.person.may_decide
    entries = list_entries.read_key(store, item.entity, item.entity_key)
    return site.page(
        request,
        "case.html",
        page="Queue",
        chosen=QueueFilter.read(request.query_params),
        notice=_notice(request, item, events) or _listed(request, entries),
        entries=[entry for entry in entries if entry.ends_at > datetime.now(UTC)],
        of_rules=case["rules"] if case else [],
        lists=_lists(store, item) if request.state.person.may_suppress else [],
        name=request.path_params["name"] if item.names else None,
        day=row["day"] if row else None,
        item=item,
        state=state,
        is_drawn=case is None and row is not None,
        payments=with_box,
        others=boxes.shared(raising),
        listed={payment["transaction_id"] for payment in with_box},
        is_correction=state.decision is not None and state.covers(item),
        expired=_expired(state),
        dossier=f"/items/{segment(with_dossier['case_id'])}/dossier" if with_dossier else None,
        facts=_facts(item, case, row, currencies),
        currencies=currencies,
        currency_of=currency_of,
        cases=[*of_account, *by_hand],
        merged_parts=matter_forms.parts(item, named.merged),
        may_merge=may_merge,
        choices=matter_forms.choices(store, item, past, named.merged) if may_merge else [],
        history=past,
        accounts=accounts[: history.NUMBERED],
        more_accounts=len(accounts[history.NUMBERED :]),
        timeline=_timeline(store.settings, past, item, history.labels(accounts)),
        alerts=[_evidence(alert, past) for alert in shown],
        more_alerts=len(alerts) - len(shown),
        columns=list(store.settings.silver_columns),
        score=_score(past),
        panels=f"{_address(item)}/panels" if store.settings.panels else None,
        days=days,
        spans=[span for span in SPANS if span != days],
        events=[{**vars(event), "text": _said(event)} for event in reversed(events)],
        verdicts=_earlier(past.verdicts, events),
        reasons=store.settings.review_reasons,
        people=sorted({event.analyst for event in events}),
        tomorrow=datetime.now(UTC).date() + timedelta(days=1),
        may_undo=state.last is not None
        and state.last.is_verdict
        and state.last.event_id == request.query_params.get("done"),
        longest=event_log.LONGEST,
        ids={
            name: event_log.new_id()
            for name in ("next", "verdict", "hold", "withdraw", "merge", "open", "suppress", "list", "attach")
        },
        files=[event for event in events if event.file_name and event.item_id in item.all_names],
        largest=attachments.LARGEST,
    )


def _lists(store: Store, item: Item) -> list[str]:
    """Return the lists to which the key of an item may be added."""
    return [name for name, of in lists.read_names(store, rules.read(store)[0]) if of == item.entity]


def _listed(request: Request, entries: list[Entry]) -> str | None:
    """Return the notice about a list entry that the form has added."""
    added = next((one for one in entries if one.entry_id == request.query_params.get("listed")), None)
    if added is None:
        return None
    begins = f"from {moment(added.starts_at)} UTC on"
    return f"{added.rule} raises no alerts for it {begins}." if added.rule else f"It is on {added.list} {begins}."


def _is_of(alert: dict[str, Any], item: Item, case: dict[str, Any] | None) -> bool:
    """Return whether an alert belongs to the case, or was completed by a payment of the drawn account."""
    return bool(alert["is_of_case"]) if case else alert["transaction_id"] in item.transaction_ids


def _payments(store: Store, item: Item, past: History, state: State) -> list[dict[str, Any]]:
    """Return the payments that an item covers or a verdict marks, the earliest first, with ``is_marked``."""
    fraud_ids = state.decision.fraud_ids if state.decision else ()
    if not fraud_ids and item.case_id is not None:
        fraud_ids = item.transaction_ids
    wanted = {*item.transaction_ids, *fraud_ids}
    rows = {row["transaction_id"]: row for row in past.transactions if row["transaction_id"] in wanted}
    if missing := sorted(wanted - rows.keys()):
        rows |= marks.rows(store, item, missing)
    frauds = {*fraud_ids}
    return [{**row, "is_marked": row["transaction_id"] in frauds} for row in _in_order(rows.values())]


def _in_order(payments: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(payments, key=lambda row: (row["timestamp"], row["transaction_id"]))


def _arguments(site: Site, request: Request) -> tuple[Store, str, date | None]:
    """Return the arguments of :func:`_find` from a request."""
    name = request.path_params["name"]
    day = day_of(request.query_params.get("day"))
    return site.store_of(request.state.person), name, day


def _find(store: Store, name: str, day: date | None = None) -> Named:
    """Return the item of an id: see :func:`items.find`.

    Raises:
        MissingError: there is no such item.
    """
    named = items.find(store, name, day)
    if named is None:
        raise MissingError(
            f"there is no case, alert or drawn account {shown(name)} any more: it was forgotten or replaced"
        )
    return named


def _account(store: Store, request: Request) -> Item:
    """Return the account that an address names: see :func:`names.account`.

    Raises:
        MissingError: no account with this beginning has this hash.
    """
    name = request.path_params["name"]
    wanted = request.path_params.get("digest")
    if wanted is not None:
        longer = (one for one in history.accounts_beginning(store, name) if sha256(one) == wanted)
        whole = next(longer, None)
        if whole is None:
            raise MissingError(f"there is no account {shown(name)}… any more: it was forgotten")
        name = whole
    return history.find_account(store, name)


def _days(request: Request) -> int:
    text = request.query_params.get("days", "")
    return int(text) if text in map(str, SPANS) else SPANS[0]


def _about(item: Item) -> Window:
    """Return the days of an item; for an account, its latest day."""
    day = item.day or datetime.now(UTC).date()
    return item.about or Window(day, day)


def _notice(request: Request, item: Item, events: list[Event]) -> str | None:
    """Return the notice about the form that was just sent, or about the part whose id was asked for."""
    own = (event for event in events if event.item_id in item.all_names)
    query = request.query_params
    event = next((event for event in own if event.event_id == query.get("done")), None)
    if event is None:
        return f"{query['part']} is part of this case." if query.get("part") in item.all_names else None
    if event.is_verdict:
        return f"Recorded at {moment(event.at)} UTC: {event.verdict}. The next item: n."
    return _DONE[event.kind]


def _said(event: Event) -> str:
    """Describe an event without its verdict, reason and note."""
    text = _TEXTS[event.kind]
    into = event.merged_into
    if event.kind not in ("merged", "separated"):
        return text
    way = "into" if event.kind == "merged" else "from"
    whole = brief(into or "a case", 20)
    return f"{text} {brief(event.item_id, 20)} {way} {whole}"


def _expired(state: State) -> str | None:
    """Return a sentence on the last holder if their lock has expired."""
    if state.holder is None and state.last is not None and state.last.kind == "taken":
        return f"{state.last.analyst} had taken it until {moment(state.last.expires_at)} UTC; it is free again."
    return None


def _address(item: Item) -> str:
    """Return the address of the page of an item, or of an account."""
    return f"/items/{segment(item.item_id)}" if item.names else account(item.account_id)


def _facts(
    item: Item, case: dict[str, Any] | None, row: dict[str, Any] | None, currencies: Sequence[str]
) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if row:
        facts.append(("Why", row["reasons"]))
    if case:
        first, last = ("Opened", "Last alert") if case["alerts"] else ("First payment", "Last payment")
        facts += [(f"{first} (UTC)", moment(case["opened_at"])), (f"{last} (UTC)", moment(case["last_alert_at"]))]
        facts += [("Alerts", f"{case['alerts']:,}")]
        facts += [("Rules", ", ".join(case["rules"]))] if case["rules"] else []
        facts += [("At risk", amount(case["amount_at_risk"], currencies))]
        if case["accounts"] != 1:
            facts.append(("Accounts", f"{case['accounts']:,}"))
        facts.append(("Id", case["case_id"]))  # needed in the form that merges another case, and in commands
    elif row:
        facts += [
            ("At risk", amount(row["amount_at_risk"], currencies)),
            ("Drawn from", f"{row['population']:,} accounts"),
        ]
    if row and row["probability"] is not None:
        facts.append(("Probability of fraud", share(row["probability"])))
    if item.entity != ACCOUNT:
        facts.append(("First account", item.account_id))
    return facts or [("Account", item.account_id)]


def _timeline(settings: Settings, past: History, item: Item, labels: Mapping[str, str]) -> Markup:
    countries = _new_countries(settings, past) if item.entity == ACCOUNT else {}
    marks = [
        Mark(
            row["timestamp"],
            row["amount"],
            (f"{shown(row['account_id'])}: " if item.has_accounts else "") + _text(settings, row),
            row["is_of_case"],
            row["alert"],
            row["probability"],
            None if row["verdict"] is None else "fraud" if row["verdict"] else "genuine",
            bool(row["label"]),
            labels.get(row["account_id"], countries.get(row["transaction_id"], "")),
        )
        for row in past.transactions
    ]
    return charts.timeline(marks, f"{len(marks):,} transactions of {shown(item.entity_key)} by time and amount")


def _new_countries(settings: Settings, past: History) -> dict[str, str]:
    """Return the country of each payment whose country differs from that of the payment before."""
    changes = {}
    before = ""
    for row in reversed(past.transactions):
        country = money.country(settings, row)
        if country and country != before:
            changes[row["transaction_id"]] = before = country
    return changes


def _text(settings: Settings, row: dict[str, Any]) -> str:
    parts = [f"{moment(row['timestamp'])} UTC: {amount(row['amount'], money.currencies(settings, [row]))}"]
    country = money.country(settings, row)
    parts += [f"in {country}"] if country else []
    parts += [f"score {share(row['probability'])}"] if row["probability"] is not None else []
    parts += [f"{row['alert']} alert"] if row["alert"] else []
    parts += [] if row["verdict"] is None else ["called fraud" if row["verdict"] else "called genuine"]
    return ", ".join(parts)


def _earlier(verdicts_: list[dict[str, Any]], events: list[Event]) -> list[dict[str, Any]]:
    """Return the verdicts from outside of the review, grouped by decision, with their number of transactions."""
    of_events = {(event.at, event.analyst) for event in events}
    names = ("decided_at", "analyst", "verdict", "reason")
    decisions = Counter(
        tuple(row[name] for name in names) for row in verdicts_ if (row["decided_at"], row["analyst"]) not in of_events
    )
    return [dict(zip((*names, "transactions"), (*key, count), strict=True)) for key, count in decisions.items()]


def _latest_of_each_rule(alerts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the latest alert of each rule, then further ones; the alerts are given with the latest first."""
    first = {alert["rule"]: alert for alert in reversed(alerts)}
    latest = [alert for alert in alerts if first[alert["rule"]] is alert]
    others = [alert for alert in alerts if first[alert["rule"]] is not alert]
    return [*latest, *others[: max(0, _ALERTS - len(latest))]]


def _evidence(alert: dict[str, Any], past: History) -> dict[str, Any]:
    """Return an alert with the rows of its evidence, their accounts, and the columns that the rule used."""
    accounts = {row["transaction_id"]: row["account_id"] for row in past.transactions}
    parts = alert["evidence"] or []
    further = [dict(one or {}) for one in alert["evidence_columns"] or [{}] * len(parts)]
    rows = [
        {**part, "account_id": accounts.get(part["transaction_id"]), "further": one}
        for part, one in zip(parts, further, strict=True)
    ]
    columns = [*dict.fromkeys(name for one in further for name in one)]
    return {**alert, "rows": rows, "columns": columns, "measures": alert["measures"] or []}


def _score(past: History) -> dict[str, Any] | None:
    """Return the transaction with the highest score, of the case if any of its transactions has one."""
    scored = [row for row in past.transactions if row["probability"] is not None]
    of_case = [row for row in scored if row["is_of_case"]] or scored
    return max(of_case, key=lambda row: float(row["probability"]), default=None)
