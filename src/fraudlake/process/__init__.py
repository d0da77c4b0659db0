"""The process: its machine, signals, path of modules and log lines."""
