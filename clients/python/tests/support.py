"""What the tests share: real daemons, and lines for what is missing."""

from __future__ import annotations

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import NoReturn

import pytest

PACKAGE = pathlib.Path(__file__).resolve().parent.parent
ROOT = PACKAGE.parent.parent


def missing(what: str) -> NoReturn:
    """Skips a test that needs what this machine has not. Where CI is set, it fails."""
    if os.environ.get("CI"):
        pytest.fail(f"missing: {what}")
    pytest.skip(f"missing: {what}")


def built(variable: str, name: str, *cargo: str) -> str:
    """Returns the path of a program: the environment's, or one that cargo builds."""
    given = os.environ.get(variable)
    if given:
        return given
    if not (ROOT / "Cargo.toml").exists() or shutil.which("cargo") is None:
        missing(f"{name}; set {variable} to its path")
    subprocess.run(["cargo", "build", "--quiet", *cargo], cwd=ROOT, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    return str(target / "debug" / name)


def free_port(host: str = "127.0.0.1") -> int:
    """Returns a port that was free just now."""
    with socket.socket() as listener:
        listener.bind((host, 0))
        return int(listener.getsockname()[1])


class Daemon:
    """A daemon of this machine."""

    def __init__(
        self, program: str, worker: int, directory: pathlib.Path, listen: str | None = None
    ) -> None:
        self._directory = directory
        #: Where it listens.
        self.address = listen or f"127.0.0.1:{free_port()}"
        self._worker = worker
        self._program = program
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> Daemon:
        """Starts it, and waits until it listens."""
        state = self._directory / f"state-{self._worker}"
        options = ["--listen", self.address, "--worker-id", str(self._worker)]
        options += ["--state-dir", str(state), "--lock-dir", str(state / "locks")]
        state.mkdir(parents=True, exist_ok=True)
        self._process = subprocess.Popen(
            [self._program, "serve", "--log-level", "error", *options],
            stdout=subprocess.DEVNULL,
            cwd=self._directory,
        )
        host, port = self.address.split(":")
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            assert self._process.poll() is None, "the daemon ended at its start"
            try:
                socket.create_connection((host, int(port)), 1).close()
            except OSError:
                time.sleep(0.02)
            else:
                return self
        raise AssertionError("the daemon does not listen")

    def signal(self, number: int) -> None:
        """Sends a signal."""
        assert self._process is not None
        self._process.send_signal(number)
        if number == signal.SIGKILL:
            self._process.wait()

    def end(self) -> None:
        """Ends it."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()


def run(
    *command: str,
    timeout: float = 120,
    cwd: pathlib.Path | None = None,
    env: dict[str, str] | None = None,
) -> str:
    """Runs a program to its end, and returns what it printed."""
    done = subprocess.run(
        command,
        check=False,
        timeout=timeout,
        cwd=cwd,
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


PYTHON = sys.executable
