"""DescribeClientQuotas, AlterClientQuotas and UpdateFeatures."""

from __future__ import annotations

from fencepost.protocol.messages.client_quotas import (
    AlterClientQuotasRequest,
    AlterEntryData,
    ComponentData,
    DescribeClientQuotasRequest,
    EntityData,
    OpData,
)
from fencepost.protocol.messages.features import FeatureUpdateKey, UpdateFeaturesRequest
from tests.differences.exchange import Exchange

EXACT, DEFAULT, ANY = 0, 1, 2
UPGRADE, SAFE_DOWNGRADE = 1, 2


def run(exchange: Exchange) -> None:
    changes(exchange)
    descriptions(exchange)
    features(exchange)


def changes(exchange: Exchange) -> None:
    for version in exchange.versions(AlterClientQuotasRequest):

        def ask(situation: str, *entries: AlterEntryData, validate_only: bool = False, version: int = version) -> None:
            exchange.ask(f"change: {situation}", AlterClientQuotasRequest(list(entries), validate_only), version)

        def entry(key: str, value: float, *entity: tuple[str, str | None], remove: bool = False) -> AlterEntryData:
            return AlterEntryData([EntityData(kind, name) for kind, name in entity], [OpData(key, value, remove)])

        user = ("user", exchange.name("user", version))
        client = ("client-id", exchange.name("client", version))
        ask("nothing")
        ask("only validated", entry("producer_byte_rate", 1_000_000.0, user), validate_only=True)
        ask("of a user", entry("producer_byte_rate", 1_000_000.0, user))
        ask("of a user's client", entry("consumer_byte_rate", 1_000_000.0, user, client))
        ask("removed", entry("producer_byte_rate", 0.0, user, remove=True))
        ask("removed, never set", entry("request_percentage", 0.0, user, remove=True))
        ask("an unknown quota", entry("speed", 1.0, user))
        ask("a quota without name", entry("", 1.0, user))
        ask("a quota of another kind", entry("connection_creation_rate", 1.0, user))
        ask("a rate of 0", entry("producer_byte_rate", 0.0, user))
        ask("a negative rate", entry("producer_byte_rate", -1.0, user))
        ask("a rate that is no whole number", entry("producer_byte_rate", 1.5, user))
        ask("no number", entry("producer_byte_rate", float("nan"), user))
        ask("an unknown entity", entry("producer_byte_rate", 1.0, ("planet", "earth")))
        ask("no entity", entry("producer_byte_rate", 1.0))
        ask("one kind of entity twice", entry("producer_byte_rate", 1.0, user, ("user", "other")))
        ask("an empty name", entry("producer_byte_rate", 1.0, ("user", "")))
        ask("an address and a user", entry("connection_creation_rate", 5.0, ("ip", "127.0.0.9"), user))
        ask("an address that is none", entry("connection_creation_rate", 5.0, ("ip", "not an address")))
        ask("no operations", AlterEntryData([EntityData(*user)], []))
        ask("one good and one bad", entry("producer_byte_rate", 7.0, user), entry("speed", 1.0, client))


def descriptions(exchange: Exchange) -> None:
    user = exchange.name("described")
    setting = AlterEntryData([EntityData("user", user)], [OpData("request_percentage", 50.0)])
    exchange.call(AlterClientQuotasRequest([setting]), 1)
    for version in exchange.versions(DescribeClientQuotasRequest):

        def ask(
            situation: str, *components: tuple[str, int, str | None], strict: bool = False, version: int = version
        ) -> None:
            wanted = [ComponentData(kind, match_type, match) for kind, match_type, match in components]
            exchange.ask(f"describe: {situation}", DescribeClientQuotasRequest(wanted, strict), version)

        if version == 0:
            exchange.ask_until(
                "describe: what was set before",
                DescribeClientQuotasRequest([ComponentData("user", EXACT, user)], True),
                version,
                lambda reply: bool(reply.entries),
            )
        ask("a user", ("user", EXACT, user))
        ask("a user, strictly", ("user", EXACT, user), strict=True)
        ask("a user's clients", ("user", EXACT, user), ("client-id", ANY, None), strict=True)
        ask("an unknown user", ("user", EXACT, "nobody"))
        ask("an unknown entity", ("planet", EXACT, "earth"))
        ask("an empty entity", ("", EXACT, "earth"))
        ask("an unknown way to match", ("user", 7, user))
        ask("a name to be matched that is null", ("user", EXACT, None))
        ask("a default with a name", ("user", DEFAULT, user))
        ask("one kind of entity twice", ("user", EXACT, user), ("user", EXACT, "other"))
        ask("an address and a user", ("ip", ANY, None), ("user", ANY, None))


def features(exchange: Exchange) -> None:
    """None of these changes a level."""
    for version in exchange.versions(UpdateFeaturesRequest):

        def ask(situation: str, *updates: tuple[str, int, int], version: int = version) -> None:
            keys = [
                FeatureUpdateKey(name, level, allow_downgrade=kind != UPGRADE, upgrade_type=kind)
                for name, level, kind in updates
            ]
            request = UpdateFeaturesRequest(10_000, keys, validate_only=True)
            if version == 0:
                keys = [key for key in keys if key.feature in ("", "speed")]
                request = UpdateFeaturesRequest(10_000, keys)
            exchange.ask(f"features: {situation}", request, version)

        ask("an unknown one", ("speed", 1, UPGRADE))
        ask("an empty name", ("", 1, UPGRADE))
        if version >= 1:
            ask("to the level that it has", ("group.version", 1, UPGRADE))
            ask("to a level that there is not", ("group.version", 9, UPGRADE))
            ask("to a negative level", ("group.version", -1, UPGRADE))
            ask("a downgrade that is called an upgrade", ("transaction.version", 1, UPGRADE))
            ask("an unknown type of upgrade", ("transaction.version", 1, 9))
            ask("one twice", ("group.version", 1, UPGRADE), ("group.version", 0, SAFE_DOWNGRADE))
            ask("one known and one unknown", ("group.version", 1, UPGRADE), ("speed", 1, UPGRADE))
