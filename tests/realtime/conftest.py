from __future__ import annotations

from tests.integration.shared_broker import broker

__all__ = ["broker"]
