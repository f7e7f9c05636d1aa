"""Durations and sizes as people write them."""

from units.duration import parse_duration
from units.size import format_size

__all__ = ["format_size", "parse_duration"]
