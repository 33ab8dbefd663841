"""Checks a broker with Spark's Kafka source and sink, in one session."""

from __future__ import annotations

from tests.compat.python_checks import main
from tests.compat.spark import batches, crowds, secured, streams
from tests.compat.spark.session import spark

# Starting the session, and its first job, take longer than a check may.
spark().range(1).collect()
main(
    [
        batches.batch_from_earliest_to_latest,
        batches.batch_between_offsets_as_json,
        batches.batch_between_timestamps,
        batches.batch_by_pattern_and_assignment,
        batches.batch_in_more_partitions_than_the_topic,
        batches.batch_from_sink_to_source,
        batches.batch_isolation,
        batches.batch_with_data_loss,
        streams.stream_available_now,
        streams.stream_from_latest,
        streams.stream_restarts_from_checkpoint,
        streams.stream_while_topic_grows,
        streams.stream_by_pattern_with_new_topic,
        streams.stream_with_data_loss,
        streams.stream_to_sink_through_kill,
        streams.stream_to_sink_through_termination,
        crowds.stream_beside_two_hundred_clients,
    ],
    secured=secured.CHECKS,
)
