"""Many people at one desk: how long its pages and decisions take, and whether one is lost, doubled or refused.

usage: python -m benchmarks.desk_load [FOLDER] [--transactions 5000000] [--readers 50] [--writers 10] [--seconds 60]
       [--pace 1] [--thinking 1] [--warm] [--parts]

The lake is that of ``benchmarks.desk``, as ``fraudlake optimize`` leaves it. One process serves the desk. Each reader
opens a page a second: the queue of a day, or one of its cases. Writers take the next item, open it, think for a second,
and decide. Events and verdicts are then compared with the answers.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

from benchmarks import desk
from fraudlake import tables
from fraudlake.lake.local_store import LocalStore
from fraudlake.review import event_log
from fraudlake.settings import Settings

HEADER = "X-Forwarded-User"
QUEUE_SHARE = 0.25
"""Share of a reader's pages that are the queue; the others are cases."""


@dataclass
class Seen:
    """What people measured and were answered."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    written: list[tuple[str, str, str]] = field(default_factory=list)
    """Events that were confirmed: id, analyst and kind."""
    refused: list[str] = field(default_factory=list)
    """Answers to forms that should have been carried out."""


class Browser:
    """A person whom a proxy names, on a connection of their own."""

    def __init__(self, port: int, name: str, seen: Seen) -> None:
        """Connect when something is asked for."""
        self.name, self._seen = name, seen
        self._connection = HTTPConnection("127.0.0.1", port, timeout=120)

    def get(self, what: str, path: str) -> str:
        """Return a page."""
        answer, text = self._timed(what, "GET", path)
        if answer.status != 200:
            self._seen.refused.append(f"GET {path}: {answer.status} {_plain(text)}")
        return text

    def post(self, what: str, path: str, **fields: str | list[str]) -> tuple[int, str]:
        """Send a form, and return the status and where to go on, or what is wrong."""
        headers = {"content-type": "application/x-www-form-urlencoded", "accept": "application/json"}
        answer, text = self._timed(what, "POST", path, urlencode(fields, doseq=True), headers)
        content = json.loads(text)
        return answer.status, content.get("next") or content["error"]

    def _timed(
        self, what: str, method: str, path: str, body: str | None = None, headers: dict[str, str] | None = None
    ) -> tuple[HTTPResponse, str]:
        begun = time.perf_counter()
        self._connection.request(method, path, body, {HEADER: self.name, **(headers or {})})
        answer = self._connection.getresponse()
        text = answer.read().decode()
        self._seen.seconds[what].append(time.perf_counter() - begun)
        return answer, text


def read(browser: Browser, items: list[str], until: float, pace: float, has_parts: bool) -> None:
    """Open a page each so many seconds, or when the last one is there if that took longer."""
    random_, following = random.Random(browser.name), time.monotonic()
    following += random_.random() * pace
    while following < until:
        time.sleep(max(0.0, following - time.monotonic()))
        if random_.random() < QUEUE_SHARE:
            browser.get("reader: queue", "/")
        else:
            path = f"/items/{random_.choice(items)}"
            browser.get("reader: case", path)
            if has_parts:
                browser.get("reader: shared", f"{path}/shared")
        following = max(following + pace, time.monotonic())


def write(browser: Browser, days: list[str], until: float, thinking: float, seen: Seen) -> None:
    """Take the next item and decide on it, until the queues of all days are done."""
    form = _fields(browser.get("writer: page", "/"))["form"]
    left = list(days)
    while time.monotonic() < until and left:
        event_id = event_log.new_id()
        status, text = browser.post("writer: take next", "/next", form=form, event_id=event_id, day=left[0])
        if "nothing is left to take" in text:
            left.pop(0)
            continue
        if status != 200:
            seen.refused.append(f"take: {status} {text}")
            continue
        seen.written.append((event_id, browser.name, "taken"))
        page = browser.get("writer: page", text)
        time.sleep(thinking)
        name, verdict = urlsplit(text).path, random.choice(("fraud", "genuine"))
        event_id = _fields(page, f"{name}/verdict")["event_id"]
        day = parse_qs(urlsplit(text).query)["day"][0]
        given = {"form": form, "event_id": event_id, "day": day, "verdict": verdict}
        marked = re.findall(r'name="fraud" value="([^"]*)" checked', page)
        status, text = browser.post("writer: decide", f"{name}/verdict", **given, fraud=marked)
        if status != 200:
            seen.refused.append(f"verdict: {status} {text}")
            continue
        seen.written.append((event_id, browser.name, "verdict"))
        if "Recorded at" not in browser.get("writer: page", text):
            seen.refused.append(f"the page of {text} does not have the verdict")


def _fields(page: str, action: str | None = None) -> dict[str, str]:
    """Return the hidden fields of a page, or of its form for an action."""
    begin = page.find(f'action="{action}"') if action else 0
    form = page[begin : page.find("</form>", begin)]
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', form))
    token = re.search(r'name="form-token" content="([^"]*)"', page)
    return ({"form": token[1]} if token else {}) | fields


def _plain(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", page).split())[-300:]


def check(store: LocalStore, seen: Seen) -> dict[str, int]:
    """Compare the tables with what people were answered."""
    events = event_log.read_events(store)
    by_id = Counter(event.event_id for event in events)
    written = {(event.event_id, event.analyst, event.kind) for event in events}
    per_item = Counter((event.item_id, event.kind) for event in events)
    holders = defaultdict(set)
    for event in events:
        holders[event.item_id].add(event.analyst)
    decided = [one for event in events if event.kind == "verdict" for one in event.transaction_ids]
    table = tables.SILVER_VERDICTS
    verdicts = Counter(store.query(f"SELECT transaction_id FROM {table.name}", table)["transaction_id"].to_pylist())
    return {
        "events": len(events),
        "lost": sum(one not in written for one in seen.written) + sum(one not in verdicts for one in decided),
        "doubled": sum(count > 1 for count in (*by_id.values(), *per_item.values(), *verdicts.values()))
        + sum(len(names) > 1 for names in holders.values()),
        "false conflicts": len(seen.refused),
    }


def serve(root: Path) -> tuple[subprocess.Popen[str], int]:
    """Start a desk that believes a proxy on this machine, and return its process and port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = ["--user-header", HEADER, "--trusted-proxies", "127.0.0.1", "--public-url", f"http://127.0.0.1:{port}"]
    command = [
        sys.executable,
        "-m",
        "fraudlake_cli",
        "--lake",
        str(root),
        "--json",
        "desk",
        "--port",
        str(port),
        *flags,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process, port


def together(calls: list[Callable[[], None]]) -> None:
    """Call functions at the same time, and wait for all."""
    threads = [threading.Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def report(seen: Seen, processor: float, seconds: float) -> None:
    """Print how long pages and forms took."""
    for what, taken in sorted(seen.seconds.items()):
        p95 = statistics.quantiles(taken, n=20)[-1] if len(taken) > 1 else taken[0]
        print(
            f"{what:<20} {len(taken):6,} times  p50 {statistics.median(taken) * 1000:6.0f} ms   "
            f"p95 {p95 * 1000:6.0f} ms   max {max(taken) * 1000:6.0f} ms"
        )
    verdicts = sum(kind == "verdict" for _, _, kind in seen.written)
    print(f"{verdicts / seconds:.1f} verdicts a second; processor time of the desk {processor / seconds:.2f} cores")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--transactions", type=int, default=5_000_000)
    parser.add_argument("--readers", type=int, default=50)
    parser.add_argument("--writers", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--pace", type=float, default=1, help="seconds from a reader's page to the next")
    parser.add_argument("--thinking", type=float, default=1, help="seconds from a writer's page to the verdict")
    parser.add_argument("--warm", action="store_true", help="open each case of the day once before measuring")
    parser.add_argument("--parts", action="store_true", help="also ask for what others did at a case's terminal")
    given = parser.parse_args()
    root = given.folder or Path(tempfile.mkdtemp(prefix="fraudlake-desk-"))
    if not (root / "lake.json").exists():
        desk.make(root, given.transactions)
        subprocess.run([sys.executable, "-m", "fraudlake_cli", "--lake", str(root), "optimize"], check=True)
    for table in (tables.SILVER_REVIEW_EVENTS, tables.SILVER_VERDICTS):
        shutil.rmtree(root / "tables" / table.name, ignore_errors=True)
    store = LocalStore(Settings(lake=root))
    queue = tables.GOLD_REVIEW_QUEUE
    rows = store.query(f"SELECT item_id, day FROM {queue.name} ORDER BY day DESC, rank", queue).to_pylist()
    days = sorted({str(row["day"]) for row in rows}, reverse=True)
    items, seen = [row["item_id"] for row in rows if str(row["day"]) == days[0]], Seen()

    process, port = serve(root)
    try:
        for item in items if given.warm else ():
            Browser(port, "warm", Seen()).get("case", f"/items/{item}")
        before, until = _processor(process.pid), time.monotonic() + given.seconds
        readers = [Browser(port, f"reader-{number}", seen) for number in range(given.readers)]
        writers = [Browser(port, f"writer-{number}", seen) for number in range(given.writers)]
        together([
            *(lambda one=one: read(one, items, until, given.pace, given.parts) for one in readers),
            *(lambda one=one: write(one, days, until, given.thinking, seen) for one in writers),
        ])  # fmt: skip
        processor = _processor(process.pid) - before
    finally:
        process.terminate()
        process.wait()
    report(seen, processor, given.seconds)
    outcome = check(store, seen)
    print("\n".join(dict.fromkeys(seen.refused[:5])))
    print(", ".join(f"{name}: {number:,}" for name, number in outcome.items()))
    sys.exit(any(number for name, number in outcome.items() if name != "events"))


def _processor(process: int) -> float:
    """Return the seconds of processor time that a process has used."""
    ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return sum(map(int, ticks)) / 100


if __name__ == "__main__":
    main()
