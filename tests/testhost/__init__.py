"""Real hosts to test against: systemd, journald and sshd in containers over this machine's own files.

What a test writes::

    async def test_…(testhost: TestHost) -> None:          # one host, shared by the whole run: leave it as you found it
        testhost.exec("systemctl", "is-system-running")

    async def test_…(boot_host: BootHost) -> None:          # as many of its own as it likes, gone when the test ends
        gpu, jump = boot_host("gpu-a"), boot_host("bastion")
        unit = gpu.install_engine(port=free_port())          # the embedded engine as a systemd unit; start it yourself
        gpu.cut(); …; gpu.heal()                             # a dead link: its packets are dropped, it goes on working
        gpu.hang(); …; gpu.resume()                          # a dead host: everything in it is stopped
        gpu.reboot()                                         # shut down and booted again, with what is on its disk

By hand: ``python -m tests.testhost gpu-a bastion`` boots hosts, prints how to reach them and takes them down at Ctrl-C or at
the end of its input; ``python -m tests.testhost exec gpu-a -- systemctl status`` runs something inside (also ``cut``, ``heal``,
``hang``, ``resume``, ``engine``).

Facts: a host sees this machine's files (its Python, ``.venv``, the project, the engine's model cache) through an overlay and
writes to memory, never to them. It shares the loopback network: its ports are this machine's, so give every engine a port of
its own, and nothing outside loopback is touched. The clock is shared too. It needs root and the Debian packages
``systemd-container dbus openssh-server nftables``; tests that ask for a host are skipped without them, and fail where CI runs.
"""

from __future__ import annotations

from ..ports import free_port
from .host import BootError, TestHost, missing_requirements

__all__ = ["BootError", "TestHost", "free_port", "missing_requirements"]
