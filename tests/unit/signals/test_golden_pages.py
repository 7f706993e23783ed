"""Pages of every kind and the readings they must give (tests/data/signals)."""

import pytest

from tests.unit.signals.pages import EXPOSITIONS, FOLDER, GOLDEN, Golden, without
from tidegate.errors import HalfPage

by_file = pytest.mark.parametrize("golden", GOLDEN, ids=lambda golden: golden.file)
by_exposition = pytest.mark.parametrize("golden", EXPOSITIONS, ids=lambda golden: golden.file)


@by_file
def test_a_page_gives_its_reading(golden: Golden) -> None:
    """Every figure the page has is in the reading, and what it does not say is None."""
    assert golden.reader.read(golden.page) == golden.reading


@by_file
def test_a_reading_of_a_whole_page_can_be(golden: Golden) -> None:
    """The bounds that the core puts on readings drop nothing from a whole page."""
    assert golden.reading.checked() == golden.reading


def test_every_page_of_the_folder_is_read() -> None:
    """A page that no test names would be there for nothing."""
    assert sorted(path.name for path in FOLDER.iterdir()) == sorted(golden.file for golden in GOLDEN)


@by_exposition
def test_a_page_without_a_required_series_names_it(golden: Golden) -> None:
    """Half a page is refused, and the message says what is missing."""
    for name in golden.required:
        with pytest.raises(HalfPage, match=name):
            golden.reader.read(without(golden.page, name))


@by_exposition
@pytest.mark.parametrize("value", ["NaN", "-1", "+Inf", "1e400", "9" * 400, "many", ""])
def test_a_required_figure_that_cannot_be_is_no_figure(golden: Golden, value: str) -> None:
    """NaN, negatives, infinities, and no numbers at all, are never read as one."""
    for name in golden.required:
        page = b"".join(
            line.rpartition(b" ")[0] + b" " + value.encode() + b"\n" if line.startswith(name.encode()) else line
            for line in golden.page.splitlines(keepends=True)
        )
        with pytest.raises(HalfPage, match=name):
            golden.reader.read(page)


@by_exposition
def test_a_required_series_that_is_there_twice_is_refused(golden: Golden) -> None:
    """Which of two samples with the same labels is true nobody can say."""
    for name in golden.required:
        twice = b"".join(
            line * 2 if line.startswith(name.encode()) else line for line in golden.page.splitlines(keepends=True)
        )
        with pytest.raises(HalfPage, match=name):
            golden.reader.read(twice)


@by_exposition
def test_lines_may_end_as_on_windows_and_carry_timestamps(golden: Golden) -> None:
    """Both are allowed by the format, or by its readers, and change nothing."""
    lines = [
        line if line.startswith(b"#") or not line else line + b" 1796060284000" for line in golden.page.split(b"\n")
    ]
    assert golden.reader.read(b"\r\n".join(lines)) == golden.reading


@by_file
def test_what_is_no_page_at_all_is_refused(golden: Golden) -> None:
    """A proxy's error page, nothing, or another engine's page gives no reading."""
    for page in (b"", b"\n\n", b"<html>502 Bad Gateway</html>", b"other_running 4\n", b"\xff\xfe\x00", b"null", b"{}"):
        with pytest.raises(HalfPage):
            golden.reader.read(page)
