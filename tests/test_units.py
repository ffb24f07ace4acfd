import pytest

from rfabric.errors import RFabricError
from rfabric.units import bytes_in, parse_rate, parse_size, parse_time, show_rate, show_time, transfer_seconds


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_rate, "400Gbit/s", 4e11),
        (parse_rate, "400G", 4e11),
        (parse_rate, "50 GB/s", 4e11),
        (parse_rate, 1000, 1000.0),
        (parse_size, "1 GiB", 2**30),
        (parse_size, "64MB", 64e6),
        (parse_size, "1500", 1500.0),
        (parse_time, "10ms", 0.01),
        (parse_time, "25us", 25e-6),
        (parse_time, "2min", 120.0),
    ],
)
def test_quantities_with_and_without_units(parse, text, value):
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("parse", "text", "why"),
    [
        (parse_rate, "400 furlongs", "unknown unit 'furlongs'"),
        (parse_rate, "-4G", "must be finite and not negative"),
        (parse_size, "many", "is not a quantity"),
        (parse_size, "1e999", "must be finite"),
        (parse_time, None, "is not a quantity"),
        (parse_time, True, "is not a quantity"),
    ],
)
def test_bad_quantities_name_the_value_and_an_example(parse, text, why):
    with pytest.raises(RFabricError, match=why):
        parse(text)


def test_transfer_time_and_volume_are_inverse():
    assert transfer_seconds(bytes_in(4e11, 0.3), 4e11) == pytest.approx(0.3)


def test_shown_quantities_are_short():
    assert show_rate(4e11) == "400 Gbit/s"
    assert [show_time(t) for t in (0.0103, 2.5e-5, 1.5, 92.34, 0)] == ["10.3 ms", "25 us", "1.5 s", "92.3 s", "0 s"]
