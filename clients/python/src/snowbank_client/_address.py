"""Addresses of daemons: `host:port`, `[IPv6]:port`, `tls:host:port` and `unix:PATH`."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

#: The longest path of a Unix socket in bytes: `sun_path` of Linux without its closing zero.
_UNIX_PATH_BYTES_MAX = 107
_HOST_BYTES_MAX = 253
_HOST = re.compile(r"[A-Za-z0-9._-]+", re.ASCII)


@dataclass(frozen=True)
class Address:
    """One address, as the application wrote it."""

    text: str
    host: str = ""
    port: int = 0
    #: The path of a Unix socket, or empty.
    path: str = ""
    tls: bool = False

    @property
    def is_name(self) -> bool:
        """Returns whether the host is a name that a lookup can resolve to many addresses."""
        return not self.path and not _is_ip(self.host)

    def __str__(self) -> str:
        return self.text


def parse(text: object) -> Address:
    """Parses an address.

    Raises ValueError with the reason if the text is none, and TypeError if it is no text.
    """
    if not isinstance(text, str):
        raise TypeError(f'an address is a str such as "ids-1:7660", and this is {text!r}')
    try:
        return _parse(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an address: {error}") from None


def _parse(text: str) -> Address:
    if text.startswith("unix:"):
        return Address(text, path=_parse_path(text[len("unix:") :]))
    if text.startswith("/"):
        raise ValueError(f"the path of a Unix socket is written unix:{text}")
    tls = text.startswith("tls:")
    rest = text[len("tls:") :] if tls else text
    if tls and rest.startswith(("unix:", "/")):
        raise ValueError("a Unix socket takes no TLS: nothing leaves the machine")
    host, port = _split(rest)
    return Address(text, host=host, port=port, tls=tls)


def _parse_path(path: str) -> str:
    if not path or path.endswith("/"):
        raise ValueError("write the path of a socket, as in unix:/run/snowbank/snowbank.sock")
    if any(ord(char) < 32 or ord(char) == 127 for char in path):
        raise ValueError("the path of a socket holds no control characters")
    size = len(path.encode("utf-8", "surrogateescape"))
    if size > _UNIX_PATH_BYTES_MAX:
        raise ValueError(
            f"the path has {size} bytes, and a socket's has at most {_UNIX_PATH_BYTES_MAX}"
        )
    return path


def _split(text: str) -> tuple[str, int]:
    if not text:
        raise ValueError("it is empty; write ids-1:7660")
    if text.startswith("["):
        host, bracket, after = text[1:].partition("]")
        if not bracket:
            raise ValueError("the bracket is never closed; write [::1]:7660")
        if not _is_ip(host) or ":" not in host:
            raise ValueError(f"{host!r} in brackets is not an IPv6 address")
        if not after.startswith(":"):
            raise ValueError(f"the port is missing; write [{host}]:7660")
        return host, _parse_port(after[1:])
    if "://" in text:
        raise ValueError("leave out the scheme; write ids-1:7660 or tls:ids-1:7660")
    host, colon, port = text.rpartition(":")
    if not colon:
        raise ValueError(f"the port is missing; write {text}:7660")
    if ":" in host or _is_ip(text):
        raise ValueError("an IPv6 address stands in brackets before its port, as in [::1]:7660")
    number = _parse_port(port)
    _check_host(host)
    return host, number


def _parse_port(port: str) -> int:
    if not (port.isascii() and port.isdigit()):
        raise ValueError(f"the port {port!r} is not a number from 1 to 65535")
    if port.strip("0") == "":
        raise ValueError("nobody listens on port 0; write the daemon's port")
    if len(port) > 5 or int(port) > 65535:
        raise ValueError(f"the port {port} is above 65535")
    return int(port)


def _check_host(host: str) -> None:
    if not host or host == "*":
        raise ValueError("the host is missing; write ids-1:7660")
    if len(host) > _HOST_BYTES_MAX:
        raise ValueError(f"a host name has at most {_HOST_BYTES_MAX} bytes, this one {len(host)}")
    if not _HOST.fullmatch(host):
        odd = next(char for char in host if not _HOST.fullmatch(char))
        raise ValueError(f"{odd!r} cannot be part of a host name")
    if host.replace(".", "").isdigit() and not _is_ip(host):
        raise ValueError(f"{host} is not an IPv4 address")


def _is_ip(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
