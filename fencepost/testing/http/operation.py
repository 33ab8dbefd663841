"""An operation of the control API, with its parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from fencepost.testing.http.answers import MOST, Json
from fencepost.testing.http.brokers import Brokers
from fencepost.testing.http.kinds import Kind, Shape, Text, Whole

NAME: Final = Text(least=1)
REQUIRED: Final = object()
"""In place of a default."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """An argument of an operation."""

    name: str
    kind: Kind
    text: str
    default: Any = REQUIRED

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation.

    name:       the method's. path: its address, with the parameters of `in_path` in braces.
    parameters: arguments in the query of GET and DELETE, or in the body of POST.
    run:        carries it out, in a thread of its own: gets the arguments by name, those of the path included.
    status:     the answer's, if it succeeds.
    """

    name: str
    method: str
    path: str
    text: str
    run: Callable[[Brokers, Mapping[str, Any]], Json]
    result: Shape
    parameters: tuple[Parameter, ...] = ()
    status: int = 200

    @property
    def in_path(self) -> tuple[Parameter, ...]:
        return tuple(parameter for parameter in IN_PATH if f"{{{parameter.name}}}" in self.path)

    @property
    def has_body(self) -> bool:
        return self.method == "POST"


IN_PATH: Final = (
    Parameter("broker", NAME, "Id of the broker, from its creation."),
    Parameter("fault", Whole(1, MOST), "Number of the fault, from the operation that set it."),
)
