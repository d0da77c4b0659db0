"""Probe: checks each assumption about a workspace in a session there, or reads the answers from the job's output."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from fraudlake.errors import FraudlakeError, first_line
from fraudlake_workspace import jobs

if TYPE_CHECKING:
    from databricks.sdk import WorkspaceClient
    from pyspark.sql import SparkSession

    from fraudlake.settings import Settings
    from fraudlake_tools.probe.assumptions import Assumption, Probe

_LONGEST = 300


@dataclass(frozen=True)
class Answer:
    """Whether an assumption holds, the observation, and the remedy if it does not hold.

    ``matters`` is False if the package works without it; such an answer does not fail the probe.
    """

    question: str
    ok: bool
    matters: bool
    seen: str
    remedy: str | None = None


def ask(spark: SparkSession, settings: Settings, receiver: str | None = None) -> Iterator[Answer]:
    """Ask all questions in this session, in the lake's schema, and clean up after them.

    A question that fails does not stop the others: its failure is its answer.

    Args:
        spark: the session.
        settings: the settings of the lake.
        receiver: ``HOST:PORT`` that a micro-batch should reach; None skips the network.
    """
    from fraudlake_tools.probe.assumptions import Probe, assumptions
    from fraudlake_tools.probe.scratch import Scratch

    scratch = Scratch(spark, settings, receiver)
    try:
        probe = Probe(scratch)
        for assumption in assumptions(receiver):
            yield _answer(assumption, probe)
    finally:
        left = scratch.remove()
    if left:
        yield Answer("clean up", False, False, f"left behind: {', '.join(left)}", "remove them by hand")


def _answer(assumption: Assumption, probe: Probe) -> Answer:
    try:
        text = assumption.ask(probe)
    except Exception as error:
        return Answer(assumption.question, False, assumption.matters, _failure(error), assumption.remedy)
    return Answer(assumption.question, True, assumption.matters, text)


def asked_by_job(client: WorkspaceClient, run: int) -> list[Answer]:
    """Return the answers that a run of the probe's job has printed.

    Raises:
        FraudlakeError: the output has no answers.
    """
    for line in reversed(jobs.output(client, run).splitlines()):
        answers = _parsed(line)
        if answers:
            return answers
    raise FraudlakeError(
        f"run {run} has ended, but its output has no answers: 'fraudlake --json workspace jobs' names its page"
    )


def as_dict(answers: Sequence[Answer]) -> dict[str, Any]:
    """Return the answers as one JSON object, which :func:`asked_by_job` reads."""
    return {"ok": not failed(answers), "answers": [asdict(answer) for answer in answers]}


def failed(answers: Sequence[Answer]) -> list[Answer]:
    """Return the answers that mean that a job will fail."""
    return [answer for answer in answers if answer.matters and not answer.ok]


def require(answers: Sequence[Answer]) -> None:
    """Check that no answer means that a job will fail.

    Raises:
        FraudlakeError: a job will fail; the message names the assumptions that do not hold.
    """
    wrong = failed(answers)
    if wrong:
        names = ", ".join(answer.question for answer in wrong)
        raise FraudlakeError(f"probe: {len(wrong)} of {len(answers)} assumptions do not hold here: {names}")


def _parsed(line: str) -> list[Answer]:
    """Parse the line with the answers; return an empty list for any other line."""
    if not line.startswith('{"ok": '):
        return []
    try:
        return [Answer(**answer) for answer in json.loads(line)["answers"]]
    except (ValueError, KeyError, TypeError):
        return []


def _failure(error: Exception) -> str:
    line = first_line(error)
    return (line if isinstance(error, FraudlakeError) else f"{type(error).__name__}: {line}")[:_LONGEST]
