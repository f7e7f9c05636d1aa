import pytest

from units import parse_duration


def test_seconds():
    assert parse_duration("90s") == 90


def test_no_duration():
    with pytest.raises(ValueError):
        parse_duration("soon")
