"""One remote command as the text that any login shell passes on unread, and the way back from its output.

The login shell may be bash, zsh, fish or csh, and its start files may print. It is given one plain line, which hands a script
in base64 to ``/bin/sh``. The script answers between random marks, so that whatever was printed before is told apart; runs the
command in a process group of its own; and ends that group when its own standard input ends. The standard input ends when the
console asks for it, when the connection is closed and when the SSH server goes; and for the case that the network dies
without a word, the script has a deadline (commands) or wants a sign of life now and then (streams).
"""

from __future__ import annotations

import base64
import secrets
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from .transport import HostError

MAX_SCRIPT = 90_000
"""Bytes. Linux takes no single argument over 128 KiB (MAX_ARG_STRLEN), and base64 adds a third."""
KILL_AFTER_S = 2
"""Between the signal that asks a command to end and the one that ends it."""
ASK_AGAIN_S = 0.1
"""Between two signals to a command that has no session yet."""
HEARTBEAT_S = 10.0
SILENCE_S = 45
"""A stream without a sign of life for so long ends itself, on the host."""
GRACE_S = 10
"""How long after its deadline a command ends itself, when the console could not end it."""


def quote(argv: Sequence[str]) -> bytes:
    """An argument list as words of the remote ``/bin/sh``: the one place where quoting for a host happens.

    Raises:
        HostError: no words, or a NUL character, which no argument can hold.
    """
    if not argv:
        raise HostError("an empty command cannot be run")
    if any("\0" in word for word in argv):
        raise HostError(f"{argv[0]!r} has an argument with a NUL character, which no command line can hold")
    # Names of files may be no valid UTF-8; Python holds such bytes as surrogates.
    return " ".join(shlex.quote(word) for word in argv).encode("utf-8", "surrogateescape")


def login_line(script: bytes) -> str:
    """What is sent to the login shell. bash, dash, zsh, fish, csh and tcsh read it alike: inside single quotes there is no
    character that is special to any of them.

    Raises:
        HostError: the script is longer than a command line may be.
    """
    if len(script) > MAX_SCRIPT:
        raise HostError(f"a command of {len(script)} bytes is too long to be sent; pass the data on standard input instead")
    return f"exec /bin/sh -c 'eval \"$(printf %s {base64.b64encode(script).decode()}|base64 -d)\"'"


def new_mark() -> str:
    return f"ddtree-{secrets.token_hex(16)}"


# A command that is to end before it has its own session has no group yet: then the process itself gets the signal, and gets it
# again while it lives without a group. One time may not do: dash's children inherit the handlers of its traps, and what arrives
# before they have put the defaults back is taken and forgotten.
_HEAD = """\
LC_ALL=C.UTF-8 LANGUAGE=
PATH=$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
export LC_ALL LANGUAGE PATH
exec 3<&0
end() {{
{{ until kill -TERM -$p; do kill -TERM $p || exit; sleep {ask_again}; done
sleep {kill_after}; kill -KILL -$p; }} >/dev/null 3<&- 4>&- &
}} 2>/dev/null
trap end TERM HUP
printf '\\n%s\\n' {mark}
printf '\\n%s\\n' {mark} >&2
exec 4>&2
"""
# A command without input: its own end of the input is closed, the watcher holds the channel's. The watcher outlives the command
# by the moment until the channel is closed; then it finds nothing to end. It holds none of the outputs, so it delays nothing.
_PLAIN = """\
setsid {command} </dev/null {errors}3<&- 4>&- &
p=$!
{{ {alive}; kill -0 $p && end; }} >/dev/null 2>&1 4>&- &
"""
# With input, the watcher may only begin when the last byte of it was passed on, or it would take some. So it comes from what
# feeds the command, inside the command's session, whose leader's number all know: $$. (No signals between the shells: dash
# and bash both lose a status now and then when one interrupts wait.)
_FEEDING = """\
{{ exec 2>/dev/null
timeout {deadline} head -c {size} <&3
{{ exec >/dev/null; timeout {deadline} cat <&3; kill -0 $$ || exit
trap "" TERM; kill -TERM -$$; sleep {kill_after}; kill -KILL -$$; }} &
}} | nice -n 0 -- "$@" 3<&-
"""
_FED = "setsid /bin/sh -c {feeding} sh {command} 4>&- &\np=$!\n"
_TAIL = """\
exec 2>/dev/null
wait $p; s=$?
while kill -0 $p; do wait $p; s=$?; done
"""
_ANSWER = "printf '\\n%s %s\\n' {mark} $s\nprintf '\\n%s %s\\n' {mark} $s >&4\n"
_EXIT = "exit $s\n"
_STARTERS = (b"setsid: failed to execute", b"nice: ")


