"""Reading `tidegate-*` pairs into a policy."""

from dataclasses import replace

import pytest

from tidegate.admission.limits import GateName, Limits, Mode
from tidegate.admission.queues.orders import Order
from tidegate.errors import PolicyError
from tidegate.policy import KEYS, EngineAddress, Policy, PoolPolicy, RequestPolicy, pairs_of, parse_policy


def parse(*pairs: tuple[str, str], default_pool: str = "vllm") -> Policy:
    return parse_policy(pairs, default_pool=default_pool)


def refusal(*pairs: tuple[str, str]) -> PolicyError:
    with pytest.raises(PolicyError) as caught:
        parse(*pairs)
    return caught.value


def test_no_keys_are_the_defaults() -> None:
    """Without any key the pool is the cluster and every setting is its documented default."""
    policy = parse(("x-request-id", "7"), ("user-agent", "grpc-c++"))
    assert policy == Policy(pool=PoolPolicy(name="vllm", limits=Limits()), request=RequestPolicy(), text="")
    assert policy.request.client_timeout_s is None


def test_every_key_lands_in_its_place() -> None:
    """Each key sets its own field, in the field's own unit."""
    policy = parse(
        ("tidegate-pool", "outbound|8000||vllm.prod.svc.cluster.local"),
        ("tidegate-engines", "10.0.0.1:8000;metrics=http://10.0.0.1:9400/metrics, 10.0.0.2:8000"),
        ("tidegate-engine", "vllm"),
        ("tidegate-slots-max", "64"),
        ("tidegate-kv-tokens-max", "200000"),
        ("tidegate-batched-tokens-max", "8192"),
        ("tidegate-queue-len-max", "0"),
        ("tidegate-mode", "backpressure-first"),
        ("tidegate-queue-order", "deadline"),
        ("tidegate-queue-alpha", "10.25"),
        ("tidegate-queue-fair", "off"),
        ("tidegate-gates", "slots, kv,concurrency,p99-window,littles-law,memory-floor"),
        ("tidegate-concurrency-max", "96"),
        ("tidegate-p99-target-ms", "2500"),
        ("tidegate-memory-floor-mib", "4096"),
        ("tidegate-estimator", "window"),
        ("tidegate-shadow", "on"),
        ("tidegate-ttft-budget-ms", "1500"),
        ("tidegate-tpot-target-ms", "80"),
        ("tidegate-client-timeout-ms", "30000"),
        ("tidegate-message-timeout-ms", "300"),
        ("tidegate-hold-ms-max", "2500"),
        ("tidegate-tenant-from", "header:x-team"),
    )
    assert policy.pool == PoolPolicy(
        name="outbound|8000||vllm.prod.svc.cluster.local",
        limits=Limits(
            slots=64,
            kv_tokens=200_000,
            batched_tokens=8192,
            queue_len=0,
            mode=Mode.BACKPRESSURE_FIRST,
            order=Order.DEADLINE,
            alpha=10.25,
            fair=False,
            gates=(
                GateName.SLOTS,
                GateName.KV,
                GateName.CONCURRENCY,
                GateName.P99_WINDOW,
                GateName.LITTLES_LAW,
                GateName.MEMORY_FLOOR,
            ),
            concurrency=96,
            p99_target_s=2.5,
            memory_floor_mib=4096,
        ),
        engines=(
            EngineAddress(address="10.0.0.1:8000", metrics="http://10.0.0.1:9400/metrics"),
            EngineAddress(address="10.0.0.2:8000"),
        ),
        engine="vllm",
        estimator="window",
    )
    assert policy.request == RequestPolicy(
        ttft_budget_s=1.5,
        tpot_target_s=0.08,
        client_timeout_s=30.0,
        message_timeout_s=0.3,
        hold_s_max=2.5,
        tenant_header="x-team",
        shadow=True,
    )
    assert policy.pool.engine_count == 2


def test_stating_a_default_is_not_the_same_as_leaving_it_out() -> None:
    """A stated capacity may prove that a request never fits, a learned one may not: so the two records differ."""
    stated = parse(("tidegate-slots-max", "256")).pool
    assert stated != parse().pool
    assert stated == replace(parse().pool, limits=Limits(slots=256))
    assert (parse().pool.limits.slots, parse().pool.limits.kv_tokens, parse().pool.limits.queue_len) == (None,) * 3


