"""Situations that are recognised where they come up, in words; `tests.simulation.lookout` has all that must come up."""

from __future__ import annotations

from typing import Final

A_DUPLICATE_IS_ACKNOWLEDGED: Final = "a batch that is sent again is acknowledged where it was"
A_GROUP_MOVES_ON_IN_A_TRANSACTION: Final = "a group is rebalanced while a member's transaction is open"
A_ZOMBIE_IS_FENCED: Final = "a producer that was replaced comes back and is refused"
A_COMMIT_IS_IN_DOUBT: Final = "a commit goes unanswered and is tried again"
A_MARKER_IS_WRITTEN_AGAIN: Final = "a marker is written again"
AN_EPOCH_IS_EXHAUSTED: Final = "a transaction ends in the reserved last epoch"
A_PRODUCER_ID_IS_REPLACED: Final = "a transactional id gets another producer id"
AN_ID_EXPIRES: Final = "a transactional id is forgotten"
A_SEGMENT_ROLLS: Final = "a segment is rolled"
A_LATER_SEGMENT_HAS_ABORTS: Final = "a transaction is aborted in a rolled segment"
A_SNAPSHOT_IS_READ: Final = "a broker starts from a snapshot of its producers"
CLIENTS_COME_BEFORE_LOGS_ARE_OPEN: Final = "a broker serves clients before all its logs are open"
A_LOG_IS_WANTED_BEFORE_IT_IS_OPEN: Final = "a client asks for a log that a start has left for later"
A_PREPARED_TRANSACTION_IS_LOADED: Final = "a broker dies between Prepare and Complete"

TWO_SESSIONS_KEEP: Final = "two sessions, one after the other, keep the same transaction"
TIME_PASSES_OVER_A_TRANSACTION: Final = "a month passes over a transaction of a two-phase commit"
A_KEPT_TRANSACTION_IS_ENDED: Final = "a kept transaction is ended by the newest session"
A_KEPT_TRANSACTION_IS_LOADED: Final = "a broker starts with a kept transaction"
A_PREPARED_TRANSACTION_IS_ENDED_BY_ITS_PAIR: Final = "a prepared transaction is ended by another process, by its pair"
A_PREPARED_TRANSACTION_IS_OVERRULED: Final = "an administrator ends a prepared transaction"
THE_END_OF_A_KEPT_TRANSACTION_IS_REPEATED: Final = "the end of a kept transaction is asked for and answered again"
AN_OLD_PAIR_IS_REFUSED: Final = "an InitProducerId that expects an old pair is refused while a transaction is open"

AN_ODD_RECORD_IS_WRITTEN: Final = "a stranger writes an odd record into a topic of the check-back"
THE_CHECK_BACK_ENDS_A_TRANSACTION: Final = "the check-back ends a transaction among odd records"

SOMETHING_UNFORESEEN_IS_RAISED: Final = "an exception that nobody foresaw is raised in a broker"

OTHERS_TAKE_OVER: Final = "other brokers take over from a dead one"
A_DEPOSED_BROKER_CANNOT_WRITE: Final = "a broker that does not know that it was deposed cannot write any more"
A_MARKER_CROSSES: Final = "a marker crosses the network"
A_PARTITION_IS_ADDED_ACROSS: Final = "a partition is added to a transaction across the network"
A_PARTITION_IS_VERIFIED_ACROSS: Final = "a partition of a transaction is verified across the network"
A_MARKER_IS_SENT_TO_ANOTHER_BROKER: Final = (
    "a marker is refused by a broker that does not lead, and sent to another one"
)
A_QUESTION_FINDS_NO_COORDINATOR: Final = "a broker asks one that does not coordinate any more"
A_REQUEST_TO_A_BROKER_IS_LOST: Final = "a broker waits in vain for another broker's answer"
A_MARKER_COMES_LATE_AGAIN: Final = "a marker that has crossed the network arrives once more, later"
AN_ADDITION_COMES_LATE_AGAIN: Final = "an AddPartitionsToTxn that has crossed the network arrives once more, later"
A_DEPOSED_COORDINATORS_MARKER_IS_REFUSED: Final = "a marker of a deposed coordinator is refused"
A_COORDINATOR_MOVES_IN_A_TRANSACTION: Final = "a transaction coordinator moves while a transaction is open"
A_COORDINATOR_MOVES_AFTER_PREPARE: Final = "a transaction coordinator moves between Prepare and Complete"
A_LEADER_MOVES_IN_A_TRANSACTION: Final = "a partition moves while a transaction is open in it"
A_GROUP_MOVES_IN_A_TRANSACTION: Final = "a group's partition moves while it has offsets in a transaction"
A_TOPIC_IS_CREATED_AGAIN: Final = "a topic is deleted, and created again under its name"
SOMETHING_IS_ACKNOWLEDGED_BY_A_TOPIC_CREATED_AGAIN: Final = "a topic that was created again acknowledges records"
A_FLUSH_IS_REFUSED: Final = "a flush of a broker that was deposed is refused by its fence"
