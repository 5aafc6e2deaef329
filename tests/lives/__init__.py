"""Random lives of the platform, for comparison with the oracle."""

from tests.lives.life import make_life
from tests.lives.profile import PROFILES, Profile
from tests.lives.runner import describe, with_extra_query
from tests.lives.shrink import shrink
from tests.lives.strategy import lives

__all__ = ["PROFILES", "Profile", "describe", "lives", "make_life", "shrink", "with_extra_query"]
