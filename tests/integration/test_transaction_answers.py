"""What Apache Kafka 4.4 answered in some seventy situations of transactions, a broker process of ours answers, too."""

from __future__ import annotations

import json

from tests.recording.transaction_answers import ANSWERS, ask
from tests.support.broker_process import BrokerProcess


def test_every_answer_is_that_of_apache_kafka(broker: BrokerProcess) -> None:
    assert ask(broker.port) == json.loads(ANSWERS.read_text())
