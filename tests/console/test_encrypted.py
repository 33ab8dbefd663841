"""The console with brokers that want TLS and a log-in."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from fencepost import Broker
from fencepost.console.options import ConsoleOptions
from tests.console.running import RunningConsole, csrf_in, text_of
from tests.support.certificates import Authority

pytestmark = pytest.mark.integration

MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_a_user_logs_in_over_tls_and_a_foreign_authority_is_not_trusted(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    settings = {
        "listeners": "SASL_SSL://127.0.0.1:0",
        "ssl.keystore.location": str(authority.server().both),
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": f'{MODULE} required user_admin="admin-secret";',
    }
    with Broker(settings=settings) as broker:
        host, port = broker.bootstrap_servers.split(":")
        bootstrap = ((host, int(port)),)
        trusting = ConsoleOptions(bootstrap, tls=ssl.create_default_context(cafile=str(authority.path)))
        with RunningConsole(trusting) as console, console.browser() as browser:
            page = browser.get("/")
            assert page.url.path == "/log-in"
            form = {"csrf": csrf_in(page.text), "user": "admin", "password": "admin-secret", "mechanism": "PLAIN"}
            assert "There are no topics yet" in text_of(browser.post("/log-in", data=form).text)
        for options, said in (
            (ConsoleOptions(bootstrap, tls=ssl.create_default_context()), "TLS with"),
            (ConsoleOptions(bootstrap), f"{host}:{port} closed the connection"),
        ):
            with RunningConsole(options) as console, console.browser() as browser:
                answer = browser.get("/")
                assert answer.status_code == 502
                assert said in text_of(answer.text)
