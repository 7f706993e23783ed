"""Mappings of the kind `prometheus`: what they may say, and what they make of a page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.admission.reading import EngineReading
from tidegate.errors import HalfPage
from tidegate.policy.page_mapping import FIELDS, MAPPING_CHARS_MAX, Source, sources
from tidegate.signals.generic import GenericReader


def test_a_mapping_is_read_entry_by_entry() -> None:
    """Field, series, labels and factor; spaces around an entry do not matter."""
    assert sources('running=ns:up{a="x,y=z",b=""}*2.5 ; kv-usage=_k*1e-2;waiting=w') == (
        Source(field="running", name="ns:up", labels=(("a", "x,y=z"), ("b", "")), factor=2.5),
        Source(field="kv-usage", name="_k", factor=0.01),
        Source(field="waiting", name="w"),
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "form"),
        (";", "form"),
        ("running", "form"),
        ("running=", "form"),
        ("running=up;", "form"),
        ("running =up", "form"),
        ("running=up{}", "form"),
        ('running=up{a="1"', "form"),
        ('running=up{a=~"1"}', "form"),
        ('running=up{a="\\""}', "form"),
        ("running=up*-1", "form"),
        ("running=up*nan", "form"),
        ("running=up*1_0", "form"),
        ("running=up*\u0662", "form"),
        ("running=0up", "form"),
        ("running=\u00fcp", "form"),
        ("running=up;running=down", "field is there twice"),
        ('running=up{a="1",a="2"}', "label twice"),
        ("speed=up", "'speed' is none of running, waiting"),
        ("running=up*0", "factor"),
        ("running=up*1e99", "factor"),
        ("running=" + "u" * MAPPING_CHARS_MAX, "characters"),
    ],
)
def test_a_wrong_mapping_is_refused(text: str, message: str) -> None:
    """Whatever is wrong with it, it is a ValueError that says what, before any page is read."""
    with pytest.raises(ValueError, match=message):
        sources(text)


@given(st.text(alphabet='runigwat-=;{}*"\\, abx_:0123456789.e', max_size=60))
def test_any_text_is_a_mapping_or_a_value_error(text: str) -> None:
    """No other exception leaves the parser, and what it takes a page can be read with."""
    try:
        reader = GenericReader(text)
    except ValueError:
        return
    with pytest.raises(HalfPage):
        reader.read(b"nothing 1\n")


def test_every_field_reaches_the_reading() -> None:
    """Eleven fields of the mapping, eleven of the reading, none twice."""
    mapping = ";".join(f"{field}=s{number}" for number, field in enumerate(FIELDS))
    page = "".join(
        f"s{number} {1 if field == 'kv-usage' else number}\n" for number, field in enumerate(FIELDS)
    ).encode()
    reading = GenericReader(mapping).read(page)
    assert len(FIELDS) == len(EngineReading.__struct_fields__)
    assert reading == EngineReading(
        running=0,
        waiting=1,
        slots=2,
        kv_usage=1.0,
        kv_tokens_max=4,
        steps_total=5.0,
        tokens_total=6.0,
        preemptions_total=7.0,
        rejections_total=8.0,
        memory_free_mib=9.0,
        ready=True,
    )


def test_labels_may_be_called_as_anything() -> None:
    """Label names are data, whatever the arguments of functions are called."""
    reader = GenericReader('running=up{name="a",self="b"};waiting=up{name="b"}')
    page = b'up{name="a",self="b"} 1\nup{name="b",self="b"} 2\nup{name="b"} 3\n'
    assert reader.read(page) == EngineReading(running=1, waiting=5)


def test_a_counter_may_be_missing_and_a_gauge_may_not() -> None:
    """Many counters begin with their first event; a gauge that is not there was named wrongly."""
    reader = GenericReader('running=up;rejections-total=refused{why="full"}')
    assert reader.read(b'up 2\nrefused{why="late"} 5\n') == EngineReading(running=2)
    with pytest.raises(HalfPage, match="up is missing"):
        reader.read(b'refused{why="full"} 5\n')


@pytest.mark.parametrize(
    ("mapping", "page", "message"),
    [
        ("kv-usage=percent", b"percent 55\n", "percent.*more than 1, and no kv-usage"),
        ("running=bytes*1e6", b"bytes 5\n", "bytes.*more than 1e\\+06, and no running"),
        ("kv-tokens-max=up*1e9", b"up 1e9\n", "up.*more than 1e\\+12, and no kv-tokens-max"),
    ],
)
def test_a_factor_that_is_wrong_is_said(mapping: str, page: bytes, message: str) -> None:
    """A percentage mapped as a share would else be dropped in silence at every reading."""
    with pytest.raises(HalfPage, match=message):
        GenericReader(mapping).read(page)


def test_a_full_cache_is_full_in_spite_of_rounding() -> None:
    """A hundred percent of 29 samples is 1, not a hair more."""
    page = "".join(f'percent{{e="{engine}"}} 100\n' for engine in range(29)).encode()
    assert GenericReader("kv-usage=percent*0.01").read(page).kv_usage == 1.0
