from units import format_size


def test_bytes():
    assert format_size(512) == "512 B"


def test_mebibytes():
    assert format_size(3 * 1024 * 1024 // 2) == "1.5 MiB"
