"""One web process on a listening socket that the launcher made: `python -m portal.launcher.web FD`.

All web processes accept from the same socket, so one that dies refuses no connection: those that
wait are accepted by the others or by its successor.
"""

from __future__ import annotations

import socket
import sys

import uvicorn

from portal.launcher.patience import PatientProtocol, bound_unread_answers


def main(fd: int) -> None:
    """Serve `portal.asgi` until SIGTERM."""
    config = uvicorn.Config(
        "portal.asgi:application",
        loop="uvloop",
        http=PatientProtocol,
        lifespan="on",
        access_log=False,
        log_level="warning",
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=10,
        proxy_headers=False,  # portal.proxies decides whom to believe
    )
    listener = socket.socket(fileno=fd)
    bound_unread_answers(listener)
    uvicorn.Server(config).run(sockets=[listener])


if __name__ == "__main__":
    main(int(sys.argv[1]))