def test_the_hold_is_at_most_the_message_timeout_unless_stated() -> None:
    """Without `tidegate-hold-ms-max` a hold may not outlast the filter's own timer."""
    assert parse(("tidegate-message-timeout-ms", "900")).request.hold_s_max == 0.9
    assert parse(("tidegate-message-timeout-ms", "900"), ("tidegate-hold-ms-max", "0")).request.hold_s_max == 0.0


def test_the_last_of_a_repeated_key_counts() -> None:
    """Envoy appends the nearer level's pairs, so the last one is the route's own."""
    policy = parse(("tidegate-slots-max", "nonsense"), ("tidegate-slots-max", "8"))
    assert policy.pool.limits.slots == 8
    assert policy.text == "tidegate-slots-max=8"


def test_the_text_is_canonical() -> None:
    """The same keys in any order give the same text, split by scope in the two halves."""
    pairs = [("tidegate-slots-max", "8"), ("tidegate-shadow", "on"), ("tidegate-engine", "vllm"), ("other", "1")]
    policy = parse(*pairs)
    assert policy.text == parse(*reversed(pairs)).text
    assert policy.text == "tidegate-engine=vllm\ntidegate-shadow=on\ntidegate-slots-max=8"
    assert policy.pool.text == "tidegate-engine=vllm\ntidegate-slots-max=8"
    assert policy.request.text == "tidegate-shadow=on"
    assert parse(*pairs_of(policy.text)) == policy


def test_the_tenant_is_no_part_of_the_policy() -> None:
    """A tenant's value is any text, differs by request and leaves no trace in the policy."""
    assert parse(("tidegate-tenant", "=\n\x00" + "x" * 5000)) == parse()


def test_a_class_in_force_wins_over_the_route() -> None:
    """The named class's budget and weight hold; what it does not state stays the route's."""
    classes = (
        ("tidegate-class-gold", "ttft-budget-ms=500, weight=4"),
        ("tidegate-class-batch", "weight=1"),
        ("tidegate-ttft-budget-ms", "9000"),
    )
    gold = parse(*classes, ("tidegate-class", "gold")).request
    assert (gold.ttft_budget_s, gold.weight, gold.tenant_class) == (0.5, 4, "gold")
    batch = parse(*classes, ("tidegate-class", "batch")).request
    assert (batch.ttft_budget_s, batch.weight, batch.tenant_class) == (9.0, 1, "batch")
    nobody = parse(*classes).request
    assert (nobody.ttft_budget_s, nobody.weight, nobody.tenant_class) == (9.0, 1, "")


def test_an_undefined_class_is_an_error_that_names_the_defined_ones() -> None:
    """A class must be defined among the same keys."""
    error = refusal(("tidegate-class", "silver"), ("tidegate-class-gold", "weight=2"))
    assert (error.key, error.value) == ("tidegate-class", "silver")
    assert "gold" in error.expected
    assert "none" in refusal(("tidegate-class", "gold")).expected


def test_sixteen_classes_and_no_more() -> None:
    """Classes are a closed, short list, never one per tenant."""
    classes = [(f"tidegate-class-c{number}", "weight=1") for number in range(17)]
    assert parse(*classes[:16], ("tidegate-class", "c15")).request.tenant_class == "c15"
    assert "at most 16 classes" in refusal(*classes).expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tidegate-class-gold", "weight"),
        ("tidegate-class-gold", ""),
        ("tidegate-class-gold", "weight=0"),
        ("tidegate-class-gold", "weight=101"),
        ("tidegate-class-gold", "weight=1,weight=2"),
        ("tidegate-class-gold", "ttft-budget-ms=0"),
        ("tidegate-class-gold", "colour=red"),
        ("tidegate-class-Gold", "weight=1"),
        ("tidegate-class-", "weight=1"),
        ("tidegate-class-" + "n" * 33, "weight=1"),
    ],
)
def test_every_defined_class_is_read_even_where_none_is_in_force(key: str, value: str) -> None:
    """A mistake in a class shows at once, not when the first route names it."""
    assert refusal((key, value)).key == key


@pytest.mark.parametrize(
    ("key", "lowest", "highest"),
    [
        ("tidegate-slots-max", 1, 100_000),
        ("tidegate-kv-tokens-max", 1, 1_000_000_000),
        ("tidegate-batched-tokens-max", 1, 10_000_000),
        ("tidegate-queue-len-max", 0, 10_000),
        ("tidegate-ttft-budget-ms", 1, 600_000),
        ("tidegate-tpot-target-ms", 1, 60_000),
        ("tidegate-client-timeout-ms", 1, 3_600_000),
        ("tidegate-message-timeout-ms", 1, 3_600_000),
        ("tidegate-hold-ms-max", 0, 3_600_000),
    ],
)
def test_numbers_keep_their_range(key: str, lowest: int, highest: int) -> None:
    """Both ends of the range are good, one step further is refused in words that name the range."""
    for good in (lowest, highest):
        parse((key, str(good)))
    for bad in (str(lowest - 1), str(highest + 1), "9" * 900):
        error = refusal((key, bad))
        assert error.key == key
        assert f"from {lowest} to {highest}" in error.expected


