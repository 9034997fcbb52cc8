"""Operations of tiny networks, product by product: observation 2, action 1, hidden (4, 4), one row per batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bcol.agents import BC, BCOLSAC, BCOLTD3, TD3BC, Batch, Clock
from bcol.bench.work import operations

# One critic: the state half 2*2*4, the action half 2*1*4, the hidden layer 2*4*4, a head 2*4.
STATE, ACTION, HIDDEN, HEAD = 16, 8, 32, 8
# A trunk: 2*2*4 and 2*4*4; an output 2*4.
FIRST, SECOND, OUTPUT = 16, 32, 8
TINY = {"hidden": (4, 4), "batch_size": 1}


def learned(actions: int, heads: int) -> int:
    """Forward, weights' gradients, and inputs' gradients down to the first layer."""
    return 2 * STATE + actions * (2 * ACTION + 3 * HIDDEN + 3 * heads * HEAD)


def trained(outputs: int) -> int:
    return 2 * FIRST + 3 * SECOND + 3 * outputs * OUTPUT


MU_HAT = trained(3)  # a mean, a deviation, and a weight


def test_bcol_sac_with_a_penalty():
    # Budgets 0..2, two samples: 4 proposals in s', 3 in s, of which the penalty trains on those of 0 and 1.
    targets = STATE + ACTION + HIDDEN + 3 * HEAD + STATE + 4 * (ACTION + HIDDEN + HEAD)
    critic = learned(1, heads=3) + learned(2, heads=2) + (ACTION + HIDDEN + HEAD)
    climb = 3 * (ACTION + HIDDEN + HEAD)
    actor = FIRST + SECOND + 4 * OUTPUT + trained(6)
    agent = BCOLSAC(budget=2, omega=10.0, samples=2, **TINY)
    assert operations(agent, 2, 1) == 2 * (targets + critic + climb) + actor + MU_HAT
    assert operations(BCOLSAC(budget=2, samples=2, hidden=(4, 4), batch_size=7), 2, 1) == 7 * operations(agent, 2, 1)


def test_bcol_sac_without_a_penalty():
    targets = STATE + ACTION + HIDDEN + 3 * HEAD + STATE + 4 * (ACTION + HIDDEN + HEAD)
    climb = STATE + 2 * 3 * (ACTION + HIDDEN + HEAD)
    actor = FIRST + SECOND + 4 * OUTPUT + trained(6)
    agent = BCOLSAC(budget=2, omega=0.0, samples=2, **TINY)
    assert operations(agent, 2, 1) == 2 * (targets + learned(1, heads=3) + climb) + actor + MU_HAT


def test_some_budgets_of_many():
    # Two of eleven budgets: all heads are asked of the logged actions only.
    targets = STATE + ACTION + HIDDEN + 11 * HEAD + STATE + 2 * (ACTION + HIDDEN + HEAD)
    critic = learned(1, heads=11) + learned(2, heads=2) + 2 * (ACTION + HIDDEN + HEAD)
    actor = FIRST + SECOND + 2 * OUTPUT + trained(4)
    agent = BCOLSAC(budget=10, omega=10.0, samples=2, budget_samples=2, **TINY)
    assert operations(agent, 2, 1) == 2 * (targets + critic) + actor + MU_HAT


def test_bcol_td3_steps_its_actor_every_second_time():
    targets = STATE + ACTION + HIDDEN + 3 * HEAD + STATE + 2 * (ACTION + HIDDEN + HEAD)
    critic = learned(1, heads=3) + learned(2, heads=2)
    climb = (1 + 3) * (ACTION + HIDDEN + HEAD)
    forward = FIRST + SECOND + 3 * OUTPUT
    actor = FIRST + SECOND + 2 * OUTPUT + forward + (trained(3) - forward) / 2
    agent = BCOLTD3(budget=2, omega=10.0, **TINY)
    assert operations(agent, 2, 1) == 2 * (targets + critic + climb / 2) + actor + MU_HAT


def test_td3_bc():
    value = STATE + ACTION + HIDDEN + HEAD
    actor = FIRST + SECOND + OUTPUT
    delayed = trained(1) + value + ACTION + HIDDEN + HEAD
    assert operations(TD3BC(**TINY), 2, 1) == actor + 2 * (value + learned(1, heads=1)) + delayed / 2


def test_the_compiler_counts_about_as_many():
    # It counts all arithmetic that the update asks for, element-wise operations and repeated work included.
    agent, n, s, a = BCOLSAC(budget=3, omega=0.0, hidden=(256, 256), batch_size=64), 64, 17, 6
    state = agent.init(np.random.default_rng(0), s, a)
    batch = Batch(*(jnp.zeros(shape) for shape in ((n, s), (n, a), (n,), (n, s), (n, a), (n,))))
    clock = Clock(jnp.int32(0), jnp.int32(1))
    cost = jax.jit(agent.update).lower(state, batch, jax.random.key(0), clock).cost_analysis()
    assert 1.0 < cost["flops"] / operations(agent, s, a) < 1.15


def test_an_agent_that_nobody_counted():
    with pytest.raises(NotImplementedError, match="bc"):
        operations(BC(), 2, 1)
