"""The version, in the one place that has it: pyproject.toml reads it from here."""

__version__ = "0.1.0"
