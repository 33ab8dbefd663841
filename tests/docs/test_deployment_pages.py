"""The unit of docs/systemd.md is valid; docker/monitoring.yaml fits together."""

from __future__ import annotations

import configparser
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fencepost.broker.config import load_settings
from fencepost.cli.commands import fencepost
from tests.docs.code_blocks import DOCS, ROOT, blocks


def file_of(page: str, name: str) -> str:
    (text,) = [
        block.text
        for block in blocks((DOCS / page).read_text(encoding="utf-8"))
        if block.file_name is not None and Path(block.file_name).name == name
    ]
    return text


def test_the_compose_file_with_prometheus_gives_both_sides_one_token_and_the_files_that_are_there(
    tmp_path: Path,
) -> None:
    merged = yaml.safe_load((ROOT / "docker" / "monitoring.yaml").read_text(encoding="utf-8"))
    services = merged["services"]
    assert set(services) == {"tokens", "broker", "console", "prometheus", "grafana"}
    assert not load_settings(environment=services["broker"]["environment"]).warnings
    (script,) = services["tokens"]["command"]
    # As root it would give the files to the users of the images.
    program = script.replace("/secrets", str(tmp_path)).replace("os.chown(file.name, owner, owner)", "pass")
    subprocess.run([sys.executable, "-c", program], check=True)
    lines = (tmp_path / "tokens").read_text(encoding="utf-8").splitlines()
    for name, line in zip(("prometheus", "console"), lines, strict=True):
        token = (tmp_path / f"{name}.token").read_text(encoding="utf-8")
        assert line == f"{name}:viewer:{hashlib.sha256(token.encode()).hexdigest()}"
    console = services["console"]
    arguments = [part.replace("/secrets", str(tmp_path)) for part in console["command"][1:]]
    group = fencepost.make_context("fencepost", ["console"])  # a command keeps the names of its help option
    parsed = fencepost.get_command(group, "console")
    assert parsed is not None
    options = parsed.make_context("console", arguments, parent=group).params
    assert options["broker_http_token_file"] == tmp_path / "console.token"
    assert options["broker_http"] == "http://broker:9644"
    assert (ROOT / "requirements" / f"{console['build']['args']['PARTS']}.lock").exists()
    configuration = yaml.safe_load((DOCS / "monitoring" / "prometheus.yml").read_text(encoding="utf-8"))
    (job,) = configuration["scrape_configs"]
    assert job["authorization"]["credentials_file"] == "/secrets/prometheus.token"
    assert '"prometheus.token"' in script
    listener = services["broker"]["environment"]["FENCEPOST_HTTP_LISTENER"]
    assert job["static_configs"][0]["targets"] == [f"broker:{listener.partition(':')[2]}"]
    assert services["broker"]["environment"]["FENCEPOST_HTTP_HOST_NAMES"] == "broker"
    for path in configuration["rule_files"]:
        assert (DOCS / "monitoring" / Path(path).name).exists()
    for name in ("prometheus", "grafana"):
        for mounted in services[name]["volumes"]:
            source = mounted.partition(":")[0]
            assert source in merged["volumes"] or (ROOT / "docker" / source).resolve().exists(), mounted


@pytest.fixture(scope="module")
def unit() -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(file_of("systemd.md", "fencepost.service"))
    return parser


def test_the_unit_waits_for_the_broker_and_restarts_it_but_not_with_wrong_settings(
    unit: configparser.ConfigParser, tmp_path: Path
) -> None:
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert service["Restart"] == "on-failure"
    wrong = subprocess.run(
        [sys.executable, "-m", "fencepost", "serve", "--data-dir", str(tmp_path), "--set", "no.such.setting=1"],
        capture_output=True,
        check=False,
    )
    assert str(wrong.returncode) == service["RestartPreventExitStatus"]
    program, *arguments = service["ExecStart"].split()
    assert program.endswith("/fencepost")
    assert arguments[0] == "serve"
    assert f"/var/lib/{service['StateDirectory']}" in arguments


def test_systemd_takes_the_unit(unit: configparser.ConfigParser, tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on PATH")
    path = tmp_path / "fencepost.service"
    text = file_of("systemd.md", "fencepost.service").replace("/opt/fencepost/bin/fencepost", "/bin/true")
    path.write_text(text.replace("User=fencepost", "User=root"), encoding="utf-8")
    checked = subprocess.run(["systemd-analyze", "verify", str(path)], capture_output=True, text=True, check=False)
    assert (checked.returncode, checked.stderr) == (0, "")
