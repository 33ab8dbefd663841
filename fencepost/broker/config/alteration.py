"""Changes to the configs of a resource: checks, replacement, incremental alteration. Pure.

Source: KIP-339; Kafka's ConfigAdminManager and ConfigurationControlManager.incrementalAlterConfigResource.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from fencepost.broker.config.setting import Setting, SettingType
from fencepost.protocol.errors import ErrorCode


class AlterOperation(IntEnum):
    """Operation on one config, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Alteration(NamedTuple):
    """One config of a request; operation: the number as sent."""

    name: str
    operation: int
    value: str | None


class AlterationRefusal(NamedTuple):
    """The reason why none of the changes are made."""

    error: ErrorCode
    message: str | None


def check_alterations(alterations: Sequence[Alteration]) -> AlterationRefusal | None:
    """Check for faults of any resource. INVALID_REQUEST: a missing value, a name that appears twice."""
    without_value = [
        alteration.name
        for alteration in alterations
        if alteration.value is None and alteration.operation != AlterOperation.DELETE
    ]
    if without_value:
        return AlterationRefusal(
            ErrorCode.INVALID_REQUEST, f"Null value not supported for : {', '.join(without_value)}"
        )
    if len({alteration.name for alteration in alterations}) < len(alterations):
        return AlterationRefusal(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    return None


def replace_configs(alterations: Sequence[Alteration]) -> dict[str, str]:
    """All configs of a resource after AlterConfigs: those that it does not name return to their defaults."""
    return {alteration.name: alteration.value for alteration in alterations if alteration.value is not None}


def alter_configs(
    current: Mapping[str, str],
    alterations: Sequence[Alteration],
    *,
    setting_of: Callable[[str], Setting | None],
    default_of: Callable[[str], str | None],
) -> dict[str, str] | AlterationRefusal:
    """All configs of a resource after an incremental change.

    setting_of: the row of a config, None if unknown. default_of: the value of a list that is not set.
    Refuses: INVALID_CONFIG (a list operation on something else), UNKNOWN_SERVER_ERROR (no such operation, as in Kafka).
    """
    altered = dict(current)
    for name, operation, value in alterations:
        if operation == AlterOperation.DELETE:
            altered.pop(name, None)
        elif operation == AlterOperation.SET:
            altered[name] = value or ""
        elif operation in (AlterOperation.APPEND, AlterOperation.SUBTRACT):
            setting = setting_of(name)
            if setting is None or setting.type is not SettingType.LIST:
                word = AlterOperation(operation).name
                return AlterationRefusal(
                    ErrorCode.INVALID_CONFIG, f"Can't {word} to key {name} because its type is not LIST."
                )
            parts = [part for part in _split(altered[name] if name in altered else default_of(name) or "") if part]
            named = _split(value or "")
            if operation == AlterOperation.APPEND:
                parts += [part for part in named if part not in parts]
            else:
                parts = [part for part in parts if part not in named]
            altered[name] = ",".join(parts)
        else:
            return AlterationRefusal(ErrorCode.UNKNOWN_SERVER_ERROR, None)
    return altered


def _split(text: str) -> list[str]:
    """Split as Java does: without empty parts at the end, but an empty text is one part, never a valid entry."""
    parts = text.split(",")
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts
