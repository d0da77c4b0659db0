"""Status: the figures of a lake by subject, a module each, and the checks that they add up."""

from fraudlake.operations.status.status import Status, status

__all__ = ["Status", "status"]
