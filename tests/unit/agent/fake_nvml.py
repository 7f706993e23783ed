"""The pretended driver: how it is built, what it is told to answer, and the real bindings that run against it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

SOURCE = Path(__file__).parents[2] / "data" / "nvml" / "fake_nvml.c"
ROOT = Path(__file__).parents[3]
LIBRARY = "libnvidia-ml.so.1"
NO_COMPILER = "no gcc here to build the pretended NVIDIA library"
"""Why tests of this folder are skipped."""


def compiler() -> str | None:
    """Path of gcc."""
    return shutil.which("gcc")


def build(folder: Path, *defines: str) -> Path:
    """The library, built without what `defines` take away; the folder it lies in."""
    gcc = compiler()
    assert gcc is not None
    folder.mkdir(parents=True, exist_ok=True)
    command = [gcc, "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", *(f"-D{each}" for each in defines)]
    subprocess.run([*command, "-o", str(folder / LIBRARY), str(SOURCE)], check=True, timeout=60)
    return folder


def gpu(index: int, *, total_mib: int = 81_920, free_mib: int = 61_440, **more: int) -> str:
    """Lines for one healthy GPU that is 33 % busy."""
    figures = {"total_mib": total_mib, "free_mib": free_mib, "used_mib": total_mib - free_mib, "utilisation": 33}
    return "".join(f"gpu {index} {key} {value}\n" for key, value in (figures | more).items())


def mig_slice(index: int, slice_index: int, *, total_mib: int, free_mib: int) -> str:
    """Lines for one MIG slice."""
    of = f"slice {index} {slice_index}"
    return f"{of} total_mib {total_mib}\n{of} free_mib {free_mib}\n{of} used_mib {total_mib - free_mib}\n"


class Node:
    """One pretended GPU node: what its driver answers, and the environment that a process sees it in.

    Args:
        libraries: folder that holds the library, or none.
    """

    def __init__(self, folder: Path, libraries: Path) -> None:
        self._path = folder / "nvml.txt"
        self._libraries = libraries
        self.says("count 1", gpu(0))

    def says(self, *lines: str) -> None:
        """Replace everything it answers."""
        draft = self._path.with_suffix(".new")
        text = "".join(line if line.endswith("\n") else f"{line}\n" for line in ("driver 580.82", *lines))
        draft.write_text(text)
        draft.replace(self._path)

    @property
    def environment(self) -> Mapping[str, str]:
        return {"LD_LIBRARY_PATH": str(self._libraries), "FAKE_NVML": str(self._path)}


class Probe:
    """A process in which a Watch looks through the real bindings, at times that the test says."""

    def __init__(self, node: Node) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.agent.probe"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            env={**os.environ, **node.environment},
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._process:  # closes stdin, at which it ends
            pass

    def look(self, now_s: float) -> dict[str, Any]:
        """What a look at this time finds: the node."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{now_s}\n")
        self._process.stdin.flush()
        found: dict[str, Any] = json.loads(self._process.stdout.readline())
        return found

    def gpus(self, now_s: float) -> Sequence[dict[str, Any]]:
        """What a look at this time finds: the GPUs of a node that is well."""
        found = self.look(now_s)
        assert found["state"] == "ok", found
        gpus: list[dict[str, Any]] = found["gpus"]
        return gpus