@pytest.mark.parametrize("text", ["", " 1", "1 ", "+1", "-1", "1.0", "1e3", "0x10", "1_000", "१२", "²", "1\x00", "on"])
def test_numbers_are_plain_digits(text: str) -> None:
    """Nothing but ASCII digits is a number."""
    assert refusal(("tidegate-slots-max", text)).value == text


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tidegate-pool", ""),
        ("tidegate-pool", "a b"),
        ("tidegate-pool", "p" * 129),
        ("tidegate-pool", "pool\n"),
        ("tidegate-pool", "overflow"),
        ("tidegate-engine", "VLLM"),
        ("tidegate-engine", "ollama"),
        ("tidegate-mode", "fast"),
        ("tidegate-mode", ""),
        ("tidegate-queue-order", "edf"),
        ("tidegate-queue-order", "FIFO"),
        ("tidegate-queue-order", "cost_deadline"),
        ("tidegate-queue-fair", "yes"),
        ("tidegate-queue-fair", ""),
        ("tidegate-estimator", "ngrams"),
        ("tidegate-shadow", "true"),
        ("tidegate-shadow", "On"),
        ("tidegate-tenant-from", "x-team"),
        ("tidegate-tenant-from", "header:"),
        ("tidegate-tenant-from", "header:X-Team"),
        ("tidegate-tenant-from", "header:x team"),
        ("tidegate-tenant-from", "header::authority"),
        ("tidegate-tenant-from", "cookie:team"),
        ("tidegate-class", "Gold"),
    ],
)
def test_a_bad_word_is_refused(key: str, value: str) -> None:
    """Words are taken as they stand: no case folding, no trimming, no guessing."""
    error = refusal((key, value))
    assert error.key == key
    assert error.value == value or error.value == value[:128] + "..."
    assert error.expected == KEYS[key].expected


def test_an_unknown_key_is_refused_with_the_nearest_one() -> None:
    """A mistyped key must not be silently without effect."""
    error = refusal(("tidegate-slot-max", "8"))
    assert error.key == "tidegate-slot-max"
    assert "tidegate-slots-max" in error.expected
    assert refusal(("tidegate-", "8")).key == "tidegate-"


def test_a_value_has_at_most_one_kibibyte() -> None:
    """The bound counts bytes, and the error names it without quoting all of the value."""
    error = refusal(("tidegate-slots-max", "1" * 1025))
    assert "1024 bytes" in error.expected
    assert len(error.value) < 200
    assert "1024 bytes" in refusal(("tidegate-slots-max", "é" * 513)).expected
    assert "1024 bytes" not in refusal(("tidegate-slots-max", "1" * 1024)).expected


def test_all_keys_together_have_at_most_four_kibibytes() -> None:
    """Names and values count together, ours alone: what others send along is not our text."""
    padding = "weight=" + "0" * 900
    pairs = [(f"tidegate-class-c{number}", padding) for number in range(5)]
    assert sum(len(key) + len(value) for key, value in pairs) > 4096
    assert "4096 bytes" in refusal(*pairs).expected
    parse(("x-other", "x" * 8000))


@pytest.mark.parametrize("cluster", ["vllm", "outbound|80||a.b.svc", "a/b_c-d.e", "p" * 128])
def test_a_usual_cluster_name_is_the_pool(cluster: str) -> None:
    """Cluster names of Envoy and Istio are pool names as they stand."""
    assert parse(default_pool=cluster).pool.name == cluster


def test_an_odd_cluster_name_still_has_a_pool_of_its_own() -> None:
    """Names that cannot be a pool's are made usable, and two of them never become one."""
    odd = ["a b", "a:b", "ä", "overflow", "p" * 129, "p" * 128 + "q", "\ud800", "x\n"]
    names = [parse(default_pool=cluster).pool.name for cluster in odd]
    assert len(set(names)) == len(odd)
    assert all(parse(("tidegate-pool", name)).pool.name == name for name in names)
    assert parse(default_pool="").pool.name == "default"
