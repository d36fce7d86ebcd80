"""A connection that is collected while open names the test that made it, whichever test runs then."""

import gc
from typing import Any
from warnings import warn

import pytest

from open_connections import remember_makers


class Connection:
    """As the driver's: it warns when it is collected while open."""

    def __init__(self) -> None:
        self.closed = False

    def __del__(self, say: Any = warn) -> None:
        if not self.closed:
            say("was deleted while still open.", ResourceWarning)


def test_a_test_that_failed_has_said_enough(
    recwarn: pytest.WarningsRecorder, request: pytest.FixtureRequest
) -> None:
    """What it left open fails no other test."""
    end = remember_makers(Connection, {request.node.nodeid})
    try:
        Connection()
        gc.collect()
    finally:
        end()
    assert not recwarn.list


def test_the_warning_names_the_test_that_made_the_connection(recwarn: pytest.WarningsRecorder) -> None:
    """And the lines of the stack that asked for it; a connection that was closed says nothing."""
    end = remember_makers(Connection)
    try:
        closed, _open = Connection(), Connection()
        closed.closed = True
        del closed, _open
        gc.collect()
    finally:
        end()
    (warning,) = [found for found in recwarn.list if found.category is ResourceWarning]
    assert "test_the_warning_names_the_test_that_made_the_connection (call)" in str(warning.message)
    assert "closed, _open = Connection(), Connection()" in str(warning.message)


def test_a_driver_that_warns_in_its_own_way_is_left_alone(recwarn: pytest.WarningsRecorder) -> None:
    """Its warning comes, without the name of the test."""

    class Old:
        def __del__(self) -> None:
            warn("was deleted while still open.", ResourceWarning, stacklevel=1)

    end = remember_makers(Old)
    try:
        Old()
        gc.collect()
    finally:
        end()
    (warning,) = [found for found in recwarn.list if found.category is ResourceWarning]
    assert str(warning.message) == "was deleted while still open."
