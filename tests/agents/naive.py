"""The agents' losses written out with loops, one transition, budget, critic and sample at a time.

Shares no code with the package beyond the containers that hold the weights.
"""

import jax.numpy as jnp


def q_value(critic, c, head, s, a):
    """Critic c's value of one action, by an MLP on the concatenated input."""
    x = jnp.concatenate([s, a])
    first = jnp.concatenate([critic.state.weight[c], critic.action[c]])
    x = x @ first + critic.state.bias[c]
    for i in range(len(critic.hidden) + 1):
        if critic.norms:
            scale, shift = critic.norms[i][0][c], critic.norms[i][1][c]
            x = (x - x.mean()) / jnp.sqrt(((x - x.mean()) ** 2).mean() + 1e-5) * scale + shift
        x = jnp.where(x > 0, x, 0)
        if i < len(critic.hidden):
            x = x @ critic.hidden[i].weight[c] + critic.hidden[i].bias[c]
    if critic.own is not None:
        x = x @ critic.own[0][c, head] + critic.own[1][c, head]
        x = jnp.where(x > 0, x, 0)
    return x @ critic.head[0][c, head] + critic.head[1][c, head]


def q_bar(critic, head, s, a, min_weight):
    values = [q_value(critic, c, head, s, a) for c in range(critic.action.shape[0])]
    low, high = values[0], values[0]
    for v in values[1:]:
        low, high = jnp.minimum(low, v), jnp.maximum(high, v)
    return min_weight * low + (1 - min_weight) * high


def actor_outputs(actor, head, s):
    x = s
    for layer in actor.hidden:
        x = x @ layer.weight + layer.bias
        x = jnp.where(x > 0, x, 0)
    mean = x @ actor.mean[0][:, head] + actor.mean[1][head]
    size = jnp.abs(mean)
    mean = jnp.where(size > 4, jnp.sign(mean) * (4 + (size - 4) / (size - 3)), mean)
    if actor.log_std is None:
        return mean, None
    raw = actor.log_std[1][head] + (0 if actor.log_std[0] is None else x @ actor.log_std[0][:, head])
    return mean, -5 + 3.5 * (jnp.tanh(raw) + 1)


def sac_action(actor, head, s, noise):
    mean, log_std = actor_outputs(actor, head, s)
    return jnp.tanh(mean + jnp.exp(log_std) * noise)


def td3_action(actor, head, s):
    return jnp.tanh(actor_outputs(actor, head, s)[0])


def budgeted_target(agent, target, batch, i, b, proposals):
    """y_b of row i; `proposals` are the actions that would spend a deviation there."""
    future = q_bar(target, b, batch.next_observation[i], batch.next_action[i], agent.min_weight)
    for a in proposals:
        future = jnp.maximum(future, q_bar(target, b - 1, batch.next_observation[i], a, agent.min_weight))
    return batch.reward[i] + agent.discount * batch.mask[i] * future


def budgeted_critic_loss(agent, critic, batch, y, proposed):
    n, total = len(batch.reward), 0.0
    for c in range(critic.action.shape[0]):
        for b in range(agent.budget + 1):
            for i in range(n):
                s = batch.observation[i]
                total += (q_value(critic, c, b, s, batch.action[i]) - y[i][b]) ** 2 / n
                if b < agent.budget:
                    a = proposed[i][b]
                    gap = q_value(critic, c, b, s, a) - q_value(critic, c, b + 1, s, a)
                    total += agent.omega * jnp.maximum(gap, 0) ** 2 / n
    return total


def log_likelihood(behavior, s, a):
    a = jnp.clip(a, -0.999, 0.999)
    x = s
    for layer in behavior.components.hidden:
        x = jnp.maximum(x @ layer.weight + layer.bias, 0)
    logits = x @ behavior.logits.weight + behavior.logits.bias
    terms = []
    for k in range(len(logits)):
        mean, log_std = actor_outputs(behavior.components, k, s)
        z = (jnp.arctanh(a) - mean) / jnp.exp(log_std)
        log_normal = -0.5 * z**2 - log_std - 0.5 * jnp.log(2 * jnp.pi)
        terms.append(logits[k] - jnp.log(jnp.exp(logits).sum()) + (log_normal - jnp.log(1 - a**2)).sum())
    return jnp.logaddexp.reduce(jnp.stack(terms))
