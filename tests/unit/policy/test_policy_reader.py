"""The reader: fast, bounded, silent about what it has said before."""

from tidegate.errors import PolicyError
from tidegate.policy import REPORTS_MAX, TEXTS_MAX, PolicyReader


class Reports(list[tuple[str, str]]):
    """What an operator was told: key and pool of each error."""

    def take(self, error: PolicyError, pool: str) -> None:
        self.append((error.key, pool))


def test_a_text_is_parsed_once() -> None:
    """Streams with the same text share one record; another cluster or another text has its own."""
    reader = PolicyReader(Reports().take)
    text = [("user-agent", "envoy"), ("tidegate-slots-max", "8")]
    first = reader.read(text, "vllm")
    assert first.policy is not None
    assert reader.read([*text, ("x-request-id", "2")], "vllm").policy is first.policy
    assert reader.texts_read_total == 1
    assert reader.read(text, "sglang").pool == "sglang"
    assert reader.texts_read_total == 2


def test_the_tenant_travels_beside_the_policy() -> None:
    """A thousand tenants are one text; a value too long to keep is known by a digest, an empty one is nobody."""
    reader = PolicyReader(Reports().take)
    readings = [reader.read([("tidegate-tenant", f"t{n}"), ("tidegate-slots-max", "8")], "vllm") for n in range(1000)]
    assert [reading.tenant_value for reading in readings] == [f"t{n}" for n in range(1000)]
    assert reader.texts_read_total == 1
    long = [reader.read([("tidegate-tenant", "x" * 2000 + end)], "vllm").tenant_value for end in ("a", "b")]
    assert long[0] is not None
    assert len(long[0]) < 64
    assert long[0] != long[1]
    assert reader.read([("tidegate-tenant", "")], "vllm").tenant_value is None


def test_a_bad_text_is_reported_once_and_counted_each_time() -> None:
    """The reading names the pool, holds the error and no policy; the log hears of it once."""
    reports = Reports()
    reader = PolicyReader(reports.take)
    for _ in range(3):
        reading = reader.read([("tidegate-pool", "gpu"), ("tidegate-mode", "fast")], "vllm")
        assert (reading.pool, reading.policy) == ("gpu", None)
        assert reading.error is not None
    assert reports == [("tidegate-mode", "gpu")]
    assert reader.errors_total == 3
    assert reader.texts_read_total == 1


def test_a_bad_pool_name_falls_back_on_the_cluster() -> None:
    """Where the pool's own key is the bad one, the request still belongs somewhere."""
    reading = PolicyReader(Reports().take).read([("tidegate-pool", "a b")], "vllm")
    assert (reading.pool, reading.policy) == ("vllm", None)


def test_reports_are_rationed() -> None:
    """A value that differs by request cannot flood a log; later reports are granted again."""
    reports = Reports()
    reader = PolicyReader(reports.take)
    for number in range(REPORTS_MAX + 10):
        reader.read([("tidegate-mode", f"m{number}")], "vllm")
    assert len(reports) == REPORTS_MAX
    reader.allow_reports()
    reader.read([("tidegate-mode", "another")], "vllm")
    assert len(reports) == REPORTS_MAX + 1


def test_the_least_recently_used_text_is_forgotten() -> None:
    """The table holds 1024 texts: one still in use stays, the oldest unused one is parsed again."""
    reader = PolicyReader(Reports().take)
    used, unused = [("tidegate-slots-max", "1")], [("tidegate-slots-max", "2")]
    kept = reader.read(used, "vllm").policy
    reader.read(unused, "vllm")
    for number in range(TEXTS_MAX - 1):
        reader.read([("tidegate-queue-len-max", str(number))], "vllm")
        assert reader.read(used, "vllm").policy is kept
    before = reader.texts_read_total
    reader.read(unused, "vllm")
    assert reader.texts_read_total == before + 1


def test_an_oversized_text_is_an_error_that_is_remembered_too() -> None:
    """What is over 4 KiB is refused with its bound, once a text."""
    reports = Reports()
    reader = PolicyReader(reports.take)
    big = [(f"tidegate-class-c{number}", "0" * 1000) for number in range(5)]
    for _ in range(2):
        error = reader.read(big, "c" * 10_000).error
        assert error is not None
        assert "4096 bytes" in error.expected
    assert len(reports) == 1


def test_a_binary_key_is_an_unknown_key() -> None:
    """gRPC hands over bytes for keys that end in -bin; there is none of ours."""
    error = PolicyReader(Reports().take).read([("tidegate-slots-max-bin", b"\xff\x00")], "vllm").error
    assert error is not None
    assert error.key == "tidegate-slots-max-bin"
