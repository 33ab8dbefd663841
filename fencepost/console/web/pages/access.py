"""Access: rules (ACLs), users with passwords, quotas, and their changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from fencepost.console.reading.access import (
    CLUSTER_NAME,
    ENTITIES,
    MECHANISMS,
    OPERATIONS,
    PATTERNS,
    PERMISSIONS,
    QUOTAS,
    RESOURCES,
    Acl,
    Entity,
    ScramUser,
    add_acl,
    alter_quota,
    entity_text,
    read_acls,
    read_quotas,
    read_users,
    remove_acl,
    remove_user,
    set_password,
)
from fencepost.console.web.changes import Change, Form, change, field_of, in_turn, is_confirmed
from fencepost.console.web.listing import Listing
from fencepost.console.web.visit import BadFormError, NotFoundError, Page, Visit, whole_number

CLUSTER = 4


async def acls(visit: Visit) -> Page:
    found = await read_acls(visit.cluster)
    listing = Listing(
        found or (),
        visit.parameters,
        text_of=lambda one: one.sentence,
        orders={
            "principal": lambda one: one.principal,
            "resource": lambda one: (one.resource, one.resource_name),
            "operation": lambda one: one.operation_name,
        },
        first_order="resource",
    )
    data = {
        "listing": listing,
        "has_authorizer": found is not None,
        "resources": RESOURCES,
        "patterns": PATTERNS,
        "operations": OPERATIONS,
        "permissions": PERMISSIONS,
    }
    return Page("acls.html", "Access", data, menu="access")


def _acl_of(form: Form) -> Acl:
    kind = whole_number(form.get("resource_type", ""), "the kind of resource", 2, 7)
    pattern = whole_number(form.get("pattern_type", "3"), "the pattern", 3, 4)
    principal = field_of(form, "principal", "the principal")
    if ":" not in principal:
        raise BadFormError(f"a principal is written as User:{principal}")
    return Acl(
        kind,
        CLUSTER_NAME if kind == CLUSTER else field_of(form, "resource_name", "the name of the resource"),
        3 if kind == CLUSTER else pattern,
        principal,
        form.get("host", "").strip() or "*",
        whole_number(form.get("operation", ""), "the operation", 2, 15),
        whole_number(form.get("permission", ""), "the permission", 2, 3),
    )


@change("add-acl")
async def prepare_acl(visit: Visit, form: Form) -> Change:
    acl = _acl_of(form)
    rules = await _rules_beside(visit, acl)

    async def perform() -> str:
        await add_acl(visit.cluster, acl)
        return f"In force: {acl.sentence}."

    effects = [f"{acl.sentence}.", "It is in force from the next request on, also of connections that are open."]
    if acl in rules:
        effects.append("It is there already: nothing will change.")
    return Change(
        "Add rule",
        acl.principal,
        effects,
        perform,
        "/acls",
        "/acls",
        is_dangerous=False,
        details=acl.sentence,
        world=_world_of_rules(acl, rules),
        values=[(acl.sentence, "in force" if acl in rules else "not there", "in force")],
    )


@change("remove-acl")
async def prepare_removal(visit: Visit, form: Form) -> Change:
    acl = _acl_of(form)
    rules = await _rules_beside(visit, acl)

    async def perform() -> str:
        removed = await remove_acl(visit.cluster, acl)
        return f"Removed: {acl.sentence}." if removed else "The rule was gone already."

    effects = [f"No longer in force: {acl.sentence}."]
    if acl not in rules:
        effects.append("It is gone already: nothing will change.")
    return Change(
        "Remove rule",
        acl.principal,
        effects,
        perform,
        "/acls",
        "/acls",
        details=acl.sentence,
        world=_world_of_rules(acl, rules),
        values=[(acl.sentence, "in force" if acl in rules else "not there", "removed")],
    )


async def _rules_beside(visit: Visit, acl: Acl) -> list[Acl]:
    """The rules on the same resource: with another one beside it a rule means something else."""
    resource = acl.resource_type, acl.resource_name, acl.pattern_type
    found = await read_acls(visit.cluster)
    if found is None:
        raise BadFormError("this cluster has no authorizer, so there are no rules")
    return [one for one in found if (one.resource_type, one.resource_name, one.pattern_type) == resource]


def _world_of_rules(acl: Acl, rules: Sequence[Acl]) -> Mapping[str, object]:
    present = dict.fromkeys((f"the rule '{one.sentence}'" for one in rules), "in force")
    return {f"the rule '{acl.sentence}'": "not there", **present}


async def users(visit: Visit) -> Page:
    listing = Listing(
        await read_users(visit.cluster),
        visit.parameters,
        text_of=lambda one: one.name,
        orders={"name": lambda one: one.name},
        first_order="name",
    )
    return Page("users.html", "Users", {"listing": listing, "mechanisms": MECHANISMS}, menu="access")


@change("set-password")
async def prepare_password(visit: Visit, form: Form) -> Change:
    user = field_of(form, "user", "the user")
    wanted = form.get("mechanism", "both")
    chosen = [number for number, name in MECHANISMS.items() if wanted in ("both", name)]
    if not chosen:
        raise BadFormError(f"there is no mechanism {wanted}")
    found = await _user_named(visit, user)
    password = form.get("password", "")
    if is_confirmed(form):
        # The password is asked for on the page that confirms: it never is in a hidden field.
        if not password:
            raise BadFormError("the password is missing")
        if password != form.get("password_again", ""):
            raise BadFormError("the two passwords differ")

    async def perform() -> str:
        await in_turn(
            {MECHANISMS[number]: partial(set_password, visit.cluster, user, password, [number]) for number in chosen}
        )
        return f"The password of {user} was set."

    names = " and ".join(MECHANISMS[number] for number in chosen)
    effects = [
        f"{user} {'is added' if found is None else 'gets another password'}, for {names}.",
        "Connections that are open stay as they are.",
    ]
    return Change(
        "Set password",
        user,
        effects,
        perform,
        "/users",
        "/users",
        is_dangerous=False,
        details=names,
        asks_password=True,
        world=_world_of_user(user, found),
        values=[(f"password of {user}", _credentials(found), f"a new one, for {names}")],
    )


@change("remove-user")
async def prepare_user_removal(visit: Visit, form: Form) -> Change:
    name = form.get("user", "")
    found = await _user_named(visit, name)
    if found is None:
        raise NotFoundError(f"there is no user {name}")

    async def perform() -> str:
        credentials = [replace(found, mechanisms=(one,)) for one in found.mechanisms]
        await in_turn({one.mechanisms[0][0]: partial(remove_user, visit.cluster, one) for one in credentials})
        return f"{name} was removed."

    effects = [
        f"{name} cannot log in by SCRAM again.",
        "Connections that are open stay as they are.",
        "Its rules stay.",
    ]
    return Change(
        "Remove user",
        name,
        effects,
        perform,
        "/users",
        "/users",
        world=_world_of_user(name, found),
        values=[(f"user {name}", _credentials(found), "removed")],
    )


async def _user_named(visit: Visit, name: str) -> ScramUser | None:
    return next((one for one in await read_users(visit.cluster) if one.name == name), None)


def _credentials(user: ScramUser | None) -> str:
    found = () if user is None else user.mechanisms
    return ", ".join(f"{name} with {iterations} iterations" for name, iterations in found) or "none"


def _world_of_user(name: str, user: ScramUser | None) -> Mapping[str, object]:
    """A cluster does not tell salts: a password that another person has set meanwhile cannot be seen."""
    return {f"the credentials of {name}": _credentials(user)}


async def quotas(visit: Visit) -> Page:
    listing = Listing(
        await read_quotas(visit.cluster),
        visit.parameters,
        text_of=lambda one: f"{one.who} {one.key}",
        orders={"who": lambda one: one.who, "key": lambda one: one.key, "value": lambda one: one.value},
        first_order="who",
    )
    return Page("quotas.html", "Quotas", {"listing": listing, "keys": QUOTAS, "kinds": ENTITIES}, menu="quotas")


def _entity_of(form: Form) -> Entity:
    parts: list[tuple[str, str | None]] = []
    for kind in ENTITIES:
        name = form.get(kind, "").strip()
        if form.get(f"{kind}-default") == "yes":
            parts.append((kind, None))
        elif name:
            parts.append((kind, name))
    if not parts:
        raise BadFormError("say whose quota it is: a user, a client id, or an address")
    return tuple(sorted(parts, key=lambda part: part[0]))


@change("set-quota")
async def prepare_quota(visit: Visit, form: Form) -> Change:
    entity = _entity_of(form)
    key = form.get("key", "")
    if key not in QUOTAS:
        raise BadFormError(f"there is no quota {key}")
    value: float | None = None
    if form.get("remove") != "yes":
        try:
            value = float(form.get("value", ""))
        except ValueError:
            raise BadFormError("the value must be a number") from None
        if not math.isfinite(value):
            raise BadFormError("the value must be a finite number")
    await alter_quota(visit.cluster, entity, key, value, validate_only=True)
    who = entity_text(entity)
    known = {(one.entity, one.key): one.value for one in await read_quotas(visit.cluster)}
    present, then = _limit(known.get((entity, key))), _limit(value)

    async def perform() -> str:
        await alter_quota(visit.cluster, entity, key, value)
        return f"{key} of {who} was " + ("removed." if value is None else f"set to {value:,g}.")

    return Change(
        "Change quota",
        who,
        [f"{key} of {who}: {present} → {then}"],
        perform,
        "/quotas",
        "/quotas",
        world={f"{key} of {who}": present},
        values=[(key, present, then)],
    )


def _limit(value: float | None) -> str:
    return "no limit of its own" if value is None else f"{value:,.10g}"
