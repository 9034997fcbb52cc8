"""Random MDPs, and their solutions by routes that share nothing with the solver."""

import numpy as np


def random_mdp(seed, n_states=5, n_actions=3, concentration=0.4):
    random = np.random.default_rng(seed)
    transition = random.dirichlet(np.full(n_states, concentration), (n_states, n_actions))
    reward = random.normal(size=(n_states, n_actions))
    behavior = random.dirichlet(np.full(n_actions, 0.6), n_states)
    return transition, reward, behavior


def behavior_values(transition, reward, behavior, discount):
    """V^mu by one linear solve."""
    p = np.einsum("sat,sa->st", transition, behavior)
    return np.linalg.solve(np.eye(len(p)) - discount * p, (behavior * reward).sum(axis=1))


def optimal_values(transition, reward, discount):
    """V* by plain value iteration."""
    v = np.zeros(len(reward))
    for _ in range(int(40 / (1 - discount))):
        v = (reward + discount * transition @ v).max(axis=1)
    return v


def budgeted_values(transition, reward, behavior, discount, budget):
    """V(b, s) by exact policy iteration on the MDP over (b, s) with actions follow, a_1, ..., a_A."""
    n_states, n_actions = reward.shape
    n = (budget + 1) * n_states
    p, r = np.zeros((n, 1 + n_actions, n)), np.full((n, 1 + n_actions), -1e9)
    for b in range(budget + 1):
        here = slice(b * n_states, (b + 1) * n_states)
        p[here, 0, here] = np.einsum("sat,sa->st", transition, behavior)
        r[here, 0] = (behavior * reward).sum(axis=1)
        if b > 0:
            p[here, 1:, (b - 1) * n_states : b * n_states] = transition
            r[here, 1:] = reward
        else:
            p[here, 1:] = p[here, :1]  # not allowed: r is -1e9
    choice = np.zeros(n, int)
    while True:
        at = np.arange(n)
        v = np.linalg.solve(np.eye(n) - discount * p[at, choice], r[at, choice])
        q = r + discount * p @ v
        better = np.where(q.max(axis=1) > q[at, choice] + 1e-12, q.argmax(axis=1), choice)
        if np.array_equal(better, choice):
            return v.reshape(budget + 1, n_states)
        choice = better
