"""Writes the tables of APIs that have to exist before a handler or a message is imported, from the declarations.

    .venv/bin/python -m scripts.api_tables

`ROWS` in `broker/requests/served_rows.py` comes from the handlers, which `@api` declares; `FAMILIES` in
`protocol/messages/families.py` from the messages, which `@message` declares.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType

import fencepost.broker.handlers
import fencepost.protocol.messages
from fencepost.broker.requests.api import APIS
from fencepost.protocol.api_keys import ApiKey

ROOT = Path(__file__).resolve().parents[1]
SERVED_ROWS = ROOT / "fencepost" / "broker" / "requests" / "served_rows.py"
FAMILIES = ROOT / "fencepost" / "protocol" / "messages" / "families.py"

SERVED_ROWS_HEAD = '''\
"""Served APIs, by key: handler module, lowest and highest version, the lowest that is advertised, the first unstable.

Written by `python -m scripts.api_tables` from the declarations of the handlers; see `Served` for the columns.
"""

from __future__ import annotations

from typing import Final

from fencepost.protocol.api_keys import ApiKey

ROWS: Final[dict[int, tuple[str, int, int, int, int | None]]] = {
'''
FAMILIES_HEAD = '''\
"""Declared messages, by API key: the module here that declares them, and the API's name, the prefix of their names.

Written by `python -m scripts.api_tables` from the declarations.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost.protocol.api_keys import ApiKey

FAMILIES: Final[Mapping[int, tuple[str, str]]] = {
'''


def served_rows() -> str:
    """The module of the rows of served APIs."""
    for _ in _modules(fencepost.broker.handlers):
        pass
    rows = [
        f'    ApiKey.{ApiKey(api.key).name}: ("{api.module.rpartition(".")[2]}", {api.minimum_version}, '
        f"{api.maximum_version}, {api.advertised_minimum}, {api.unstable_from}),\n"
        for api in APIS.declared()
    ]
    return SERVED_ROWS_HEAD + "".join(rows) + "}\n"


def families() -> str:
    """The module of the families of messages."""
    found = {}
    for module in _modules(fencepost.protocol.messages):
        for name, declared in vars(module).items():
            if name.endswith("Request") and getattr(declared, "__module__", "") == module.__name__:
                key = getattr(declared, "api_key", None)
                if key is not None:
                    found[key] = module.__name__.rpartition(".")[2], name.removesuffix("Request")
    rows = [f'    ApiKey.{ApiKey(key).name}: ("{found[key][0]}", "{found[key][1]}"),\n' for key in sorted(found)]
    return FAMILIES_HEAD + "".join(rows) + "}\n"


def _modules(package: ModuleType) -> Iterator[ModuleType]:
    for found in pkgutil.iter_modules(package.__path__):
        yield import_module(f"{package.__name__}.{found.name}")


if __name__ == "__main__":
    SERVED_ROWS.write_text(served_rows(), encoding="utf-8")
    FAMILIES.write_text(families(), encoding="utf-8")
