"""Loading of settings from a properties file, the environment, `--set` and options; later sources take precedence."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fencepost.broker.config.listeners import parse_listeners
from fencepost.broker.config.protection import protection_problems
from fencepost.broker.config.setting import Setting
from fencepost.broker.config.settings import (
    ALIASES,
    CHECK_BACK_PREFIX,
    SETTINGS,
    Settings,
    scoped_name,
    setting_of_listener,
)
from fencepost.broker.config.topic_settings import TOPIC_SETTINGS
from fencepost.protocol.lazy_import import lazy_module

if TYPE_CHECKING:
    import difflib

    from fencepost.check_back.settings import ResolverSettings
else:
    difflib = lazy_module("difflib")

ENVIRONMENT_PREFIX = "FENCEPOST_"
# Variables of the command line and the scripts that are not settings.
RESERVED_VARIABLES = frozenset(
    {
        "FENCEPOST_BOOTSTRAP",
        "FENCEPOST_COMMAND_CONFIG",
        "FENCEPOST_CONFIG",
        "FENCEPOST_IVY_SETTINGS",
        "FENCEPOST_PYTHON",
    }
)

SERVICE_LINK = re.compile(
    r"FENCEPOST_([A-Z0-9_]+_)?(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT|PORT_\d+_[A-Z]+(_(PROTO|PORT|ADDR))?)"
)
"""Variables that Kubernetes sets in every pod for a Service whose name begins with `fencepost`."""
NEAR = 0.8
"""Least similarity (0 to 1) of two names at which one is taken for a slip of the other."""

COUNTS_OF_REPLICAS = (
    "default.replication.factor",
    "offsets.topic.replication.factor",
    "share.coordinator.state.topic.replication.factor",
    "transaction.state.log.replication.factor",
)

# Kafka's settings for parts that do not exist here. A server.properties that has them works; each is reported once.
IGNORED_NAMES = frozenset(
    """
    auto.leader.rebalance.enable background.threads broker.heartbeat.interval.ms broker.id.generation.enable
    broker.session.timeout.ms client.quota.callback.class cluster.id
    control.plane.listener.name early.start.listeners fetch.purgatory.purge.interval.requests group.coordinator.threads
    group.coordinator.append.linger.ms group.coordinator.rebalance.protocols group.share.assignor.offload.enable
    group.share.persister.class.name group.streams.assignor.offload.enable
    initial.broker.registration.timeout.ms inter.broker.protocol.version
    log.cleaner.dedupe.buffer.size log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size
    log.cleaner.io.max.bytes.per.second log.cleaner.threads log.dir.failure.timeout.ms
    log.flush.offset.checkpoint.interval.ms log.flush.scheduler.interval.ms
    log.flush.start.offset.checkpoint.interval.ms log.initial.task.delay.ms log.message.downconversion.enable
    log.message.format.version log.preallocate
    max.request.partition.size.limit node.rack num.io.threads num.network.threads num.recovery.threads.per.data.dir
    num.replica.alter.log.dirs.threads num.replica.fetchers offsets.commit.required.acks
    process.roles producer.purgatory.purge.interval.requests queued.max.requests
    reserved.broker.max.id server.max.startup.time.ms share.coordinator.append.linger.ms
    share.coordinator.cached.buffer.max.bytes share.coordinator.cold.partition.snapshot.interval.ms
    share.coordinator.state.topic.compression.codec share.coordinator.state.topic.prune.interval.ms
    share.coordinator.threads share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.ms
    socket.connection.setup.timeout.max.ms ssl.keymanager.algorithm ssl.secure.random.implementation
    ssl.trustmanager.algorithm unclean.leader.election.enable
    unstable.feature.versions.enable
    """.split()  # noqa: SIM905  # reads and is kept in order more easily than quoted names
)
IGNORED_PREFIXES = (
    "alter.",
    "confluent.",
    "controlled.shutdown.",
    "controller.",
    "create.topic.policy.",
    "kafka.metrics.",
    "leader.imbalance.",
    "metadata.",
    "metric.reporters",
    "metrics.",
    "remote.",
    "replica.",
    "zookeeper.",
)
# Security settings that are not in the table: a broker that ignored them would be open without its owner's knowledge.
REFUSED_PREFIXES = (
    "sasl.",
    "security.",
    "ssl.",
    "delegation.token.",
    "password.encoder.",
)


class ConfigurationError(Exception):
    """Settings that the broker cannot start with: one line for each problem, with its source and the remedy."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class Entry(NamedTuple):
    """A setting as written. origin: its source, as the user knows it."""

    name: str
    text: str
    origin: str


