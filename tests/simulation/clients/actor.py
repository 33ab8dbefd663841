"""Actors: applications that live as processes, die and start again, perhaps beside their old selves."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from fencepost.broker.hosting.placement import NodeAddress
from fencepost.history.writer import HistoryWriter
from tests.simulation.clients.cluster import Cluster
from tests.simulation.loop import Process
from tests.simulation.situations import A_ZOMBIE_IS_FENCED

if TYPE_CHECKING:
    from tests.simulation.world import World


class Stage:
    """What all actors share.

    is_over: nothing new is to be begun.
    """

    def __init__(self, world: World, history: HistoryWriter, bootstrap: Sequence[NodeAddress]) -> None:
        self.world = world
        self.history = history
        self.bootstrap = bootstrap
        self.is_over = False


class Life:
    """One process of an actor.

    name:  its host, and its name in the history.
    chance: for what the application decides.
    """

    def __init__(self, stage: Stage, actor: Actor, number: int) -> None:
        self.stage = stage
        self.actor = actor
        self.name = actor.name if number == 1 else f"{actor.name}#{number}"
        self.process = Process(self.name)
        self.chance: random.Random = stage.world.chance_of(f"{self.name} application")
        self.task: asyncio.Task[None] | None = None
        self._value_count = 0

    @property
    def is_newest(self) -> bool:
        """Whether nobody was started in its place."""
        return self.actor.lives[-1] is self

    def goes_on(self) -> bool:
        """Whether there is still something to begin."""
        return not self.stage.is_over

    @property
    def is_running(self) -> bool:
        return self.task is not None and not self.task.done() and not self.process.is_dead

    def cluster(self) -> Cluster:
        """A way to the cluster, with connections of its own."""
        return Cluster(self.stage.world, self.name, self.stage.bootstrap)

    def now_ms(self) -> int:
        return self.stage.world.clock.now_ms()

    def new_value(self) -> str:
        """One that is sent nowhere else."""
        self._value_count += 1
        return f"{self.name}:{self._value_count}"

    def reached(self, situation: str) -> None:
        """A situation has come up, see `tests.simulation.situations`."""
        self.stage.world.reached[situation] += 1

    def note_failure(self) -> None:
        """Its producer can do nothing any more."""
        if not self.is_newest:
            self.reached(A_ZOMBIE_IS_FENCED)

    async def think(self, shortest_s: float, longest_s: float) -> None:
        """What applications do most of the time."""
        await asyncio.sleep(self.chance.uniform(shortest_s, longest_s))


class Actor:
    """An application with a name, in one life after another, or in two at once.

    play: what a life does, until the stage says that it is over.
    """

    def __init__(self, stage: Stage, name: str, play: Callable[[Life], Awaitable[None]]) -> None:
        self.name = name
        self.lives: list[Life] = []
        self._stage = stage
        self._play = play

    @property
    def newest(self) -> Life:
        return self.lives[-1]

    def start(self) -> Life:
        """A new life; what the older ones do is their business."""
        life = Life(self._stage, self, len(self.lives) + 1)
        self.lives.append(life)
        with life.process.running():
            life.task = asyncio.get_running_loop().create_task(self._live(life), name=life.name)
        return life

    async def _live(self, life: Life) -> None:
        await self._play(life)
