"""Version: that of this program."""

__version__ = "0.1.0"
