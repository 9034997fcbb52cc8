"""Episodes per second of `bcol.evaluate` against a plain loop: one process, one jitted JAX call per step.

    python benchmarks/evaluation_speed.py

Both decide by the same rule with the same networks (BCOL-SAC, B = 10, 256x3, random weights). Such a policy soon falls
in Hopper, so its episodes are short; those of HalfCheetah end after 300 steps. `evaluate` starts its processes anew in
every call, which is counted; training keeps them, and that is the second figure.
"""

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import tyro

import bcol
from bcol.data.transitions import Spec
from bcol.evaluate import groups, outcome, play, worker_pool
from bcol.policy import Policy, Rule

STEPS = 300
# Registered on import, so that the worker processes know it too.
gymnasium.register(
    "HalfCheetahShort-v4", "gymnasium.envs.mujoco.half_cheetah_v4:HalfCheetahEnv", max_episode_steps=STEPS
)


@dataclass
class Options:
    """How much to play; every figure is a median over the rounds."""

    envs: tuple[str, ...] = ("Hopper-v4", "HalfCheetahShort-v4")
    episodes: int = 40
    rounds: int = 3
    workers: int = 2
    budget: int = 10
    output: Path | None = Path(__file__).parent / "results" / "evaluation_speed"


def random_policy(env: str, budget: int) -> Policy:
    from bcol.agents import BCOLSAC

    world = gymnasium.make(env)
    (s,), (a,) = world.observation_space.shape, world.action_space.shape
    low, high = (tuple(map(float, x)) for x in (world.action_space.low, world.action_space.high))
    world.close()
    agent = BCOLSAC(budget=budget)
    state = agent.init(np.random.default_rng(0), s, a)
    return Policy(Spec(s, a, None, low, high, None, "random", ""), Rule(**agent.policy()), agent.deployed(state))


def jitted(policy: Policy) -> tuple[Any, Any]:
    """The same decision as one compiled function of networks, observation, budget left and key."""
    import jax
    import jax.numpy as jnp

    from bcol.budget import actor_head, critic_head, select, spend
    from bcol.nets import all_heads, features, gaussian, mix, mixture

    rule = policy.rule
    low, high = (jnp.asarray(x, jnp.float32) for x in (policy.spec.action_low, policy.spec.action_high))

    @jax.jit
    def decide(networks, observation, left, key):
        key, draw = jax.random.split(key)
        rows = observation[None].astype(jnp.float32)
        spendable = jnp.maximum(left, 1)
        means, _ = gaussian(networks["actor"], rows)
        deviation = jnp.tanh(means[0, actor_head(spendable, rule.heads)])
        _, mean, log_std = mixture(networks["behavior"], rows)  # one component
        noise = jax.random.normal(draw, (rule.follow_samples, len(deviation)))
        candidates = jnp.tanh(mean[0] + jnp.exp(log_std[0]) * noise)
        actions = jnp.concatenate([candidates, deviation[None]])[None]
        critic = networks["critic"]
        q = mix(all_heads(critic, features(critic, rows, actions)), rule.min_weight)[0]
        best = q[:-1, left].argmax()
        deviated = select(q[best, left], q[-1, critic_head(spendable)], left)
        action = jnp.where(deviated, deviation, candidates[best])
        return low + (action + 1) * (high - low) / 2, spend(left, deviated), key

    return decide, jax.tree.map(jnp.asarray, policy.networks)


def loop(policy: Policy, decide: Any, networks: Any, env: str, episodes: int) -> tuple[int, float]:
    """Plain episodes; returns the steps played, and the seconds that the simulation took of them."""
    import jax
    import jax.numpy as jnp

    world, steps, simulation = gymnasium.make(env), 0, 0.0
    for episode in range(episodes):
        observation, _ = world.reset(seed=episode)
        left, key, over = jnp.asarray(policy.max_budget), jax.random.key(episode), False
        while not over:
            action, left, key = decide(networks, observation, left, key)
            action = np.asarray(action)
            began = time.perf_counter()
            observation, _, terminated, truncated, _ = world.step(action)
            simulation += time.perf_counter() - began
            over, steps = terminated or truncated, steps + 1
    world.close()
    return steps, simulation


def measure(env: str, options: Options) -> dict[str, Any]:
    policy = random_policy(env, options.budget)
    decide, networks = jitted(policy)
    loop(policy, decide, networks, env, 1)
    # All of it per step: the episodes of the loop and of evaluate have other random draws, and other lengths.
    seconds: dict[str, list[float]] = {"loop": [], "evaluate": [], "standing": [], "simulation": []}
    with worker_pool(options.workers) as pool:

        def standing() -> int:
            futures = [pool.submit(play, policy, env, job, None) for job in groups(options.episodes, 0)]
            return sum(length for future in futures for _, length, _ in outcome(future, env))

        standing()
        for _ in range(options.rounds):
            began = time.perf_counter()
            steps, simulation = loop(policy, decide, networks, env, options.episodes)
            seconds["loop"].append((time.perf_counter() - began) / steps)
            seconds["simulation"].append(simulation / steps)
            began = time.perf_counter()
            steps = standing()
            seconds["standing"].append((time.perf_counter() - began) / steps)
            began = time.perf_counter()
            scores = bcol.evaluate(policy, env, options.episodes, workers=options.workers)
            seconds["evaluate"].append((time.perf_counter() - began) / scores.lengths.sum())
    length = float(scores.lengths.mean())
    median = {name: float(np.median(x)) for name, x in seconds.items()}
    return {
        "env": env,
        "steps_per_episode": length,
        "episodes_per_s": {name: 1 / (x * length) for name, x in median.items()},
        "us_per_step": {name: x * 1e6 for name, x in median.items()},
        "times_loop": {name: median["loop"] / median[name] for name in ("evaluate", "standing")},
    }


def main(options: Options) -> None:
    report: dict[str, Any] = {"cores": os.cpu_count(), "workers": options.workers, "load": [os.getloadavg()]}
    report["envs"] = [measure(env, options) for env in options.envs]
    report["load"].append(os.getloadavg())
    before, after = (x[0] for x in report["load"])
    lines = [
        "| | plain loop | evaluate | standing processes | times faster | us a step: loop, standing, simulation alone |",
        "|---|---|---|---|---|---|",
    ]
    for row in report["envs"]:
        rate = [f"{row['episodes_per_s'][name]:.1f}/s" for name in ("loop", "evaluate", "standing")]
        times = ", ".join(f"{x:.1f}" for x in row["times_loop"].values())
        us = ", ".join(f"{row['us_per_step'][name]:.0f}" for name in ("loop", "standing", "simulation"))
        title = f"{row['env']}, {row['steps_per_episode']:.0f} steps"
        lines.append(f"| {title} | {' | '.join(rate)} | {times} | {us} |")
    text = f"""# Episodes per second, {report["workers"]} workers on {report["cores"]} cores

`python benchmarks/evaluation_speed.py`: BCOL-SAC, B = {options.budget}, 256x3, {options.episodes} episodes.
Load average before and after: {before:.1f}, {after:.1f}.

""" + "\n".join(lines)
    print(text)
    if options.output:
        options.output.with_suffix(".json").write_text(json.dumps(report, indent=1) + "\n")
        options.output.with_suffix(".md").write_text(text + "\n")


if __name__ == "__main__":
    main(tyro.cli(Options))
