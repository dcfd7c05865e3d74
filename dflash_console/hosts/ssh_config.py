"""What ``ssh`` itself would use for a destination: its own reading of every configuration file, through ``ssh -G``.

So aliases, Include, Match (``exec`` too), tokens, CanonicalizeHostname and /etc/ssh/ssh_config mean here what they mean to
``ssh``. What the console cannot honour is named in :attr:`HostSettings.ignored`, never passed over in silence.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..evidence.values import whole
from .ssh_destination import Destination, parse_destination
from .transport import HostError

RESOLVE_TIMEOUT_S = 15.0
"""``Match exec`` runs commands of the user's, which may be slow."""
DEFAULT_CONNECT_TIMEOUT_S = 10.0


class BadSshConfig(HostError):
    """ssh cannot read its configuration."""


@dataclass(frozen=True)
class HostSettings:
    """One hop, resolved."""

    asked: Destination
    host: str
    port: int
    user: str
    identity_files: tuple[Path, ...] = ()
    identities_chosen: bool = False
    """Whether IdentityFile was set; otherwise the files are ssh's defaults, of which most do not exist."""
    certificate_files: tuple[Path, ...] = ()
    identities_only: bool = False
    agent: str | None = None
    """The agent's socket; ``None`` = no agent."""
    jumps: tuple[Destination, ...] = ()
    """Hosts to go through, first one first."""
    proxy_command: str | None = None
    known_hosts: tuple[Path, ...] = ()
    """The user's files, then the system's; an accepted key is added to the first."""
    hash_known_hosts: bool = False
    host_key_alias: str | None = None
    connect_timeout_s: float = DEFAULT_CONNECT_TIMEOUT_S
    family: str = "any"
    bind_address: str | None = None
    algorithms: Mapping[str, tuple[str, ...]] | None = None
    """``ciphers``, ``macs``, ``kexalgorithms``, ``hostkeyalgorithms`` → names, preferred first; ``None`` = the library's own."""
    ignored: tuple[str, ...] = ()
    """What the configuration asks for and the console does not do, one sentence each."""

    @property
    def known_name(self) -> str:
        """The host's name in known_hosts files."""
        if self.host_key_alias:
            return self.host_key_alias
        return self.host if self.port == 22 else f"[{self.host}]:{self.port}"

    @property
    def label(self) -> str:
        """How messages call it: what was asked, and where that is when it is something else."""
        return self.asked.host if self.asked.host == self.host else f"{self.asked.host} ({self.host})"


async def resolve(destination: Destination) -> HostSettings:
    """What ``ssh`` would use. Runs ``ssh -G``, which opens no connection.

    Raises:
        BadSshConfig: the configuration has an error; ssh's own words say where.
    """
    home = _home()
    command = ["ssh", *_config_option(home), "-G"]
    if destination.user is not None:
        command += ["-l", destination.user]
    if destination.port is not None:
        command += ["-p", str(destination.port)]
    try:
        process = await asyncio.create_subprocess_exec(
            *command, "--", destination.host,
            stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
    except FileNotFoundError:
        return _without_ssh(destination, home)
    except OSError as error:
        raise BadSshConfig(f"ssh cannot be run to read its configuration: {error.strerror}") from None
    try:
        async with asyncio.timeout(RESOLVE_TIMEOUT_S):
            out, err = await process.communicate()
    except BaseException as error:
        process.kill()
        await process.wait()
        if isinstance(error, TimeoutError):
            raise BadSshConfig(f"ssh -G {destination.host} did not end within {RESOLVE_TIMEOUT_S:g} s: does a Match exec in "
                               "~/.ssh/config hang?") from None  # fmt: skip
        raise
    if process.returncode:
        said = "; ".join(line for line in err.decode(errors="replace").split("\n") if line.strip())
        raise BadSshConfig(f"ssh cannot use its configuration for {destination}: {said.strip()}")
    return read_settings(destination, out.decode(errors="surrogateescape"), home)


def read_settings(destination: Destination, text: str, home: Path) -> HostSettings:
    """Read what ``ssh -G`` printed: one setting a line, the key in lower case.

    Raises:
        BadSshConfig: a ProxyJump that names no host.
    """
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key.lower(), []).append(value.strip())

    def one(key: str, default: str = "") -> str:
        value = found.get(key, [default])[0]
        return default if value.lower() == "none" else value

    def on(key: str) -> bool:
        return one(key) in ("yes", "true")

    user, port = one("user") or _user(), int(one("port", "22"))
    host = one("hostname", destination.host)
    timeout = one("connecttimeout")
    files = [name for name in found.get("identityfile", []) if name.lower() != "none"]
    tokens = {
        "%": "%",
        "h": host,
        "p": str(port),
        "r": user,
        "n": destination.host,
        "u": _user(),
        "d": str(home),
        "i": str(os.getuid()),
    }
    return HostSettings(
        asked=destination,
        host=host,
        port=port,
        user=user,
        identity_files=tuple(_path(name, home, tokens) for name in files),
        identities_chosen=not set(files) <= _DEFAULT_IDENTITIES,
        certificate_files=tuple(_path(name, home, tokens) for name in found.get("certificatefile", [])),
        identities_only=on("identitiesonly"),
        agent=_agent(found.get("identityagent", ["SSH_AUTH_SOCK"])[0], home, tokens),
        jumps=_jumps(one("proxyjump")),
        proxy_command=_expand(one("proxycommand"), tokens) or None,
        known_hosts=tuple(
            _path(name, home, tokens)
            for key in ("userknownhostsfile", "globalknownhostsfile")
            for name in shlex.split(one(key))
            if name.lower() != "none"
        ),
        hash_known_hosts=on("hashknownhosts"),
        host_key_alias=one("hostkeyalias") or None,
        connect_timeout_s=float(seconds) if (seconds := whole(timeout)) else DEFAULT_CONNECT_TIMEOUT_S,
        family=one("addressfamily", "any"),
        bind_address=one("bindaddress") or None,
        algorithms={key: tuple(one(key).split(",")) for key in _ALGORITHMS if one(key)},
        ignored=tuple(_ignored(found)),
    )


