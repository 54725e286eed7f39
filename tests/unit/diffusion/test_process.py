import pytest

from duallgd_cli.diffusion import evenly_spaced, parse_schedule, quadratic
from duallgd_cli.errors import ConfigError


@pytest.mark.parametrize(
    ("plan", "n_steps", "evaluations", "visited"),
    [
        (evenly_spaced, 5, 2, (5, 2, 0)),  # rounded half to even
        (evenly_spaced, 7, 2, (7, 4, 0)),
        # Short where little noise is left.
        (quadratic, 500, 10, (500, 405, 320, 245, 180, 125, 80, 45, 20, 5, 0)),
    ],
)
def test_evaluations_stand_where_they_are_said_to(plan, n_steps, evaluations, visited):
    assert plan(n_steps, evaluations) == visited


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("quadratic", (20, 11, 5, 1, 0)),
        ("uniform", (20, 15, 10, 5, 0)),
        (" Uniform ", (20, 15, 10, 5, 0)),
        ("full", tuple(range(20, -1, -1))),
        ("stride6", (20, 14, 8, 2, 0)),
        ("20,7,0", (20, 7, 0)),
        ("20, 7 , 0", (20, 7, 0)),
    ],
)
def test_a_schedule_is_named_or_written_out(text, steps):
    assert parse_schedule(text, 20, 4) == steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "sometimes",
            "'sometimes' is not quadratic, uniform, full, strideK or steps such as",
        ),
        ("", "schedule '' is not quadratic"),
        ("20,7.5,0", "schedule '20,7.5,0' is not quadratic"),
        ("stride", "schedule 'stride' is not quadratic"),
        ("stride²", "schedule 'stride²' is not quadratic"),
        ("stride0", "stride must be 1 to 20, not 0"),
        ("stride21", "stride must be 1 to 20, not 21"),
        ("10,5,0", "a schedule must start at 20, not 10"),
        ("20,5", r"must decrease strictly from the first step to 0, not \(20, 5\)"),
        ("20,5,5,0", "must decrease strictly"),
        ("0,20", "must decrease strictly"),
        ("0", "must decrease strictly"),
        ("20,-1,0", "must decrease strictly"),
    ],
)
def test_a_wrong_schedule_is_refused_with_what_is_wrong(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_schedule(text, 20, 4)


@pytest.mark.parametrize("plan", [evenly_spaced, quadratic])
@pytest.mark.parametrize("evaluations", [0, 21])
def test_more_evaluations_than_steps_are_refused(plan, evaluations):
    with pytest.raises(ConfigError, match=f"steps must be 1 to 20, not {evaluations}"):
        plan(20, evaluations)
