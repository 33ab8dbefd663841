"""Refusals: the status and the sentence for each error of an operation."""

from __future__ import annotations

import subprocess
from typing import Final, NamedTuple

from fencepost.broker.network.server import StartError
from fencepost.testing.errors import MisuseError, RefusedError, WaitedInVainError
from fencepost.testing.http.answers import TEXT, Json
from fencepost.testing.http.brokers import NoSuchBrokerError, NoSuchFaultError, TooManyBrokersError
from fencepost.testing.http.kinds import InputError, Nothing, Shape, Text

INPUT: Final = "input"
NOT_FOUND: Final = "not_found"
MISUSE: Final = "misuse"
REFUSED: Final = "refused"
WAITED_IN_VAIN: Final = "waited_in_vain"
TOO_MUCH: Final = "too_much"
FORBIDDEN: Final = "forbidden"
FAILED: Final = "failed"
KINDS: Final = (INPUT, NOT_FOUND, MISUSE, REFUSED, WAITED_IN_VAIN, TOO_MUCH, FORBIDDEN, FAILED)

ERROR = Shape(
    "Error",
    {
        "error": (Text(choices=KINDS), "What kind of refusal it is; the page lists them."),
        "message": (TEXT, "A sentence: what is wrong, where, and what to do."),
        "code": (Nothing(TEXT), "With `refused`, Kafka's error, such as `INVALID_PARTITIONS`; else null."),
        "description": (Nothing(TEXT), "With `waited_in_vain`, the broker's view; else null."),
    },
)


class Refusal(NamedTuple):
    """An answer other than the wanted one."""

    status: int
    kind: str
    message: str
    code: str | None = None
    description: str | None = None

    def body(self) -> Json:
        return {"error": self.kind, "message": self.message, "code": self.code, "description": self.description}


STATUSES: Final = {
    400: "An argument is refused: `input`.",
    403: "The request comes from a web page: `forbidden`.",
    404: "There is no such broker, fault or address: `not_found`.",
    405: "The address has no such method: `not_found`.",
    409: "The broker's state does not allow it: `misuse`, `refused` or `waited_in_vain`.",
    413: "The body is too large: `too_much`.",
    415: "The body is not said to be JSON: `input`.",
    421: "The request names another host: `forbidden`.",
    429: "Too many brokers or operations at once: `too_much`.",
    500: "The program itself failed; its standard error has the reason: `failed`.",
}


def refusal_of(error: Exception) -> Refusal | None:
    """The refusal for an error of an operation; None for one that nobody expects."""
    match error:
        case InputError():
            return Refusal(400, INPUT, str(error))
        case NoSuchBrokerError() | NoSuchFaultError():
            return Refusal(404, NOT_FOUND, str(error))
        case TooManyBrokersError():
            return Refusal(429, TOO_MUCH, str(error))
        case MisuseError():
            return Refusal(409, MISUSE, str(error))
        case RefusedError():
            return Refusal(409, REFUSED, str(error), code=error.error)
        case WaitedInVainError():
            sentence, _, description = str(error).partition("\n\n")
            return Refusal(409, WAITED_IN_VAIN, sentence, description=description or None)
        case StartError() | RuntimeError():
            return Refusal(409, MISUSE, f"the broker does not start: {error}")
        case ConnectionError() | TimeoutError() | subprocess.TimeoutExpired():
            return Refusal(409, MISUSE, f"the broker does not answer: {error}")
    return None
