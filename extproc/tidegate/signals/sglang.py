"""SGLang, `/metrics` on its serving port, with `--enable-metrics`.

    running, waiting     `num_running_reqs`, `num_queue_reqs`
    kv_usage             `token_usage`: of the fullest of its pools
    kv_tokens_max        `max_total_num_tokens`; else `num_pages` x `page_size` of `cache_config_info`
    preemptions_total    `num_retracted_requests_total`

It does not say how many steps it made, nor its slots, nor what it refused; and it counts tokens when a request ends,
not when they come out, so that they would not fit the steps of the same time.

One scheduler may report more than once: for each tensor and pipeline rank (`--enable-metrics-for-all-schedulers`), and
with priorities for each of them beside the sum, whose label is empty. Only the sum of the lowest rank of each data
parallel rank counts; those are summed, and their usage is averaged.

Source: SGLang's documentation of its metrics and the code that writes them; not seen on a running engine.
"""

from collections.abc import Mapping, Sequence, Set
from typing import TypeAlias

from tidegate.admission.reading import EngineReading
from tidegate.errors import HalfPage
from tidegate.signals.exposition import Exposition
from tidegate.signals.series import Page, Sample, count_of, share_of, tokens_of, whole_of

_RUNNING, _WAITING = "sglang:num_running_reqs", "sglang:num_queue_reqs"
_USAGE = "sglang:token_usage"
_KV_TOKENS, _CACHE = "sglang:max_total_num_tokens", "sglang:cache_config_info"
_RETRACTED = "sglang:num_retracted_requests_total"

_Group: TypeAlias = tuple[str, str]
"""A model and a data parallel rank: one scheduler."""

_series = Exposition(_RUNNING, _WAITING, _USAGE, _KV_TOKENS, _CACHE, _RETRACTED)


class SglangReader:
    """Reads SGLang's page."""

    kind = "sglang"
    path = "/metrics"

    def read(self, page: bytes) -> EngineReading:
        """What the page says; running, waiting and usage are always on it, of every engine that one of them names."""
        series = _series.page(page)
        running, waiting, usage = (_leaders(series.samples(name), name) for name in (_RUNNING, _WAITING, _USAGE))
        _check_alike({_RUNNING: running, _WAITING: waiting, _USAGE: usage})
        return EngineReading(
            running=count_of(tuple(running.values()), _RUNNING),
            waiting=count_of(tuple(waiting.values()), _WAITING),
            kv_usage=share_of(tuple(usage.values()), _USAGE),
            kv_tokens_max=_kv_tokens_max(series, running.keys()),
            preemptions_total=_preemptions_total(series),
        )


def _leaders(samples: Sequence[Sample], name: str) -> Mapping[_Group, Sample]:
    """The samples that count: see above."""
    leaders: dict[_Group, Sample] = {}
    for sample in samples:
        if sample.labels.get("priority"):
            continue
        group = sample.labels.get("model_name", ""), sample.labels.get("dp_rank", "")
        if group not in leaders or _rank(sample) < _rank(leaders[group]):
            leaders[group] = sample
    if not leaders:
        raise HalfPage(f"{name} has no sum over its priorities")
    return leaders


def _rank(sample: Sample) -> tuple[int, int]:
    return whole_of(sample.labels.get("pp_rank")) or 0, whole_of(sample.labels.get("tp_rank")) or 0


def _check_alike(leaders: Mapping[str, Mapping[_Group, Sample]]) -> None:
    everywhere = {group for samples in leaders.values() for group in samples}
    for name, samples in leaders.items():
        if len(samples) < len(everywhere):
            raise HalfPage(f"{name} is missing of {len(everywhere) - len(samples)} of {len(everywhere)} schedulers")


def _kv_tokens_max(series: Page, groups: Set[_Group]) -> int | None:
    """None unless every scheduler says how large its cache is."""
    said = series.samples_if_there(_KV_TOKENS)
    if said:
        leaders = _leaders(said, _KV_TOKENS)
        return tokens_of(sum(leader.value for leader in leaders.values()), 1) if leaders.keys() == groups else None
    caches = series.samples_if_there(_CACHE)
    if len(caches) != 1 or len(groups) != 1:
        return None
    return tokens_of(whole_of(caches[0].labels.get("num_pages")), whole_of(caches[0].labels.get("page_size")))


def _preemptions_total(series: Page) -> float | None:
    samples = series.samples_if_there(_RETRACTED)
    return sum(leader.value for leader in _leaders(samples, _RETRACTED).values()) if samples else None
