"""The text format: what is picked from a page, what is left, and what bounds there are."""

from collections.abc import Iterable

import pytest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from tidegate.errors import HalfPage
from tidegate.signals.exposition import KEPT_BYTES_MAX, KEPT_LINES_MAX, LINE_BYTES_MAX, Exposition
from tidegate.signals.series import Page, Sample

PARSER = "tidegate.signals.exposition.text_string_to_metric_families"
A_AND_B = Exposition("a", "b:total", "c_info")


def test_series_are_picked_by_their_whole_name() -> None:
    """A name that begins alike is another series, as are comments and names within labels."""
    page = A_AND_B.page(
        b'# HELP a what\n# TYPE a gauge\na{x="1"} 2\na_bucket{x="1"} 3\nab 4\nlong{y="a"} 5\nba 6\na 7 8\n'
    )
    assert page.samples("a") == [Sample({"x": "1"}, 2.0), Sample({}, 7.0)]


def test_labels_are_unescaped_and_exemplars_skipped() -> None:
    """Braces, commas, quotes and line ends within a label's value are part of it."""
    page = A_AND_B.page(rb'a{x="},{\" \\ \n",y=""} 2 # {trace="t"} 0.5 1' + b"\na 1\n")
    assert page.samples("a")[0] == Sample({"x": '},{" \\ \n', "y": ""}, 2.0)


@pytest.mark.parametrize(
    "line",
    [
        b'a{x="1" 2',
        b'a{x="1",} ',
        b'a{ ="1"} 2',
        b"a{x=1} 2",
        b'a{x="\xff"} 2',
        b'a{x="1",x="2"} 2',
        b"a 1_000",
        b"a 2 " + b"9" * 400,
        b'a{__name__="b:total"} 2',
        b'a{x="' + b"1" * LINE_BYTES_MAX + b'"} 2',
    ],
)
def test_a_broken_line_spoils_its_own_series_only(line: bytes) -> None:
    """No exception of the parser gets out, and the other series are read."""
    page = A_AND_B.page(b"a 1\n" + line + b"\nb:total 5\n")
    assert page.total("b:total") == 5.0
    assert page.samples_if_there("a") == ()
    with pytest.raises(HalfPage, match="a has a line that cannot be read"):
        page.samples("a")


def test_a_line_that_does_not_end_is_not_read() -> None:
    """Of 14 that was cut only 1 may have come."""
    page = A_AND_B.page(b"b:total 5\na 1")
    assert page.total("b:total") == 5.0
    with pytest.raises(HalfPage, match="a has a line that ends with the page"):
        page.count("a")


def test_a_value_that_cannot_be_matters_to_who_asks_for_it() -> None:
    """A sample with other labels may be NaN: engines have gauges nobody here asks for."""
    page = A_AND_B.page(b'a{x="1"} 2\na{x="2"} NaN\n')
    assert page.count("a", x="1") == 2
    assert page.total_if_there("a") is None
    assert page.total_if_there("a", x="2") is None
    with pytest.raises(HalfPage, match=r"a is not from 0 to 1e\+15"):
        page.total("a")


@pytest.mark.parametrize(
    "page",
    [
        b"".join(b'a{x="%d"} 1\n' % number for number in range(KEPT_LINES_MAX + 1)),
        b"".join(b'a{x="%d%s"} 1\n' % (number, b"1" * 4096) for number in range(KEPT_BYTES_MAX // 4096)),
    ],
)
def test_what_is_kept_of_a_page_is_bounded(page: bytes) -> None:
    """An engine cannot make the service parse without end."""
    with pytest.raises(HalfPage, match="more than 1024 lines"):
        A_AND_B.page(page)
    assert len(A_AND_B.page(page[: len(page) // 2].rpartition(b"\n")[0] + b"\n").samples("a")) > 10


def test_only_the_lines_that_count_are_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a page of 20 MB three lines are parsed, however much noise stands around them."""
    parsed: list[str] = []

    def parse(text: str) -> Iterable[Metric]:
        parsed.append(text.strip())
        return text_string_to_metric_families(text)

    monkeypatch.setattr(PARSER, parse)
    noise = b'# HELP noise a b:total\nnoise_bucket{a="b:total",le="0.1"} 1\n' * 180_000
    page = A_AND_B.page(b"a 1\n" + noise + b"b:total 5\n" + noise + b'c_info{size="7"} 1\n')
    assert len(noise) * 2 > 20_000_000
    assert (page.count("a"), page.total("b:total"), page.samples("c_info")[0].labels) == (1, 5.0, {"size": "7"})
    assert parsed == ["a 1", "b:total 5", 'c_info{size="7"} 1']


def test_an_info_line_that_was_seen_is_not_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the longest of its page, and the same at each look."""
    line = b'c_info{size="never seen before"} 1\n'
    first = A_AND_B.page(line)
    monkeypatch.setattr(PARSER, pytest.fail)
    assert A_AND_B.page(line).samples("c_info") == first.samples("c_info")


def test_counts_and_shares_have_bounds() -> None:
    """A million requests on one engine, and a cache that is more than full, cannot be."""
    page = Page({"a": [Sample({}, 600_000.0), Sample({}, 600_000.0)], "b": [Sample({}, 0.5), Sample({}, 1.25)]}, {})
    with pytest.raises(HalfPage, match="a is more than 1000000"):
        page.count("a")
    with pytest.raises(HalfPage, match="b is more than 1"):
        page.share("b")


def test_series_that_speak_of_other_engines_are_not_alike() -> None:
    """A page that was cut between two engines names the sample that is missing, shortly, whatever its labels are."""
    long = "x" * 10_000
    page = Page({"a": [Sample({"e": "0"}, 1), Sample({"e": long}, 1)], "b": [Sample({"e": "0"}, 1)]}, {})
    with pytest.raises(HalfPage, match=r"^b\{e='xxx.{1,150}\} is missing$"):
        page.check_alike("a", "b")
    with pytest.raises(HalfPage, match=r"^b\{"):
        page.check_alike("b", "a")
    page.check_alike("a", "a")
