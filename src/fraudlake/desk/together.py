"""Together: what several threads ask for at the same time is done at once, by one of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")


@dataclass(eq=False)
class _Waiting(Generic[Asked, Answer]):
    asked: Asked
    answers: list[Answer] = field(default_factory=list)
    """The answer, once it is there."""
    error: BaseException | None = None

    @property
    def is_done(self) -> bool:
        return bool(self.answers) or self.error is not None


class Together(Generic[Asked, Answer]):
    """Calls a function with all that is asked for while an earlier call runs.

    A commit takes as long for ten rows as for one, so ten people who decide at the same time wait for two commits at
    most, and not for ten.
    """

    def __init__(self, answer: Callable[[Sequence[Asked]], list[Answer]]) -> None:
        """Answer by a function, which returns an answer for each that is asked for, in the same order."""
        self._answer = answer
        self._lock, self._turn = Lock(), Lock()
        self._waiting: list[_Waiting[Asked, Answer]] = []

    def __call__(self, asked: Asked) -> Answer:
        """Return the answer, or raise the error of the call that was to give it."""
        own: _Waiting[Asked, Answer] = _Waiting(asked)
        with self._lock:
            self._waiting.append(own)
        with self._turn:
            if not own.is_done:
                self._answer_all()
        if own.error is not None:
            raise own.error
        return own.answers[0]

    def _answer_all(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        try:
            answers = self._answer([one.asked for one in waiting])
        except BaseException as error:
            for one in waiting:
                one.error = error
        else:
            for one, answer in zip(waiting, answers, strict=True):
                one.answers.append(answer)
