"""Random programs of a state machine of hypothesis."""

from __future__ import annotations

from collections.abc import Iterable

import hypothesis
from harness import PROOF, seed
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

#: The seed of programs that are the same in every run.
FIXED = 1
#: That of the others.
DRAWN = seed()


def run(
    machine: type[RuleBasedStateMachine],
    programs: int,
    steps: int,
    *,
    of: int = FIXED,
    phases: Iterable[Phase] = tuple(Phase),
) -> None:
    """Run programs of the seed ``of``."""
    print(f"FOREBAY_SEED={of}")
    hypothesis.seed(of)(machine)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=programs,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            phases=tuple(phases),
            suppress_health_check=list(HealthCheck),
        ),
    )


def run_half_drawn(machine: type[RuleBasedStateMachine], programs: int, steps: int) -> None:
    """Run programs of which half are the same in every run.

    The others come from ``FOREBAY_SEED``, or are drawn. They run with ``FOREBAY_PROOF`` alone.
    """
    run(machine, programs - programs // 2, steps)
    if PROOF:
        run(machine, programs // 2, steps, of=DRAWN)
