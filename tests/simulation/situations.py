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
A_PREPARED_TRANSACTION_IS_LOADED: Final = "a broker dies between Prepare and Complete"
