"""State machine of the authentication of a connection on a SASL listener: one table. Pure.

`Authentication` in `network/authentication.py` names the event, looks up the step, and carries it out.
This table alone decides which requests are served before a client is known, and when its connection ends.
Source: KIP-43, KIP-152, KIP-255, KIP-368; Kafka's SaslServerAuthenticator and KafkaChannel. Kafka 4.4's answer in each
cell was observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple


class AuthenticationState(Enum):
    """The progress of a client's authentication."""

    __hash__ = object.__hash__  # Enum's hash is a Python function

    INITIAL = "nothing has been served"
    HANDSHAKE = "the versions of requests are known; the client has to choose a mechanism"
    TOKENS = "the client sends tokens of its mechanism in SaslAuthenticate requests"
    RAW_TOKENS = "the client sends tokens as frames of their own: SaslHandshake 0"
    OTHER_MECHANISM = "the client has chosen another mechanism to authenticate again, which cannot succeed"
    AUTHENTICATED = "requests are served"
    EXPIRED = "the client has to authenticate again before anything is served"
    ENDED = "the connection is closed, or about to be"


class AuthenticationEvent(Enum):
    """A request of the client, a result of its mechanism, or the end of a time limit."""

    __hash__ = object.__hash__

    API_VERSIONS = "ApiVersions"
    REFUSED_API_VERSIONS = "ApiVersions that is answered with an error, and may be sent again"
    HANDSHAKE = "SaslHandshake 1 or later, of a mechanism that is enabled"
    RAW_HANDSHAKE = "SaslHandshake 0, of a mechanism that is enabled"
    UNKNOWN_MECHANISM = "SaslHandshake of a mechanism that is not enabled"
    OTHER_MECHANISM = "SaslHandshake of another mechanism than the connection was authenticated by"
    UNWANTED_HANDSHAKE = "SaslHandshake in a session without an end, or within a second of the last in a session"
    TOKEN = "SaslAuthenticate; where tokens are raw, any frame"
    REQUEST = "any other request"
    CHALLENGED = "the mechanism needs another token"
    IDENTIFIED = "the mechanism knows the client"
    REFUSED = "the mechanism refuses the client"
    OTHER_PRINCIPAL = "the mechanism knows the client, who was somebody different before"
    EXPIRY = "the time of the session is over"
    OVERDUE = "the time for the authentication is over"


class Reply(Enum):
    """The response to the event. Later: after the delay of failures."""

    __hash__ = object.__hash__

    SERVE = "the request is served as on any listener"
    ACCEPT = "SaslHandshake is answered without an error"
    UNSUPPORTED_MECHANISM = "UNSUPPORTED_SASL_MECHANISM with the mechanisms that are enabled, later; then the end"
    EVALUATE = "the mechanism evaluates the token, which is the next event"
    CHALLENGE = "the answer to the token"
    SUCCESS = "the last answer to the tokens, with the time of the session"
    FAILURE = "SASL_AUTHENTICATION_FAILED with the reason, later; then the end. No reply to raw tokens"
    ILLEGAL_STATE = "the reply of the request's API with ILLEGAL_SASL_STATE, later; then the end"
    ILLEGAL_STATE_OPEN = "the same at once, and the connection stays open"
    CLOSE = "the end, without a reply"
    CLOSE_LATER = "the end without a reply, later"
    NOTHING = "nothing"


class Step(NamedTuple):
    """One cell of the table."""

    reply: Reply
    state: AuthenticationState


State = AuthenticationState
Event = AuthenticationEvent
_CLOSE: Final = Step(Reply.CLOSE, State.ENDED)
_ILLEGAL: Final = Step(Reply.ILLEGAL_STATE, State.ENDED)

_HANDSHAKES: Final[Mapping[Event, Step]] = {
    Event.HANDSHAKE: Step(Reply.ACCEPT, State.TOKENS),
    Event.RAW_HANDSHAKE: Step(Reply.ACCEPT, State.RAW_TOKENS),
    Event.UNKNOWN_MECHANISM: Step(Reply.UNSUPPORTED_MECHANISM, State.ENDED),
}
_HANDSHAKES_AGAIN: Final = {
    **_HANDSHAKES,
    Event.UNKNOWN_MECHANISM: Step(Reply.CLOSE_LATER, State.ENDED),
    Event.OTHER_MECHANISM: Step(Reply.ACCEPT, State.OTHER_MECHANISM),
}
_FOUND: Final[Mapping[Event, Step]] = {
    Event.IDENTIFIED: Step(Reply.SUCCESS, State.AUTHENTICATED),
    Event.REFUSED: Step(Reply.FAILURE, State.ENDED),
    Event.OTHER_PRINCIPAL: Step(Reply.FAILURE, State.ENDED),
}

_ROWS: Final[Mapping[State, tuple[Step, Mapping[Event, Step]]]] = {
    # By state: the step for any event, and those for some.
    State.INITIAL: (
        _CLOSE,
        {
            Event.API_VERSIONS: Step(Reply.SERVE, State.HANDSHAKE),
            Event.REFUSED_API_VERSIONS: Step(Reply.SERVE, State.INITIAL),
            **_HANDSHAKES,
        },
    ),
    State.HANDSHAKE: (_CLOSE, _HANDSHAKES),
    State.TOKENS: (
        _ILLEGAL,
        {
            Event.TOKEN: Step(Reply.EVALUATE, State.TOKENS),
            Event.CHALLENGED: Step(Reply.CHALLENGE, State.TOKENS),
            **_FOUND,
        },
    ),
    State.RAW_TOKENS: (
        _CLOSE,
        {
            Event.TOKEN: Step(Reply.EVALUATE, State.RAW_TOKENS),
            Event.CHALLENGED: Step(Reply.CHALLENGE, State.RAW_TOKENS),
            **_FOUND,
        },
    ),
    State.OTHER_MECHANISM: (_ILLEGAL, {Event.TOKEN: Step(Reply.CLOSE_LATER, State.ENDED)}),
    State.AUTHENTICATED: (
        Step(Reply.SERVE, State.AUTHENTICATED),
        {
            **_HANDSHAKES_AGAIN,
            Event.UNWANTED_HANDSHAKE: Step(Reply.ILLEGAL_STATE_OPEN, State.AUTHENTICATED),
            Event.TOKEN: Step(Reply.ILLEGAL_STATE_OPEN, State.AUTHENTICATED),
        },
    ),
    State.EXPIRED: (_CLOSE, _HANDSHAKES_AGAIN),
    State.ENDED: (_CLOSE, {}),
}


def _step(state: State, event: Event) -> Step:
    otherwise, steps = _ROWS[state]
    if event is Event.EXPIRY:
        return Step(Reply.NOTHING, State.EXPIRED if state is State.AUTHENTICATED else state)
    if event is Event.OVERDUE and state in (State.AUTHENTICATED, State.EXPIRED, State.ENDED):
        return Step(Reply.NOTHING, state)
    if event is Event.OVERDUE:
        return _CLOSE
    return steps.get(event, otherwise)


TABLE: Final[Mapping[tuple[State, Event], Step]] = {
    (state, event): _step(state, event) for state in State for event in Event
}
"""The step for each event in each state; there is one for all of them."""
