"""Previews of changes, as a person was shown them: kept in the session, bounded, good for one use. Pure.

A preview knows the fields of its form by a digest, and the state of the cluster from which it was made as pairs of a
name in words and a value as text. When the form comes back, the state is read again and compared with that.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import secrets
import zlib
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

GOOD_FOR_S: Final = 600.0
MOST_PREVIEWS: Final = 32
MOST_BYTES: Final = 256 << 10
"""Of one session, after compression. The newest preview is kept however large it is."""
MOST_SAID: Final = 5
LONGEST_SAID: Final = 200
GONE: Final = "not there"


@dataclass
class Preview:
    """A change as it was shown.

    change_id: the id in the audit's lines on it. asked: digest of the change's name and fields. place: cluster and
    user. shown_s: monotonic time. answer: the result, from the first post of its form on.
    """

    asked: bytes
    place: Sequence[str]
    world: bytes
    shown_s: float
    subject: str = ""
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    change_id: str = field(default_factory=lambda: secrets.token_hex(8))
    answer: asyncio.Future[Any] | None = None


class Previews:
    """The previews of a session; the oldest go first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, Preview] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def keep(self, preview: Preview) -> None:
        self._kept[preview.token] = preview
        while len(self._kept) > 1 and (
            len(self._kept) > MOST_PREVIEWS or sum(len(one.world) for one in self._kept.values()) > MOST_BYTES
        ):
            self._kept.popitem(last=False)

    def find(self, token: str, now_s: float) -> Preview | None:
        """The preview of a form, unless it is too old, or of another session."""
        found = self._kept.get(token)
        return None if found is None or now_s - found.shown_s > GOOD_FOR_S else found


def digest_of(name: str, fields: Mapping[str, str]) -> bytes:
    """A digest of a change's name and fields."""
    return hashlib.sha256(json.dumps([name, sorted(fields.items())]).encode()).digest()


def packed(world: Mapping[str, object]) -> bytes:
    """A state in few bytes."""
    return zlib.compress(json.dumps({name: str(value) for name, value in world.items()}).encode())


def differences(packed_before: bytes, world: Mapping[str, object]) -> list[str]:
    """The differences from a preview, each as a sentence; the first few, and how many more there are."""
    before: dict[str, str] = json.loads(zlib.decompress(packed_before))
    now = {name: str(value) for name, value in world.items()}
    found = [
        f"{_begun(name)}: {_short(was)} when you looked, {_short(present)} now."
        for name in dict.fromkeys([*before, *now])
        if (was := before.get(name, GONE)) != (present := now.get(name, GONE))
    ]
    more = len(found) - MOST_SAID
    return found if more <= 0 else [*found[:MOST_SAID], f"{more:,} more have changed."]


def _begun(name: str) -> str:
    return name[:1].upper() + name[1:]


def _short(value: str) -> str:
    return value if len(value) <= LONGEST_SAID else value[: LONGEST_SAID - 1] + "…"
