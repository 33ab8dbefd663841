"""What `import fencepost` gives."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import pytest

import fencepost


def test_the_version_is_that_of_the_installed_package() -> None:
    assert fencepost.__version__ == version("fencepost")


def test_a_name_that_does_not_exist_is_refused_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="module 'fencepost' has no attribute 'Brokre'"):
        _ = fencepost.Brokre


def test_the_broker_is_imported_at_its_first_use_only() -> None:
    code = "import sys, fencepost; dir(fencepost); assert not [m for m in sys.modules if m.startswith('fencepost.')]"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_listing_has_the_names_that_are_imported_later() -> None:
    assert {"Broker", "AsyncBroker", "__version__"} <= set(dir(fencepost))
