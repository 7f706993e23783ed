"""The real bindings against a pretended driver: figures, states, and what comes back after it was gone."""

import sys
from pathlib import Path

import pytest

from tests.unit.agent.fake_nvml import LIBRARY, Node, Probe, build, gpu, mig_slice
from tidegate.agent.nvml import GPUS_MAX, Nvml
from tidegate.errors import OperatorError

MIB = 1 << 20
LOST, RESET_REQUIRED, NOT_SUPPORTED, NO_PERMISSION, UNKNOWN = 15, 16, 3, 4, 999


def test_memory_and_utilisation_of_each_gpu(node: Node) -> None:
    """Figures are those of the driver, in bytes and shares, with the names that it gives."""
    node.says("count 2", gpu(0), gpu(1, total_mib=40_960, free_mib=1_000, used_mib=39_000, utilisation=100))
    with Probe(node) as probe:
        found = probe.look(0.0)
    assert (found["state"], found["driver"]) == ("ok", "580.82")
    first, second = found["gpus"]
    assert first["memory"] == {"total_bytes": 81_920 * MIB, "free_bytes": 61_440 * MIB, "used_bytes": 20_480 * MIB}
    assert second["memory"] == {"total_bytes": 40_960 * MIB, "free_bytes": 1_000 * MIB, "used_bytes": 39_000 * MIB}
    assert (first["utilisation"]["last"], second["utilisation"]["last"]) == (0.33, 1.0)
    assert first["uuid"].startswith("GPU-")
    assert first["uuid"] != second["uuid"]
    assert [each["state"] for each in found["gpus"]] == ["ok", "ok"]


def test_utilisation_is_a_distribution(node: Node) -> None:
    """Half idle and half full is told as such, and what is older than the window is forgotten."""
    with Probe(node) as probe:
        for tick in range(20):
            node.says("count 1", gpu(0, utilisation=0 if tick % 2 else 100))
            (found,) = probe.gpus(tick / 10)
        assert found["utilisation"] == {"last": 0.0, "p50": 0.0, "p95": 1.0, "samples": 20}
        (found,) = probe.gpus(20.0)
        assert found["utilisation"] == {"last": 0.0, "p50": 0.0, "p95": 0.0, "samples": 1}


def test_mig_slices_stand_for_their_gpu(node: Node) -> None:
    """Memory is told by slice, utilisation by none, and a GPU cut into nothing has nothing to give."""
    slices = mig_slice(1, 0, total_mib=20_000, free_mib=9_000) + mig_slice(1, 5, total_mib=10_000, free_mib=10_000)
    node.says("count 3", gpu(0), gpu(1, mig=1), slices, gpu(2, mig=1))
    with Probe(node) as probe:
        whole, first, second, empty = probe.gpus(0.0)
    assert whole["state"] == "ok"
    assert [(each["index"], each["slice_index"]) for each in (first, second)] == [(1, 0), (1, 5)]
    assert [each["memory"]["free_bytes"] for each in (first, second)] == [9_000 * MIB, 10_000 * MIB]
    assert {each["state"] for each in (first, second)} == {"utilisation_not_supported"}
    assert first["utilisation"] is None
    assert first["uuid"].startswith("MIG-")
    assert (empty["state"], empty["memory"], empty["slice_index"]) == ("mig_without_slices", None, None)


@pytest.mark.parametrize(
    ("wrong", "state"),
    [
        ({"handle_error": LOST}, "gpu_lost"),
        ({"memory_error": LOST}, "gpu_lost"),
        ({"utilisation_error": LOST}, "gpu_lost"),
        ({"memory_error": RESET_REQUIRED}, "reset_required"),
        ({"handle_error": NO_PERMISSION}, "no_permission"),
        ({"handle_error": UNKNOWN}, "failed"),
        ({"memory_error": UNKNOWN}, "failed"),
        ({"free_mib": 99_999_999}, "failed"),
        ({"memory_error": NOT_SUPPORTED}, "memory_not_supported"),
    ],
)
def test_a_gpu_that_fails_has_no_memory_to_give(node: Node, wrong: dict[str, int], state: str) -> None:
    """It is told in what way, and its neighbour goes on."""
    node.says("count 2", gpu(0, **wrong), gpu(1))
    with Probe(node) as probe:
        failing, well = probe.gpus(0.0)
    assert (failing["state"], failing["memory"]) == (state, None)
    assert failing["detail"]
    assert (well["state"], well["memory"]["free_bytes"]) == ("ok", 61_440 * MIB)


