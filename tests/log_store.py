"""Log store: the class that local commits go through, compiled from its source by the compiler in Spark's own jars.

``python -m tests.log_store`` writes it. Users need no compiler, only Java.
"""

from __future__ import annotations

import os
from typing import Any

from fraudlake.lake import session, spark_home


def compiled(jvm: Any) -> bytes:
    """Compile the source."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.cookFile(str(spark_home.LOG_STORE.with_suffix(".java")))
    return bytes(compiler.getBytecodes()["fraudlake.HardLinkLogStore"])


def main() -> None:
    """Write the class next to its source."""
    from pyspark.java_gateway import launch_gateway

    os.environ |= session.environment()
    gateway = launch_gateway()
    spark_home.LOG_STORE.write_bytes(compiled(gateway.jvm))
    gateway.shutdown()


if __name__ == "__main__":
    main()
