"""Checks the file that the agent left in the working directory."""
import pathlib


def test_sum_of_the_numbers():
    assert pathlib.Path("sum.txt").read_text().strip() == "44"
