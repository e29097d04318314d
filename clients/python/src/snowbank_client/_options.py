"""The options of a client, checked when it is created."""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Union

from . import _address
from ._address import Address
from ._stats import OnEvent
from ._wire import MAX_COUNT, MAX_SOURCE_BYTES, MAX_TOKEN_BYTES

#: The name of a file.
Path = Union[str, "os.PathLike[str]"]

#: A month: longer than any wait, and short enough for the timers of every system.
_FOREVER_S = 30 * 86_400.0


@dataclass(frozen=True)
class Times:
    """The times of the protocol's page. They are no options; tests put others in their place."""

    resolve: float = 1.0
    accept: float = 1.0
    connect: float = 2.0
    #: What NEXT allows a daemon to wait, and how long that may be silent beyond it.
    wait: float = 1.0
    answer: float = 1.0
    backoff: float = 0.05
    max_backoff: float = 1.0
    #: The longest wait that a daemon's `retry_after` makes, before the random part.
    max_pause: float = 1.0
    first_round: float = 10.0
    round: float = 60.0
    next_look: float = 1.0


TIMES = Times()


@dataclass(frozen=True)
class Options:
    """The options of a client."""

    endpoints: tuple[Address, ...]
    source: str | None
    timeout: float
    token: str | bytes | None = field(repr=False)
    token_file: Path | None
    ca_file: Path | None
    cert_file: Path | None
    key_file: Path | None
    server_name: str | None
    prefer_first: bool
    take_turns: bool
    on_event: OnEvent | None
    times: Times = field(default_factory=lambda: TIMES)

    def __post_init__(self) -> None:
        if not self.endpoints:
            raise ValueError("no endpoint is given; at least one is needed")
        for one, other in (("token", "token_file"), ("take_turns", "prefer_first")):
            if getattr(self, one) and getattr(self, other):
                raise ValueError(f"both {one} and {other} are given; give one of them")
        seconds("timeout", self.timeout)
        source_bytes(self.source)
        for name in ("token_file", "ca_file", "cert_file", "key_file", "server_name"):
            value = getattr(self, name)
            # A number would be a file that is open already.
            if value is not None and not isinstance(value, (str, os.PathLike)):
                raise TypeError(f"{name} is {value!r}; a text is needed")
        if (self.key_file is None) != (self.cert_file is None):
            raise ValueError("one of cert_file and key_file is given; give both, or neither")
        if self.on_event is not None and not callable(self.on_event):
            raise TypeError(f"on_event is {self.on_event!r}; a function is needed")
        # Each connection reads the files again. Reading them here shows a mistake at once.
        try:
            self.read_token()
            if any(address.tls for address in self.endpoints):
                self.tls_context()
            elif self.ca_file or self.cert_file or self.server_name:
                raise ValueError("options for TLS are given, and no endpoint begins with tls:")
        except OSError as error:
            raise ValueError(f"a file cannot be read: {error}") from None

    def read_token(self) -> bytes:
        """Returns the token. A file is read again for each connection, so that it can change."""
        token, name = self.token, "the token"
        if self.token_file is not None:
            name = f"the token in {self.token_file}"
            with open(self.token_file, "rb") as file:
                # An editor ends the file with a newline.
                token = file.read(MAX_TOKEN_BYTES + 3).removesuffix(b"\n")
        if token is None:
            return b""
        # The errors do not show it.
        if not isinstance(token, (str, bytes)):
            raise TypeError(f"{name} is a {type(token).__name__}; a str or bytes is needed")
        found = token.encode() if isinstance(token, str) else token
        if b"\n" in found or b"\r" in found:
            raise ValueError(f"{name} holds a newline; strip it")
        if not 1 <= len(found) <= MAX_TOKEN_BYTES:
            raise ValueError(f"{name} has {len(found)} bytes; 1 to {MAX_TOKEN_BYTES} are allowed")
        return found

    def tls_context(self) -> ssl.SSLContext:
        """Returns what TLS needs. Files are read again for each connection, to allow renewal."""
        files = [one for one in (self.ca_file, self.cert_file, self.key_file) if one is not None]
        for file in files:
            # An OSError of OpenSSL does not name it.
            open(file, "rb").close()
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                # Without a password, OpenSSL would ask on the terminal.
                context.load_cert_chain(self.cert_file, self.key_file, password="")
        except ssl.SSLError as error:
            reason = (error.reason or str(error)).replace("_", " ").lower()
            raise ValueError(
                f"the TLS files do not fit ({', '.join(map(str, files))}): {reason}"
            ) from None
        return context


def endpoints(texts: str | Iterable[str]) -> tuple[Address, ...]:
    """Parses the endpoints. A variable of the environment that is not set is None."""
    listed = texts or ()
    if isinstance(listed, (str, bytes)) or not isinstance(listed, Iterable):
        listed = [listed]
    return tuple(dict.fromkeys(_address.parse(text) for text in listed))


def seconds(name: str, value: float) -> float:
    """Returns a time above 0. Raises ValueError for any other."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}; a number of seconds is needed")
    if not value > 0:
        raise ValueError(f"{name} is {value} s; it must be above 0")
    return float(min(value, _FOREVER_S))


def check_count(count: int) -> None:
    """Raises an error for a count that does not fit the protocol."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"count is {count!r}; a whole number is needed")
    if not 1 <= count <= MAX_COUNT:
        raise ValueError(f"count is {count}; 1 to {MAX_COUNT} are allowed")


def source_bytes(source: str | None) -> bytes:
    """Returns a source's name as the protocol has it. None is the daemon's first source."""
    if source is None:
        return b""
    if not isinstance(source, str):
        raise TypeError(f"source is {source!r}; a name is needed")
    found = source.encode()
    if not 1 <= len(found) <= MAX_SOURCE_BYTES:
        raise ValueError(f"source has {len(found)} bytes; 1 to {MAX_SOURCE_BYTES} are allowed")
    return found
