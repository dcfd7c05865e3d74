"""Why a host cannot be reached over SSH, as errors that say what, why and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .transport import HostUnreachable


@dataclass(frozen=True)
class OfferedKey:
    """A host key as a server showed it."""

    host: str
    """The name under which known_hosts files hold it: ``gpu-a`` or ``[gpu-a]:2222``."""
    algorithm: str
    fingerprint: str
    """``SHA256:…``, as ssh shows it."""
    line: str
    """``ALGORITHM BASE64``, the way it is written into a file."""


class HostKeyUnknown(HostUnreachable):
    """No known_hosts file has a key for this host. Ask the user, then ``trust_host_key`` adds it."""

    def __init__(self, hop: str, key: OfferedKey, file: str, hashed: bool) -> None:
        super().__init__(
            f"the key of {hop} is not known yet: {key.algorithm} {key.fingerprint}. Compare it with the host's own "
            f"(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub there) before you accept it"
        )
        self.hop = hop
        self.key = key
        self.file = file
        """Where an accepted key is added."""
        self.hashed = hashed
        """Whether the name is written as a hash (HashKnownHosts)."""


@dataclass(frozen=True)
class KnownLine:
    """One line of a known_hosts file about a host."""

    file: str
    line: int
    """From 1."""
    fingerprint: str


class HostKeyChanged(HostUnreachable):
    """The host shows another key than the one that is known: it was set up anew, or somebody is in between."""

    def __init__(self, hop: str, key: OfferedKey, known: Sequence[KnownLine]) -> None:
        places = "; ".join(f"{line.fingerprint} ({line.file}, line {line.line})" for line in known)
        super().__init__(
            f"the key of {hop} has changed: it shows {key.algorithm} {key.fingerprint}, known is {places}. Somebody may be "
            f"listening in between. If the host was really set up anew, remove the line (ssh-keygen -R '{key.host}' "
            f"-f {known[0].file}) and connect again"
        )
        self.hop = hop
        self.key = key
        self.known = tuple(known)


class HostKeyRefused(HostUnreachable):
    """A revoked key, or a host certificate that no trusted authority signed."""


class AuthenticationFailed(HostUnreachable):
    """The host takes none of the keys that could be offered."""

    def __init__(self, hop: str, user: str, offered: Sequence[str], withheld: Sequence[str]) -> None:
        tried = f"it refused {', '.join(offered)}" if offered else "there was no key to offer"
        kept = f"; not offered: {'; '.join(withheld)}" if withheld else ""
        super().__init__(
            f"{hop} does not let {user} in: {tried}{kept}. "
            "The console logs in with keys only: put one into the host's authorized_keys (ssh-copy-id) or load yours (ssh-add)"
        )
        self.offered = tuple(offered)
        self.withheld = tuple(withheld)


class LinkDown(HostUnreachable):
    """The connection was lost and is not up again yet."""
