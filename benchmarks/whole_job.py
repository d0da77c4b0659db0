"""The whole job, compared with the commit before: a first load, and 1,000 rows at a time on top. Run by hand.

    python -m benchmarks.whole_job --before COMMIT --work DIR [--rows 3000000] [--deployed-rows 300000] [--plot FILE]

The first load has 29 days of 20,000 accounts, a command for each step. Then come, each time with 1,000 new rows: a
command for each step, all steps by one `run`, and the steps up to the alerts by one command (three, if the code does
not know `run --steps`). The laptop's commands are processes of their own. Those of the deployed path are tasks in one
process of the stand-in for serverless compute (benchmarks/deployed.py). The two commits take turns, step by step.

DIR/figures.jsonl keeps the figures. A laptop's first load that it has is not measured again: increments get a copy of
its lake. So they can be repeated, and runs with other numbers of rows add their tables.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import psutil

from benchmarks.deployed import there
from benchmarks.usage import Usage, measured
from fraudlake_tools import simulator
from tests.standin.process import running

STEPS = ("ingest", "refine", "detect", "aggregate", "train", "score", "optimize")
WITHOUT_TRAINING = tuple(step for step in STEPS if step != "train")
ALERTS = ("ingest", "refine", "detect")
RUN, TO_ALERTS = "one `run`", "landing to alerts"
FIRST_LOAD, INCREMENT = "first load", "increment"

START, SPAN = datetime(2026, 1, 1, tzinfo=UTC), timedelta(days=28.5)
ACCOUNTS = 20_000
INCREMENT_ROWS, INCREMENT_SPAN = 1000, timedelta(minutes=15)

Commands = Sequence[Sequence[str]]


@dataclass(frozen=True)
class Code:
    """A commit, and the folder of its files."""

    commit: str
    tree: Path

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join([str(self.tree), str(self.tree / "src")])}

    def knows(self, command: str, option: str) -> bool:
        ended = self.fraudlake(command, "--help", stdout=subprocess.PIPE, text=True)
        return option in ended.stdout

    def fraudlake(self, *parameters: str, **options: Any) -> subprocess.CompletedProcess[Any]:
        program = [sys.executable, "-m", "fraudlake_cli", *parameters]
        return subprocess.run(program, env={**os.environ, **self.environment}, check=True, **options)


@dataclass
class Place:
    """A lake of a commit: its landing folder, and how its commands run and are measured."""

    code: Code
    landing: Path
    command: Callable[..., object]
    process: psutil.Process | None = None

    def land(self, number: int, rows: int, start: datetime, span: timedelta) -> None:
        traffic = simulator.Traffic(seed=number, accounts=ACCOUNTS, start=start, rate=rows / span.total_seconds())
        simulator.simulate(self.landing / str(number), traffic, rows=rows, file_rows=100_000)

    def measure(self, commands: Commands) -> Usage:
        with measured(self.process) as usage:
            for parameters in commands:
                self.command(*parameters)
        return usage


@dataclass
class Figures:
    """Usages by path, rows of the lake, workload, step, commit and repetition, in a file."""

    file: Path
    usages: dict[tuple[Any, ...], Usage] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.file.exists():
            for line in self.file.read_text().splitlines():
                key, usage = json.loads(line)
                self.usages[tuple(key)] = Usage(**usage)

    def measure(self, place: Place, key: tuple[Any, ...], repetition: int, commands: Commands) -> None:
        key = (*key, place.code.commit, repetition)
        self.usages[key] = usage = place.measure(commands)
        with self.file.open("a") as lines:
            print(json.dumps([key, asdict(usage)]), file=lines)
        print(*key, asdict(usage), file=sys.stderr, flush=True)

    def has(self, *key: Any) -> bool:
        return key in self.usages

    def median(self, *key: Any) -> Usage | None:
        """Return the median of each figure over all repetitions."""
        found = [asdict(usage) for known, usage in self.usages.items() if known[:-1] == key]
        return Usage(**{name: statistics.median(one[name] for one in found) for name in found[0]}) if found else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", metavar="COMMIT", help="the commit to compare with")
    parser.add_argument("--now", metavar="COMMIT", help="the commit to measure, instead of this tree")
    parser.add_argument("--rows", type=int, default=3_000_000, help="of the first load on a laptop; 0: no laptop")
    # With 20,000 there is too little fraud to train on.
    parser.add_argument("--deployed-rows", type=int, default=300_000, help="of that on the deployed path; 0: none")
    parser.add_argument("--increments", type=int, default=5, help="of each kind")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--plot", type=Path, help="draw the processor time of each step")
    options = parser.parse_args()

    work = options.work.resolve()
    work.mkdir(parents=True, exist_ok=True)
    codes = [code_of(commit, work) for commit in ([options.before] if options.before else []) + [options.now]]
    figures = Figures(work / "figures.jsonl")
    if options.rows:
        on_laptop(figures, codes, work, options.rows, options.increments)
    if options.deployed_rows:
        deployed(figures, codes, work, options.deployed_rows, options.increments)
    commits = [code.commit for code in codes]
    print("\n".join(report(figures, commits)))
    if options.plot:
        draw(figures, commits, ("laptop", options.rows), options.plot)


def code_of(commit: str | None, work: Path) -> Code:
    """Return this tree, or a commit's files in the folder of the work."""
    here = Path(__file__).parents[1]

    def git(*parameters: str) -> str:
        return subprocess.run(["git", "-C", str(here), *parameters], check=True, capture_output=True, text=True).stdout

    if commit is None:
        return Code(git("describe", "--always", "--dirty", "--exclude=*").strip(), here)
    name = git("rev-parse", "--short", commit).strip()
    tree = work / "code" / name
    if not tree.exists():
        archive = work / f"{name}.tar"
        git("archive", "--output", str(archive), name)
        shutil.unpack_archive(archive, tree)
        archive.unlink()
    return Code(name, tree)


