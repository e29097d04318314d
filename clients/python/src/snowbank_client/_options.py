"""The options of a client, checked when it is created."""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from dataclasses import dataclass, field

from . import _address
from ._address import Address
from ._wire import MAX_TOKEN_SIZE

#: A year: longer than any wait, and short enough to add to a clock.
_FOREVER_S = 365 * 86_400.0


@dataclass(frozen=True)
class Options:
    """The options of a client."""

    addresses: tuple[Address, ...]
    token: bytes | None = field(default=None, repr=False)
    token_file: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    timeout: float = 5.0
    connect_timeout: float = 2.0
    answer_timeout: float = 1.0
    min_backoff: float = 0.05
    max_backoff: float = 5.0
    take_turns: bool = False
    prefer_first: bool = False

    def read_token(self) -> bytes | None:
        """Returns the token. A file is read again for each connection, so that it can change."""
        if self.token_file is None:
            return self.token
        try:
            with open(self.token_file, "rb") as file:
                found = file.read(MAX_TOKEN_SIZE + 3)
        except OSError as error:
            raise ValueError(f"the token file cannot be read: {error}") from None
        # An editor ends the file with a newline.
        token = found[:-1] if found.endswith(b"\n") else found
        return _token(token, f"the token in {self.token_file}")

    def tls_context(self) -> ssl.SSLContext:
        """Returns what TLS needs. Files are read again for each connection, to allow renewal."""
        context = ssl.create_default_context()
        if self.ca_file is not None:
            context = ssl.create_default_context(cafile=_readable(self.ca_file, "ca_file"))
        if self.cert_file is not None:
            _readable(self.cert_file, "cert_file")
            key_file = None if self.key_file is None else _readable(self.key_file, "key_file")
            # Without a password callback, OpenSSL would ask on the terminal.
            context.load_cert_chain(self.cert_file, key_file, password=_no_password)
        return context


def make(
    addresses: str | Iterable[str],
    *,
    token: str | bytes | None,
    token_file: str | None,
    ca_file: str | None,
    cert_file: str | None,
    key_file: str | None,
    server_name: str | None,
    timeout: float,
    connect_timeout: float,
    answer_timeout: float,
    backoff: tuple[float, float],
    take_turns: bool,
    prefer_first: bool,
) -> Options:
    """Checks the options of a client. Raises ValueError or TypeError for the first bad one."""
    if token is not None and token_file is not None:
        raise ValueError("both token and token_file are given; give one of them")
    if key_file is not None and cert_file is None:
        raise ValueError("key_file is given without cert_file; give both")
    if take_turns and prefer_first:
        raise ValueError("both take_turns and prefer_first are given; give one of them")
    # A variable of the environment that is not set is None.
    texts = [addresses] if isinstance(addresses, str) else list(addresses or ())
    parsed = tuple(dict.fromkeys(_address.parse(text) for text in texts))
    if not parsed:
        raise ValueError("no address is given; at least one is needed")
    min_backoff, max_backoff = (seconds("backoff", value) for value in backoff)
    if min_backoff > max_backoff:
        raise ValueError(f"backoff is {backoff}; the first must not be above the second")
    options = Options(
        addresses=parsed,
        token=None if token is None else _token(token, "the token"),
        token_file=token_file,
        ca_file=ca_file,
        cert_file=cert_file,
        key_file=key_file,
        server_name=server_name,
        timeout=seconds("timeout", timeout),
        connect_timeout=seconds("connect_timeout", connect_timeout),
        answer_timeout=seconds("answer_timeout", answer_timeout),
        min_backoff=min_backoff,
        max_backoff=max_backoff,
        take_turns=bool(take_turns),
        prefer_first=bool(prefer_first),
    )
    # Each connection reads the files again. Reading them here shows a mistake at once.
    options.read_token()
    if any(address.tls for address in parsed):
        check_tls(options)
    elif ca_file is not None or cert_file is not None:
        raise ValueError("TLS files are given, and no address begins with tls:")
    return options


def check_tls(options: Options) -> ssl.SSLContext:
    """Returns the TLS context, or raises ValueError that says which file does not fit."""
    try:
        return options.tls_context()
    except ssl.SSLError as error:
        reason = error.reason or str(error)
        if reason == "KEY_VALUES_MISMATCH":
            reason = "the private key does not belong to the certificate"
        files = [options.ca_file, options.cert_file, options.key_file]
        names = ", ".join(file for file in files if file is not None)
        raise ValueError(f"the TLS files do not fit ({names}): {reason}") from None


def seconds(name: str, value: float) -> float:
    """Returns a time above 0. Raises ValueError for any other."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {value!r}; a number of seconds is needed")
    if not value > 0:
        raise ValueError(f"{name} is {value} s; it must be above 0")
    return min(float(value), _FOREVER_S)


def _token(token: str | bytes, name: str) -> bytes:
    """Returns the bytes of a token. The error does not show it."""
    if not isinstance(token, (str, bytes)):
        raise TypeError(f"{name} is a {type(token).__name__}; a str or bytes is needed")
    found = token.encode() if isinstance(token, str) else token
    if b"\n" in found or b"\r" in found:
        raise ValueError(f"{name} holds a newline; strip it")
    if not 1 <= len(found) <= MAX_TOKEN_SIZE:
        raise ValueError(f"{name} has {len(found)} bytes; 1 to {MAX_TOKEN_SIZE} are allowed")
    return found


def _readable(path: str, name: str) -> str:
    try:
        with open(path, "rb"):
            return path
    except OSError as error:
        raise ValueError(f"{name} cannot be read: {error}") from None


def _no_password() -> str:
    raise ValueError("the private key is encrypted; give a key without a password")
