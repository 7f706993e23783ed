"""Words are the same however they are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate_estimator.words import HEAD_CHARS, TAIL_CHARS, read_words, split_words

ascii_texts = st.text(st.characters(max_codepoint=127), max_size=60) | st.text("aZ09_ .,\t\n\x1c\x1f", max_size=60)


@given(ascii_texts)
def test_ascii_words_are_those_of_any_text(text: str) -> None:
    """Bytes of ASCII go another way than other text, and come out as the same words."""
    assert [*split_words(text), "é".encode()] == split_words(f"{text} é")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't panic: 42!", ["don", "'", "t", "panic", ":", "42", "!"]),
        ("snake_case2", ["snake", "_", "case", "2"]),
        ("汉字 kana かな", ["汉", "字", "kana", "か", "な"]),
        ("Éa\ud800٣", ["éa", "\ud800", "٣"]),
        (" \t\x1c\u2028", []),
    ],
)
def test_a_word_is_a_run_of_letters_or_digits_or_one_symbol(text: str, words: list[str]) -> None:
    """In any script, and also where the text is not valid Unicode."""
    assert [word.decode("utf-8", "surrogatepass") for word in split_words(text)] == words


def test_digits_of_any_script_state_a_length() -> None:
    """Three sentences are three sentences."""
    assert read_words("in ٣ sentences").request == read_words("in 3 sentences").request > 0


def test_the_opening_is_kept_where_the_end_is_blank() -> None:
    """A long message whose last characters are all blank still has its first words."""
    words = read_words("Write a poem".ljust(HEAD_CHARS + TAIL_CHARS + 1))
    assert len(words.head) == 3
    assert words.tail == []
