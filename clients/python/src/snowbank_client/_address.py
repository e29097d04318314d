"""Endpoints as text: `host:port`, `[IPv6]:port`, `tls:host:port` and `unix:PATH`."""

from __future__ import annotations

import ipaddress
import re
from typing import NamedTuple

#: The longest path of a Unix socket in bytes: `sun_path` of Linux without its closing zero.
_UNIX_PATH_BYTES_MAX = 107
_FORM = re.compile(
    r"(?:tls:)?(?:\[([0-9A-Fa-f:.%\w]+)\]|([A-Za-z0-9._-]{1,253})):0*([0-9]{1,5})", re.A
)


class Address(NamedTuple):
    """One endpoint, as the application wrote it."""

    text: str
    host: str = ""
    port: int = 0
    #: The path of a Unix socket, or empty.
    path: str = ""
    tls: bool = False

    def __str__(self) -> str:
        return self.text


def parse(text: object) -> Address:
    """Parses an endpoint. Raises ValueError or TypeError with the reason if the text is none."""
    if not isinstance(text, str):
        raise TypeError(f'an endpoint is a str such as "ids-1:7660", and this is {text!r}')
    if text.startswith("unix:"):
        path = text[len("unix:") :]
        size = len(path.encode("utf-8", "surrogateescape"))
        if 1 <= size <= _UNIX_PATH_BYTES_MAX and path.isprintable() and path[-1] != "/":
            return Address(text, path=path)
        form = f"unix:PATH with at most {_UNIX_PATH_BYTES_MAX} printable bytes"
        raise ValueError(f"{text!r} is no Unix socket: write {form}")
    found = _FORM.fullmatch(text)
    ipv6, host, port = found.groups() if found else ("", "", "0")
    is_number = bool(ipv6) or host.replace(".", "").isdigit()
    if 1 <= int(port) <= 65535 and (is_ip(ipv6 or host) or not is_number):
        return Address(text, ipv6 or host, int(port), tls=text.startswith("tls:"))
    scheme = "; leave out the scheme" if "://" in text else ""
    forms = "host:port, [IPv6]:port, tls:host:port or unix:PATH"
    raise ValueError(f"{text!r} is no endpoint: write {forms}, with a port from 1 to 65535{scheme}")


def is_ip(host: str) -> bool:
    """Returns true for an address that no look-up is needed for."""
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
