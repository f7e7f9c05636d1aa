"""Words and the spaces between them."""

import re


def slug(title: str) -> str:
    """Return the title in lower case, its words joined by single hyphens."""
    return re.sub(r"[^a-z0-9]", "-", title.lower())


def truncate(text: str, width: int) -> str:
    """Return the text cut to at most width characters, an ellipsis included."""
    if len(text) <= width:
        return text
    return text[:width] + "…"
