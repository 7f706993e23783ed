"""Whatever was done to a page, it gives a sane reading or a HalfPage."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.signals.pages import EXPOSITIONS, GOLDEN, Golden
from tidegate.admission.reading import EngineReading
from tidegate.errors import HalfPage

KEPT = {
    golden.file: b"".join(
        line
        for line in golden.page.splitlines(keepends=True)
        if not line.startswith(b"#") and b"_bucket" not in line and b"_created" not in line and b"http_" not in line
    )
    for golden in EXPOSITIONS
}
"""Pages without most of what nobody reads, so that damage hits what counts."""
ODD_VALUES = (b"NaN", b"-1", b"1e400", b"-Inf", b"0x10", b"", b"many", b"1 2 3", b"9" * 400, b"1e15", b"5e-324")


def check(golden: Golden, page: bytes) -> EngineReading | None:
    """A reading that the core can use, or None where there is none."""
    try:
        reading = golden.reader.read(page)
    except HalfPage as error:
        refused(error)
        return None
    sane = reading.checked()
    figures = [getattr(sane, field) for field in sane.__struct_fields__ if field != "ready"]
    assert all(figure is None or 0 <= figure <= 1e15 for figure in figures)
    for field in ("running", "waiting", "slots", "kv_tokens_max"):
        assert isinstance(getattr(reading, field), int | None)
    assert sane.kv_usage is None or sane.kv_usage <= 1.0
    return reading


def refused(error: HalfPage) -> None:
    """It says what is wrong, and not more than a line of a log holds."""
    assert 5 < len(str(error)) < 400


expositions = st.sampled_from(EXPOSITIONS)


@given(st.sampled_from(GOLDEN), st.data())
def test_a_page_cut_anywhere(golden: Golden, data: st.DataObject) -> None:
    """What of it came is the truth or nothing: no figure of one that is cut differs from the whole page's."""
    page = KEPT.get(golden.file, golden.page)
    reading = check(golden, page[: data.draw(st.integers(0, len(page) - 1))])
    if reading is None or golden.file == "triton-tensorrtllm.txt":  # several models in one series: its sum may be short
        return
    for field in ("running", "waiting", "kv_usage"):
        assert getattr(reading, field) in (None, getattr(golden.reading, field))


@given(expositions, st.data())
def test_a_page_with_lines_dropped_repeated_and_out_of_order(golden: Golden, data: st.DataObject) -> None:
    """Lines of a page in any selection and order."""
    lines = KEPT[golden.file].splitlines(keepends=True)
    kept = data.draw(st.lists(st.sampled_from(lines), max_size=2 * len(lines)))
    check(golden, b"".join(kept))


@given(expositions, st.data())
def test_a_page_whose_lines_are_shuffled_reads_the_same(golden: Golden, data: st.DataObject) -> None:
    """The order of series means nothing."""
    lines = data.draw(st.permutations(KEPT[golden.file].splitlines(keepends=True)))
    assert golden.reader.read(b"".join(lines)) == golden.reading


@given(st.sampled_from(GOLDEN), st.data())
def test_a_page_with_bytes_changed(golden: Golden, data: st.DataObject) -> None:
    """Bytes flipped, put in and taken out."""
    page = bytearray(KEPT.get(golden.file, golden.page))
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(page)))
        page[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    check(golden, bytes(page))


@given(expositions, st.data())
def test_a_page_with_values_replaced(golden: Golden, data: st.DataObject) -> None:
    """Numbers that no counter has, and what is no number."""
    lines = KEPT[golden.file].splitlines()
    for at in data.draw(st.sets(st.integers(0, len(lines) - 1), min_size=1, max_size=5)):
        lines[at] = lines[at].rpartition(b" ")[0] + b" " + data.draw(st.sampled_from(ODD_VALUES))
    check(golden, b"\n".join(lines) + b"\n")


@given(expositions, st.binary(max_size=60), st.binary(max_size=60))
def test_a_page_with_noise_around_it(golden: Golden, before: bytes, after: bytes) -> None:
    """What stands on lines of its own around a page changes nothing of it, or spoils it."""
    reading = check(golden, before + b"\n" + KEPT[golden.file] + b"\n" + after)
    assert reading in (None, golden.reading)


def test_a_page_in_20_mb_of_noise() -> None:
    """Every page reads the same among a million lines that nobody asks for."""
    noise = b'# HELP other_seconds of something\nother_seconds_bucket{le="0.5"} 12\n' * 150_000
    assert len(noise) > 10_000_000
    for golden in EXPOSITIONS:
        assert golden.reader.read(noise + golden.page + noise) == golden.reading


@given(st.sampled_from(GOLDEN), st.binary(max_size=400))
def test_any_bytes_at_all(golden: Golden, page: bytes) -> None:
    """Nor do bytes that were never a page raise anything else."""
    check(golden, page)
