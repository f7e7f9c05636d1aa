import subprocess


def greet(name):
    return subprocess.run(["/usr/local/bin/greet", name], capture_output=True, text=True, timeout=10).stdout


def test_greet_world():
    assert greet("world") == "hello world\n"


def test_greet_two_words():
    assert greet("dear reader") == "hello dear reader\n"