class LoadedSettings(NamedTuple):
    """The settings, and warnings for the user."""

    settings: Settings
    warnings: tuple[str, ...]


def _parse(setting: Setting, entry: Entry, problems: list[str]) -> tuple[Any] | None:
    """The value, or None with a problem added."""
    try:
        return (setting.parse(entry.text),)
    except ValueError as error:
        problems.append(f"{entry.origin}: {entry.name}: {error}")
        return None


def load_settings(
    *,
    properties_path: str | None = None,
    assignments: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
    options: Sequence[Entry] = (),
) -> LoadedSettings:
    """Read all sources, lowest precedence first: the file, variables `FENCEPOST_…`, assignments `name=value`, options.

    options: the settings of command-line options by Kafka name, each with the option as its origin.
    Raises ConfigurationError with every problem found.
    """
    problems: list[str] = []
    entries: list[Entry] = []
    if properties_path is not None:
        entries += _read_properties_file(properties_path, problems)
    warnings: list[str] = []
    entries += _environment_entries({} if environment is None else environment, problems, warnings)
    entries += _assignment_entries(assignments, problems)
    entries += options

    values: dict[str, Any] = {}
    origins: dict[str, str] = {}
    of_listeners: dict[str, str] = {}
    of_check_back: dict[str, str] = {}
    controllers = _controller_listeners(entries)
    for entry in entries:
        name = ALIASES.get(entry.name, entry.name)
        setting = SETTINGS.get(name)
        name_in_all = setting_of_listener(entry.name)
        if name_in_all is not None:
            _parse(SETTINGS[name_in_all], entry, problems)
            of_listeners[entry.name.lower()] = entry.text
            origins[entry.name.lower()] = entry.origin
            _warn_of_shown_secret(entry, name_in_all, warnings)
            continue
        if entry.name.startswith(CHECK_BACK_PREFIX):
            of_check_back[entry.name] = entry.text
            origins[entry.name] = entry.origin
        if setting is None and entry.name in of_check_back:
            continue
        if setting is None:
            _classify_unknown(entry, controllers, problems, warnings)
            continue
        _warn_of_shown_secret(entry, name, warnings)
        parsed = _parse(setting, entry, problems)
        if parsed is not None:
            (values[setting.attribute],) = parsed
            origins[name] = entry.origin
    _remove_controller_listeners(controllers, values)
    check_back = _read_check_back(of_check_back, origins, problems, warnings) if of_check_back else ()
    settings = Settings(**values, origins=origins, of_listeners=of_listeners, check_back=check_back)
    if not problems:
        problems += _check_together(settings)
    if problems:
        raise ConfigurationError(problems)
    return LoadedSettings(settings, tuple(warnings))


def _controller_listeners(entries: Iterable[Entry]) -> frozenset[str]:
    """The names, in upper case, of the listeners of a KRaft controller.

    A node that is broker and controller lists them, too. They are for the controller's peers, of which there are none
    here, and not for clients.
    """
    texts = [entry.text for entry in entries if entry.name == "controller.listener.names"]
    return frozenset(name.strip().upper() for text in texts for name in text.split(","))


def _remove_controller_listeners(controllers: frozenset[str], values: dict[str, Any]) -> None:
    for attribute in ("listeners", "advertised_listeners"):
        if controllers and attribute in values:
            values[attribute] = tuple(
                text for text in values[attribute] if text.partition("://")[0].upper() not in controllers
            )


def _warn_of_shown_secret(entry: Entry, name: str, warnings: list[str]) -> None:
    if SETTINGS[name].is_secret and entry.origin == "--set" and "${" not in entry.text:
        warnings.append(
            f"--set: {entry.name} is a secret that all users of this machine can see in the list of processes; "
            "write it to a file that only you can read, and give its path as ${file:/path}"
        )


