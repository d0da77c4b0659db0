"""Python processes that Spark starts: they see no volume as a folder, no MLflow, and refuse what serverless refuses.

Python imports a module of this name at its start if the folder is on PYTHONPATH.
"""

import builtins
import contextlib
import io
import os
import sys

VOLUMES = os.environ["STANDIN_VOLUMES"]


def _blind(function):
    def call(path, *arguments, **options):
        if isinstance(path, str | os.PathLike) and os.fspath(path).startswith(VOLUMES):
            raise PermissionError(13, "no volume is seen in this process", os.fspath(path))
        return function(path, *arguments, **options)

    return call


for module, names in (
    (builtins, ("open",)),
    (io, ("open",)),
    (os, ("open", "stat", "lstat", "listdir", "scandir", "mkdir", "rename", "replace", "remove", "unlink", "rmdir")),
):
    for name in names:
        setattr(module, name, _blind(getattr(module, name)))

sys.modules["mlflow"] = None  # an import of it fails

if any(argument.endswith("foreach_batch_worker") for argument in sys.orig_argv):
    from pyspark import worker_util

    # Spark waits ten seconds for the process to connect: that comes first, since imports may take as long on a busy
    # machine.
    connection = worker_util.get_sock_file_to_executor(timeout=None)
    connected = contextlib.nullcontext(connection.__enter__())
    worker_util.get_sock_file_to_executor = lambda timeout: connected

    from fraudlake.bronze import transactions
    from tests.standin import serverless

    transactions.PIECE_BYTES = 1 << 14  # so that the files of tests come in several pieces
    serverless.install()
    serverless.fall_back_in_micro_batches()
    serverless.give_micro_batches_once()
