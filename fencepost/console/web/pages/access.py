"""Access: rules (ACLs), users with passwords, quotas, and their changes."""

from __future__ import annotations

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
from fencepost.console.web.changes import Change, Form, change, field_of, is_confirmed
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

    async def perform() -> str:
        await add_acl(visit.cluster, acl)
        return f"In force: {acl.sentence}."

    effects = [f"{acl.sentence}.", "It is in force from the next request on, also of connections that are open."]
    return Change(
        "Add rule", acl.principal, effects, perform, "/acls", "/acls", is_dangerous=False, details=acl.sentence
    )


@change("remove-acl")
async def prepare_removal(visit: Visit, form: Form) -> Change:
    acl = _acl_of(form)

    async def perform() -> str:
        removed = await remove_acl(visit.cluster, acl)
        return f"Removed: {acl.sentence}." if removed else "The rule was gone already."

    effects = [f"No longer in force: {acl.sentence}."]
    return Change("Remove rule", acl.principal, effects, perform, "/acls", "/acls", details=acl.sentence)


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
    known = {one.name for one in await read_users(visit.cluster)}
    password = form.get("password", "")
    if is_confirmed(form):
        # The password is asked for on the page that confirms: it never is in a hidden field.
        if not password:
            raise BadFormError("the password is missing")
        if password != form.get("password_again", ""):
            raise BadFormError("the two passwords differ")

    async def perform() -> str:
        await set_password(visit.cluster, user, password, chosen)
        return f"The password of {user} was set."

    names = " and ".join(MECHANISMS[number] for number in chosen)
    effects = [
        f"{user} {'gets another password' if user in known else 'is added'}, for {names}.",
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
    )


@change("remove-user")
async def prepare_user_removal(visit: Visit, form: Form) -> Change:
    name = form.get("user", "")
    found = next((one for one in await read_users(visit.cluster) if one.name == name), None)
    if found is None:
        raise NotFoundError(f"there is no user {name}")

    async def perform() -> str:
        await remove_user(visit.cluster, found)
        return f"{name} was removed."

    effects = [
        f"{name} cannot log in by SCRAM again.",
        "Connections that are open stay as they are.",
        "Its rules stay.",
    ]
    return Change("Remove user", name, effects, perform, "/users", "/users")


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
    await alter_quota(visit.cluster, entity, key, value, validate_only=True)
    who = entity_text(entity)

    async def perform() -> str:
        await alter_quota(visit.cluster, entity, key, value)
        return f"{key} of {who} was " + ("removed." if value is None else f"set to {value:,g}.")

    effects = [f"{key} of {who}: " + ("no limit any more" if value is None else f"{value:,g}")]
    details = f"{key} {'removed' if value is None else value}"
    return Change("Change quota", who, effects, perform, "/quotas", "/quotas", details=details)