def on_laptop(figures: Figures, codes: list[Code], work: Path, rows: int, increments: int) -> None:
    """Measure commands as processes of their own, increments on copies of the first loads' lakes."""
    folders = [work / f"laptop-{rows}-{code.commit}" for code in codes]
    new = [
        laptop(code, folder)
        for code, folder in zip(codes, folders, strict=True)
        if not figures.has("laptop", rows, FIRST_LOAD, STEPS[-1], code.commit, 1)
    ]
    for place in new:
        shutil.rmtree(place.landing.parent, ignore_errors=True)
    first_load(figures, new, ("laptop", rows))
    copies = []
    for code, folder in zip(codes, folders, strict=True):
        copy = folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        if increments:
            subprocess.run(["cp", "-a", folder / "lake", copy], check=True)
            copies.append(laptop(code, folder, copy))
    on_top(figures, copies, ("laptop", rows), increments)


def laptop(code: Code, folder: Path, lake: Path | None = None) -> Place:
    lake = lake or folder / "lake"

    def command(*parameters: str) -> None:
        with (folder / "log").open("a") as log:
            code.fraudlake("--lake", str(lake), *parameters, cwd=folder, stdout=log, stderr=log)

    folder.mkdir(exist_ok=True)
    return Place(code, lake / "landing", command)


def deployed(figures: Figures, codes: list[Code], work: Path, rows: int, increments: int) -> None:
    """Measure tasks of workspaces, which are made anew; a workspace does not outlive its process."""
    with contextlib.ExitStack() as stack:
        places = [stack.enter_context(workspace(code, work / f"deployed-{rows}-{code.commit}")) for code in codes]
        first_load(figures, places, ("deployed", rows))
        on_top(figures, places, ("deployed", rows), increments)


@contextlib.contextmanager
def workspace(code: Code, folder: Path) -> Iterator[Place]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    with running(folder, **code.environment) as running_workspace:
        process = psutil.Process(running_workspace.pid)
        yield Place(code, running_workspace.landing, lambda *task: there(running_workspace, *task), process)


def first_load(figures: Figures, places: list[Place], key: tuple[str, int]) -> None:
    for place in places:
        place.land(1, key[1], START, SPAN)
    for step in STEPS:
        for place in places:
            figures.measure(place, (*key, FIRST_LOAD, step), 1, [[step]])