def _read_check_back(
    texts: Mapping[str, str], origins: Mapping[str, str], problems: list[str], warnings: list[str]
) -> tuple[ResolverSettings, ...]:
    # Imported here: most brokers check nothing back.
    from fencepost.check_back.properties import ResolverSettingsError, resolver_settings, resolver_warnings

    def with_origin(name: str, sentence: str) -> str:
        # The origin of a missing setting is that of the list with its resolver.
        origin = origins.get(name) or origins.get(f"{CHECK_BACK_PREFIX}resolvers", "default")
        return f"{origin}: {sentence}"

    try:
        resolvers = resolver_settings(texts)
    except ResolverSettingsError as error:
        problems += [with_origin(name, f"{name}: {problem}") for name, problem in error.problems]
        return ()
    warnings += [with_origin(warning.partition(":")[0], warning) for warning in resolver_warnings(resolvers)]
    return resolvers


def _check_together(settings: Settings) -> list[str]:
    """Check settings that depend on each other."""
    problems = []
    try:
        listeners = parse_listeners(settings)
    except ValueError as error:
        name = str(error).partition(":")[0]
        problems.append(f"{settings.origins.get(name, 'default')}: {error}")
    else:
        problems += protection_problems(settings, listeners)
    if "," in settings.log_dirs or not settings.log_dirs.strip():
        origin = settings.origins.get("log.dirs", "default")
        problems.append(f"{origin}: log.dirs: expected one directory; got {settings.log_dirs!r}")
    if settings.fencepost_check_back_resolvers and not settings.transaction_two_phase_commit_enable:
        problems.append(
            f"{settings.origins['fencepost.check.back.resolvers']}: fencepost.check.back.resolvers needs "
            "transaction.two.phase.commit.enable=true: else time would abort what a source has committed"
        )
    if settings.fencepost_two_phase_abandoned_ms_by_name and not settings.transaction_two_phase_commit_enable:
        name = "fencepost.two.phase.abandoned.ms.by.name"
        problems.append(
            f"{settings.origins[name]}: {name} needs transaction.two.phase.commit.enable=true: without it every "
            "transaction has a time-out"
        )
    if settings.fencepost_transactional_id_owners and not settings.authorizer_class_name:
        problems.append(
            f"{settings.origins['fencepost.transactional.id.owners']}: fencepost.transactional.id.owners needs "
            "authorizer.class.name: without an authorizer everybody may do everything"
        )
    if settings.fencepost_cluster_url is None and not settings.fencepost_replication_factor_any:
        problems += [
            f"{settings.origins[name]}: {name}: a partition has one replica here; use 1, or accept any number, as "
            "templates for clusters name it, with fencepost.replication.factor.any=true"
            for name in COUNTS_OF_REPLICAS
            if getattr(settings, name.replace(".", "_")) > 1
        ]
    if (settings.fencepost_cluster_url is None) != (settings.fencepost_cluster_objects is None):
        problems.append(
            "fencepost.cluster.url (--cluster) and fencepost.cluster.objects (--objects) belong together: a cluster "
            "keeps the ends of its logs in PostgreSQL, and the rest in an object store"
        )
    if settings.fencepost_cluster_url is not None and settings.fencepost_processes:
        problems.append(
            "fencepost.processes (--processes) and fencepost.cluster.url (--cluster) exclude each other: start one "
            "broker of the cluster per process"
        )
    if settings.fencepost_cluster_lease_renewal_ms * 3 > settings.fencepost_cluster_lease_ms:
        problems.append("fencepost.cluster.lease.renewal.ms must be at most a third of fencepost.cluster.lease.ms")
    if settings.group_min_session_timeout_ms > settings.group_max_session_timeout_ms:
        problems.append("group.min.session.timeout.ms must not be larger than group.max.session.timeout.ms")
    if settings.log_cleaner_min_compaction_lag_ms > settings.log_cleaner_max_compaction_lag_ms:
        problems.append("log.cleaner.min.compaction.lag.ms must not be larger than log.cleaner.max.compaction.lag.ms")
    return problems


