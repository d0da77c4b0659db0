"""The program: handles signals from its first moment, before other modules are loaded."""

from __future__ import annotations

import sys

from fraudlake import stop


def main() -> None:
    """Run the command line; nothing of it continues after a signal has ended it, not even in Java."""
    with stop.handled(is_program=True):
        try:
            from fraudlake.cli import main as run

            run()
        except stop.StoppedError as stopped:  # while it was loaded
            sys.stderr.write(f"fraudlake: {stopped}\n")
            sys.exit(stopped.exit_code)
        finally:
            session = sys.modules.get("fraudlake.lake.session")
            if stop.is_requested() and session is not None:
                session.end()


if __name__ == "__main__":
    main()
