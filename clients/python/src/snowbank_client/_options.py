"""The options of a client, checked when it is created."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field

from . import _address
from ._address import Address
from ._stats import OnEvent
from ._wire import MAX_COUNT, MAX_SOURCE_BYTES, MAX_TOKEN_BYTES

#: A year: longer than any wait, and short enough to add to a clock.
_FOREVER_S = 365 * 86_400.0


@dataclass(frozen=True)
class Times:
    """The times of the protocol's page. They are no options; tests put others in their place."""

    resolve: float = 1.0
    accept: float = 1.0
    connect: float = 2.0
    #: How long a daemon may be silent, beyond the wait of a request.
    answer: float = 1.0
    wait: float = 1.0
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
    source: bytes
    timeout: float
    token: bytes | None = field(repr=False)
    token_file: str | None
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    server_name: str | None
    prefer_first: bool
    take_turns: bool
    on_event: OnEvent | None
    times: Times

    def read_token(self) -> bytes | None:
        """Returns the token. A file is read again for each connection, so that it can change."""
        if self.token_file is None:
            return self.token
        try:
            with open(self.token_file, "rb") as file:
                found = file.read(MAX_TOKEN_BYTES + 3)
        except OSError as error:
            raise ValueError(f"the token file cannot be read: {error}") from None
        # An editor ends the file with a newline.
        token = found[:-1] if found.endswith(b"\n") else found
        return _token(token, f"the token in {self.token_file}")

    def tls_context(self) -> ssl.SSLContext:
        """Returns what TLS needs. Files are read again for each connection, to allow renewal."""
        try:
            context = ssl.create_default_context()
            if self.ca_file is not None:
                context = ssl.create_default_context(cafile=_readable(self.ca_file, "ca_file"))
            if self.cert_file is not None:
                _readable(self.cert_file, "cert_file")
                key_file = None if self.key_file is None else _readable(self.key_file, "key_file")
                # Without a password callback, OpenSSL would ask on the terminal.
                context.load_cert_chain(self.cert_file, key_file, password=_no_password)
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            if reason == "KEY_VALUES_MISMATCH":
                reason = "the private key does not belong to the certificate"
            files = [self.ca_file, self.cert_file, self.key_file]
            names = ", ".join(file for file in files if file is not None)
            raise ValueError(f"the TLS files do not fit ({names}): {reason}") from None
        return context


def make(
    endpoints: str | Iterable[str],
    *,
    source: str | None,
    timeout: float,
    token: str | bytes | None,
    token_file: str | None,
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    server_name: str | None,
    prefer_first: bool,
    take_turns: bool,
    on_event: OnEvent | None,
) -> Options:
    """Checks the options of a client. Raises ValueError or TypeError for the first bad one."""
    if token is not None and token_file is not None:
        raise ValueError("both token and token_file are given; give one of them")
    if key_file is not None and cert_file is None:
        raise ValueError("key_file is given without cert_file; give both")
    if take_turns and prefer_first:
        raise ValueError("both take_turns and prefer_first are given; give one of them")
    if on_event is not None and not callable(on_event):
        raise TypeError(f"on_event is {on_event!r}; a function of one argument is needed")
    # A variable of the environment that is not set is None.
    texts = [endpoints] if isinstance(endpoints, str) else list(endpoints or ())
    parsed = tuple(dict.fromkeys(_address.parse(text) for text in texts))
    if not parsed:
        raise ValueError("no endpoint is given; at least one is needed")
    options = Options(
        endpoints=parsed,
        source=source_bytes(source),
        timeout=seconds("timeout", timeout),
        token=None if token is None else _token(token, "the token"),
        token_file=token_file,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        server_name=server_name,
        prefer_first=bool(prefer_first),
        take_turns=bool(take_turns),
        on_event=on_event,
        times=TIMES,
    )
    # Each connection reads the files again. Reading them here shows a mistake at once.
    options.read_token()
    if any(address.tls for address in parsed):
        options.tls_context()
    elif ca_file is not None or cert_file is not None:
        raise ValueError("TLS files are given, and no endpoint begins with tls:")
    return options


def seconds(name: str, value: float) -> float:
    """Returns a time above 0. Raises ValueError for any other."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}; a number of seconds is needed")
    if not value > 0:
        raise ValueError(f"{name} is {value} s; it must be above 0")
    return float(min(value, _FOREVER_S))


def check_count(count: int) -> int:
    """Returns a count that fits the protocol."""
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"count is {count!r}; a whole number is needed")
    if not 1 <= count <= MAX_COUNT:
        raise ValueError(f"count is {count}; 1 to {MAX_COUNT} are allowed")
    return count


def source_bytes(source: str | None) -> bytes:
    """Returns a source's name as the protocol has it. None is the daemon's first source."""
    if source is None:
        return b""
    if not isinstance(source, str):
        raise TypeError(f"source is {source!r}; a name is needed")
    found = source.encode()
    if not 1 <= len(found) <= MAX_SOURCE_BYTES:
        raise ValueError(
            f"source has {len(found)} bytes; 1 to {MAX_SOURCE_BYTES} are allowed, and None is the "
            "daemon's first source"
        )
    return found


def _token(token: str | bytes, name: str) -> bytes:
    """Returns the bytes of a token. The error does not show it."""
    if not isinstance(token, (str, bytes)):
        raise TypeError(f"{name} is a {type(token).__name__}; a str or bytes is needed")
    found = token.encode() if isinstance(token, str) else token
    if b"\n" in found or b"\r" in found:
        raise ValueError(f"{name} holds a newline; strip it")
    if not 1 <= len(found) <= MAX_TOKEN_BYTES:
        raise ValueError(f"{name} has {len(found)} bytes; 1 to {MAX_TOKEN_BYTES} are allowed")
    return found


def _readable(path: str, name: str) -> str:
    try:
        with open(path, "rb"):
            return path
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error}") from None


def _no_password() -> str:
    raise ValueError("the private key is encrypted; give a key without a password")
