"""Queries whose tasks die, never end, or take all memory: found by the platform itself, and suspended."""

from __future__ import annotations

from collections.abc import Generator

from runtime.engine.quarantine import COULD_NOT_END
from tests.poison import sabotage
from tests.poison.kinds import Ending, How, Kind
from tests.poison.scene import Scene

TIMEOUT = 4.0
SUSPENDED = Ending(How.SUSPENDED, "", COULD_NOT_END)
"""What its tenant is told; the words of a failed task may be about others."""


def _kind(name: str, does: str, told: str, stage_timeout: float = 0.0) -> Kind:
    """`told`: what the operator is told beyond that."""

    def attack(scene: Scene) -> Generator[None, None, Ending]:
        left, right = scene.pair()
        scene.hostile.create_query(scene.over(left, right), id=scene.name)
        for stream in (left, right):
            scene.push(stream, [{"k": n, "ts": n} for n in range(5)])
        yield
        ending = scene.suspension(scene.name)
        said = scene.service.operator.query(f"hostile/{scene.name}").suspended
        assert said.startswith(COULD_NOT_END) and told in said, said
        scene.hostile.delete_query(scene.name)
        return ending

    return Kind(name, does, SUSPENDED, attack, slow=True, stage_timeout=stage_timeout)


TASKS = (
    _kind(sabotage.KILLS, "kills the worker that joins for it", "Python worker exited"),
    _kind(sabotage.LEAVES, "makes the worker that joins for it exit", "Python worker exited"),
    _kind(sabotage.RAISES, "raises in the worker that joins for it", "goes round in circles"),
    _kind(sabotage.EATS, "takes memory without end", "WorkerMemoryExceeded"),
    _kind(sabotage.LOOPS, "never ends", f"longer than {TIMEOUT:g} s", TIMEOUT),
)
