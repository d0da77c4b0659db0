"""The program: runs a command, and reports an error as one line and an exit code."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from contextlib import suppress
from io import TextIOWrapper
from pathlib import Path

import click

from fraudlake.errors import FraudlakeError, UsageError, first_line, is_of_full_disk
from fraudlake.process import host, logs, stop
from fraudlake.process.host import is_utf8
from fraudlake_cli.commands import cli
from fraudlake_cli.output.progress import console


def main() -> None:
    """Run the command line; an error ends with a line on standard error and exit code 1 or 2, a signal 130 or 143."""
    if sys.getfilesystemencoding() != "utf-8":  # Java and Arrow would read other file names
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606
    if isinstance(sys.stdout, TextIOWrapper):  # escape letters that the encoding lacks instead of failing
        sys.stdout.reconfigure(errors="backslashreplace")
    with stop.handled():
        _run()


def _run() -> None:
    if not _ends_with_its_machine():
        host.keep_native_output()
    logging.basicConfig(level=logging.ERROR)
    logs.use(False)
    logging.getLogger("fraudlake").setLevel(logging.WARNING)
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # py4j logs a lost connection to the root logger, too.
    for handler in logging.getLogger().handlers:
        handler.addFilter(lambda record: "py4j" not in record.pathname)
    try:
        foreign = next((argument for argument in sys.argv if not is_utf8(argument)), None)
        if foreign is not None:  # neither Delta nor Spark accepts it as a path or a value
            raise UsageError(f"the argument {foreign!r} is not UTF-8: rename the file or name")
        with stop.failing():
            if not _ends_with_its_machine():
                host.complete_environment()
                host.require_own_modules()
            code = cli.main(prog_name="fraudlake", standalone_mode=False)
            stop.check()  # a continuous command returns normally when it is stopped
    except stop.StoppedError as stopped:
        _fail(str(stopped), stopped.exit_code)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        code = error.exit_code
    except click.ClickException as error:
        _fail(error.format_message(), error.exit_code)
    except FraudlakeError as error:
        _fail(str(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        _fail("stopped", 130)
    except Exception as error:
        if _spark_is_gone(error):
            _fail(
                "the Spark process ended, killed or out of memory: run again to continue after the last commit, with "
                "more driver_memory if it ends again",
                1,
            )
        if isinstance(error, PermissionError) and error.filename:
            _fail(f"{error.filename}: {error.strerror}: run as its owner, or have the owner grant you the right", 1)
        if is_of_full_disk(str(error)):
            _fail("a disk is full: free space for the lake and for temporary files, and repeat the command", 1)
        file = None if _ends_with_its_machine() else _write_trace(error)
        if file is None:
            traceback.print_exception(error)
            _fail(first_line(error), 1)
        _fail(f"{first_line(error)} (the details are in {file})", 1)
    # A Databricks job treats any SystemExit as a failure, even exit code 0.
    if code:
        sys.exit(code)


def _fail(message: str, code: int) -> None:
    # A name from the user may contain line breaks, and click writes choices on separate lines.
    line = f"fraudlake: {' '.join(part.strip() for part in message.splitlines())}"
    if logs.are_json():
        logs.event(line, logging.ERROR, exit_code=code)
    else:
        console.print(line, markup=False, soft_wrap=True)
    # A Databricks job shows the text of the exception that ended it, not standard error.
    end = SystemExit(line)
    end.code = code
    raise end


def _spark_is_gone(error: Exception) -> bool:
    """Return whether the JVM could not be reached; its own errors arrive as other types."""
    return isinstance(error, ConnectionError) or type(error).__name__ in ("Py4JError", "Py4JNetworkError")


def _ends_with_its_machine() -> bool:
    """Return whether this runs in a job of a workspace, whose local files nobody could read afterwards."""
    is_named = "FRAUDLAKE_CATALOG" in os.environ or any(
        argument.partition("=")[0] == "--catalog" for argument in sys.argv
    )
    return is_named or "DATABRICKS_RUNTIME_VERSION" in os.environ


def _write_trace(error: Exception) -> Path | None:
    """Write the stack trace of an unexpected error to a file; return None if no file can be written."""
    with suppress(FraudlakeError, OSError):
        file = host.traces() / "error.log"
        file.write_text("".join(traceback.format_exception(error)))
        return file
    return None
