"""What delivery adds to an alert: from its commit in silver_alerts to a webhook on this machine. Run by hand.

    python -m benchmarks.delivery --seconds 60 --work /tmp/delivery

Some alerts are committed every second, while `deliver` runs with a continuous trigger. It prints percentiles of the
time from the end of an alert's commit to the arrival of its event.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import threading
import time
from pathlib import Path

import pandas as pd

from fraudlake.lake import Lake, open_lake
from fraudlake.settings import Settings
from fraudlake.streams import deliver, stream
from tests.delivery.alerts import alert, raise_
from tests.delivery.receiver import Receiver, listening


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--warm-up", type=int, default=20, help="seconds at the beginning that are left out")
    parser.add_argument("--interval", default="100 milliseconds")
    parser.add_argument("--suppress-within", default="0 seconds")
    parser.add_argument("--work", type=Path, required=True)
    options = parser.parse_args()

    shutil.rmtree(options.work, ignore_errors=True)
    with listening() as receiver:
        lake = open_lake(
            Settings(
                lake=options.work,
                interval=options.interval,
                webhook_url=receiver.url,
                suppress_within=options.suppress_within,
            )
        )
        committed: dict[str, float] = {}
        threading.Thread(target=raise_alerts, args=(lake, options.seconds, committed, receiver)).start()
        stream.run(lake, deliver.streams(lake, "webhook"), "continuous")
        arrived = {event["id"]: request.at for request in receiver.taken for event in request.events}
    # A stream takes its time to start, and to compile what its first micro-batches need.
    begun = min(arrived.values()) + options.warm_up
    waits = pd.Series([arrived[id_] - at for id_, at in committed.items() if at > begun])
    print(json.dumps({"alerts": len(waits), **{f"p{q}": round(waits.quantile(q / 100), 2) for q in (50, 90, 99)}}))


def raise_alerts(lake: Lake, seconds: int, committed: dict[str, float], receiver: Receiver) -> None:
    """Commit five alerts about once a second; stop the stream when all have arrived."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        alerts = [alert(number, account=str(number)) for number in range(len(committed), len(committed) + 5)]
        raise_(lake, *alerts)
        committed |= dict.fromkeys((one["alert_id"] for one in alerts), time.monotonic())
        time.sleep(random.uniform(0.5, 1.5))
    while {event["id"] for event in receiver.events} != set(committed):
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
