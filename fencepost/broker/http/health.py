"""Health of the broker: whether its process should be restarted, and whether clients can use it now."""

from __future__ import annotations

from collections.abc import Iterator

from fencepost.broker.http.exchange import HttpRequest, HttpResponse, json_response
from fencepost.broker.kernel.topic_partition import INTERNAL_TOPICS, TopicPartition
from fencepost.broker.metrics.node_view import NodeView

STARTING = "the broker is starting"


async def alive(view: NodeView | None, _: HttpRequest) -> HttpResponse:
    """200 while the event loop turns and the broker has not failed; else 503. It is alive while it starts, too."""
    failure = None if view is None else view.failure()
    if failure is not None:
        return json_response({"status": "failed", "reasons": [failure]}, 503)
    return json_response({"status": "ok"})


async def ready(view: NodeView | None, _: HttpRequest) -> HttpResponse:
    """200 when clients can use everything; else 503 with the reasons."""
    reasons = [STARTING] if view is None else list(_reasons(view))
    if reasons:
        return json_response({"status": "not ready", "reasons": reasons}, 503)
    return json_response({"status": "ok"})


def _reasons(view: NodeView) -> Iterator[str]:
    failure = view.failure()
    if failure is not None:
        yield f"the broker has failed: {failure}"
    services = view.services
    for name, coordinator in (("transaction", services.transactions), ("group", services.groups)):
        if coordinator.is_loading:
            yield f"the {name} coordinator is loading"
        for partition in coordinator.offline_partitions:
            yield f"partition {partition} of the {name} coordinator is offline"
    for topic_name in sorted(INTERNAL_TOPICS):
        topic = services.topics.metadata.get(topic_name)
        for partition in range(0 if topic is None else topic.partition_count):
            log = services.topics.directory.get(TopicPartition(topic_name, partition))
            if log is not None and log.is_offline:
                yield f"{topic_name}-{partition} is offline: {log.offline_reason}"