_ALGORITHMS = ("ciphers", "macs", "kexalgorithms", "hostkeyalgorithms")
_DEFAULT_IDENTITIES = frozenset(
    f"~/.ssh/id_{kind}" for kind in ("rsa", "ecdsa", "ecdsa_sk", "ed25519", "ed25519_sk", "xmss", "dsa", "mldsa44-ed25519")
)
_UNSUPPORTED = {
    "pkcs11provider": (("none",), "keys on PKCS#11 tokens are offered only through an agent"),
    "gssapiauthentication": (("no",), "the console logs in with keys only"),
    "hostbasedauthentication": (("no", "false"), "the console logs in with keys only"),
    "knownhostscommand": (("none",), "only known_hosts files are read"),
    "revokedhostkeys": (("none",), "only @revoked lines of known_hosts files are read"),
    "verifyhostkeydns": (("no", "false"), "only known_hosts files are read"),
    "proxyusefdpass": (("no",), "the proxy command must pass bytes itself"),
    "bindinterface": (("none",), "use BindAddress"),
    "stricthostkeychecking": (("ask", "yes", "true"), "an unknown key is always asked about and a changed one always refused"),
    "nohostauthenticationforlocalhost": (("no",), "host keys are always checked"),
    "permitlocalcommand": (("no",), "local commands are not run"),
}
"""Setting → the values with which nothing is lost, and what the console does instead."""


def _ignored(found: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for key, (harmless, instead) in _UNSUPPORTED.items():
        value = found.get(key, [harmless[0]])[0]
        if value.lower() not in harmless:
            yield f"{key} {value} of your SSH configuration is not honoured: {instead}"


def _jumps(value: str) -> tuple[Destination, ...]:
    try:
        return tuple(parse_destination(part) for part in value.split(",")) if value else ()
    except HostError as error:
        raise BadSshConfig(f"ProxyJump {value}: {error}") from None


def _agent(value: str, home: Path, tokens: Mapping[str, str]) -> str | None:
    if value.lower() == "none":
        return None
    if value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if value.startswith("$"):
        return os.environ.get(value[1:].strip("{}")) or None
    return str(_path(value, home, tokens))


def _expand(value: str, tokens: Mapping[str, str]) -> str:
    out, rest = "", value
    while "%" in rest:
        before, _, rest = rest.partition("%")
        out += before + tokens.get(rest[:1], f"%{rest[:1]}")
        rest = rest[1:]
    return out + rest


def _path(name: str, home: Path, tokens: Mapping[str, str]) -> Path:
    name = os.path.expandvars(_expand(name, tokens))
    if name.startswith("~/"):
        return home / name[2:]
    # ssh takes the home folder of the user database; where HOME names another, its .ssh is the one that is meant.
    try:
        official = pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        official = str(home)
    if name.startswith(f"{official}/.ssh/"):
        return home / name[len(official) + 1 :]
    return Path(name)


def _home() -> Path:
    return Path(os.environ.get("HOME") or os.path.expanduser("~"))


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return os.environ.get("USER", str(os.getuid()))


def _config_option(home: Path) -> list[str]:
    """``-F`` where HOME is not the home folder that ssh would take; then the system's file is left out, as ssh does with -F."""
    try:
        official = Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        official = home
    if home == official:
        return []
    config = home / ".ssh/config"
    return ["-F", str(config) if config.is_file() else "none"]


def _without_ssh(destination: Destination, home: Path) -> HostSettings:
    ignored: tuple[str, ...] = ()
    if (home / ".ssh/config").exists():
        ignored = ("the program ssh is not installed here, so ~/.ssh/config is not read: install OpenSSH's client",)
    return HostSettings(
        asked=destination,
        host=destination.host,
        port=destination.port or 22,
        user=destination.user or _user(),
        identity_files=tuple(home / ".ssh" / f"id_{kind}" for kind in ("ed25519", "ecdsa", "rsa")),
        agent=os.environ.get("SSH_AUTH_SOCK") or None,
        known_hosts=(home / ".ssh/known_hosts", Path("/etc/ssh/ssh_known_hosts")),
        ignored=ignored,
    )
