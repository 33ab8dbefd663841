"""Modules that are imported at their first use: what few brokers ever need costs the others neither memory nor time.

if TYPE_CHECKING:
    import difflib
else:
    difflib = deferred("difflib")
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

DEFERRED: set[str] = set()
"""The names of all modules that were deferred so far, imported since or not."""


def deferred(name: str, **known: Any) -> ModuleType:
    """What stands for a module until something in it is asked for, which imports it. Raises ImportError only then.

    known: what can be asked for without that.
    """
    DEFERRED.add(name)
    module = _DeferredModule(name)
    vars(module).update(known)
    return module


class _DeferredModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]  # it is there in place of the module that is to be found now
        # From now on all is found here, as fast as in the module itself.
        vars(self).update(vars(import_module(self.__name__)))
        try:
            return vars(self)[name]
        except KeyError:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}") from None