@pytest.mark.parametrize(
    ("wrong", "state"),
    [
        ({"utilisation_error": NOT_SUPPORTED}, "utilisation_not_supported"),
        ({"utilisation_error": UNKNOWN}, "failed"),
        ({"utilisation": 101}, "failed"),
        ({"ecc": 2}, "ecc_uncorrected"),
        ({"ecc": 2, "utilisation_error": NOT_SUPPORTED}, "ecc_uncorrected"),
        ({"ecc_error": NOT_SUPPORTED}, "ok"),
        ({"ecc_error": UNKNOWN}, "ok"),
    ],
)
def test_memory_is_told_beside_lesser_faults(node: Node, wrong: dict[str, int], state: str) -> None:
    """The gravest state is named, and the free memory stays what the driver says."""
    node.says("count 1", gpu(0, **wrong))
    with Probe(node) as probe:
        (found,) = probe.gpus(0.0)
    assert (found["state"], found["memory"]["free_bytes"]) == (state, 61_440 * MIB)
    assert found["ecc_uncorrected"] == (None if "ecc_error" in wrong else wrong.get("ecc", 0))


def test_a_lost_gpu_keeps_its_name_and_comes_back(node: Node) -> None:
    """While it is lost the log can say which one; its figures return without anybody's help."""
    with Probe(node) as probe:
        (before,) = probe.gpus(0.0)
        node.says("count 1", gpu(0, handle_error=LOST))
        (lost,) = probe.gpus(5.0)
        assert (lost["state"], lost["uuid"]) == ("gpu_lost", before["uuid"])
        node.says("count 1", gpu(0))
        (back,) = probe.gpus(10.0)
        assert (back["state"], back["uuid"]) == ("ok", before["uuid"])


def test_a_gpu_that_stays_lost_has_the_driver_attached_anew(node: Node) -> None:
    """After a minute, for the library enumerates GPUs when it attaches only; not before, for that stops the others."""
    node.says("count 2", gpu(0, memory_error=LOST), gpu(1))
    with Probe(node) as probe:
        probe.gpus(0.0)
        node.says("init_error 9", "count 2", gpu(0, memory_error=LOST), gpu(1))
        assert probe.look(59.0)["state"] == "ok"
        assert probe.look(60.0)["state"] == "driver_missing", "it has been attached to again"


def test_gpus_that_come_and_go(node: Node) -> None:
    """A change in their number is seen within five seconds."""
    with Probe(node) as probe:
        assert len(probe.gpus(0.0)) == 1
        node.says("count 3", gpu(0), gpu(1), gpu(2))
        assert len(probe.gpus(4.9)) == 1
        assert len(probe.gpus(5.0)) == 3
        node.says("count 2", gpu(0), gpu(1))
        assert len(probe.gpus(10.0)) == 2


@pytest.mark.parametrize(
    ("code", "state"),
    [
        (9, "driver_missing"),
        (18, "driver_mismatch"),
        (NO_PERMISSION, "no_permission"),
        (6, "no_gpu"),
        (UNKNOWN, "failed"),
    ],
)
def test_a_driver_that_does_not_answer_is_a_state(node: Node, code: int, state: str) -> None:
    """It is told, with what NVML said, and without figures."""
    node.says(f"init_error {code}")
    with Probe(node) as probe:
        found = probe.look(0.0)
    assert (found["state"], found["gpus"]) == (state, [])
    assert found["detail"]


@pytest.mark.parametrize("call", ["handle_error", "memory_error", "utilisation_error"])
@pytest.mark.parametrize(("code", "state"), [(9, "driver_missing"), (18, "driver_mismatch"), (1, "failed")])
def test_a_driver_that_fails_in_the_middle_of_a_look(node: Node, call: str, code: int, state: str) -> None:
    """What one GPU says of the whole driver is no fault of that GPU: the node has no figures, and tries again."""
    node.says("count 2", gpu(0), gpu(1, **{call: code}))
    with Probe(node) as probe:
        found = probe.look(0.0)
        assert (found["state"], found["gpus"]) == (state, [])
        node.says("count 2", gpu(0), gpu(1))
        assert len(probe.gpus(1.0)) == 2


def test_a_driver_that_goes_takes_its_figures_away_and_brings_them_back(node: Node) -> None:
    """Between attempts, one second apart and then two, it is left alone."""
    with Probe(node) as probe:
        probe.gpus(0.0)
        node.says("count_error 9", "init_error 9")
        found = probe.look(5.0)
        assert (found["state"], found["gpus"], found["driver"]) == ("driver_missing", [], "")
        assert probe.look(6.0)["taken_s"] == 6.0
        node.says("count 1", gpu(0))
        assert probe.look(7.9) == {**probe.look(7.8), "taken_s": 6.0}
        assert len(probe.gpus(8.0)) == 1


def test_attempts_get_rarer_and_never_end(node: Node) -> None:
    """Each wait is twice the one before, up to thirty seconds; one success and it begins anew."""
    node.says("init_error 9")
    with Probe(node) as probe:
        taken = sorted({probe.look(float(second))["taken_s"] for second in range(125)})
        assert taken == [0.0, 1.0, 3.0, 7.0, 15.0, 31.0, 61.0, 91.0, 121.0]
        node.says("count 1", gpu(0))
        probe.gpus(151.0)
        node.says("count 0")
        assert probe.look(156.0)["state"] == "no_gpu"
        assert probe.look(157.0)["taken_s"] == 157.0


def test_no_library(tmp_path: Path, library: Path) -> None:
    """It is told as such, and is found once it is there."""
    empty = tmp_path / "lib"
    empty.mkdir()
    (empty / LIBRARY).touch()  # where this machine has a driver, a file that is no library still hides it
    node = Node(tmp_path, empty)
    with Probe(node) as probe:
        assert probe.look(0.0)["state"] == "library_missing"
        (tmp_path / "whole").write_bytes((library / LIBRARY).read_bytes())
        (tmp_path / "whole").replace(empty / LIBRARY)
        assert len(probe.gpus(1.0)) == 1


def test_a_library_without_what_came_later(tmp_path: Path, library: Path) -> None:
    """Without MIG there are whole GPUs, and without the newer form of memory the older one is read."""
    older = build(tmp_path / "older", "WITHOUT_MIG", "WITHOUT_MEMORY_V2")
    node = Node(tmp_path, older)
    node.says("count 1", gpu(0, used_mib=1))
    with Probe(node) as probe:
        (found,) = probe.gpus(0.0)
    assert found["memory"]["free_bytes"] == 61_440 * MIB
    assert found["memory"]["used_bytes"] == 20_480 * MIB, "the older form counts the driver's own"
    assert found["state"] == "ok"


def test_a_library_without_what_is_needed(tmp_path: Path, library: Path) -> None:
    """It is too old, and said to be."""
    with Probe(Node(tmp_path, build(tmp_path / "ancient", "WITHOUT_COUNT"))) as probe:
        assert probe.look(0.0)["state"] == "library_too_old"


def test_no_more_gpus_than_anybody_has(node: Node) -> None:
    """A driver that counts beyond reason does not grow the page beyond bounds."""
    node.says("count 70", *(gpu(index) for index in range(70)))
    with Probe(node) as probe:
        assert len(probe.gpus(0.0)) == GPUS_MAX


def test_bindings_that_are_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The start fails with the command that helps."""
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(OperatorError, match=r"pip install 'tidegate\[gpu\]'"):
        Nvml()
