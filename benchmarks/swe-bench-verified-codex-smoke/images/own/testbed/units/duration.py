"""Durations such as 90s, 15m or 2h30m."""

import re

SECONDS = {"h": 3600, "m": 60, "s": 1}


def parse_duration(text: str) -> int:
    """Return the number of seconds of a duration, the sum of its parts."""
    match = re.match(r"(\d+)([hms])", text.strip())
    if match is None:
        raise ValueError(f"no duration: {text!r}")
    number, unit = match.groups()
    return int(number) * SECONDS[unit]
