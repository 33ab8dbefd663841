"""Supervision of background work: the policy for each task, timer and callback that raises an unexpected exception.

Every task, timer and callback of the broker is started through a `Place`, which has a name and a policy. An exception
of any class that reaches the place is logged with the name and the partition, and the policy is carried out. So no work
ends in silence while the broker looks alive. The dispatcher handles exceptions of request handlers; work handles
expected exceptions itself, such as StorageError from a failing disk.
Source: Kafka's FaultHandler and ProcessTerminatingFaultHandler; CoordinatorRuntime's FAILED state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from contextvars import ContextVar
from enum import Enum
from typing import Any, Final, TypeVar

from fencepost.broker.kernel.events import get_logger
from fencepost.broker.kernel.topic_partition import TopicPartition

log = get_logger(__name__)

T = TypeVar("T")
Function = TypeVar("Function", bound=Callable[..., Any])
OnFailure = Callable[[BaseException], object]

FIRST_RETRY_PAUSE_S = 0.1
LONGEST_RETRY_PAUSE_S = 60.0
MAX_COUNTED_FAILURES = 1_000
"""The most different failures that are counted; beyond it, all counts begin anew."""

NOT_FAILURES: Final = (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit)
"""Exceptions that are no failures and are raised to the caller. All others are failures, MemoryError included."""


class Policy(Enum):
    """Consequence of a failure, after it is logged.

    RETRY:          the work is done again after a pause: by `start_retrying`, by a timer that arms its next run before
                    it does anything, or by the `on_failure` of the work.
    FAIL_PARTITION: `on_failure` takes the partition offline, or reloads it from its log.
    STOP_BROKER:    the broker stops at once; the next start recovers.
    REPORT:         none: the work was for one request or one connection, which ends with it.
    """

    RETRY = "retry"
    FAIL_PARTITION = "fail the partition"
    STOP_BROKER = "stop the broker"
    REPORT = "report"


class Supervisor:
    """Counter of one broker's failures, which also stops the broker.

    stop: called at most once, with the reason in one line.
    """

    def __init__(self, stop: Callable[[str], None]) -> None:
        self._stop = stop
        self._counts: dict[Hashable, int] = {}
        self._is_stopped = False

    def count(self, failure: Hashable) -> int:
        """Count this failure; returns its count so far."""
        if failure not in self._counts and len(self._counts) >= MAX_COUNTED_FAILURES:
            self._counts.clear()
        count = self._counts[failure] = self._counts.get(failure, 0) + 1
        return count

    def stop(self, reason: str, remedy: str = "start it again; what was acknowledged is recovered") -> None:
        if not self._is_stopped:
            self._is_stopped = True
            log.critical("broker_stopped_unexpectedly", reason=reason, remedy=remedy)
            self._stop(reason)


CURRENT: Final[ContextVar[Supervisor]] = ContextVar("supervisor")
"""The supervisor of the broker that runs this task or callback. The node sets it; tasks and callbacks inherit it."""

PLACES: Final[dict[str, Place]] = {}
"""All places of the imported modules, by name. A test plants an exception at each."""


class Place:
    """One place in the code that starts background work.

    name: the work's, for the log; unique. policy: the consequence of its failure.
    concerns, in all calls: the subject of the work, mostly a partition; for the log.
    on_failure, in all calls: carries out FAIL_PARTITION or RETRY. If it fails, the broker stops.
    """

    __slots__ = ("name", "policy")

    def __init__(self, name: str, policy: Policy) -> None:
        if name in PLACES:
            raise ValueError(f"there are two places of the name {name!r}: give one of them another")
        self.name = name
        self.policy = policy
        PLACES[name] = self

    def start(
        self,
        work: Coroutine[Any, Any, T],
        *,
        concerns: object = None,
        on_failure: OnFailure | None = None,
        expected: tuple[type[Exception], ...] = (),
    ) -> asyncio.Task[T]:
        """Start a task. A caller that awaits it gets its exception, too.

        expected: exceptions that are results of the work and no failures.
        """
        task = asyncio.get_running_loop().create_task(work, name=self.name)
        self.watch(task, concerns=concerns, on_failure=on_failure, expected=expected)
        return task

    def watch(
        self,
        task: asyncio.Future[Any],
        *,
        concerns: object = None,
        on_failure: OnFailure | None = None,
        expected: tuple[type[Exception], ...] = (),
    ) -> None:
        """Supervise a task that is already started, as `start` does."""

        def ended(done: asyncio.Future[Any]) -> None:
            if not done.cancelled() and (error := done.exception()) is not None and not isinstance(error, expected):
                self.failed(error, concerns=concerns, on_failure=on_failure)

        task.add_done_callback(ended)

    def start_retrying(
        self, make_work: Callable[[], Coroutine[Any, Any, None]], *, concerns: object = None
    ) -> asyncio.Task[None]:
        """Start a task that retries its work after a failure, with a pause that doubles up to a minute."""
        return self.start(self._retry(make_work, concerns), concerns=concerns)

    async def _retry(self, make_work: Callable[[], Coroutine[Any, Any, None]], concerns: object) -> None:
        pause_s = FIRST_RETRY_PAUSE_S
        while True:
            try:
                return await make_work()
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                self.failed(error, concerns=concerns)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_RETRY_PAUSE_S)

    def callback(
        self, function: Callable[..., object], *, concerns: object = None, on_failure: OnFailure | None = None
    ) -> Callable[..., None]:
        """Wrap `function` for the event loop to call: it raises nothing into the loop."""

        def call(*arguments: Any) -> None:
            try:
                function(*arguments)
            except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
                self.failed(error, concerns=concerns, on_failure=on_failure)

        return call

    def catches_itself(self, function: Function) -> Function:
        """Declare that a function catches all exceptions itself and calls `failed`; returns it unchanged. For functions
        that every request runs, which a wrapper would slow down."""
        return function

    def attempt(
        self,
        function: Callable[..., object],
        *arguments: Any,
        concerns: object = None,
        on_failure: OnFailure | None = None,
    ) -> bool:
        """Do one of several pieces of work now, so that the others are done even if it raises. Returns whether it
        succeeded."""
        try:
            function(*arguments)
        except BaseException as error:  # noqa: BLE001  # passed on or logged by `failed`
            self.failed(error, concerns=concerns, on_failure=on_failure)
            return False
        return True

    def failed(
        self, error: BaseException, *, concerns: object = None, on_failure: OnFailure | None = None, **details: str
    ) -> None:
        """Log a failure and carry out the policy; for an `except BaseException` clause. Raises NOT_FAILURES again.

        details: further fields of the event.
        """
        if isinstance(error, NOT_FAILURES):
            raise error
        self._log(error, concerns, **details)
        if self.policy is Policy.STOP_BROKER:
            self._stop(error)
        elif on_failure is not None:
            try:
                on_failure(error)
            except Exception as second:  # noqa: BLE001  # it is logged, and the broker stops
                self._log(second, concerns)
                self._stop(second)

    def _stop(self, error: BaseException) -> None:
        reason = f"{self.name} failed unexpectedly: {describe(error)}"
        supervisor = CURRENT.get(None)
        if supervisor is not None:
            supervisor.stop(reason)
        else:
            asyncio.get_running_loop().call_exception_handler({"message": reason, "exception": error})

    def _log(self, error: BaseException, concerns: object, **details: str) -> None:
        """Log a failure the first time, the tenth, the hundredth and so on; only the first with its traceback."""
        supervisor = CURRENT.get(None)
        count = 1 if supervisor is None else supervisor.count((self.name, str(concerns), type(error)))
        if count != 1 and str(count).strip("0") != "1":
            return
        fields: dict[str, Any] = {}
        if isinstance(concerns, TopicPartition):
            fields = {"topic": concerns.topic, "partition": concerns.partition}
        elif concerns is not None:
            fields = {"concerns": str(concerns)}
        log.error(
            "background_work_failed",
            work=self.name,
            **fields,
            **details,
            policy=self.policy.value,
            error=type(error).__name__,
            reason=str(error),
            failures=count,
            exc_info=error if count == 1 else None,
        )


def stop_broker(reason: str, *, remedy: str) -> None:
    """Stop the broker that runs this task, for a reason that is no failure of its code."""
    supervisor = CURRENT.get(None)
    if supervisor is None:
        log.critical("broker_stopped_unexpectedly", reason=reason, remedy=remedy)
    else:
        supervisor.stop(reason, remedy)


async def end_tasks(*tasks: asyncio.Future[Any] | None) -> None:
    """Cancel tasks and wait until they have ended. None is no task; the failure of a task is for its place."""
    present = [task for task in tasks if task is not None]
    for task in present:
        task.cancel()
    await asyncio.gather(*present, return_exceptions=True)


def describe(error: BaseException) -> str:
    """Format an exception in one line."""
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def log_loop_error(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """The event loop's exception handler: logs the errors that asyncio and uvloop report."""
    log.error("event_loop_error", reason=context.get("message"), exc_info=context.get("exception"))
