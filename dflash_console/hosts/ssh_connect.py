"""Opening a connection, hop by hop, with the host key of every hop checked and every failure in words."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import subprocess
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import asyncssh
from asyncssh.encryption import get_encryption_algs
from asyncssh.kex import get_kex_algs
from asyncssh.mac import get_mac_algs
from asyncssh.public_key import get_certificate_algs, get_public_key_algs

from .ssh_config import BadSshConfig, HostSettings, resolve
from .ssh_destination import Destination
from .ssh_errors import AuthenticationFailed, HostKeyChanged, HostKeyRefused, HostKeyUnknown, OfferedKey
from .ssh_keys import Identities, collect_identities
from .ssh_known_hosts import KnownKeys, find_known_keys
from .transport import HostUnreachable

KEEPALIVE_S = 8.0
KEEPALIVE_MAX = 2
"""asyncssh gives up when the count exceeds the maximum: a dead link is noticed after 24 s."""
LOGIN_TIMEOUT_S = 20.0
TOUCH_TIMEOUT_S = 60.0
"""When a security key is among those offered and somebody has to walk up to it."""
PROXY_END_S = 1.0
"""A ProxyCommand is killed when its connection ends, so this is never needed in full."""
MAX_HOPS = 8


@dataclass
class Connection:
    """An open way to a host: the last connection, and the jump hosts' that carry it."""

    ssh: asyncssh.SSHClientConnection
    settings: HostSettings
    carriers: tuple[asyncssh.SSHClientConnection, ...] = ()
    ignored: tuple[str, ...] = ()
    """What the configuration asks for and the console does not do."""
    client: _Client | None = None

    @property
    def lost_because(self) -> str:
        """Why the connection ended, in the words of whoever ended it; empty while it is open or when nobody said."""
        return self.client.lost_because if self.client is not None else ""

    async def close(self) -> None:
        """Close all hops. A dead link does not hold this up."""
        proxies = _proxies(self.ssh, *self.carriers)
        for hop in (self.ssh, *reversed(self.carriers)):
            hop.close()
        for hop in (self.ssh, *reversed(self.carriers)):
            try:
                async with asyncio.timeout(1.0):
                    await hop.wait_closed()
            except TimeoutError:
                hop.abort()
        await _ended(proxies)


async def open_connection(destination: Destination) -> Connection:
    """Connect to a host, through its jump hosts where its configuration has any.

    Raises:
        HostKeyUnknown: ask the user, add the key, try again.
        HostKeyChanged, HostKeyRefused, AuthenticationFailed: nothing that trying again would mend.
        HostUnreachable: no name, no answer, refused, no common algorithm; the message names the hop.
        BadSshConfig: the configuration cannot be used.
    """
    carriers: list[asyncssh.SSHClientConnection] = []
    ignored: list[str] = []
    try:
        ssh, settings, client = await _reach(destination, None, carriers, ignored, MAX_HOPS)
    except BaseException:
        proxies = _proxies(*carriers)
        for carrier in reversed(carriers):
            carrier.abort()
        await _ended(proxies)
        raise
    return Connection(ssh, settings, tuple(carriers), tuple(dict.fromkeys(ignored)), client)


async def _reach(
    destination: Destination,
    jumps: Sequence[Destination] | None,
    carriers: list[asyncssh.SSHClientConnection],
    ignored: list[str],
    left: int,
) -> tuple[asyncssh.SSHClientConnection, HostSettings, _Client]:
    """``jumps``: hops that were named for this one; ``None`` = those of its own configuration."""
    if left <= 0:
        raise BadSshConfig(f"the way to {destination} has more than {MAX_HOPS} jump hosts: does ProxyJump go in a circle?")
    settings = await resolve(destination)
    ignored += settings.ignored
    way = settings.jumps if jumps is None else tuple(jumps)
    if not way:
        ssh, client = await _connect(settings, None, None)
        return ssh, settings, client
    # The last one named carries this connection; it is reached through those before it, or as its own configuration says.
    carrier, through, _ = await _reach(way[-1], way[:-1] or None, carriers, ignored, left - 1)
    carriers.append(carrier)
    ssh, client = await _connect(settings, carrier, through)
    return ssh, settings, client


