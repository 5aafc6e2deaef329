"""What an operator may change about the optimizer, also while the platform runs: names, values, what they become.

The names are those of the settings (ajoin.config), where they are described and checked; here they only have values.
What was changed while the platform ran is in the log (`SettingChanged`) and wins over the configuration, also after a
restart, until it is taken back: an operator who has calmed the optimizer down at night must not find it as it was
because a machine was restarted. `ajoin settings` shows what differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from optimizer.cost.model import Weights
from optimizer.errors import InvalidRequest
from optimizer.optimize import OptimizerConfig
from optimizer.policy.hysteresis import HysteresisConfig
from optimizer.policy.scaling import ScalingConfig


@dataclass(frozen=True, slots=True)
class Steering:
    """Seconds, shares (0.5 is half) and counts; as OptimizerConfig, HysteresisConfig and ScalingConfig explain them."""

    optimize_period: float = 10.0
    optimize_full_after: float = 0.5
    optimize_full_gain: float = 0.15
    optimize_full_drift: float = 0.1
    optimize_full_every: int = 6
    optimize_min_gain: float = 0.03
    optimize_slow_epoch: float = 1.0
    optimize_confirmations: int = 2
    optimize_calm: int = 6
    optimize_max_doublings: int = 6
    max_latency: float = 5.0
    scale_above: float = 0.8
    scale_below: float = 0.3
    scale_skew: float = 1.5
    scale_patience: int = 3
    scale_max_ways: int = 8
    scale_min_partitions: int = 1
    scale_max_partitions: int = 256

    def changed(self, values: Mapping[str, float]) -> Steering:
        kinds: dict[str, Any] = {f.name: type(f.default) for f in fields(self)}
        return replace(self, **{name: kinds[name](value) for name, value in values.items()})

    def optimizer(self, weights: Weights | None = None) -> OptimizerConfig:
        hysteresis = HysteresisConfig(
            min_gain=self.optimize_min_gain,
            slow_epoch_s=self.optimize_slow_epoch,
            confirmations=self.optimize_confirmations,
            calm=self.optimize_calm,
            max_doublings=self.optimize_max_doublings,
        )
        scaling = ScalingConfig(
            latency_s=self.max_latency,
            high=self.scale_above,
            low=self.scale_below,
            skew=self.scale_skew,
            patience=self.scale_patience,
            max_ways=self.scale_max_ways,
            min_partitions=self.scale_min_partitions,
            max_partitions=self.scale_max_partitions,
        )
        return OptimizerConfig(
            weights=weights or Weights(),
            hysteresis=hysteresis,
            scaling=scaling,
            full_after=self.optimize_full_after,
            full_drift=self.optimize_full_drift,
            full_gain=self.optimize_full_gain,
            full_every=self.optimize_full_every,
        )


CUSTOMARY = Steering()
STEERABLE = tuple(f.name for f in fields(Steering))


def check_name(name: str) -> None:
    if name not in STEERABLE:
        raise InvalidRequest(
            f"{name!r} cannot be changed while the platform runs",
            reason="SETTING_NOT_STEERABLE",
            hint="these can: " + ", ".join(STEERABLE),
        )
