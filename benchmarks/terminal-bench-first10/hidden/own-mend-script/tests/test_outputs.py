import subprocess
from pathlib import Path


def total():
    return subprocess.run(["bash", "/app/total.sh"], capture_output=True, text=True, timeout=10).stdout.strip()


def test_sum_of_the_file():
    assert total() == "60"


def test_other_numbers(tmp_path):
    Path("/app/numbers.txt").write_text("1\n2\n3\n4\n")
    assert total() == "10"
