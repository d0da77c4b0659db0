"""The entry point of the program: it handles signals before it loads any other module."""

from __future__ import annotations

import os
import sys

from fraudlake.errors import UsageError
from fraudlake.process import python_path, stop


def main() -> None:
    """Run the command line; after a signal, also end Spark's JVM, so that nothing goes on."""
    with stop.handled(is_program=True):
        try:
            # NumPy reads it when it is imported. More threads of OpenBLAS do not make training faster, but spin while
            # they wait: with another busy process, a fit takes 2.6 times the processor time (seen with NumPy 2.4).
            os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
            python_path.require_own_modules()
            from fraudlake_cli.main import main as run

            run()
        except UsageError as error:  # the command line is not loaded yet
            sys.stderr.write(f"fraudlake: {error}\n")
            sys.exit(error.exit_code)
        except stop.StoppedError as stopped:  # while the command line is loading
            sys.stderr.write(f"fraudlake: {stopped}\n")
            sys.exit(stopped.exit_code)
        finally:
            session = sys.modules.get("fraudlake.lake.session")
            if stop.is_requested() and session is not None:
                session.end()


if __name__ == "__main__":
    python_path.leave_current_folder()
    main()
