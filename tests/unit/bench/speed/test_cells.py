import pytest
from hypothesis import given
from hypothesis import strategies as st

from duallgd_cli.bench.speed.cells import KERNELS, Cell, Subject, parse_atoms, parse_choices
from duallgd_cli.errors import UsageError

sizes = st.integers(2, 400)


def test_a_range_takes_every_tenth_and_both_ends():
    assert parse_atoms("10..100") == tuple(range(10, 101, 10))


@given(sizes, sizes, st.integers(1, 50))
def test_a_range_with_a_stride_is_that_of_python(a, b, stride):
    first, last = sorted((a, b))

    assert parse_atoms(f"{first}..{last}:{stride}") == tuple(range(first, last + 1, stride))


@given(st.lists(sizes, min_size=1, max_size=8))
def test_a_list_comes_out_ascending_and_each_number_once(numbers):
    text = ", ".join(map(str, numbers))

    assert parse_atoms(text) == tuple(sorted(set(numbers)))


@given(st.lists(sizes, min_size=1, max_size=8))
def test_what_was_parsed_parses_to_itself(numbers):
    once = parse_atoms(",".join(map(str, numbers)))

    assert parse_atoms(",".join(map(str, once))) == once


@pytest.mark.parametrize(
    "text", ["", "ten", "10-20", "10..", "..20", "10..20:", "1.5", "-3", "10,,20", "²0"]
)
def test_other_text_is_refused_with_the_forms_that_are_taken(text):
    with pytest.raises(UsageError, match=r"10\.\.100:5"):
        parse_atoms(text)


@pytest.mark.parametrize("text", ["20..10", "10..20:0"])
def test_an_empty_range_is_refused(text):
    with pytest.raises(UsageError, match="hold no number"):
        parse_atoms(text)


@pytest.mark.parametrize("text", ["1", "401", "10..999999999:1"])
def test_sizes_out_of_range_are_refused_at_once(text):
    with pytest.raises(UsageError, match="2 to 400"):
        parse_atoms(text)


def test_choices_keep_their_order_and_lose_repeats():
    assert parse_choices("attention", "favor, softmax,favor", KERNELS) == ("favor", "softmax")


@pytest.mark.parametrize("text", ["", ",", "linear", "favor,linear"])
def test_a_choice_that_there_is_not_is_refused(text):
    with pytest.raises(UsageError, match="softmax, favor"):
        parse_choices("attention", text, KERNELS)


def test_a_cell_knows_its_pairs_and_its_candidate_steps():
    cell = Cell(Subject(), "loop", "favor", "fast", 100, samples=3, steps=10)

    assert (cell.pairs, cell.evaluations) == (4950, 30)
