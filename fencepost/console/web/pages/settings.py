"""Settings of brokers, log levels, and the changes of both."""

from __future__ import annotations

from typing import Final

from fencepost.console.reading.settings import ResourceKind, alter_settings, read_settings
from fencepost.console.web.changes import Change, Form, change, field_of
from fencepost.console.web.pages.topic_changes import as_it_is, text_of
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit, whole_number, with_query

LEVELS: Final = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")


async def _broker(visit: Visit) -> tuple[int, list[int]]:
    """The broker in the address, else the first; and all of them."""
    view = await visit.cluster.view(())
    nodes = sorted(view.nodes)
    if not nodes:
        raise NotFoundError("the cluster has no brokers")
    chosen = visit.number("broker", nodes[0])
    if chosen not in nodes:
        raise NotFoundError(f"there is no broker {chosen}")
    return chosen, nodes


async def settings(visit: Visit) -> Page:
    broker, brokers = await _broker(visit)
    found = await read_settings(visit.cluster, ResourceKind.BROKER, str(broker), broker)
    only_changed = visit.parameter("changed") == "yes"
    data = {
        "broker": broker,
        "brokers": brokers,
        "settings": [one for one in found if not only_changed or not one.is_default],
        "total": len(found),
        "only_changed": only_changed,
        "wanted": visit.parameter("q").lower(),
    }
    return Page("settings.html", f"Settings of broker {broker}", data, menu="settings")


async def log_levels(visit: Visit) -> Page:
    broker, brokers = await _broker(visit)
    found = await read_settings(visit.cluster, ResourceKind.LOGGER, str(broker), broker)
    data = {
        "broker": broker,
        "brokers": brokers,
        "loggers": found,
        "levels": LEVELS,
        "wanted": visit.parameter("q").lower(),
    }
    return Page("log_levels.html", f"Log levels of broker {broker}", data, menu="settings")


@change("alter-broker-setting")
async def alter_broker_setting(visit: Visit, form: Form) -> Change:
    broker = whole_number(form.get("broker", ""), "the broker", 0, 2**31 - 1)
    setting = field_of(form, "setting", "the setting")
    value = None if form.get("reset") == "yes" else form.get("value", "")
    everywhere = form.get("everywhere") == "yes"
    known = {one.name: one for one in await read_settings(visit.cluster, ResourceKind.BROKER, str(broker), broker)}
    if setting not in known:
        raise NotFoundError(f"a broker has no setting {setting}")
    then = "its default" if value is None else ("a new secret" if known[setting].is_secret else value)
    name = "" if everywhere else str(broker)
    node_id = None if everywhere else broker
    await alter_settings(
        visit.cluster, ResourceKind.BROKER, name, [(setting, value)], node_id=node_id, validate_only=True
    )

    async def perform() -> str:
        await alter_settings(visit.cluster, ResourceKind.BROKER, name, [(setting, value)], node_id=node_id)
        return f"{setting} was " + ("reset." if value is None else f"set to {then}.")

    where = "all brokers" if everywhere else f"broker {broker}"
    present = text_of(known[setting])
    effects = [f"{setting} of {where}: {present} → {then}", "It is in force at once, and stays over restarts."]
    back = with_query("/settings", broker=broker)
    return Change(
        "Change setting",
        setting,
        effects,
        perform,
        back,
        back,
        details=where,
        world=as_it_is(known[setting]),
        values=[(f"{setting} of {where}", present, then)],
    )


@change("set-log-level")
async def set_log_level(visit: Visit, form: Form) -> Change:
    broker = whole_number(form.get("broker", ""), "the broker", 0, 2**31 - 1)
    logger = field_of(form, "setting", "the logger")
    level = None if form.get("reset") == "yes" else form.get("value", "")
    if level is not None and level not in LEVELS:
        raise BadFormError(f"there is no level {level}; there are {', '.join(LEVELS)}")
    found = await read_settings(visit.cluster, ResourceKind.LOGGER, str(broker), broker)
    known = next((one for one in found if one.name == logger), None)
    if known is None:
        raise NotFoundError(f"broker {broker} has no logger {logger}")
    await alter_settings(
        visit.cluster, ResourceKind.LOGGER, str(broker), [(logger, level)], node_id=broker, validate_only=True
    )

    async def perform() -> str:
        await alter_settings(visit.cluster, ResourceKind.LOGGER, str(broker), [(logger, level)], node_id=broker)
        return f"Logger {logger} of broker {broker}: " + (level or "as its parent.")

    effects = [f"Logger {logger} of broker {broker} logs at " + (f"{level}." if level else "the level of its parent.")]
    if level in ("TRACE", "DEBUG"):
        effects.append("A busy broker may write much; set it back afterwards.")
    back = with_query("/log-levels", broker=broker)
    return Change(
        "Set log level",
        logger,
        effects,
        perform,
        back,
        back,
        is_dangerous=False,
        details=f"broker {broker}",
        world=as_it_is(known),
        values=[(f"level of {logger}", text_of(known), level or "that of its parent")],
    )