def not_started(status: int, stderr: bytes) -> str | None:
    """Why a command could not be started, as the host's programs say it; ``None`` when it was."""
    if status in (126, 127) and stderr.startswith(_STARTERS):
        return stderr.decode("utf-8", "replace").strip().rpartition(": ")[2]
    return None


def command_script(argv: Sequence[str], mark: str, *, stdin_size: int, timeout: float) -> bytes:
    """The script that runs a command to its end. Its input is ``stdin_size`` bytes and stays open after them.

    Raises:
        HostError: as :func:`quote`.
    """
    deadline = int(timeout) + GRACE_S
    head = _HEAD.format(mark=mark, kill_after=KILL_AFTER_S, ask_again=ASK_AGAIN_S)
    if stdin_size:
        feeding = _FEEDING.format(deadline=deadline, size=stdin_size, kill_after=KILL_AFTER_S)
        body = _FED.format(feeding=shlex.quote(feeding), command="{command}")
    else:
        body = _PLAIN.format(alive=f"timeout {deadline} cat <&3", command="{command}", errors="")
    return _with_command(head + body + _TAIL + _ANSWER.format(mark=mark) + _EXIT, argv)


def stream_script(argv: Sequence[str], mark: str) -> bytes:
    """The script that runs a command whose output is read as it comes; it wants a byte of input every :data:`HEARTBEAT_S`.

    Raises:
        HostError: as :func:`quote`.
    """
    alive = f'while [ -n "$(timeout {SILENCE_S} head -c 1 <&3)" ]; do :; done'
    body = _PLAIN.format(alive=alive, command="{command}", errors="2>/dev/null ")
    head = _HEAD.format(mark=mark, kill_after=KILL_AFTER_S, ask_again=ASK_AGAIN_S)
    return _with_command(head + body + _TAIL + _EXIT, argv)


def _with_command(script: str, argv: Sequence[str]) -> bytes:
    before, _, after = script.partition("{command}")
    return before.encode() + quote(argv) + after.encode()


@dataclass
class Answer:
    """One output of a command, cut out of what the channel brings: from the first mark to the second."""

    mark: str
    _bytes: bytearray = field(default_factory=bytearray)
    _begin: int | None = None
    _searched: int = 0
    _end: int | None = None
    status: int | None = None
    """From the second mark; ``None`` while it has not come."""

    def feed(self, data: bytes) -> None:
        if self.status is not None:
            return
        self._bytes += data
        if self._begin is None:
            first = f"\n{self.mark}\n".encode()
            at = self._bytes.find(first)
            if at < 0:
                return
            self._begin = self._searched = at + len(first)
        last = f"\n{self.mark} ".encode()
        at = self._bytes.find(last, max(self._begin, self._searched - len(last)))
        self._searched = len(self._bytes)
        if at < 0:
            return
        end = self._bytes.find(b"\n", at + len(last))
        if end < 0:
            self._searched = at
            return
        self.status = int(self._bytes[at + len(last) : end])
        self._end = at

    @property
    def begun(self) -> bool:
        return self._begin is not None

    @property
    def noise(self) -> bytes:
        """What stood before the answer, or everything while none has begun."""
        return bytes(self._bytes[: self._begin] if self._begin is None else self._bytes[: self._begin - len(self.mark) - 2])

    @property
    def data(self) -> bytes:
        """The command's own bytes, so far."""
        return b"" if self._begin is None else bytes(self._bytes[self._begin : self._end])
