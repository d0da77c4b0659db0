"""Costs: what each part of a rendered bundle costs a month of 30 days, in DBU and at list prices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from croniter import croniter

from .problems import known
from .rendering import Rendered

VOLUMES = (10_000, 1_000_000, 50_000_000)
"""Transactions a day."""
DAYS = 30
_MINUTES = {"MINUTES": 1, "HOURS": 60, "DAYS": 1440, "WEEKS": 10_080}
_STARTED_BY_HAND = {"backfill", "define", "probe", "probe_cluster", "rules"}


@dataclass(frozen=True)
class Cost:
    """DBU and dollars of a month, at each of :data:`VOLUMES`."""

    dbu: tuple[float, ...]
    dollars: tuple[float, ...]

    @classmethod
    def of(cls, dbu: tuple[float, ...], price: float, machines: float = 0) -> Cost:
        """Price the DBU, and add dollars for machines."""
        return cls(dbu, tuple(one * price + machines for one in dbu))


def costs(rendered: Rendered) -> dict[str, Cost]:
    """Return the cost of each part that starts by itself, or would if it were not paused, by its name in the guide."""
    jobs = {key: _of_job(key, job) for key, job in rendered.jobs().items() if key not in _STARTED_BY_HAND}
    endless = {key for key, pipeline in rendered.resources["pipelines"].items() if pipeline["continuous"]}
    apps = rendered.resources.get("apps", {})
    return {
        **jobs,
        **dict.fromkeys(endless, _of_pipeline()),
        "alerts": _of_alerts(rendered),
        **dict.fromkeys(apps, _of_app()),
    }


def _of_job(key: str, job: dict[str, Any]) -> Cost:
    clusters = [cluster["new_cluster"] for cluster in job.get("job_clusters", [])]
    if clusters:
        machine_hours = sum(1 + cluster["num_workers"] for cluster in clusters) * 24 * DAYS
        dbu = machine_hours * known("dbu_of")["machine_hour"]
        return Cost.of((dbu,) * len(VOLUMES), known("list_prices")["jobs"], machine_hours * known("machine_hour"))
    runs = sum(1 for _ in _starts(job)) if "continuous" not in job else DAYS * 1440 / known("dbu_of")["run_minutes"]
    of_rows = known("dbu_of")["million_rows"].get(key.removesuffix("_serverless"), 0)
    dbu_by_volume = tuple(runs * known("dbu_of")["run"] + DAYS * volume / 1_000_000 * of_rows for volume in VOLUMES)
    return Cost.of(dbu_by_volume, known("list_prices")["serverless_jobs"])


def _starts(job: dict[str, Any]) -> Iterator[datetime]:
    """Yield when a job starts within a month, at most as soon as the run before has ended."""
    begin, least = datetime(2026, 11, 1), timedelta(minutes=known("dbu_of")["run_minutes"])
    if "schedule" in job:
        yield from _by_cron(job["schedule"]["quartz_cron_expression"], begin)
        return
    trigger = job["trigger"]
    if "periodic" in trigger:
        every = timedelta(minutes=trigger["periodic"]["interval"] * _MINUTES[trigger["periodic"]["unit"]])
    else:  # a file a minute
        every = timedelta(seconds=trigger["file_arrival"]["min_time_between_triggers_seconds"])
    at = begin
    while at < begin + timedelta(days=DAYS):
        yield at
        at += max(every, least)


def _by_cron(quartz: str, begin: datetime) -> Iterator[datetime]:
    times = croniter(quartz.replace("?", "*"), begin - timedelta(seconds=1), second_at_beginning=True)
    at = times.get_next(datetime)
    while at < begin + timedelta(days=DAYS):
        yield at
        at = times.get_next(datetime)


def _of_alerts(rendered: Rendered) -> Cost:
    """The warehouse is up a minute for the queries, and then until it stops by itself; meanwhile it wakes nobody."""
    [warehouse] = rendered.resources["sql_warehouses"].values()
    up = timedelta(minutes=1 + warehouse["auto_stop_mins"])
    begin, minutes, sleeps_at = datetime(2026, 11, 1), 0.0, datetime.min
    alerts = rendered.resources["alerts"].values()
    for at in sorted(at for alert in alerts for at in _by_cron(alert["schedule"]["quartz_cron_schedule"], begin)):
        minutes += (at + up - max(at, sleeps_at)).total_seconds() / 60
        sleeps_at = at + up
    dbu = minutes / 60 * known("dbu_of")["warehouse_hour"][warehouse["cluster_size"]]
    return Cost.of((dbu,) * len(VOLUMES), known("list_prices")["serverless_sql"])


def _of_pipeline() -> Cost:
    """A serverless pipeline without an end takes as many DBU as a job that runs without a pause."""
    dbu = DAYS * 1440 / known("dbu_of")["run_minutes"] * known("dbu_of")["run"]
    return Cost.of((dbu,) * len(VOLUMES), known("list_prices")["serverless_pipelines"])


def _of_app() -> Cost:
    dbu = 24 * DAYS * known("dbu_of")["app_hour"]
    return Cost.of((dbu,) * len(VOLUMES), known("list_prices")["apps"])
