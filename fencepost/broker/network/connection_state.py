"""State machine of a connection: one table. Pure. `connection.py` carries out the state at the end of each step.

A connection reads, and starts requests, in RUNNING only. Each reason to stop for a while is a `Hold`, and BLOCKED is
the state while there is one. Code that delays requests adds a hold, and does nothing else.
Each cause that ends a connection is a row. A client that fails to authenticate gets its last reply by DRAIN: see
`authentication.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum, IntEnum
from typing import Final


class ConnectionState(IntEnum):
    """The activity of a connection."""

    RUNNING = 0  # reads, starts requests, sends replies
    BLOCKED = 1  # sends replies
    DRAINING = 2  # sends replies, until no request is in flight
    CLOSING = 3  # sends the replies that are ready
    CLOSED = 4  # nothing: the transport is closed, or about to be


class Hold(Enum):
    """Reasons that stop reading, and the start of requests, for a while."""

    __hash__ = object.__hash__  # Enum's hash is a Python function

    REPLIES = "unsent replies, or their number, have reached a bound"
    QUOTA = "the client has used more than its quota"
    REQUEST = "a request must not be overtaken"
    MEMORY = "there is no memory for the arriving request"
    TURN = "other connections have their turn"


class ConnectionEvent(Enum):
    """Events of a connection."""

    __hash__ = object.__hash__

    HELD = "there is a hold"
    RELEASED = "there is no hold any more"
    DRAIN = "the broker stops"
    ANSWERED = "no request is in flight"
    OVERDUE = "the client has not authenticated in time"
    CLOSE = "a request cannot be answered, or the broker is done with the client"
    SENT = "no reply that is ready is unsent"
    ABORT = "the transport is gone, or has to go at once"


# Python 3.11 takes ten times as long to look up a member in its enum class as in this module.
RUNNING: Final = ConnectionState.RUNNING
BLOCKED: Final = ConnectionState.BLOCKED
DRAINING: Final = ConnectionState.DRAINING
CLOSING: Final = ConnectionState.CLOSING
CLOSED: Final = ConnectionState.CLOSED
REPLIES: Final = Hold.REPLIES

# fmt: off
TABLE: Final[Mapping[ConnectionEvent, Sequence[ConnectionState]]] = {
    #                          RUNNING   BLOCKED   DRAINING  CLOSING  CLOSED
    ConnectionEvent.HELD:     (BLOCKED,  BLOCKED,  DRAINING, CLOSING, CLOSED),
    ConnectionEvent.RELEASED: (RUNNING,  RUNNING,  DRAINING, CLOSING, CLOSED),
    ConnectionEvent.DRAIN:    (DRAINING, DRAINING, DRAINING, CLOSING, CLOSED),
    ConnectionEvent.ANSWERED: (RUNNING,  BLOCKED,  CLOSING,  CLOSING, CLOSED),
    ConnectionEvent.OVERDUE:  (CLOSING,  CLOSING,  CLOSING,  CLOSING, CLOSED),
    ConnectionEvent.CLOSE:    (CLOSING,  CLOSING,  CLOSING,  CLOSING, CLOSED),
    ConnectionEvent.SENT:     (RUNNING,  BLOCKED,  DRAINING, CLOSED,  CLOSED),
    ConnectionEvent.ABORT:    (CLOSED,   CLOSED,   CLOSED,   CLOSED,  CLOSED),
}
# fmt: on
