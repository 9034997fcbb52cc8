"""What is deployed: NumPy only; decides, counts its budget, explains itself."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from bcol.budget import BudgetCounter, Heads, actor_head, critic_head
from bcol.data.transitions import Spec
from bcol.errors import InputError
from bcol.nets import Actor, Behavior, Critic, all_heads, features, gaussian, mix, mixture


class Decision(NamedTuple):
    """What was decided, and why; one entry per episode, or plain numbers for a single observation.

    Attributes:
        action: the action to take, in the environment's own units.
        deviated: whether it departs from the behaviour.
        budget_left: deviations left after it; None for a policy that keeps no budget.
        follow_value: value of following mu-hat; NaN where there is nothing to compare.
        deviate_value: value of deviating; NaN where there is nothing to compare.
    """

    action: Float[np.ndarray, "*n a"]
    deviated: Bool[Any, "*n"]
    budget_left: Int[Any, "*n"] | None
    follow_value: Float[Any, "*n"]
    deviate_value: Float[Any, "*n"]

    @property
    def gain(self) -> Any:
        """What deviating is worth more than following."""
        return self.deviate_value - self.follow_value


@dataclass(frozen=True)
class Rule:
    """How a policy decides.

    Attributes:
        budget: B, the largest budget an episode can be given; None where no budget is kept.
        heads: which actor head proposes a deviation.
        follow: what following mu-hat means.
        follow_samples: samples to choose from when `follow` is best.
        act_samples: samples of the actor to choose from by Q; 0 takes its mode.
        min_weight: weight of the smallest critic in Qbar.
    """

    budget: int | None = None
    heads: Heads = "remaining"
    follow: Literal["best", "mode", "sample"] = "mode"
    follow_samples: int = 10
    act_samples: int = 0
    min_weight: float = 1.0


class Policy:
    """Decides for n episodes at once. Call `reset` at their start, then `act` at every step.

    With a budget, an episode deviates only where that is worth more than following mu-hat, and never more often than
    its budget. Without one the policy follows mu-hat always (BC), or the actor always (unbudgeted agents).
    """

    def __init__(self, spec: Spec, rule: Rule, networks: dict[str, Any]):
        """A policy from networks of NumPy arrays: `behavior`, `actor` and `critic`, as far as the rule needs them."""
        self.spec, self.rule = spec, rule
        self._behavior: Behavior | None = networks.get("behavior")
        self._actor: Actor | None = networks.get("actor")
        self._critic: Critic | None = networks.get("critic")
        self.networks = networks
        self._low, self._high = (np.asarray(x, np.float32) for x in (spec.action_low, spec.action_high))
        if spec.normalization is not None:
            self._mean, self._std = (
                np.asarray(x, np.float32) for x in (spec.normalization.mean, spec.normalization.std)
            )
        self._counter: BudgetCounter | None = None
        self._random: list[np.random.Generator] = []

    @property
    def max_budget(self) -> int | None:
        """B, the largest budget an episode can be given; None for a policy that keeps no budget."""
        return self.rule.budget

    def reset(self, n: int = 1, budget: Any = None, seed: int | Sequence[Any] = 0) -> None:
        """Start `n` episodes.

        Args:
            n: how many.
            budget: deviations each may make, one number or n of them, at most B; by default B.
            seed: of the random draws; one number, or one per episode.
        """
        if isinstance(n, bool) or not isinstance(n, int | np.integer) or n < 1:
            raise InputError(f"n must be a whole number, at least 1: got {n!r}")
        if self.max_budget is None and budget is not None:
            raise InputError("this policy keeps no budget: leave budget out, or train a bcol agent")
        seeds = [(seed, i) for i in range(n)] if isinstance(seed, int | np.integer) else list(seed)
        if len(seeds) != n:
            raise InputError(f"seed must be one number or {n} of them: got {len(seeds)}")
        if self.max_budget is not None:
            self._counter = BudgetCounter(n, self.max_budget if budget is None else budget, self.max_budget)
        self._random = [np.random.default_rng(s) for s in seeds]

    def act(self, observation: Any) -> Decision:
        """Decide for every episode.

        Args:
            observation: [n, s], or [s] for a single episode; the decision then has no axis for episodes either.
        """
        rows = np.asarray(observation, np.float32)
        single = rows.ndim == 1
        rows = np.atleast_2d(rows)
        if not self._random:
            raise InputError("no episode has been started: call policy.reset(n) before policy.act(observation)")
        expected = (len(self._random), self.spec.observation_dim)
        if rows.shape != expected:
            raise InputError(f"observation must have shape {list(expected)}: got {list(np.shape(observation))}")
        if not np.isfinite(rows).all():
            episode, column = (int(i) for i in np.argwhere(~np.isfinite(rows))[0])
            raise InputError(
                f"observation must be finite: episode {episode}, column {column} is {rows[episode, column]}"
            )
        if self.spec.normalization is not None:
            rows = (rows - self._mean) / self._std
        decision = self._decide(rows)
        unscaled = self._low + (decision.action + 1) * (self._high - self._low) / 2
        decision = decision._replace(action=np.clip(unscaled, self._low, self._high))
        if single:
            values: Any = [None if x is None else x[0] for x in decision]
            return Decision(*values)
        return decision

    def _decide(self, rows: Float[np.ndarray, "n s"]) -> Decision:
        """The decision, with actions in [-1, 1]."""
        nothing = np.full(len(rows), np.nan, np.float32)
        if self.max_budget is None or self._counter is None:
            deviated = np.full(len(rows), self._behavior is None)
            return Decision(self._unbudgeted(rows), deviated, None, nothing, nothing)
        assert self._actor is not None
        assert self._critic is not None
        each, left = np.arange(len(rows)), self._counter.left
        # With nothing left, head 0 stands in for the deviation that cannot be: its value is not looked at.
        spendable = np.maximum(left, 1)
        means, _ = gaussian(self._actor, rows)
        deviation = np.tanh(means[each, actor_head(spendable, self.rule.heads)])
        candidates = self._candidates(rows)
        q = self._values(rows, np.concatenate([candidates, deviation[:, None]], axis=1))
        follow_q = q[each, :-1, left]
        best = follow_q.argmax(axis=1)
        follow_value, deviate_value = follow_q[each, best], q[each, -1, critic_head(spendable)]
        deviated = self._counter.decide(follow_value, deviate_value)
        deviate_value = np.where(left > 0, deviate_value, np.nan)
        action = np.where(deviated[:, None], deviation, candidates[each, best])
        return Decision(action, deviated, self._counter.left.copy(), follow_value, deviate_value)

    def _unbudgeted(self, rows: Float[np.ndarray, "n s"]) -> Float[np.ndarray, "n a"]:
        if self._actor is None:
            return self._candidates(rows)[:, 0]
        mean, log_std = gaussian(self._actor, rows)
        if not self.rule.act_samples:
            return np.tanh(mean[:, 0])
        noise = self._normal(self.rule.act_samples, mean.shape[-1])
        actions = np.tanh(mean + np.exp(log_std) * noise)
        return actions[np.arange(len(rows)), self._values(rows, actions)[..., 0].argmax(axis=1)]

    def _candidates(self, rows: Float[np.ndarray, "n s"]) -> Float[np.ndarray, "n p a"]:
        """What following may do: samples of mu-hat, or its mode."""
        assert self._behavior is not None
        log_weight, mean, log_std = mixture(self._behavior, rows)
        each = np.arange(len(rows))
        if self.rule.follow == "mode":
            return np.tanh(mean[each, log_weight.argmax(axis=1)])[:, None]
        p = self.rule.follow_samples if self.rule.follow == "best" else 1
        uniform = np.stack([random.random(p, np.float32) for random in self._random])
        cumulative = np.exp(log_weight).cumsum(axis=1)
        component = (cumulative[:, None] < uniform[:, :, None] * cumulative[:, -1:, None]).sum(axis=2)
        chosen = (each[:, None], component)
        return np.tanh(mean[chosen] + np.exp(log_std[chosen]) * self._normal(p, mean.shape[-1]))

    def _normal(self, p: int, a: int) -> Float[np.ndarray, "n p a"]:
        return np.stack([random.standard_normal((p, a), np.float32) for random in self._random])

    def _values(
        self, rows: Float[np.ndarray, "n s"], actions: Float[np.ndarray, "n p a"]
    ) -> Float[np.ndarray, "n p heads"]:
        assert self._critic is not None
        return mix(all_heads(self._critic, features(self._critic, rows, actions)), self.rule.min_weight)


def load_policy(run: str | Path, step: int | None = None) -> Policy:
    """The policy of a run folder, of one of its seeds (`runs/hopper/seed1`), or of a checkpoint file.

    Args:
        run: the folder or file; a folder of several seeds gives the first.
        step: the gradient step to take it from, if it was kept; by default the last.
    """
    from bcol.runs import read_policy

    return Policy(*read_policy(Path(run), step))
