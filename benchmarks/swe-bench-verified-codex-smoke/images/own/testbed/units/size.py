"""Sizes in bytes, with units of 1024."""

UNITS = ["B", "KiB", "MiB", "GiB", "TiB"]


def format_size(count: int) -> str:
    """Return a number of bytes in the largest unit of which there is at least one."""
    value = float(count)
    for unit in UNITS:
        if value <= 1024:
            break
        value /= 1024
    return f"{value:.1f} {unit}".replace(".0 ", " ")
