"""Workout: runs a small main job in a folder, so that Java loads the classes that fraudlake needs, and ends Java."""

from __future__ import annotations

import sys

from pyspark import SparkContext

from fraudlake.cli import cli


def main() -> None:
    """Run the main job in the folder that the command line names, and wait until its Java has ended."""
    lake = ["--lake", sys.argv[1], "--json"]
    cli.main([*lake, "simulate", "--rows", "1000"], standalone_mode=False)
    for step in ("ingest", "refine", "detect", "aggregate"):
        cli.main([*lake, step], standalone_mode=False)
    java = SparkContext._gateway.proc  # type: ignore[union-attr]
    # Java ends when its standard input is closed.
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    main()