def _classify_unknown(entry: Entry, controllers: frozenset[str], problems: list[str], warnings: list[str]) -> None:
    name = entry.name
    scoped = scoped_name(name)
    setting = name if scoped is None else scoped.setting
    is_ignored = setting in IGNORED_NAMES or setting.startswith(IGNORED_PREFIXES)
    if scoped is not None and scoped.listener.upper() in controllers:
        is_ignored = True  # a controller is not served, and neither is it open
    elif not is_ignored and setting.startswith(REFUSED_PREFIXES):
        problems.append(
            f"{entry.origin}: {name}: nothing here reads this security setting; remove it if you can do without what "
            "it promises. docs/configuration.md lists those that are served"
        )
        return
    if is_ignored or scoped is not None:
        warnings.append(f"{entry.origin}: {name} has no meaning here and is ignored")
        return
    if name in TOPIC_SETTINGS:
        broker_names = TOPIC_SETTINGS[name].broker_names
        hint = f"; its default for all topics is {broker_names[0]!r}" if broker_names else ""
        problems.append(f"{entry.origin}: {name} is a config of single topics{hint}")
        return
    nearest = difflib.get_close_matches(name, [*SETTINGS, *ALIASES], 1)
    hint = f"did you mean {nearest[0]!r}?" if nearest else "docs/configuration.md lists all settings"
    problems.append(f"{entry.origin}: unknown setting {name!r}; {hint}")


def _environment_entries(environment: Mapping[str, str], problems: list[str], warnings: list[str]) -> list[Entry]:
    """A variable that is nearly a setting's is a problem. Others may belong to another program, and are ignored."""
    entries = []
    for variable in sorted(environment):
        if not variable.startswith(ENVIRONMENT_PREFIX) or variable in RESERVED_VARIABLES:
            continue
        name = variable.removeprefix(ENVIRONMENT_PREFIX).lower().replace("_", ".")
        candidates = (name, f"fencepost.{name}")
        known = next((candidate for candidate in candidates if candidate in SETTINGS or candidate in ALIASES), None)
        if known is None:
            if SERVICE_LINK.fullmatch(variable):
                continue
            nearest = difflib.get_close_matches(name, [known.removeprefix("fencepost.") for known in SETTINGS], 1, NEAR)
            if nearest:
                meant = ENVIRONMENT_PREFIX + nearest[0].upper().replace(".", "_")
                problems.append(f"environment: {variable}: did you mean {meant}?")
            else:
                warnings.append(f"environment: {variable} names no setting and is ignored")
            continue
        entries.append(Entry(known, environment[variable], f"environment, {variable}"))
    return entries


def _assignment_entries(assignments: Iterable[str], problems: list[str]) -> list[Entry]:
    entries = []
    for assignment in assignments:
        name, separator, text = assignment.partition("=")
        if not separator or not name.strip():
            problems.append(f"--set {assignment}: expected name=value, such as num.partitions=3")
            continue
        entries.append(Entry(name.strip(), text, "--set"))
    return entries


def _read_properties_file(path: str, problems: list[str]) -> list[Entry]:
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        problems.append(f"{path}: the settings file cannot be read: {reason}")
        return []
    name = os.path.basename(path)
    return [Entry(key, value, f"{name}:{line_number}") for key, value, line_number in parse_properties(text)]


def parse_properties(text: str) -> list[tuple[str, str, int]]:
    """Key, value and line number of every entry of a Java properties file. Source: java.util.Properties.load."""
    entries = []
    lines = iter(enumerate(text.splitlines(), start=1))
    for line_number, raw_line in lines:
        line = raw_line.lstrip()
        if not line or line[0] in "#!":
            continue
        while _ends_in_open_backslash(line):
            _, continuation = next(lines, (0, ""))
            line = line[:-1] + continuation.lstrip()
        key, value = _split_property(line)
        entries.append((_unescape(key), _unescape(value.rstrip()), line_number))
    return entries


def _ends_in_open_backslash(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split_property(line: str) -> tuple[str, str]:
    """The key ends at the first unescaped `=`, `:` or blank."""
    position = 0
    while position < len(line) and line[position] not in "=: \t":
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip()
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip()
    return key, rest


_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    unescaped, position = [], 0
    while position < len(text):
        character = text[position]
        position += 1
        if character == "\\" and position < len(text):
            escaped = text[position]
            position += 1
            code = text[position : position + 4]
            if escaped == "u" and len(code) == 4 and all(digit in "0123456789abcdefABCDEF" for digit in code):
                character = chr(int(code, 16))
                position += 4
            else:
                character = _ESCAPES.get(escaped, escaped)
        unescaped.append(character)
    return "".join(unescaped)
