from __future__ import annotations

import pytest

from tests.runtime.damage_world import finish, joining


@pytest.fixture(scope="session")
def undamaged(tmp_path_factory):
    """Rows per query of the small world's life without damage."""
    return finish(joining(tmp_path_factory.mktemp("whole")))
