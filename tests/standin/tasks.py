"""Runs wheel tasks in a workspace's process: each line of standard input is a JSON list of parameters, each line of
standard output a JSON object with the result. Parameters ``-c CODE`` run Python instead, with ``spark`` at hand.

usage: python -m tests.standin.tasks FOLDER
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from fraudlake_cli import main as program
from tests.standin import workspace


def run(parameters: list[str], spark: Any) -> dict[str, Any]:
    """Call the wheel's entry point as a job does."""
    sys.argv = ["fraudlake", *parameters]
    printed, code, error = io.StringIO(), 0, ""
    begun = time.monotonic()
    with contextlib.redirect_stdout(printed):
        try:
            if parameters[0] == "-c":
                exec(parameters[1], {"spark": spark})
            else:
                program.main()
        except SystemExit as end:
            code, error = int(end.code or 0), str(end)
        except BaseException as failure:
            code, error = 1, str(failure)
    return {"code": code, "error": error, "out": printed.getvalue(), "seconds": round(time.monotonic() - begun, 1)}


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what the JVM prints
    spark = workspace.start(folder)
    print(json.dumps({"session": type(spark).__module__}), file=answers)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line), spark)), file=answers)
    os._exit(0)  # the server's process would be waited for


if __name__ == "__main__":
    main()
