"""The arguments of an operation, from a request's address, query and body. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn
from urllib.parse import parse_qsl

from fencepost.testing.http.kinds import InputError, check_names, refusal
from fencepost.testing.http.operation import Operation

MOST_NAMES_IN_A_QUERY: Final = 100
MOST_DIGITS: Final = 1_000
"""Of a whole number in a body; Python itself refuses more than 4,300, in words that are for programmers."""


def arguments_of(operation: Operation, in_path: Mapping[str, str], query: str, body: bytes) -> dict[str, Any]:
    """The arguments by name, each checked; those left out have their defaults.

    query: the text after the question mark. Raises InputError.
    """
    found = {one.name: one.kind.parse(in_path[one.name], one.name) for one in operation.in_path}
    from_query = _of_query(operation, query)
    given: Mapping[str, Any] = from_query
    if operation.has_body:
        check_names(from_query, (), f"the query of {operation.name}")
        given = _of_body(operation, body)
    elif body:
        raise InputError(f"{operation.name} has no body: give its arguments in the query")
    check_names(given, (parameter.name for parameter in operation.parameters), operation.name)
    for parameter in operation.parameters:
        where = f"{parameter.name} of {operation.name}"
        if parameter.name not in given:
            if parameter.is_required:
                raise InputError(f"{operation.name} needs {parameter.name}: {_small(parameter.text)}")
            found[parameter.name] = parameter.default
        elif given[parameter.name] is None and parameter.default is None:
            found[parameter.name] = None
        elif operation.has_body:
            found[parameter.name] = parameter.kind.check(given[parameter.name], where)
        else:
            found[parameter.name] = parameter.kind.parse(given[parameter.name], where)
    return found


def _of_query(operation: Operation, query: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=MOST_NAMES_IN_A_QUERY, errors="strict")
    except ValueError:
        raise InputError(
            f"the query of {operation.name} cannot be read: give name=value, encoded as UTF-8 with %"
        ) from None
    return _once(pairs, f"the query of {operation.name}")


def _of_body(operation: Operation, body: bytes) -> dict[str, Any]:
    if not body:
        return {}
    where = f"the body of {operation.name}"
    try:
        found = json.loads(
            body,
            object_pairs_hook=lambda pairs: _once(pairs, where),
            parse_constant=_refuse_constant,
            parse_int=_whole,
        )
    except RecursionError:
        raise InputError(f"{where} is nested too deep: give an object of the arguments") from None
    except ValueError as error:
        raise InputError(f"{where} is not JSON ({error}): give an object of the arguments") from None
    if not isinstance(found, dict):
        raise refusal(where, found, "an object of the arguments")
    return found


def _once(pairs: Iterable[tuple[str, Any]], where: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"{where} has {name[:60]!r} twice: give it once")
        found[name] = value
    return found


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits")
    return int(digits)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number of JSON")


def _small(text: str) -> str:
    return (text[:1].lower() + text[1:]).rstrip(".")
