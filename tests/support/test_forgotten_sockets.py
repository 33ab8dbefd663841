from __future__ import annotations

import gc
import os
import socket
import sys
from typing import Any

import pytest
from kafka.net.inet import KafkaNetSocket

from tests.support.forgotten_sockets import let_kafka_python_forget


def test_a_socket_that_kafka_python_forgets_is_closed_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    let_kafka_python_forget()
    forgotten: list[Any] = [KafkaNetSocket().socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)]
    descriptor = forgotten[0].fileno()
    forgotten.append(forgotten)
    del forgotten
    gc.collect()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    assert complaints == []


def test_a_socket_of_a_test_that_is_forgotten_is_complained_of(monkeypatch: pytest.MonkeyPatch) -> None:
    complaints: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", complaints.append)
    let_kafka_python_forget()
    forgotten: list[Any] = [socket.socket()]
    forgotten.append(forgotten)
    del forgotten
    gc.collect()
    assert [complaint.exc_type for complaint in complaints] == [ResourceWarning]
