from pathlib import Path


def test_log_is_unchanged():
    lines = Path("/app/service.log").read_text().splitlines()
    assert len(lines) == 6


def test_count():
    assert Path("/app/errors.txt").read_text().strip() == "3"
