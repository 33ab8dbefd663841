"""Generator of docs/configuration.md from the settings table: `python -m fencepost.broker.config.documentation`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from fencepost.broker.config.dynamic import DYNAMIC_NAMES
from fencepost.broker.config.setting import Scope, Setting, declared_settings
from fencepost.broker.config.settings import Settings
from fencepost.broker.config.table import SECTIONS
from fencepost.broker.config.topic_settings import TOPIC_SETTINGS

PATH = "docs/configuration.md"


_INTRODUCTION = """\
<!-- Made of broker/config/table.py by `python -m fencepost.broker.config.documentation`; a test keeps it current. -->
# Configuration

Settings have Kafka's names, units and, unless the text says otherwise, Kafka's defaults. Names that start with
`fencepost.` are this broker's own. The broker reads them in this order; a later source takes precedence:

1. a properties file: `fencepost serve --config server.properties`;
2. the environment: `FENCEPOST_NUM_PARTITIONS=3` sets `num.partitions`, `FENCEPOST_LOG_FORMAT=json` sets
   `fencepost.log.format`;
3. the command line: `--set num.partitions=3`, and the options that `fencepost serve --help` lists.

The broker does not start with an unknown name; the message has the nearest known one. Of environment variables only
those that nearly name a setting are refused. Others that begin with `FENCEPOST_` are ignored with a warning, and those
that Kubernetes sets for a Service named `fencepost` without one. Kafka's settings for parts that do not exist here
(ZooKeeper, KRaft, replication, threads) are ignored with a warning, so that an existing `server.properties` works;
security settings that nothing here reads are refused.

Settings marked with (L) can be set for one listener, `listener.name.external.ssl.client.auth=required`, in lower case.
Those marked with (M) also for one SASL mechanism on a listener, `listener.name.external.plain.sasl.jaas.config=…`. The
narrower name takes precedence.

A secret is shown nowhere. It is best kept in a file of its own, that only the broker's user can read:
`ssl.keystore.password=${file:/etc/fencepost/keystore-password}`; `${env:NAME}` reads a variable of the environment.

Some settings name an extra to install. Until Fencepost is on PyPI, it is `pip install '.[http]'` or
`pip install '.[cluster]'` in a checkout.

Settings marked with (*) can be changed while the broker runs, for this broker or for all (`kafka-configs --alter
--entity-type brokers`, or any admin client). Such a change survives restarts and takes precedence over the sources
above.
"""

_TOPIC_INTRODUCTION = """\
Set one for a topic at its creation, `fencepost topics create orders --config retention.ms=3600000`, or at any time
later, `fencepost topics configs orders --set retention.ms=3600000`; it applies from the next request on. The default
of each is the value of the broker setting beside it; of several broker settings, the first that is set.
"""


def configuration_page() -> str:
    """The whole page, ending in a newline."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield _INTRODUCTION
    for section in SECTIONS:
        yield f"## {(section.__doc__ or '').strip()}\n"
        yield "| Setting | Default | Values | Meaning |"
        yield "|---|---|---|---|"
        for setting in declared_settings(section).values():
            yield _row(setting, setting.format(setting.default))
        yield ""
    yield "## Topic configs\n"
    yield _TOPIC_INTRODUCTION
    yield "| Config | Default | Broker setting | Values | Meaning |"
    yield "|---|---|---|---|---|"
    settings = Settings()
    for name, row in sorted(TOPIC_SETTINGS.items()):
        if row.is_internal:
            continue
        default = _code(row.setting.format(row.default(settings)))
        brokers = ", ".join(_code(broker_name) for broker_name in row.broker_names) or "none"
        yield f"| {_code(name)} | {default} | {brokers} | {row.setting.expected} | {row.documentation} |"


def _row(setting: Setting, default: str | None) -> str:
    names = ", also ".join(_code(name) for name in (setting.name, *setting.aliases))
    mark = " (*)" if setting.name in DYNAMIC_NAMES else ""
    mark += _SCOPE_MARKS[setting.scope]
    return f"| {names}{mark} | {_code(default)} | {setting.expected} | {setting.documentation} |"


_SCOPE_MARKS = {Scope.BROKER: "", Scope.LISTENER: " (L)", Scope.MECHANISM: " (L) (M)"}


def _code(text: str | None) -> str:
    return f"`{text}`" if text else "unset"


def main() -> None:
    with open(PATH, "w", encoding="utf-8") as page:
        page.write(configuration_page())
    sys.stdout.write(f"wrote {PATH}\n")


if __name__ == "__main__":
    main()
