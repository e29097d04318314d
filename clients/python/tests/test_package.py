"""The sdist and the wheel, installed into empty environments, where README's program runs."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import re
import signal
import subprocess
import tarfile
import time
import zipfile

import pytest
from support import PACKAGE, PYTHON, Daemon, missing, run

README = PACKAGE / "README.md"


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the sdist and the wheel: $SNOWBANK_DIST, or one that they are built into."""
    if "SNOWBANK_DIST" in os.environ:
        return pathlib.Path(os.environ["SNOWBANK_DIST"])
    folder = tmp_path_factory.mktemp("dist")
    for module in ("build", "hatchling"):
        if importlib.util.find_spec(module) is None:
            missing(f"the package {module}")
    run(str(PACKAGE / "build"), str(folder), env={**os.environ, "PYTHON": PYTHON})
    return folder


def programs() -> list[str]:
    return re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("kind", ["whl", "tar.gz"])
def test_readmes_program_runs_where_nothing_else_is(
    packages: pathlib.Path, kind: str, daemons: list[Daemon], tmp_path: pathlib.Path
) -> None:
    (package,) = packages.glob(f"snowbank_client-*.{kind}")
    venv = tmp_path / "venv"
    run(PYTHON, "-m", "venv", str(venv))
    python = str(venv / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    run(*pip, str(package))
    program = programs()[0]
    for port, daemon in zip(("7660", "7661"), daemons):
        assert f"127.0.0.1:{port}" in program
        program = program.replace(f"127.0.0.1:{port}", daemon.address)
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    rows = subprocess.Popen(
        [python, "-c", program.replace("sleep(0.01)", "sleep(0.006)")],
        cwd=tmp_path,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    database = tmp_path / "rows.sqlite3"
    # The table is there before the first row.
    while rows.poll() is None and not (database.exists() and database.stat().st_size):
        time.sleep(0.01)
    daemons[0].signal(signal.SIGKILL)
    was_running = rows.poll() is None
    printed, _ = rows.communicate(timeout=120)
    assert was_running, f"the daemon was killed after the last row: {printed}"
    # Nothing is logged by default, not even the failure.
    assert printed.startswith("(1000, "), printed


def test_readmes_other_programs_compile() -> None:
    found = programs()
    assert len(found) == 4
    for program in found:
        compile(program, str(README), "exec")


def test_packages_have_types_and_licences(packages: pathlib.Path) -> None:
    (wheel,) = packages.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "snowbank_client/py.typed" in names
    assert any(name.endswith("LICENSE-MIT") for name in names)
    (sdist,) = packages.glob("snowbank_client-*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("src/snowbank_client/_call.py") for name in archive.getnames())
