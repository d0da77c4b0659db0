"""Together: batches concurrent calls of several threads into one, which one of the threads runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


@dataclass(eq=False)
class _Waiting(Generic[Request, Answer]):
    request: Request
    answers: list[Answer] = field(default_factory=list)
    """The answer, as the only element, once the batch has run."""
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return bool(self.answers) or self.error is not None


class Together(Generic[Request, Answer]):
    """Calls a function with all requests that arrive while an earlier call runs.

    A commit takes as long for ten rows as for one, so ten people who decide at the same time wait for at most two
    commits instead of ten.
    """

    def __init__(self, answer: Callable[[Sequence[Request]], list[Answer]]) -> None:
        """Batch calls of a function that returns an answer for each request, in the same order."""
        self._answer = answer
        self._lock = Lock()
        self._turn = Lock()
        self._waiting: list[_Waiting[Request, Answer]] = []

    def __call__(self, request: Request) -> Answer:
        """Return the answer to a request, or raise the error of its batch."""
        own: _Waiting[Request, Answer] = _Waiting(request)
        with self._lock:
            self._waiting.append(own)
        with self._turn:
            # The thread that had the turn before may have answered this request, too.
            if not own.is_done:
                self._answer_all()
        if own.error is not None:
            raise own.error
        return own.answers[0]

    def _answer_all(self) -> None:
        with self._lock:
            waiting = self._waiting
            self._waiting = []
        try:
            answers = self._answer([one.request for one in waiting])
        except BaseException as error:
            for one in waiting:
                one.error = error
        else:
            for one, answer in zip(waiting, answers, strict=True):
                one.answers.append(answer)