def on_top(figures: Figures, places: list[Place], key: tuple[str, int], increments: int) -> None:
    together = [["run", "--steps", ",".join(ALERTS)]]
    to_alerts = {
        place.code: together if place.code.knows("run", "--steps") else [[step] for step in ALERTS] for place in places
    }
    kinds: list[dict[str, Callable[[Place], Commands]]] = [
        {step: lambda place, step=step: [[step]] for step in WITHOUT_TRAINING},
        {RUN: lambda place: [["run"]]},
        # The last, since it leaves rows that no later step has read.
        {TO_ALERTS: lambda place: to_alerts[place.code]},
    ]
    number = 1
    for kind in kinds:
        for repetition in range(1, increments + 1):
            begin = START + SPAN + (number - 1) * INCREMENT_SPAN
            number += 1
            for place in places:
                place.land(number, INCREMENT_ROWS, begin, INCREMENT_SPAN)
            for step, commands in kind.items():
                for place in places:
                    figures.measure(place, (*key, INCREMENT, step), repetition, commands(place))


def report(figures: Figures, commits: list[str]) -> Iterator[str]:
    """Yield the lines of a table for each path, size of a lake and workload, with the ratios of the last commit."""
    for path, rows, workload in sorted({known[:3] for known in figures.usages if known[4] in commits}, reverse=True):
        steps = STEPS if workload == FIRST_LOAD else WITHOUT_TRAINING
        yield f"\n{path}, {f'{rows:,} rows' if workload == FIRST_LOAD else f'1,000 rows on top of {rows:,}'}: " + (
            " → ".join(commits) + "\n"
        )
        yield "| step | wall, s | processor, s | ratio | read, MB | written, MB | memory, MB |"
        yield "|---|---|---|---|---|---|---|"
        for step in (*steps, None, *(() if workload == FIRST_LOAD else (RUN, TO_ALERTS))):
            usages = [
                figures.median(path, rows, workload, step, commit)
                if step
                else total([figures.median(path, rows, workload, one, commit) for one in steps])
                for commit in commits
            ]
            yield f"| {step or 'all these commands'} | {' | '.join(cells(usages))} |"


def total(usages: Sequence[Usage | None]) -> Usage | None:
    """Return the sum of all figures, and the highest peak of memory."""
    known = [usage for usage in usages if usage]
    if len(known) < len(usages):
        return None
    sums = {name: sum(getattr(usage, name) for usage in known) for name in ("wall", "processor", "read", "written")}
    return Usage(**sums, memory=max(usage.memory for usage in known))


def cells(usages: list[Usage | None]) -> Iterator[str]:
    def each(figure: Callable[[Usage], float], form: str) -> str:
        return " → ".join(format(figure(usage), form) if usage else "not measured" for usage in usages)

    yield each(lambda usage: usage.wall, ",.1f")
    yield each(lambda usage: usage.processor, ",.1f")
    before, now = usages[0], usages[-1]
    yield f"{now.processor / before.processor:.2f}" if before and now and len(usages) > 1 else ""
    yield each(lambda usage: usage.read / 1e6, ",.0f")
    yield each(lambda usage: usage.written / 1e6, ",.0f")
    yield each(lambda usage: usage.memory / 1e6, ",.0f")


def draw(figures: Figures, commits: list[str], key: tuple[str, int], file: Path) -> None:
    """Draw the processor time of each step, of the first load and of an increment."""
    panels = {
        f"{key[1]:,} rows": (FIRST_LOAD, STEPS),
        f"1,000 rows on top of {key[1]:,}": (INCREMENT, (*WITHOUT_TRAINING, RUN, TO_ALERTS)),
    }
    drawn, axes = plt.subplots(1, len(panels), figsize=(9, 3.6), layout="constrained")
    names, colors = ["before", "now"][-len(commits) :], ["#9aa5b1", "#2f5d8a"][-len(commits) :]
    for panel, (title, (workload, steps)) in zip(axes, panels.items(), strict=True):
        for place, commit in enumerate(commits):
            usages = [figures.median(*key, workload, step, commit) for step in steps]
            panel.barh(
                [at + 0.4 * place for at in range(len(steps))],
                [usage.processor if usage else 0 for usage in usages],
                height=0.38,
                label=names[place],
                color=colors[place],
            )
        panel.set(title=title, xlabel="processor time of all processes, seconds")
        panel.set_yticks([at + 0.2 * (len(commits) - 1) for at in range(len(steps))], steps)
        panel.invert_yaxis()
    axes[0].legend(loc="best", frameon=False)
    drawn.savefig(file, dpi=120)
    plt.close(drawn)


if __name__ == "__main__":
    main()
