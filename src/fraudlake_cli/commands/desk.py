"""The command desk: serves the review pages to one person, a team through a proxy, or users of a Databricks App."""

from __future__ import annotations

import os
import webbrowser
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from fraudlake.errors import UsageError
from fraudlake.process import extras
from fraudlake_cli.app import App, cli, options, person_of
from fraudlake_cli.output.progress import console

if TYPE_CHECKING:
    from pathlib import Path

    from fraudlake.settings import Settings
    from fraudlake_desk.web.site import Site

_PORT = 8642
_APP = "DATABRICKS_APP_PORT"
"""The variable that Databricks Apps sets; it authenticates the users."""
_ANY = ("0.0.0.0", "::")  # noqa: S104


@cli.command(example="fraudlake desk")
@click.option("--host", default="127.0.0.1", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=click.IntRange(0, 65535), default=_PORT, help=f"Port, or 0.  [default: {_PORT}]")
@click.option("--analyst", help="Who takes and decides.  [default: the user of this machine]")
@click.option("--read-only", is_flag=True, help="Only show pages.")
@click.option("--open", "is_opened", is_flag=True, help="Open the browser.")
@options("public_url", "user_header", "trusted_proxies", "groups_header", "people", "analyst_groups", "lead_groups")
@options("rule_author_groups", "approver_groups", "warehouse")
@click.pass_obj
def desk(
    app: App,
    /,
    host: str,
    port: int,
    analyst: str | None,
    read_only: bool,
    is_opened: bool,
    **flags: str | None,
) -> None:
    """Serve the review queue, cases, rules and health as pages, until it is stopped.

    Prints an address with a token, which works once: who opens it has your rights, and the next address is printed.
    Only this machine can reach it, unless --host says otherwise. A team shares one desk if a proxy says who they are:
    give --public-url, --user-header and --trusted-proxies. Reads the lake's tables without Spark.
    """
    with extras.required("desk"):
        from fraudlake_desk.web import server
        from fraudlake_desk.web.application import application
        from fraudlake_desk.web.role import Role

    settings = app.settings(**flags)
    if _APP in os.environ:
        site = _site_of_users(settings)
        server.serve(application(site), server.listen(_ANY[0], int(os.environ[_APP])), site.access.is_proxy)
        return
    if analyst and settings.user_header:
        raise UsageError("--analyst says who decides, and with --user-header the proxy does: give one of them")
    if not settings.user_header and (settings.groups_header or settings.people):
        raise UsageError("--groups-header and --people are about people whom a proxy names: give --user-header")
    most = Role.READER if read_only else Role.LEAD
    store = app.open_store(**flags)
    with server.listen(host, port) as listening, ExitStack() as claims:
        port = listening.getsockname()[1]
        activity = None if settings.is_in_workspace else partial(_activity, settings)
        shown = "127.0.0.1" if host in _ANY else f"[{host}]" if ":" in host else host
        address = f"{settings.public_url or f'http://{shown}:{port}'}/"

        def say(address: str, text: str) -> None:
            with suppress(BrokenPipeError):  # e.g. piped to `head -1` for the first address
                app.say({"address": address}, f"{text}: {address}")

        if settings.user_header:
            site = server.site_of_team(store, most, host, activity)
            opened = address
            say(address, f"the desk of {store.name}")
        else:
            name = person_of(store, analyst)
            place = (host, port)
            if not (read_only or settings.is_in_workspace):
                claims.enter_context(_claimed(settings.lake, name))
            site, access = server.site_of_one(
                store, name, most, place, activity, settings.public_url,
                lambda token: say(f"{address}?token={token}", "that address was used; the next one"),
            )  # fmt: skip
            say(f"{address}?token={access.token}", f"the desk of {store.name}")
            opened = f"{address}?token={access.brief_token()}"
        if host not in server.LOOPBACK:
            console.print(
                "other machines can reach it, and nothing encrypts what they send", markup=False, soft_wrap=True
            )
        if is_opened:
            webbrowser.open(opened)
        server.serve(application(site), listening, site.access.is_proxy)


@contextmanager
def _claimed(root: Path, name: str) -> Iterator[None]:
    """Lock an analyst's name in a lake on this machine, and warn if another desk has locked it."""
    from filelock import FileLock, Timeout

    from fraudlake_desk.web.names import sha256

    lock = FileLock(root / f".desk-{sha256(name)[:16]}.lock", timeout=0)
    try:
        lock.acquire()
    except Timeout:
        console.print(
            f"another desk of this lake decides as {name}, too: give each person a name with --analyst, or two of them "
            "may hold one item",
            markup=False,
            soft_wrap=True,
        )
    try:
        yield
    finally:
        lock.release()


def _site_of_users(settings: Settings) -> Site:
    """Return the site of a Databricks App, on which each user has their own rights."""
    from fraudlake_desk.web import server
    from fraudlake_desk.web.access import PlatformAccess
    from fraudlake_desk.web.app_users import UserStores, groups_of
    from fraudlake_desk.web.site import Site

    if not settings.analysts:
        raise UsageError("a Databricks App needs --analyst-groups: their members decide, others read")
    stores = UserStores(settings)
    roles = server.role_by_group(settings)
    return Site(lambda person: stores.open(person.name, str(person.credentials)), PlatformAccess(roles, groups_of))


def _activity(settings: Settings) -> dict[str, Any]:
    """Return the state of a local lake's streams (:attr:`Site.activity`); the first call loads pyspark."""
    from fraudlake.lake import open_lake
    from fraudlake.operations.activity import Watcher
    from fraudlake.operations.status import status

    lake = open_lake(settings, must_exist=True)
    now = datetime.now(UTC)
    return {"gaps": status(lake).gaps, "streams": Watcher(lake, 1).look(now).streams, "at": now}
