"""What a user types to name a host, read as ``ssh`` reads it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from .transport import HostError

MAX_PORT = 65_535


class BadDestination(HostError):
    """The words name no host that could be reached over SSH."""


@dataclass(frozen=True)
class Destination:
    """A host, or an alias of ``~/.ssh/config``, with what was said about it."""

    host: str
    user: str | None = None
    port: int | None = None

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host and self.port is not None else self.host
        return f"{f'{self.user}@' if self.user else ''}{host}{f':{self.port}' if self.port is not None else ''}"


def parse_destination(text: str) -> Destination:
    """Read ``[user@]host[:port]``, ``[user@][IPv6][:port]`` or ``ssh://[user@]host[:port]``.

    A user name may hold ``@`` (the last one separates), as with ``ssh``.

    Raises:
        BadDestination: no host in it, a port that is none, or characters that no host name has.
    """
    said = text.strip()
    if said.startswith("ssh://"):
        return _from_url(said)
    if "://" in said:
        raise BadDestination(f"{text!r} is no SSH destination: write user@host, user@host:port or ssh://user@host:port")
    user, at, rest = said.rpartition("@")
    if at and not user:
        raise BadDestination(f"{text!r} has no user before the @")
    host, port = rest, None
    if bracketed := re.fullmatch(r"\[([^\]]*)\](?::(.*))?", rest):
        host, port = bracketed[1], bracketed[2]
    elif rest.count(":") == 1:
        host, _, port = rest.partition(":")
    return _checked(text, user or None, host, port)


def _from_url(text: str) -> Destination:
    try:
        url = urlsplit(text)
        host, port = url.hostname or "", url.port
    except ValueError:
        raise BadDestination(f"{text!r} is no SSH destination: its port is no number up to {MAX_PORT}") from None
    if url.path.strip("/") or url.query or url.fragment:
        raise BadDestination(f"{text!r} is no SSH destination: nothing can follow the host and its port")
    # Not urlsplit's own host, which is in lower case: aliases of ssh_config are compared as written.
    written = re.search(re.escape(host), url.netloc.rpartition("@")[2], re.IGNORECASE)
    user = unquote(url.netloc.rpartition("@")[0].partition(":")[0])
    return _checked(text, user or None, written[0] if written else host, None if port is None else str(port))


def _checked(text: str, user: str | None, host: str, port: str | None) -> Destination:
    if not host:
        raise BadDestination(f"{text!r} names no host")
    # A leading dash would be read as an option by ssh; white space and control characters are in no host's name.
    for word, what in ((host, "host"), (user or "", "user")):
        if word.startswith("-") or re.search(r"[\s\x00-\x1f\x7f'\"`$\\;&|<>(){}\[\]]", word):
            raise BadDestination(f"{text!r} names no {what} that SSH could reach")
    if port is None:
        return Destination(host, user)
    if not re.fullmatch(r"[0-9]{1,5}", port) or not 1 <= int(port) <= MAX_PORT:
        raise BadDestination(f"{text!r}: the port {port!r} is no number from 1 to {MAX_PORT}")
    return Destination(host, user, int(port))
