"""fraudlake: turns Flink's card transactions into fraud alerts and scores, on Spark and Delta Lake.

``fraudlake.open_lake``, ``status``, ``explain``, ``backtest``, ``what_if`` and ``rule_values`` are its Python API.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from fraudlake.process.version import __version__

if TYPE_CHECKING:
    from fraudlake.api import backtest, explain, open_lake, rule_values, status, what_if

__all__ = ["__version__", "backtest", "explain", "open_lake", "rule_values", "status", "what_if"]


def __getattr__(name: str) -> Any:
    # They load pyspark, which the command line and the desk often do without.
    if name in __all__:
        return getattr(import_module("fraudlake.api"), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
