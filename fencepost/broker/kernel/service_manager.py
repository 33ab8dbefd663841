"""Messages to the service manager that started the process: systemd's protocol for units with `Type=notify`.

Source: sd_notify(3). A message is one datagram to the Unix socket that NOTIFY_SOCKET names; a name that begins with @
is in Linux's abstract namespace.
"""

from __future__ import annotations

import os
import socket

from fencepost.broker.kernel.events import get_logger

log = get_logger(__name__)

READY = b"READY=1"
STOPPING = b"STOPPING=1"


def notify(state: bytes) -> None:
    """Send a state to the service manager, if there is one. A failure is logged; the broker continues without it."""
    name = os.environ.get("NOTIFY_SOCKET")
    if not name:
        return
    address = "\0" + name[1:] if name.startswith("@") else name
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as channel:
            channel.setblocking(False)
            channel.sendto(state, address)
    except OSError as error:
        log.warning("service_manager_not_notified", reason=str(error), socket=name)
