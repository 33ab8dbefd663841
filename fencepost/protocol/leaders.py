"""Leaders of partitions as replies name them: structs of Produce, Fetch and the requests of share groups.

Source: KIP-951; Kafka's ProduceResponse.json, FetchResponse.json and ShareFetchResponse.json.
"""

from fencepost.protocol.schema import int32, struct


@struct
class LeaderIdAndEpoch:
    """The present leader of the partition (KIP-951)."""

    leader_id: int32 = -1
    leader_epoch: int32 = -1


@struct
class NodeEndpoint:
    """Address of a leader named in this reply (KIP-951)."""

    node_id: int32 = 0
    host: str = ""
    port: int32 = 0
    rack: str | None = None
