"""The state of a node before its start: given to every function that makes one of its parts."""

from __future__ import annotations

from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fencepost.broker.config import Settings
from fencepost.broker.kernel.clock import Clock
from fencepost.broker.kernel.loggers import Loggers
from fencepost.broker.metadata.store import MetadataStore
from fencepost.broker.storage.descriptors import Descriptors
from fencepost.broker.storage.disk import Disk

if TYPE_CHECKING:
    import random


@dataclass(frozen=True)
class Foundation:
    """Settings and resources that all parts of a node share.

    data_directory: an absolute path.
    randomness: the source of unguessable ids; None for the machine's.
    cleanup:    a function that makes a part registers here the part's `close`. A stop runs these in reverse order.
    """

    settings: Settings
    data_directory: str
    clock: Clock
    disk: Disk
    descriptors: Descriptors
    store: MetadataStore
    loggers: Loggers
    randomness: random.Random | None
    cleanup: AsyncExitStack
