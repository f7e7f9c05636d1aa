"""A few functions on text."""

from textkit.words import slug, truncate

__all__ = ["slug", "truncate"]
