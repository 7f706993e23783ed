"""A virtual environment for each engine, under `.engines/`: they are large, and their dependencies agree with nobody's.

Made once, and again where the recipe has changed. vLLM for CPUs needs PyTorch's build for CPUs (a version that ends in
`+cpu`), which is not on PyPI: pip must know where to find it, through PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ENVIRONMENTS = Path(__file__).parents[2] / ".engines"
LOG_TAIL_CHARS = 2000


def engine_python(name: str, requirement: str, *, unwanted: Sequence[str] = ()) -> Path:
    """The interpreter of the environment that has an engine installed.

    Args:
        name: of the environment.
        requirement: what pip installs.
        unwanted: packages that come with it and break it, to be taken out again.

    Raises:
        RuntimeError: it could not be installed; the message holds the end of pip's output.
    """
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / "recipe.txt"
    recipe = "\n".join([requirement, *unwanted])
    if not stamp.exists() or stamp.read_text() != recipe:
        folder.mkdir(parents=True, exist_ok=True)
        (ENVIRONMENTS / ".gitignore").write_text("*\n")
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", requirement])
        if unwanted:
            _run([str(python), "-m", "pip", "uninstall", "--quiet", "--yes", *unwanted])
        stamp.write_text(recipe)
    return python


def _run(command: list[str]) -> None:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout[-LOG_TAIL_CHARS:]}")
