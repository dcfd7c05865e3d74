"""How a server's socket is handed to the embedded engine by the process that starts it.

The starter binds the port, so that nobody else can have it any more, and lets the engine inherit the socket. It is not systemd's
socket activation (sd_listen_fds(3)): that names the engine's own process id in its environment, which a starter only knows when
it is too late to set it.
"""

LISTEN_FD_VARIABLE = "DDTREE_LISTEN_FD"
"""Number of the inherited file descriptor: a TCP socket that is bound to the address of ``--host`` and ``--port``."""
