"""The OpenAPI document."""

from __future__ import annotations

from fencepost.testing.http.document import document
from fencepost.testing.http.operations import OPERATIONS


def test_it_has_every_operation_with_its_arguments_at_their_places() -> None:
    paths = document("1.2.3")["paths"]
    for operation in OPERATIONS:
        described = paths[operation.path][operation.method.lower()]
        assert described["operationId"] == operation.name
        places = {one["name"]: one["in"] for one in described["parameters"]}
        body = described.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
        places |= dict.fromkeys(body.get("properties", ()), "body")
        wanted = "body" if operation.has_body else "query"
        assert places == {
            **{one.name: "path" for one in operation.in_path},
            **{one.name: wanted for one in operation.parameters},
        }


def test_defaults_and_required_arguments_are_described() -> None:
    paths = document("1.2.3")["paths"]
    body = paths["/brokers/{broker}/fail"]["post"]["requestBody"]
    assert body["required"] is True
    schema = body["content"]["application/json"]["schema"]
    assert schema["required"] == ["api", "error"]
    assert schema["properties"]["count"]["default"] == 1
    assert schema["properties"]["topic"]["type"] == ["string", "null"]
    assert paths["/brokers"]["post"]["requestBody"]["required"] is False
    settings = paths["/brokers"]["post"]["requestBody"]["content"]["application/json"]["schema"]["properties"][
        "settings"
    ]
    assert settings["type"] == ["object", "null"]


def test_every_reference_leads_somewhere() -> None:
    found = document("1.2.3")

    def references(part: object) -> set[str]:
        if isinstance(part, dict):
            inner = set().union(*(references(one) for one in part.values())) if part else set()
            return inner | ({part["$ref"]} if isinstance(part.get("$ref"), str) else set())
        return set().union(*(references(one) for one in part)) if isinstance(part, list) and part else set()

    named = references(found)
    assert len(named) > 10
    for reference in named:
        _, *parts = reference.split("/")
        place: object = found
        for part in parts:
            assert isinstance(place, dict)
            place = place[part]
