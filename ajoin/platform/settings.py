"""Settings that are changed while the platform runs: what they are now, and what an operator makes of them.

The value that was set last wins over the configuration, also after a restart; taking it back lets the configuration
speak again. A value is checked like one in the configuration, together with the others as they are.
"""

from __future__ import annotations

import asyncio

from ajoin.config import Settings, checked_setting
from ajoin.platform.platform import Platform
from runtime.api import RunningSetting
from runtime.control.steering import STEERABLE, check_name


def running_settings(platform: Platform) -> tuple[RunningSetting, ...]:
    return tuple(_one(platform, name) for name in STEERABLE)


async def change_setting(platform: Platform, name: str, text: str | None) -> RunningSetting:
    """`text` None: the configured value again."""
    check_name(name)
    configured = getattr(platform.configured(), name)
    value = checked_setting(name, str(configured) if text is None else text, platform.steering())
    await asyncio.wrap_future(platform.change_setting(name, None if text is None else value))
    return _one(platform, name)


def _one(platform: Platform, name: str) -> RunningSetting:
    now, configured = getattr(platform.steering(), name), getattr(platform.configured(), name)
    described = Settings.model_fields[name].description or ""
    return RunningSetting(name, now, configured, described, name in platform.changed_settings())
