"""Probe: each assumption about a workspace becomes an answer, asked in it or read from what the probe's job printed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fraudlake.errors import FraudlakeError
from fraudlake.workspace import jobs

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from pyspark.sql import SparkSession

    from fraudlake.settings import Settings
    from fraudlake.workspace.assumptions import Assumption, Probe

JOB = "probe"
"""Name of the bundle's job that asks."""
_LONGEST = 300


@dataclass(frozen=True)
class Answer:
    """Whether one assumption holds, what was seen, and what to do where it does not.

    ``matters`` is False where the package does without; an answer of this kind fails nothing.
    """

    question: str
    ok: bool
    matters: bool
    seen: str
    remedy: str | None = None


def ask(spark: SparkSession, settings: Settings) -> Iterator[Answer]:
    """Ask everything in this session, in the lake's schema; what is made for it is removed again.

    No failure of a question stops the others: it is the answer to its question.
    """
    from fraudlake.workspace.assumptions import Probe, assumptions
    from fraudlake.workspace.scratch import Scratch

    scratch = Scratch(spark, settings)
    try:
        probe = Probe(scratch)
        for assumption in assumptions():
            yield _answer(assumption, probe)
    finally:
        left = scratch.remove()
    if left:
        yield Answer("clean up", False, False, f"left behind: {', '.join(left)}", "remove them by hand")


def _answer(assumption: Assumption, probe: Probe) -> Answer:
    try:
        seen = assumption.ask(probe)
    except Exception as error:
        return Answer(assumption.question, False, assumption.matters, _first_line(error), assumption.remedy)
    return Answer(assumption.question, True, assumption.matters, seen)


def asked_by_job(client: WorkspaceClient, run: int) -> list[Answer]:
    """Return the answers that a run of the probe's job has printed.

    Raises:
        FraudlakeError: it has printed none.
    """
    for line in reversed(jobs.output(client, run).splitlines()):
        answers = _parsed(line)
        if answers:
            return answers
    raise FraudlakeError(
        f"run {run} has ended, but its output holds no answers: 'fraudlake --json workspace jobs' names its page"
    )


def as_dict(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the answers as one JSON object, which :func:`asked_by_job` reads."""
    return {"ok": not failed(answers), "answers": [asdict(answer) for answer in answers]}


def failed(answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers that show that something will not work."""
    return [answer for answer in answers if answer.matters and not answer.ok]


def require(answers: Sequence[Answer]) -> None:
    """Check that everything will work.

    Raises:
        FraudlakeError: it will not; the message names what does not hold.
    """
    wrong = failed(answers)
    if wrong:
        names = ", ".join(answer.question for answer in wrong)
        raise FraudlakeError(f"probe: {len(wrong)} of {len(answers)} assumptions do not hold here: {names}")


def _parsed(line: str) -> list[Answer]:
    """Read the line that holds the answers; none where it is another line."""
    if not line.startswith('{"ok": '):
        return []
    try:
        return [Answer(**answer) for answer in json.loads(line)["answers"]]
    except (ValueError, KeyError, TypeError):
        return []


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else "no message"
    return (text if isinstance(error, FraudlakeError) else f"{type(error).__name__}: {text}")[:_LONGEST]
