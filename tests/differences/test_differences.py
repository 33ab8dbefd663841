"""The comparison itself: what counts as the same, what deviates, what is declared, and what is kept in files."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from fencepost.broker.requests.served import SERVED
from fencepost.protocol.api_keys import ApiKey
from fencepost.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from fencepost.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from tests.differences import __main__ as diff_kafka
from tests.differences import comparison
from tests.differences.__main__ import comparisons, secured_comparisons, seeds_in
from tests.differences.comparison import (
    NOTHING,
    RECORDINGS,
    Answers,
    Deviation,
    Given,
    compare,
    described,
    load,
    save,
    story,
    until_first,
)
from tests.differences.declared import DECLARED, Declared, obsolete, undeclared
from tests.differences.exchange import error_codes
from tests.differences.plain import FREE, UNORDERED, Names, plain
from tests.differences.random_sequences import GENERATED, RECORDED_SEEDS, recording_name
from tests.differences.secured import SECURED_SEEDS
from tests.differences.sequences import SEQUENCES

METADATA = 3
PAGE = Path(__file__).resolve().parents[2] / "docs" / "differences-from-kafka.md"


def answers(*given: tuple[str, int, object], served: dict[int, tuple[int, int]] | None = None) -> Answers:
    return Answers({(situation, version): Given(METADATA, reply) for situation, version, reply in given}, served)


def topic(name: str, topic_id: bytes, error: int = 0) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=error, name=name, topic_id=topic_id)


def test_values_that_are_free_to_differ_only_count_as_there() -> None:
    one = MetadataResponse(throttle_time_ms=3, brokers=[MetadataResponseBroker(1, "here", 9092)], cluster_id="a")
    other = MetadataResponse(throttle_time_ms=9, brokers=[MetadataResponseBroker(1, "there", 9093)], cluster_id="b")
    assert plain(one, Names("t"), "x") == plain(other, Names("t"), "x")
    assert plain(one, Names("t"), "x") != plain(MetadataResponse(brokers=other.brokers), Names("t"), "x")


def test_an_id_is_called_by_where_it_appeared_first() -> None:
    first, second = b"1" * 16, b"2" * 16
    names = Names("t")
    names.remember(first, "the id of a")
    shown = plain(MetadataResponse(topics=[topic("a-t", first), topic("b.v3-t", second)]), names, "both")
    assert shown["topics"] == {"a": {"topic_id": "the id of a"}, "b": {"topic_id": "topic_id of 'both'"}}
    assert plain(MetadataResponse(topics=[topic("c", second)]), names, "later")["topics"] == {
        "c": {"topic_id": "topic_id of 'both'"}
    }


def test_the_order_of_a_hash_table_says_nothing() -> None:
    one = MetadataResponse(topics=[topic("a", bytes(16), 3), topic("b", bytes(16))])
    other = MetadataResponse(topics=[topic("b", bytes(16)), topic("a", bytes(16), 3)])
    assert plain(one, Names("t"), "x") == plain(other, Names("t"), "x")


def test_a_topic_in_two_pieces_is_one_unless_they_are_about_the_same_partition() -> None:
    def fetched(*pieces: Sequence[int]) -> object:
        topics = [
            FetchableTopicResponse(topic="a", partitions=[PartitionData(partition_index=index) for index in piece])
            for piece in pieces
        ]
        return plain(FetchResponse(responses=topics), Names("t"), "x")

    assert fetched([1], [0, 2]) == fetched([0, 1, 2])
    assert fetched([1], [1]) != fetched([1])
    assert fetched([], []) != fetched([])


def test_error_codes_are_found_at_any_depth() -> None:
    assert error_codes(MetadataResponse(topics=[topic("a", bytes(16), 3)])) == {0, 3}


def test_a_deviation_says_where_it_is() -> None:
    kafka = answers(("a topic", 1, {"topics": [{"error_code": 3, "name": "a"}]}), ("silent", 2, "no reply"))
    fencepost = answers(("a topic", 1, {"topics": [{"error_code": 17, "name": "a"}]}), ("silent", 2, {}))
    assert compare("topics", kafka, fencepost) == [
        Deviation("topics", "a topic", 1, "topics.0.error_code", 3, 17),
        Deviation("topics", "silent", 2, "", "no reply", {}),
    ]


def test_a_request_that_only_one_broker_got_deviates() -> None:
    assert compare("topics", answers(), answers(("a topic", 1, {}))) == [
        Deviation("topics", "a topic", 1, "", NOTHING, {})
    ]


def test_versions_that_are_not_served_are_left_out() -> None:
    kafka = answers(("a topic", 1, {}), ("a topic", 2, {}))
    (deviation,) = compare("topics", kafka, answers(served={METADATA: (2, 5)}))
    assert deviation.version == 2
    assert compare("topics", kafka, answers(served={})) == []


def test_versions_that_deviate_in_the_same_way_are_shown_together() -> None:
    deviations = [Deviation("topics", "a topic", version, "error_code", 1, 2) for version in (1, 2, 3, 7)]
    assert "topics: a topic | error_code | v1-3,7" in described(deviations)


def test_a_recording_says_the_same_when_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(comparison, "RECORDINGS", tmp_path / "kept")
    kept = answers(("a", 1, {"x": None}), ("a", 2, {"x": None}), ("a", 5, {"x": None}), ("b", 1, "no reply"))
    assert len(save("theme", kept).read_text().splitlines()) == 2
    assert load("theme") == kept


def test_a_declaration_covers_what_it_describes_and_is_obsolete_without_it() -> None:
    declared = [Declared("a", "topics", "create: *", "*.error_message", (NOTHING, None)), Declared("b", "fetch", "*")]
    text = Deviation("topics", "create: one", 1, "topics.0.error_message", None, "why")
    code = Deviation("topics", "create: one", 1, "topics.0.error_code", 3, 17)
    assert undeclared([text, code], declared) == [code]
    assert obsolete([text, code], declared) == [declared[1]]
    assert undeclared([text._replace(kafka="*")], declared) != []


def test_the_page_explains_exactly_the_declared_differences() -> None:
    assert set(re.findall(r"^### (\S+)$", PAGE.read_text(), re.MULTILINE)) == {one.name for one in DECLARED}


def test_every_theme_has_a_recording_and_all_are_small() -> None:
    assert {path.stem for path in RECORDINGS.glob("*.jsonl")} == set(SEQUENCES)
    assert sum(path.stat().st_size for path in RECORDINGS.rglob("*.jsonl")) < 3_000_000


def test_the_seeds_that_are_kept_have_a_recording_and_no_others() -> None:
    kept = {f"generated/{path.stem}" for path in (RECORDINGS / "generated").iterdir()}
    assert RECORDED_SEEDS.keys() == GENERATED.keys()
    assert kept == {recording_name(theme, seed) for theme, seeds in RECORDED_SEEDS.items() for seed in seeds}


def test_every_theme_of_secured_brokers_and_its_seeds_have_a_recording_and_no_others() -> None:
    kept = {f"secured/{path.stem}" for path in (RECORDINGS / "secured").iterdir()}
    asked = secured_comparisons([], ())
    for theme, seeds in SECURED_SEEDS.items():
        asked += secured_comparisons([theme], seeds)
    assert kept == {one.name for one in asked}


def test_behind_the_first_situation_that_deviates_nothing_counts() -> None:
    first = [Deviation("generated", "1 a topic", 3, path, 0, 1) for path in ("one", "other")]
    later = Deviation("generated", "2 a topic", 3, "one", 0, 1)
    assert until_first([*first, later]) == first
    assert until_first([]) == []


def test_the_story_of_a_seed_ends_where_it_deviates() -> None:
    asked = answers(("1 a topic", 1, {"x": 1}), ("2 another", 4, {}), ("3 a third", 1, {}))
    assert story(asked, [Deviation("generated", "2 another", 4, "x", 0, 1)]) == (
        '1 a topic | v1\n    {"x": 1}\n2 another | v4\n    {}\n'
    )
    assert story(asked, []).endswith("3 a third | v1\n    {}\n")


def test_seeds_are_compared_by_theme_under_a_name_of_their_own() -> None:
    compared = comparisons(["transactions"], seeds_in("7-8"))
    assert [one.name for one in compared] == ["generated/transactions-7", "generated/transactions-8"]
    assert len({one.token for one in compared}) == 2
    assert all(one.depends_on_answers for one in compared)
    assert [one.name for one in comparisons(["fetch"], ())] == ["fetch"]


@pytest.mark.parametrize("text", ["", "x", "1-x", "5-3", "-"])
def test_what_is_not_a_range_of_seeds_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        diff_kafka.main(["--seeds", text])
    assert "as in 1-100" in capsys.readouterr().err


def test_every_exception_has_its_reason() -> None:
    assert all(FREE.values())
    assert all(reason for _, reason in UNORDERED.values())


def test_an_unknown_theme_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        diff_kafka.main(["nonsense"])
    assert "no such theme" in capsys.readouterr().err


NOT_COMPARED = {
    # Kafka of one node with a static quorum has no voters to add or remove.
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
    # Kafka serves them with a plugin only: tests/integration/test_client_metrics.py compares them.
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS,
    ApiKey.PUSH_TELEMETRY,
}


def test_every_served_api_is_compared() -> None:
    themes = [path.relative_to(RECORDINGS).with_suffix("").as_posix() for path in RECORDINGS.rglob("*.jsonl")]
    compared = {given.api_key for theme in themes for given in load(theme).given.values()}
    assert {ApiKey(key) for key in SERVED if key not in compared} == NOT_COMPARED
