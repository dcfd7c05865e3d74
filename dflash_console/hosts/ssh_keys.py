"""The keys to log in with, in ssh's order: those of the agent that are named, the agent's others, then files."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import asyncssh

from .ssh_config import HostSettings

AGENT_TIMEOUT_S = 5.0
MAX_OFFERS = 5
"""sshd hangs up after six attempts (MaxAuthTries), one of which asks which methods there are."""


@dataclass
class Identities:
    """What will be offered, and what will not be and why."""

    pairs: list[asyncssh.SSHKeyPair] = field(default_factory=list)
    offered: list[str] = field(default_factory=list)
    """One word or two for each pair, for messages."""
    withheld: list[str] = field(default_factory=list)
    touch: bool = False
    """A security key is among them: the user may have to touch it."""
    agent: asyncssh.SSHAgentClient | None = None

    def close(self) -> None:
        if self.agent is not None:
            self.agent.close()

    def add(self, pair: asyncssh.SSHKeyPair, said: str) -> None:
        if len(self.pairs) >= MAX_OFFERS:
            self.withheld.append(f"{said} (a host hangs up after too many keys: name one with IdentityFile and IdentitiesOnly)")
            return
        self.pairs.append(pair)
        self.offered.append(said)
        self.touch |= pair.algorithm.startswith(b"sk-")


async def collect_identities(settings: HostSettings) -> Identities:
    """Ask the agent and read the files. Nothing here fails: what cannot be used is named in ``withheld``.

    Close the result when the login is over; keys of an agent sign through its connection.
    """
    found = Identities()
    held = await _ask_agent(settings, found)
    files = await asyncio.to_thread(lambda: [_File.read(path) for path in settings.identity_files])
    named = [file.public for file in files if file.public]
    chosen = [pair for public in named for pair in held if pair.public_data == public]
    others = [] if settings.identities_only else [pair for pair in held if pair not in chosen]
    for pair in [*chosen, *others]:
        found.add(pair, f"{_comment(pair)} {_fingerprint(pair)} (agent)")
    in_agent = {pair.public_data for pair in [*chosen, *others]}
    for file in files:
        if file.public in in_agent:
            continue
        # Most of the default files do not exist; one that was named has to.
        if file.problem and (file.exists or settings.identities_chosen):
            found.withheld.append(f"{file.path} ({file.problem})")
        if file.key is not None:
            for pair in _pairs(file, settings.certificate_files):
                found.add(pair, f"{file.path} {_fingerprint(pair)}{' (certificate)' if pair.has_cert else ''}")
    return found


@dataclass
class _File:
    path: Path
    key: asyncssh.SSHKey | None = None
    public: bytes | None = None
    """The public half, which is readable also where the private one is encrypted."""
    problem: str = ""
    exists: bool = True

    @classmethod
    def read(cls, path: Path) -> _File:
        file = cls(path)
        with contextlib.suppress(OSError, asyncssh.KeyImportError, ValueError):
            file.public = asyncssh.read_public_key(path.with_name(path.name + ".pub")).public_data
        try:
            file.key = asyncssh.read_private_key(path)
            file.public = file.key.public_data
        except FileNotFoundError:
            file.exists, file.problem = False, "there is no such file"
        except OSError as error:
            file.problem = f"cannot be read: {error.strerror}"
        except asyncssh.KeyEncryptionError:
            file.problem = f"cannot be decrypted here: load it into an agent with ssh-add {path}"
        except (asyncssh.KeyImportError, ValueError) as error:
            file._explain(str(error))
        return file

    def _explain(self, said: str) -> None:
        if "assphrase" in said:
            self.problem = f"encrypted, and the agent does not have it: load it with ssh-add {self.path}"
        elif "sk" in said.lower() or (self.public or b"").find(b"sk-") >= 0:
            self.problem = f"a security key is used through an agent: load it with ssh-add {self.path}"
        else:
            # The whole public key may stand where a private one is expected; then the agent is to have the other half.
            with contextlib.suppress(OSError, asyncssh.KeyImportError, ValueError):
                self.public = asyncssh.read_public_key(self.path).public_data
            self.problem = "the agent does not have this key" if self.public else f"no private key: {said}"


async def _ask_agent(settings: HostSettings, found: Identities) -> Sequence[asyncssh.SSHKeyPair]:
    if settings.agent is None:
        found.withheld.append("no SSH agent (SSH_AUTH_SOCK is not set)")
        return []
    try:
        async with asyncio.timeout(AGENT_TIMEOUT_S):
            found.agent = await asyncssh.connect_agent(settings.agent)
            return list(await found.agent.get_keys())
    except TimeoutError:
        found.withheld.append(f"the SSH agent at {settings.agent} does not answer")
    except (OSError, ValueError, asyncssh.Error):
        found.withheld.append(f"no SSH agent answers at {settings.agent}")
    return []


def _pairs(file: _File, certificates: Sequence[Path]) -> list[asyncssh.SSHKeyPair]:
    assert file.key is not None
    beside = file.path.with_name(file.path.name + "-cert.pub")
    readable = []
    for path in (*certificates, beside):
        with contextlib.suppress(OSError, asyncssh.KeyImportError, ValueError):
            readable.append(asyncssh.read_certificate(path))
    return list(asyncssh.load_keypairs([file.key], certlist=readable))


def _comment(pair: asyncssh.SSHKeyPair) -> str:
    comment = pair.get_comment_bytes() or b""
    return comment.decode("utf-8", "replace") or pair.algorithm.decode("ascii", "replace")


def _fingerprint(pair: asyncssh.SSHKeyPair) -> str:
    import base64
    import hashlib

    digest = hashlib.sha256(pair.key_public_data).digest()
    return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")
