"""Free ports on loopback, the same ones again after a restart."""

from __future__ import annotations

import random
import socket
from collections.abc import Collection

from schemas.errors import PortBusy

HOST = "127.0.0.1"
# Below the range from which systems take the ports of outgoing connections: a client that retries
# against a part that is down cannot end up holding the part's own port.
FIRST, LAST = 20_000, 29_999
TRIES_MAX = 1_000


def is_free(port: int) -> bool:
    """Whether a part could listen there now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def choose(
    part: str, *, asked: int = 0, remembered: int = 0, taken: Collection[int] = frozenset()
) -> int:
    """The port that was asked for or PortBusy; else the remembered one; else any free one."""
    if asked:
        if asked in taken or not is_free(asked):
            raise PortBusy(
                f"port {asked} for the {part} is used by another program: "
                "end that one, or ask for another port (0 lets farpost choose)"
            )
        return asked
    if remembered and remembered not in taken and is_free(remembered):
        return remembered
    for _ in range(TRIES_MAX):
        port = random.randint(FIRST, LAST)  # noqa: S311
        if port not in taken and is_free(port):
            return port
    raise PortBusy(
        f"no free port for the {part} was found between {FIRST} and {LAST}: "
        "end some of the programs that listen there"
    )