async def _connect(
    settings: HostSettings, carrier: asyncssh.SSHClientConnection | None, through: HostSettings | None
) -> tuple[asyncssh.SSHClientConnection, _Client]:
    known = await asyncio.to_thread(find_known_keys, settings.known_hosts, settings.known_name)
    identities = await collect_identities(settings)
    client = _Client(known)
    hop = f"{settings.label}, reached through {through.label}," if through is not None else settings.label
    try:
        ssh = await asyncssh.connect(
            settings.host,
            settings.port,
            tunnel=carrier or (),
            proxy_command=["/bin/sh", "-c", f"exec {settings.proxy_command}"] if settings.proxy_command and not carrier else (),
            config=None,
            client_factory=lambda: client,
            username=settings.user,
            client_keys=identities.pairs or None,
            agent_path=None,
            known_hosts=lambda host, address, port: (known.trusted, known.authorities, known.revoked),
            host_key_alias=settings.host_key_alias,
            preferred_auth=["publickey"],
            password_auth=False,
            kbdint_auth=False,
            gss_auth=False,
            gss_kex=False,
            host_based_auth=False,
            x509_trusted_certs=None,
            family=_FAMILIES.get(settings.family, socket.AF_UNSPEC),
            local_addr=(settings.bind_address, 0) if settings.bind_address else (),
            connect_timeout=settings.connect_timeout_s,
            login_timeout=TOUCH_TIMEOUT_S if identities.touch else LOGIN_TIMEOUT_S,
            keepalive_interval=KEEPALIVE_S,
            keepalive_count_max=KEEPALIVE_MAX,
            **_algorithms(settings, known),
        )
        return ssh, client
    except (OSError, asyncssh.Error, ValueError) as error:
        if not carrier:
            await _ended(client.proxies)
        # Chained to nothing: the library's message says the same in the protocol's words.
        raise _in_words(error, settings, hop, through, client, identities) from None
    finally:
        identities.close()


def _proxies(*hops: asyncssh.SSHClientConnection) -> set[subprocess.Popen[bytes]]:
    """The processes of the ProxyCommands that carry these hops; a hop inside another names the other's."""
    return {process for hop in hops if (process := hop.get_extra_info("subprocess")) is not None}


