"""The verdicts of the authorizer: tables of rules and questions, and a slow model that is written another way."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.broker.security.acls import (
    AclOperation,
    AclPattern,
    AclPermission,
    AclResource,
    AclRule,
    RequestedAcl,
    filter_problem,
    matcher_of,
    rule_of,
)
from fencepost.broker.security.authorizer import MAXIMUM_CLIENTS, MAXIMUM_VERDICTS, Authorizer
from tests.support.secured_broker import ADMIN, ALICE, rule

READ, WRITE, CREATE, DELETE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DELETE
ALTER, DESCRIBE, ALL = AclOperation.ALTER, AclOperation.DESCRIBE, AclOperation.ALL
DESCRIBE_CONFIGS, ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS
TOPIC, GROUP, CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
PREFIXED, LITERAL, DENY = AclPattern.PREFIXED, AclPattern.LITERAL, AclPermission.DENY
HOST = "10.0.0.1"


def may(rules: Sequence[AclRule], operation: AclOperation, name: str = "orders", resource: AclResource = TOPIC) -> bool:
    return Authorizer(rules).rights(ALICE, HOST).may(operation, resource, name)


@pytest.mark.parametrize(
    ("rules", "operation", "name", "is_allowed"),
    [
        ([], READ, "orders", False),
        ([rule(READ, TOPIC, "orders")], READ, "orders", True),
        ([rule(READ, TOPIC, "orders")], WRITE, "orders", False),
        ([rule(READ, TOPIC, "orders")], READ, "order", False),
        ([rule(READ, GROUP, "orders")], READ, "orders", False),
        ([rule(READ, TOPIC, "orders", principal="User:bob")], READ, "orders", False),
        ([rule(READ, TOPIC, "orders", principal="User:*")], READ, "orders", True),
        ([rule(READ, TOPIC, "orders", host=HOST)], READ, "orders", True),
        ([rule(READ, TOPIC, "orders", host="10.0.0.2")], READ, "orders", False),
        ([rule(READ, TOPIC, "*")], READ, "orders", True),
        ([rule(READ, TOPIC, "ord", pattern=PREFIXED)], READ, "orders", True),
        ([rule(READ, TOPIC, "orders", pattern=PREFIXED)], READ, "orders", True),
        ([rule(READ, TOPIC, "orders-", pattern=PREFIXED)], READ, "orders", False),
        ([rule(ALL, TOPIC, "orders")], AclOperation.ALTER_CONFIGS, "orders", True),
        ([rule(READ, TOPIC, "*"), rule(READ, TOPIC, "ord", pattern=PREFIXED, permission=DENY)], READ, "orders", False),
        ([rule(READ, TOPIC, "orders"), rule(READ, TOPIC, "*", permission=DENY)], READ, "orders", False),
        ([rule(READ, TOPIC, "orders"), rule(ALL, TOPIC, "orders", permission=DENY)], READ, "orders", False),
        ([rule(READ, TOPIC, "orders"), rule(WRITE, TOPIC, "orders", permission=DENY)], READ, "orders", True),
        ([rule(READ, TOPIC, "orders"), rule(READ, TOPIC, "orders", host="h", permission=DENY)], READ, "orders", True),
    ],
)
def test_a_denial_comes_before_all_permissions_and_no_rule_means_no(
    rules: list[AclRule], operation: AclOperation, name: str, is_allowed: bool
) -> None:
    assert may(rules, operation, name) is is_allowed


@pytest.mark.parametrize("operation", [READ, WRITE, DELETE, ALTER, ALL])
def test_who_may_do_something_with_a_resource_may_describe_it(operation: AclOperation) -> None:
    assert may([rule(operation, TOPIC, "orders")], DESCRIBE)


@pytest.mark.parametrize("operation", [CREATE, ALTER_CONFIGS, DESCRIBE_CONFIGS, AclOperation.IDEMPOTENT_WRITE])
def test_other_operations_do_not_imply_describing(operation: AclOperation) -> None:
    assert not may([rule(operation, TOPIC, "orders")], DESCRIBE)


def test_altering_configs_implies_describing_them_and_nothing_else_does() -> None:
    assert may([rule(ALTER_CONFIGS, TOPIC, "orders")], DESCRIBE_CONFIGS)
    assert not may([rule(ALTER, TOPIC, "orders")], DESCRIBE_CONFIGS)


def test_a_denied_operation_denies_no_other_one() -> None:
    rules = [rule(DESCRIBE, TOPIC, "orders"), rule(READ, TOPIC, "orders", permission=DENY)]
    assert may(rules, DESCRIBE)
    assert not may(rules, READ)


def test_a_super_user_may_do_what_is_denied() -> None:
    authorizer = Authorizer([rule(ALL, TOPIC, "*", principal="User:*", permission=DENY)], super_users=[ADMIN])
    assert authorizer.rights(ADMIN, HOST).may(READ, TOPIC, "orders")
    assert authorizer.rights(ADMIN, HOST).may_on_any(WRITE, TOPIC)
    assert not authorizer.rights(ALICE, HOST).may(READ, TOPIC, "orders")


def test_everyone_may_use_a_resource_without_rules_where_that_is_configured() -> None:
    authorizer = Authorizer([rule(READ, TOPIC, "orders", principal="User:bob")], allows_without_rules=True)
    rights = authorizer.rights(ALICE, HOST)
    assert rights.may(READ, TOPIC, "payments")
    assert not rights.may(READ, TOPIC, "orders")  # there is a rule for it, though for bob


def test_a_changed_rule_counts_from_the_next_question_on() -> None:
    allowed = rule(READ, TOPIC, "orders")
    authorizer = Authorizer()
    assert not authorizer.rights(ALICE, HOST).may(READ, TOPIC, "orders")
    epoch = authorizer.epoch
    authorizer.change([allowed], ())
    assert authorizer.rights(ALICE, HOST).may(READ, TOPIC, "orders")
    authorizer.change((), [allowed])
    assert not authorizer.rights(ALICE, HOST).may(READ, TOPIC, "orders")
    assert authorizer.epoch == epoch + 2


def test_verdicts_and_clients_are_kept_within_bounds() -> None:
    authorizer = Authorizer([rule(READ, TOPIC, "t1")])
    rights = authorizer.rights(ALICE, HOST)
    for number in range(MAXIMUM_VERDICTS + 10):
        assert rights.may(READ, TOPIC, f"t{number}") is (number == 1)
    assert len(rights._verdicts) <= MAXIMUM_VERDICTS
    for number in range(MAXIMUM_CLIENTS + 10):
        authorizer.rights(f"User:{number}", HOST)
    assert len(authorizer._rights) <= MAXIMUM_CLIENTS


# Rights on any resource of a type


@pytest.mark.parametrize(
    ("rules", "is_allowed"),
    [
        ([], False),
        ([rule(READ, TOPIC, "orders")], False),
        ([rule(WRITE, TOPIC, "orders")], True),
        ([rule(ALL, TOPIC, "orders")], True),
        ([rule(WRITE, TOPIC, "pre-", pattern=PREFIXED)], True),
        ([rule(WRITE, TOPIC, "*")], True),
        ([rule(WRITE, TOPIC, "*"), rule(WRITE, TOPIC, "*", permission=DENY)], False),
        ([rule(WRITE, TOPIC, "orders"), rule(WRITE, TOPIC, "orders", permission=DENY)], False),
        ([rule(WRITE, TOPIC, "orders"), rule(WRITE, TOPIC, "ord", pattern=PREFIXED, permission=DENY)], False),
        ([rule(WRITE, TOPIC, "ord", pattern=PREFIXED), rule(WRITE, TOPIC, "ord", permission=DENY)], True),
        (
            [
                rule(WRITE, TOPIC, "orders-", pattern=PREFIXED),
                rule(WRITE, TOPIC, "ord", pattern=PREFIXED, permission=DENY),
            ],
            False,
        ),
        ([rule(WRITE, TOPIC, "orders", host="10.9.9.9")], False),
    ],
)
def test_a_right_on_any_topic_is_a_permission_that_no_denial_covers(rules: list[AclRule], is_allowed: bool) -> None:
    assert Authorizer(rules).rights(ALICE, HOST).may_on_any(WRITE, TOPIC) is is_allowed


# The model

NAMES = st.text("ab", min_size=1, max_size=4)
RULES = st.builds(
    AclRule,
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from([LITERAL, PREFIXED]),
    NAMES | st.just("*"),
    st.sampled_from([ALICE, "User:bob", "User:*"]),
    st.sampled_from([HOST, "10.0.0.2", "*"]),
    st.sampled_from([READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, ALL, CREATE]),
    st.sampled_from([DENY, AclPermission.ALLOW]),
)
QUESTIONS = st.tuples(
    st.sampled_from([READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS, CREATE]), st.sampled_from([TOPIC]), NAMES
)


def model_verdict(
    rules: Sequence[AclRule], question: tuple[AclOperation, AclResource, str], *, otherwise: bool
) -> bool:
    """As the documentation of Kafka tells it, one rule after the other."""
    operation, resource, name = question
    about = []
    for one in rules:
        covers = name.startswith(one.name) if one.pattern == PREFIXED else one.name in ("*", name)
        if one.resource == resource and covers:
            about.append(one)
    if not about:
        return otherwise
    mine = [one for one in about if one.principal in (ALICE, "User:*") and one.host in (HOST, "*")]
    if any(one.permission == DENY and one.operation in (operation, ALL) for one in mine):
        return False
    allowed = {one.operation for one in mine if one.permission != DENY}
    wider = {operation, ALL}
    if operation == DESCRIBE:
        wider |= {READ, WRITE, DELETE, ALTER}
    if operation == DESCRIBE_CONFIGS:
        wider |= {ALTER_CONFIGS}
    return bool(allowed & wider)


@settings(max_examples=400, deadline=None)
@given(
    kept=st.lists(RULES, max_size=8, unique=True),
    removed=st.lists(RULES, max_size=4, unique=True),
    questions=st.lists(QUESTIONS, min_size=1, max_size=6),
    otherwise=st.booleans(),
)
def test_the_index_of_rules_answers_as_a_walk_over_all_rules_does(
    kept: list[AclRule],
    removed: list[AclRule],
    questions: list[tuple[AclOperation, AclResource, str]],
    otherwise: bool,
) -> None:
    gone = [one for one in removed if one not in kept]
    authorizer = Authorizer([*gone, *kept], allows_without_rules=otherwise)
    assert [authorizer.rights(ALICE, HOST).may(*question) for question in questions] == [
        model_verdict([*gone, *kept], question, otherwise=otherwise) for question in questions
    ]
    authorizer.change((), gone)
    for question in questions * 2:  # the second time from the kept verdicts
        assert authorizer.rights(ALICE, HOST).may(*question) is model_verdict(kept, question, otherwise=otherwise)


# Rules and filters of requests


NO_PRINCIPAL = (
    "Could not parse principal from `alice` (no colon is present separating the principal type from the principal name)"
)


def requested(**changes: Any) -> RequestedAcl:
    return RequestedAcl(2, 3, "orders", ALICE, "*", 3, 3)._replace(**changes)


@pytest.mark.parametrize(
    ("wanted", "problem"),
    [
        (requested(resource=4, name="other"), "The only valid name for the CLUSTER resource is kafka-cluster"),
        (requested(name=""), "Invalid empty resource name"),
        (requested(principal="alice"), NO_PRINCIPAL),
        (requested(pattern=2), "Invalid patternType MATCH"),
        (requested(pattern=1), "Invalid patternType ANY"),
        (requested(resource=1), "Invalid resourceType ANY"),
        (requested(resource=99), "Invalid resourceType UNKNOWN (99)"),
        (requested(operation=1), "Invalid operation ANY"),
        (requested(permission=1), "Invalid permissionType ANY"),
    ],
)
def test_what_is_no_rule_is_refused_in_words(wanted: RequestedAcl, problem: str) -> None:
    assert rule_of(wanted) == problem


def test_an_operation_that_makes_no_sense_on_a_resource_is_accepted_as_in_kafka() -> None:
    assert rule_of(requested(operation=12)) == rule(AclOperation.IDEMPOTENT_WRITE, TOPIC, "orders")


RULES_TO_FIND = {
    "exact": rule(READ, TOPIC, "orders"),
    "other": rule(READ, TOPIC, "payments"),
    "all": rule(READ, TOPIC, "*"),
    "prefix": rule(READ, TOPIC, "ord", pattern=PREFIXED),
    "same prefix": rule(READ, TOPIC, "orders", pattern=PREFIXED),
    "group": rule(WRITE, GROUP, "orders", principal="User:bob", host=HOST, permission=DENY),
}
ANYTHING = RequestedAcl(1, 1, None, None, None, 1, 1)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (ANYTHING, set(RULES_TO_FIND)),
        (ANYTHING._replace(resource=2), {"exact", "other", "all", "prefix", "same prefix"}),
        (ANYTHING._replace(name="orders"), {"exact", "same prefix", "group"}),
        (ANYTHING._replace(resource=2, pattern=2, name="orders"), {"exact", "all", "prefix", "same prefix"}),
        (ANYTHING._replace(resource=2, pattern=3, name="orders"), {"exact"}),
        (ANYTHING._replace(pattern=4, name="orders"), {"same prefix"}),
        (ANYTHING._replace(pattern=4), {"prefix", "same prefix"}),
        (ANYTHING._replace(principal="User:bob"), {"group"}),
        (ANYTHING._replace(host=HOST), {"group"}),
        (ANYTHING._replace(operation=4), {"group"}),
        (ANYTHING._replace(permission=2), {"group"}),
    ],
)
def test_filters_find_rules_as_in_kafka(wanted: RequestedAcl, found: set[str]) -> None:
    assert filter_problem(wanted) is None
    assert {name for name, one in RULES_TO_FIND.items() if matcher_of(wanted)(one)} == found


def changed(field: str, number: Any) -> RequestedAcl:
    return ANYTHING._replace(**{field: number})


@pytest.mark.parametrize("field", ["resource", "pattern", "operation", "permission"])
def test_a_filter_with_an_unknown_number_is_refused(field: str) -> None:
    assert filter_problem(changed(field, 0)) is not None
    assert filter_problem(changed(field, 77)) is not None
