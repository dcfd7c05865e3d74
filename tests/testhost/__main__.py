"""Test hosts by hand.

python -m tests.testhost NAME…                       boot hosts; they go at Ctrl-C or at the end of the input
python -m tests.testhost exec NAME -- COMMAND…       run something inside
python -m tests.testhost cut|heal|hang|resume NAME   disturb one
python -m tests.testhost engine NAME PORT [FLAGS…]   install the embedded engine as ddtree.service and start it
"""

from __future__ import annotations

import contextlib
import subprocess
import sys

from .host import BootError, TestHost


def main(words: list[str]) -> int:
    match words:
        case [] | ["--help" | "-h", *_]:
            print(__doc__)
        case ["exec", name, *command]:
            command = command[1:] if command[:1] == ["--"] else command
            return subprocess.run(["nsenter", "--target", str(TestHost.find(name).leader), "--all", "--", *command]).returncode
        case ["cut" | "heal" | "hang" | "resume" as action, name]:
            getattr(TestHost.find(name), action)()
        case ["engine", name, port, *flags]:
            host = TestHost.find(name)
            host.exec("systemctl", "start", host.install_engine(*flags, port=int(port)))
        case names:
            serve(names)
    return 0


def serve(names: list[str]) -> None:
    with contextlib.ExitStack() as hosts, contextlib.suppress(KeyboardInterrupt):
        for name in names:
            host = hosts.enter_context(TestHost.boot(name))
            print(f"{name}: ssh -i {host.key} -p {host.port} root@127.0.0.1", flush=True)
            print(f"  known_hosts: {host.known_hosts_line()}", end="", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BootError as error:
        sys.exit(f"error: {error}")