async def _ended(processes: Collection[subprocess.Popen[bytes]]) -> None:
    """Wait until the event loop has seen the end of ProxyCommands, which the library kills and forgets; one that is closed
    before never does, and Python calls them still running."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(PROXY_END_S):
            # Only asyncio itself may ask how a process of its own ended, and it tells nobody but the library.
            while any(process.returncode is None for process in processes):  # noqa: ASYNC110
                await asyncio.sleep(0.005)


class _Client(asyncssh.SSHClient):
    """Remembers the host key that was refused, to tell a changed one from an unknown one."""

    def __init__(self, known: KnownKeys) -> None:
        self._known = known
        self.refused: asyncssh.SSHKey | None = None
        self.authority: asyncssh.SSHKey | None = None
        self.login_began = False
        self.lost_because = ""
        self.proxies: set[subprocess.Popen[bytes]] = set()

    def connection_made(self, conn: asyncssh.SSHClientConnection) -> None:
        self.proxies = _proxies(conn)

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            silent = "keepalive" in str(exc)
            self.lost_because = f"the host has not answered for {KEEPALIVE_S * (KEEPALIVE_MAX + 1):g} s" if silent else str(exc)

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.refused = key
        return False

    def validate_host_ca_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        self.authority = key
        return False

    def public_key_auth_requested(self) -> None:
        self.login_began = True


_FAMILIES = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}


def _algorithms(settings: HostSettings, known: KnownKeys) -> dict[str, list[str]]:
    """What the configuration allows and the library can do; host keys of the kinds that are known come first, so that a
    host with several keys shows the one that can be compared.

    Raises:
        ValueError: nothing is left of a list.
    """
    wanted = settings.algorithms or {}
    able = {
        "kexalgorithms": ("kex_algs", get_kex_algs()),
        "ciphers": ("encryption_algs", get_encryption_algs()),
        "macs": ("mac_algs", get_mac_algs()),
        "hostkeyalgorithms": ("server_host_key_algs", get_public_key_algs() + get_certificate_algs()),
    }
    chosen: dict[str, list[str]] = {}
    for key, names in wanted.items():
        option, possible = able[key]
        chosen[option] = [name for name in names if name.encode() in possible]
        if not chosen[option]:
            raise ValueError(f"none of {key} {','.join(names)} is supported here")
    hosts = chosen.get("server_host_key_algs") or [name.decode() for name in get_public_key_algs()]
    if not known.authorities:
        hosts = [name for name in hosts if "-cert-" not in name]
    familiar = {name.decode() for key in known.trusted for name in key.sig_algorithms}
    chosen["server_host_key_algs"] = sorted(hosts, key=lambda name: "-cert-" not in name and name not in familiar)
    return chosen


def _in_words(
    error: Exception,
    settings: HostSettings,
    hop: str,
    through: HostSettings | None,
    client: _Client,
    identities: Identities,
) -> HostUnreachable:
    place = f"{hop} port {settings.port}"
    match error:
        case asyncssh.HostKeyNotVerifiable():
            return _key_problem(error, settings, hop, client)
        case asyncssh.PermissionDenied():
            return AuthenticationFailed(hop, settings.user, identities.offered, identities.withheld)
        case asyncssh.ChannelOpenError() if through is not None:
            reason = error.reason.strip() or "it does not say why"
            return HostUnreachable(f"the jump host {through.label} cannot reach {settings.host} port {settings.port}: {reason}")
        case socket.gaierror():
            return HostUnreachable(f"there is no host called {settings.host} ({error.strerror}): check the name, or the network")
        case TimeoutError():
            return _timed_out(place, settings, client, identities)
        case ConnectionRefusedError():
            return HostUnreachable(f"{place} refuses the connection: no SSH server listens there")
        case asyncssh.ConnectionLost() | ConnectionResetError() | BrokenPipeError():
            if settings.proxy_command:
                return HostUnreachable(f"{place} cannot be reached: its ProxyCommand ended ({settings.proxy_command})")
            return HostUnreachable(f"{place} closed the connection before the login: is it an SSH server, and has it room?")
        case asyncssh.KeyExchangeFailed():
            return HostUnreachable(f"{place} and the console have no algorithm in common: {error.reason}")
        case OSError():
            detail = _NETWORK.get(error.errno or 0, error.strerror or str(error))
            return HostUnreachable(f"{place} cannot be reached: {detail}")
        case asyncssh.DisconnectError():
            if "imeout" in error.reason or "imed out" in error.reason:
                return _timed_out(place, settings, client, identities)
            if "oo many" in error.reason:
                return AuthenticationFailed(hop, settings.user, identities.offered, identities.withheld)
            return HostUnreachable(f"{place} ended the connection: {error.reason}")
    return HostUnreachable(f"{place} cannot be reached: {error}")


def _timed_out(place: str, settings: HostSettings, client: _Client, identities: Identities) -> HostUnreachable:
    if client.login_began:
        advice = "a security key may have waited to be touched" if identities.touch else "the host may be overloaded"
        return HostUnreachable(f"{place} did not finish the login in time: {advice}")
    return HostUnreachable(f"{place} did not answer within {settings.connect_timeout_s:g} s: is it up, and is the way open?")


_NETWORK = {
    errno.EHOSTUNREACH: "there is no route to it",
    errno.ENETUNREACH: "the network is unreachable",
    errno.ETIMEDOUT: "it does not answer",
}


def _key_problem(error: Exception, settings: HostSettings, hop: str, client: _Client) -> HostUnreachable:
    key = client.refused
    if key is None:
        return HostKeyRefused(f"the key of {hop} is refused: {error}")
    offered = OfferedKey(
        settings.known_name,
        key.get_algorithm(),
        key.get_fingerprint(),
        " ".join(key.export_public_key().decode().split()[:2]),
    )
    if client._known.lines:
        return HostKeyChanged(hop, offered, client._known.lines)
    file = settings.known_hosts[0] if settings.known_hosts else Path.home() / ".ssh/known_hosts"
    return HostKeyUnknown(hop, offered, str(file), settings.hash_known_hosts)
