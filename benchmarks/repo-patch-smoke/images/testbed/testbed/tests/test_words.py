from textkit import slug, truncate


def test_slug_of_one_word():
    assert slug("Hello") == "hello"


def test_short_text_stays():
    assert truncate("abc", 3) == "abc"
