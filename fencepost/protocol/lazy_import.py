"""Lazy modules, which are imported at their first use: a module that few brokers need costs the others nothing.

if TYPE_CHECKING:
    import difflib
else:
    difflib = lazy_module("difflib")
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

LAZY_MODULES: set[str] = set()
"""The names of all lazy modules, imported since or not."""


def lazy_module(name: str, **known: Any) -> ModuleType:
    """Return a stand-in for a module; the first access to an attribute imports it, and may raise ImportError.

    known: attributes that do not need the import.
    """
    LAZY_MODULES.add(name)
    module = _LazyModule(name)
    vars(module).update(known)
    return module


class _LazyModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]  # the stand-in would be found in place of the module
        # From now on attributes are found here, as fast as in the module itself.
        vars(self).update(vars(import_module(self.__name__)))
        try:
            return vars(self)[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None
