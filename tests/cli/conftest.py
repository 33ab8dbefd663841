"""What holds for the tests of commands."""

from tests.support.json_outputs import outputs_have_their_schemas  # noqa: F401
