"""What ends the session of a soak's service, and after what it goes on."""

from __future__ import annotations

import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from fencepost.soak.roles import Counters, FencedError, SessionLostError
from fencepost.soak.two_phase_service import Setting, TransferService, amount_of
from fencepost.two_phase import (
    Fenced,
    HeuristicOutcome,
    InDoubtError,
    MisuseError,
    NeedsRecovery,
    NotPrepared,
    Superseded,
)


class Connection:
    """A connection on which the account is at a transfer."""

    def __init__(self, last: int = 0, *, closed: bool = False) -> None:
        self.closed = closed
        self.doubt_s = 0.5
        self._last = last
        self.rowcount = 0

    def execute(self, *_: object) -> Connection:
        return self

    def fetchone(self) -> tuple[int]:
        return (self._last,)


class Session:
    """A session whose transfer raises an error, if there is one."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def transfer(self, _write: Any) -> None:
        if self._error is not None:
            raise self._error


def service(directory: Path, connection: Connection) -> Any:
    made: Any = TransferService(
        Setting("confluent", "a", "", [], 1, directory / "log", 1.0, is_last=False),
        random.Random(1),
        Counters(),
        threading.Event(),
    )
    made._connection = connection
    return made


def lines(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (directory / "log").read_text().splitlines()]


def test_a_transfer_on_both_sides_is_noted_with_its_time_in_doubt(tmp_path: Path) -> None:
    assert service(tmp_path, Connection())._transfer(Session(None), 3) is True
    (line,) = lines(tmp_path)
    assert (line["number"], line["doubt_s"], line["service"]) == (3, 0.5, "a")


@pytest.mark.parametrize("error", [NotPrepared("no"), OSError("no")])
def test_a_service_goes_on_after_an_error_that_leaves_nothing(tmp_path: Path, error: Exception) -> None:
    assert service(tmp_path, Connection())._transfer(Session(error), 3) is False
    (line,) = lines(tmp_path)
    assert line["raised"] == type(error).__name__


@pytest.mark.parametrize("error", [InDoubtError("?"), NeedsRecovery("?")])
def test_a_session_ends_if_only_another_one_can_find_out(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(SessionLostError):
        service(tmp_path, Connection())._transfer(Session(error), 3)


@pytest.mark.parametrize("error", [OSError("cut"), MisuseError("closed")])
def test_a_session_ends_with_its_connection(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(SessionLostError):
        service(tmp_path, Connection(closed=True))._transfer(Session(error), 3)


def test_a_session_that_another_one_has_replaced_ends_as_fenced(tmp_path: Path) -> None:
    with pytest.raises(FencedError):
        service(tmp_path, Connection())._transfer(Session(Fenced("a later one")), 3)
    with pytest.raises(FencedError, match="another session has made transfer 3"):
        service(tmp_path, Connection(last=3))._refuse(3)


@pytest.mark.parametrize("error", [HeuristicOutcome("!"), Superseded("!"), MisuseError("!")])
def test_what_a_soak_must_not_see_ends_the_process_as_a_failure(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error)):
        service(tmp_path, Connection())._transfer(Session(error), 3)


def test_a_transfer_that_was_acknowledged_and_is_not_there_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="transfer 2 of a was acknowledged, the last one is 1"):
        service(tmp_path, Connection(last=1))._refuse(3)


def test_amounts_of_neighbours_differ() -> None:
    assert all(amount_of(number) != amount_of(number + 1) for number in range(1, 400))
