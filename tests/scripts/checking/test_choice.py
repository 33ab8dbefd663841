"""Which tests a changed file asks for: those at its path, then those of its room."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts.checking.choice import FORM, TESTS_OF, TESTS_OF_FOLDERS, choose

ROOT = Path(__file__).resolve().parents[3]
TEST_FILES = [
    "tests/test_project_files.py",
    "tests/test_rooms.py",
    "tests/test_tidy.py",
    "tests/broker/test_sending_files.py",
    "tests/broker/log/test_recovery.py",
    "tests/broker/log/test_recovery_of_indexes.py",
    "tests/broker/log/test_retention.py",
    "tests/console/test_lag.py",
    "tests/console/web/test_pages.py",
    "tests/docs/test_links.py",
    "tests/pipeline/test_demo.py",
    "tests/scripts/test_bench.py",
]


@pytest.mark.parametrize(
    ("changed", "mirrored"),
    [
        ("fencepost/broker/log/recovery.py", TEST_FILES[4:6]),
        ("fencepost/console/lag.py", ["tests/console/test_lag.py"]),
        ("scripts/bench.py", ["tests/scripts/test_bench.py"]),
        ("scripts/pipeline/demo.py", ["tests/pipeline/test_demo.py"]),
        ("tests/broker/log/test_retention.py", ["tests/broker/log/test_retention.py"]),
        (".github/workflows/ci.yml", ["tests/test_project_files.py"]),
        ("fencepost/broker/log/segment.py", []),
    ],
)
def test_the_tests_at_the_path_of_a_module_come_first(changed: str, mirrored: list[str]) -> None:
    assert list(choose([changed], TEST_FILES).mirrored) == mirrored


@pytest.mark.parametrize(
    ("changed", "nearby"),
    [
        ("fencepost/broker/log/retention.py", TEST_FILES[4:6]),
        ("fencepost/broker/log/segment.py", TEST_FILES[4:7]),
        ("fencepost/broker/log/deeper/index.py", TEST_FILES[4:7]),
        ("fencepost/console/web/pages/lag.html", ["tests/console/web/test_pages.py"]),
        ("tests/broker/log/world.py", TEST_FILES[4:7]),
        ("tests/broker/conftest.py", [*TEST_FILES[4:7], TEST_FILES[3]]),
        ("docs/transactions.md", ["tests/docs/test_links.py"]),
        ("fencepost/in_process.py", []),
        ("LICENSE", []),
    ],
)
def test_then_come_the_other_tests_of_the_room(changed: str, nearby: list[str]) -> None:
    assert [one for one in choose([changed], TEST_FILES).nearby if one not in FORM] == nearby


def test_a_test_is_chosen_once_however_many_files_ask_for_it() -> None:
    choice = choose(["fencepost/broker/log/recovery.py", "tests/broker/log/test_recovery.py"], TEST_FILES)
    assert list(choice.mirrored) == TEST_FILES[4:6]
    assert list(choice.nearby)[:1] == TEST_FILES[6:7]


def test_the_form_of_all_files_comes_last() -> None:
    choice = choose(["fencepost/console/lag.py"], TEST_FILES)
    assert list(choice.nearby) == ["tests/test_tidy.py", "tests/test_rooms.py"]
    assert list(choose(["README.md"], TEST_FILES).nearby) == ["tests/docs/test_links.py", "tests/test_tidy.py"]
    assert choose(["tests/test_tidy.py"], TEST_FILES).mirrored == ("tests/test_tidy.py",)
    assert [one for one in FORM if not (ROOT / one).exists()] == []


def test_the_tests_of_files_that_no_test_is_named_after_exist() -> None:
    named = {*TESTS_OF, *TESTS_OF_FOLDERS}
    assert [one for one in named if not (ROOT / one).exists()] == []
    chosen = {test for tests in (*TESTS_OF.values(), *TESTS_OF_FOLDERS.values()) for test in tests}
    assert [one for one in chosen if not (ROOT / one).exists()] == []
