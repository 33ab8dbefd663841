"""Text of settings that becomes values, or is refused."""

from __future__ import annotations

import pytest

from fencepost.broker.config import ConfigurationError, load_settings


def problems_of(**sources: object) -> tuple[str, ...]:
    with pytest.raises(ConfigurationError) as caught:
        load_settings(**sources)  # type: ignore[arg-type]
    return caught.value.problems


@pytest.mark.parametrize("text", ["1_000", "٣", "1.5", "", "3000000000", "0x10"])
def test_a_value_that_is_no_whole_number_of_the_type_is_refused(text: str) -> None:
    (problem,) = problems_of(assignments=[f"num.partitions={text}"])
    assert repr(text) in problem
