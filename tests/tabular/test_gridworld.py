import numpy as np
import pytest

from bcol.errors import InputError
from bcol.tabular.gridworld import STITCH, parse
from bcol.tabular.picture import draw
from bcol.tabular.study import likely_path, study

TINY = "S.G\n.F.\n\nway 3 S E2\n"


@pytest.fixture(scope="module")
def stitched():
    return study(parse(), budget=3)


def test_moves_walls_and_slips():
    world = parse(TINY, slip=0.2, fail_cost=10.0)
    p = world.transition.toarray().reshape(6, 4, 6)
    east_from_middle = p[1, 1]  # to G, or by slipping off the map (stay) or down into F
    np.testing.assert_allclose(east_from_middle, [0, 0.1, 0.8, 0, 0.1, 0])
    assert world.reward[1, 1] == pytest.approx(-1 - 0.1 * 10)
    np.testing.assert_allclose(p[2, :, 2], 1)  # the goal keeps
    assert (world.reward[[2, 4]] == 0).all()


def test_steps_follow_the_transition_matrix():
    world = parse(TINY, slip=0.2)
    random = np.random.default_rng(0)
    landed, _ = world.step(np.full(20_000, 1), np.full(20_000, 1), random)
    frequency = np.bincount(landed, minlength=6) / 20_000
    np.testing.assert_allclose(frequency, world.transition.toarray().reshape(6, 4, 6)[1, 1], atol=0.015)


def test_habits_walk_their_path_and_return_to_it():
    world = parse(slip=0.0)
    for episode in world.log(noise=0.0):
        assert world.letters[episode.states[-1]] == "G"
    lengths = {len(e.actions) for e in world.log(noise=0.0)}
    assert lengths == {30, 13}
    assert all(e.terminal for e in world.log(noise=0.3, seed=1))


def test_one_deviation_stitches_the_two_habits(stitched):
    world = stitched.world
    common, rare = world.habits
    walk, deviations = likely_path(stitched, budget=1)
    assert deviations == [cell for cell in common.path if cell in rare.path[:-1]]
    junction = deviations[0]
    expected = common.path[: common.path.index(junction)] + rare.path[rare.path.index(junction) :]
    assert walk == expected


def test_each_unit_buys_less_and_no_plan_overspends(stitched):
    log, *plans, free = stitched.outcomes
    delivered = [plan.delivered.mean() for plan in plans]
    assert delivered[1] - delivered[0] > 4 * (delivered[2] - delivered[1]) > 0
    for budget, plan in enumerate(plans):
        assert plan.deviations.max() <= budget
        assert plan.promised == pytest.approx(plan.delivered.mean(), abs=0.6)
        assert plan.spent.sum() == plan.deviations.sum()
    assert log.deviations.max() == 0
    assert free.deviations.mean() > 8


@pytest.mark.parametrize("suffix", ["png", "svg"])
def test_the_picture_is_drawn(stitched, tmp_path, suffix):
    path = tmp_path / "new folder" / f"grid.{suffix}"
    draw(stitched, path)
    assert path.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("S.\nG", {}, "map row 2 must be 2 of"),
        ("S!\nG.", {}, "map row 1"),
        ("", {}, "map row 1"),
        ("S.\n..\n\nway 1 S E", {}, "no goal"),
        ("S.G", {}, "no habit"),
        ("S.G\n\nway S E2", {}, "a habit must read"),
        ("S.G\n\nway 0 S E2", {}, "a habit must read"),
        ("S.G\n\nway 1 X E2", {}, "habit 'way' starts at 'X'"),
        ("S.G\n\nway 1 S E", {}, "habit 'way' must walk from S to G"),
        ("S.G\n\nway 1 S E N E", {}, "without walls or loops"),
        (STITCH, {"slip": 1.0}, "slip must lie"),
        (STITCH, {"fail_cost": -1.0}, "fail_cost must be"),
    ],
)
def test_bad_maps(text, options, message):
    with pytest.raises(InputError, match=message) as error:
        parse(text, **options)
    assert "\n" not in str(error.value)
