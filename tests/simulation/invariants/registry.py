"""All invariants, in the order of their numbers."""

from __future__ import annotations

from typing import Final

from tests.simulation.invariants.coordinators import (
    EveryTransactionEnds,
    LegalTransitions,
    RepeatsChangeNothing,
    ReplayedCoordinators,
)
from tests.simulation.invariants.engine import (
    AcknowledgedIsCommitted,
    AnswersNeedTheLease,
    BoundedTails,
    CoveredLogs,
    FencedFlushes,
    GarbageIsUnnamed,
    NamedObjectsExist,
    OneRowPerPartition,
    RestoredAsItWas,
    RisingRowEpochs,
    VisibleIsCommitted,
)
from tests.simulation.invariants.groups import CommittedOffsets
from tests.simulation.invariants.invariant import Invariant
from tests.simulation.invariants.open_transactions import NoHangingTransactions, OneOpenTransaction
from tests.simulation.invariants.outcomes import AtomicVisibility, CompleteOnlyWithMarkers, OneOutcome
from tests.simulation.invariants.processes import (
    ClosedWhereItIsNotLed,
    DocumentsAreHeardOf,
    LastLeaderStateIsTrue,
    LedAgain,
    NeverBegunAnew,
    NothingMovesWithoutCause,
    OneWriterPerEpoch,
)
from tests.simulation.invariants.producers import FencedProducers, UniqueIdentities
from tests.simulation.invariants.reads import AbortedLists, CommittedReads
from tests.simulation.invariants.records import AcknowledgedRecords, ContiguousSequences, RisingEpochs
from tests.simulation.invariants.recovery import CompactionChangesNothing, ReplayedProducers, TransactionIndexes
from tests.simulation.invariants.recreations import AnotherTopicOfTheName
from tests.simulation.invariants.replies import AllowedReplies
from tests.simulation.invariants.rights import RefusedRequests
from tests.simulation.invariants.silence import NothingStopsInSilence
from tests.simulation.invariants.two_phase import (
    KeptAsItWas,
    MarkersAboveTheData,
    NeverEndedByTime,
    OneAnswer,
    OnlyTheCurrentPair,
    PairsOfTheirOwn,
)
from tests.simulation.invariants.watermarks import OrderedWatermarks, ReckonedStableOffset

INVARIANTS: Final[tuple[type[Invariant], ...]] = (
    CommittedReads,
    AtomicVisibility,
    OneOutcome,
    AcknowledgedRecords,
    ContiguousSequences,
    RisingEpochs,
    OrderedWatermarks,
    ReckonedStableOffset,
    UniqueIdentities,
    FencedProducers,
    LegalTransitions,
    CompleteOnlyWithMarkers,
    OneOpenTransaction,
    NoHangingTransactions,
    TransactionIndexes,
    ReplayedProducers,
    ReplayedCoordinators,
    CommittedOffsets,
    EveryTransactionEnds,
    RepeatsChangeNothing,
    AbortedLists,
    CompactionChangesNothing,
    AllowedReplies,
    NothingStopsInSilence,
    RefusedRequests,
    PairsOfTheirOwn,
    KeptAsItWas,
    MarkersAboveTheData,
    NeverEndedByTime,
    OneAnswer,
    OnlyTheCurrentPair,
    ClosedWhereItIsNotLed,
    OneWriterPerEpoch,
    NeverBegunAnew,
    LedAgain,
    DocumentsAreHeardOf,
    NothingMovesWithoutCause,
    LastLeaderStateIsTrue,
    FencedFlushes,
    CoveredLogs,
    AcknowledgedIsCommitted,
    VisibleIsCommitted,
    RisingRowEpochs,
    NamedObjectsExist,
    GarbageIsUnnamed,
    RestoredAsItWas,
    AnswersNeedTheLease,
    OneRowPerPartition,
    BoundedTails,
    AnotherTopicOfTheName,
)
