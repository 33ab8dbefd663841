"""`fencepost test-broker`: its options. tests/testing/http has the process that it starts."""

from __future__ import annotations

import sys

import pytest
from click.testing import CliRunner

from fencepost.cli.commands import fencepost


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "example.org", "192.168.1.1"])
def test_an_address_that_other_machines_reach_is_refused(host: str) -> None:
    done = CliRunner().invoke(fencepost, ["test-broker", "--host", host])
    assert done.exit_code == 2
    assert f"--host {host} can be reached from other machines" in done.output
    assert "give 127.0.0.1 or ::1" in done.output


def test_a_missing_library_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fencepost.testing.http.program", raising=False)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    done = CliRunner().invoke(fencepost, ["test-broker"])
    assert done.exit_code == 2
    assert done.output == "test-broker needs uvicorn, which is not installed: pip install 'fencepost[test-broker]'\n"


def test_options_are_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    monkeypatch.setattr("fencepost.testing.http.program.serve", lambda *given, **named: calls.append((given, named)))
    done = CliRunner().invoke(
        fencepost, ["test-broker", "--port", "12345", "--host", "localhost", "--json", "--until-stdin-closes"]
    )
    assert done.exit_code == 0
    assert calls == [(("localhost", 12345), {"as_json": True, "until_stdin_closes": True, "published": None})]


@pytest.mark.parametrize("ports", ["29092", "29111-29092", "80-90", "29092-70000", "a-b", "-"])
def test_published_ports_are_a_range(ports: str) -> None:
    done = CliRunner().invoke(fencepost, ["test-broker", "--published-ports", ports])
    assert done.exit_code == 2
    assert "give FIRST-LAST from 1024 to 65535, such as 29092-29111" in " ".join(done.output.split())


def test_a_port_that_there_is_not_is_refused() -> None:
    assert CliRunner().invoke(fencepost, ["test-broker", "--port", "65536"]).exit_code == 2
