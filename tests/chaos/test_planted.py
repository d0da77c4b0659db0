from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.chaos.planted import BUGS, Bug, planted
from tests.chaos.schedule import KAFKA_MOMENTS, MOMENTS


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_and_its_module_still_compiles(bug: Bug) -> None:
    spec = find_spec(bug.module)
    assert spec is not None and spec.origin is not None
    source = Path(spec.origin).read_text()
    assert planted(source, bug) != source
    compile(planted(source, bug), spec.origin, "exec")
    assert {step for _, step, _ in bug.moments} <= {*MOMENTS, *KAFKA_MOMENTS}


def test_a_text_that_is_gone_is_noticed() -> None:
    with pytest.raises(LookupError, match=r"plain_append: .* has 0 times"):
        planted("", next(bug for bug in BUGS if bug.name == "plain_append"))
