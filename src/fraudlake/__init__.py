"""fraudlake: turns Flink's card transactions into fraud alerts and scores, on Spark and Delta Lake.

``fraudlake.open_lake``, ``status``, ``explain``, ``backtest``, ``what_if`` and ``rule_values`` are its Python API.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fraudlake.api import backtest, explain, open_lake, rule_values, status, what_if
    from fraudlake.process.version import __version__

__all__ = ["__version__", "backtest", "explain", "open_lake", "rule_values", "status", "what_if"]


def __getattr__(name: str) -> Any:
    # The API loads pyspark, which the command line and the desk often do without; the row patterns need neither.
    if name in __all__:
        place = "fraudlake.process.version" if name == "__version__" else "fraudlake.api"
        return getattr(import_module(place), name)
    raise AttributeError(f"module {__name__} has no attribute {name}")
