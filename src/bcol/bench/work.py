"""Floating-point operations that one gradient step needs, counted from the shapes of its products.

A multiplication and an addition are two operations; only products with weights count, which are nearly all of them.
What a step needs is counted once, however often a program computes it: the state half of the critics' first layer once
per state, one head per judged action, and one forward pass for both the penalty and the actor.
"""

from dataclasses import dataclass
from itertools import pairwise

from bcol.agents import BCOLSAC, BCOLTD3, Agent, OfflineTD3
from bcol.agents.budgeted import Budgeted

Layers = list[tuple[int, int]]
"""Inputs and outputs of each layer, first to last."""


def operations(agent: Agent, observation_dim: int, action_dim: int) -> float:
    """Of one gradient step of one run; what happens every second step counts half."""
    if isinstance(agent, BCOLSAC | BCOLTD3):
        return agent.batch_size * _budgeted(agent, observation_dim, action_dim)
    if isinstance(agent, OfflineTD3):
        return agent.batch_size * _td3(agent, observation_dim, action_dim)
    raise NotImplementedError(f"nobody has counted the operations of {agent.name}")


def forward(layers: Layers) -> int:
    """Of one input; the gradients of all weights, or of all inputs, take as many."""
    return sum(2 * inputs * outputs for inputs, outputs in layers)


def learn(layers: Layers) -> int:
    """Forward, the gradients of all weights, and those of every layer's inputs but the first's, which are data."""
    return forward(layers) + forward(layers) + forward(layers[1:])


@dataclass(frozen=True)
class _Critic:
    """What one critic does with some actions in one state, each of which some of its heads judge."""

    observation_dim: int
    action_dim: int
    hidden: tuple[int, ...]
    own_layers: int = 0

    def layers(self, judges: int) -> Layers:
        last = self.hidden[-1]
        own = [(last, last * judges)] * self.own_layers
        return [(self.action_dim, self.hidden[0]), *pairwise(self.hidden), *own, (last, judges)]

    @property
    def state(self) -> int:
        return forward([(self.observation_dim, self.hidden[0])])

    def value(self, actions: int, judges: int = 1) -> int:
        """Past the state half: from the actions to their values, or from these back to the actions' gradients."""
        return actions * forward(self.layers(judges))

    def judge(self, actions: int, judges: int = 1) -> int:
        return self.state + self.value(actions, judges)

    def learn(self, actions: int, judges: int = 1) -> int:
        return 2 * self.state + actions * learn(self.layers(judges))


def _budgeted(agent: Budgeted, s: int, a: int) -> float:
    samples = agent.samples if isinstance(agent, BCOLSAC) else 1
    often = 1 / agent.policy_delay if isinstance(agent, BCOLTD3) else 1.0  # how often the actor steps
    outputs = 2 * a if isinstance(agent, BCOLSAC) and agent.std == "state" else a
    heads = agent.budget + 1
    budgets = min(agent.budget_samples or heads, heads)
    critic = _Critic(s, a, agent.hidden, agent.head_layers)
    trunk = [(s, agent.hidden[0]), *pairwise(agent.hidden)]
    actor, target_actor = ([*trunk, (agent.hidden[-1], k * outputs)] for k in (budgets, budgets - 1))
    behavior = [*trunk, (agent.hidden[-1], agent.behavior_components * (2 * a + 1))]  # mean, deviation, weight

    targets = critic.judge(1, heads) + critic.judge(samples * (budgets - 1))
    logged = critic.learn(1, heads)
    # Proposals in s are judged for the penalty, but for that of budget B, which has none richer; and for the actor.
    if agent.omega:
        penalised = budgets - (budgets == heads)
        asked, proposed = critic.learn(penalised, judges=2) + often * critic.value(budgets - penalised), 1.0
    else:
        asked, proposed = often * critic.judge(budgets), often
    critics = targets + logged + asked + often * critic.value(budgets)
    policies = forward(target_actor) + proposed * forward(actor) + often * (learn(actor) - forward(actor))
    return 2 * critics + policies + learn(behavior)


def _td3(agent: OfflineTD3, s: int, a: int) -> float:
    critic, often = _Critic(s, a, agent.hidden), 1 / agent.policy_delay
    actor = [(s, agent.hidden[0]), *pairwise(agent.hidden), (agent.hidden[-1], a)]
    # The actor climbs the first critic only, and the new one: no forward pass is shared.
    delayed = learn(actor) + critic.judge(1) + critic.value(1)
    return forward(actor) + 2 * (critic.judge(1) + critic.learn(1)) + often * delayed
