"""A stand-in for Databricks compute, as far as the documentation and the official client describe it.

Behind it is a local Spark. ``auto_loader`` plays Auto Loader on any session. ``serverless`` refuses over Spark Connect
what serverless compute refuses; ``worker/sitecustomize.py`` does the same in the Python processes that Spark starts.
``workspace`` opens a lake's schema in one of two catalogs, ``tasks`` runs wheel tasks there, and tests control these
through ``process``.
"""
