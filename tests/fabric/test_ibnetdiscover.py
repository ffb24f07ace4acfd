"""InfiniBand fabrics as `ibnetdiscover` prints them."""

from pathlib import Path

import pytest

from rfabric.errors import RFabricError
from rfabric.fabric import parse_fabric
from rfabric.fabric.formats.base import Reading
from rfabric.fabric.formats.ibnetdiscover import IBNETDISCOVER

LEAF = 'Switch\t41 "S-a1"\t\t# "MF0;leaf1:MQM9700/U1" enhanced port 0 lid 1 lmc 0\n'
SPINE = 'Switch\t41 "S-b1"\t\t# "Quantum Mellanox Technologies" base port 0 lid 2 lmc 0\n'
UP = "".join(
    f'[{n}]\t"S-b1"[{n}]\t\t# "Quantum Mellanox Technologies" lid 2 4xNDR\n' for n in (33, 34)
)
BACK = "".join(f'[{n}]\t"S-a1"[{n}]\t\t# "MF0;leaf1:MQM9700/U1" lid 1 4xNDR\n' for n in (33, 34))


def port(number, guid, said, width="4xNDR"):
    """A port of the leaf to an adapter."""
    return f'[{number}]\t"H-{guid}"[1]({guid}) \t\t# "{said}" lid 3 {width}\n'


def adapter(number, guid, said, width="4xNDR"):
    """The same cable from the adapter."""
    return (
        f'\nvendid=0x2c9\ncaguid=0x{guid}\nCa\t1 "H-{guid}"\t\t# "{said}"\n'
        f'[1]({guid}) \t"S-a1"[{number}]\t\t# lid 3 lmc 0 "MF0;leaf1:MQM9700/U1" lid 1 {width}\n'
    )


def network(tmp_path: Path, text: str):
    (file := tmp_path / "ib.txt").write_text(f"#\n# Topology file: generated\n#\n{text}")
    assert IBNETDISCOVER.sniff(text) and IBNETDISCOVER.read
    return IBNETDISCOVER.read(file, Reading())


def cables(made):
    return [(c.a, c.b, c.rate) for c in made.cables]


def test_a_cable_that_stands_at_both_ends_is_one(tmp_path):
    own = [(1, "1a", "gpu01 mlx5_0"), (2, "1b", "gpu01 mlx5_1"), (3, "2a", "gpu02 HCA-1")]
    text = LEAF + "".join(port(*one) for one in own) + UP + SPINE + BACK
    both = network(tmp_path, text + "".join(adapter(*one) for one in own))
    assert cables(both) == cables(network(tmp_path, text))
    assert sorted(cables(both)) == [
        ("leaf1", "S-b1", 4e11), ("leaf1", "S-b1", 4e11), ("leaf1", "gpu01", 4e11),
        ("leaf1", "gpu01", 4e11), ("leaf1", "gpu02", 4e11),
    ]  # fmt: skip
    assert both.dropped == ()
    assert len(parse_fabric(f"{tmp_path}/ib.txt").hosts) == 3  # an adapter a host


@pytest.mark.parametrize(
    ("width", "rate"),
    [("4xXDR", 8e11), ("4xHDR", 2e11), ("2xHDR", 1e11), ("4xEDR", 1e11), ("4xFDR10", 4e10),
     ("4xFDR", 54.56e9), ("4xQDR", 32e9), ("1xSDR", 2e9), ("", None)],
)  # fmt: skip
def test_lanes_have_their_rate_of_data(tmp_path, width, rate):
    (cable,) = network(tmp_path, LEAF + port(1, "1a", "gpu01 mlx5_0", width)).cables
    assert cable.rate == (rate if rate is None else pytest.approx(rate))


def test_what_switches_hold_for_themselves_is_no_host(tmp_path):
    own, said = "Mellanox Technologies Aggregation Node", port(1, "1a", "gpu01 mlx5_0")
    text = LEAF + said + port(41, "f1", own, "4xHDR") + adapter(41, "f1", own, "4xHDR")
    made = network(tmp_path, text)
    assert cables(made) == [("leaf1", "gpu01", 4e11)] and set(made.nodes) == {"leaf1", "gpu01"}
    assert made.dropped == (f"1 adapters of switches left out ({own})",)


def test_adapters_that_name_no_machine_of_their_own_are_a_host_each(tmp_path):
    default = "MT4129 ConnectX7   Mellanox Technologies"
    names = (default, default, "localhost mlx5_0", "n1 mlx5_0", "n1 mlx5_0", "n2 mlx5_0")
    text = LEAF + "".join(port(i, f"{i}a", said) for i, said in enumerate(names, 1))
    made = network(tmp_path, text)
    hosts = [name for name, role in made.nodes.items() if role.kind == "host"]
    assert hosts == ["H-1a", "H-2a", "H-3a", "H-4a", "H-5a", "n2"]
    assert made.dropped == ("5 adapters name no machine of their own, each a host",)


def test_chips_of_one_chassis_are_switches_of_their_own(tmp_path):
    chips = [f'Switch 41 "S-c{i}" # "MF0;dir1:CS9500/L{i}/U1" enhanced port 0 lid {i} lmc 0\n'
             for i in (1, 2)]  # fmt: skip
    joined = '[1]\t"S-c2"[1]\t\t# "MF0;dir1:CS9500/L2/U1" lid 2 4xNDR\n'
    made = network(tmp_path, chips[0] + port(9, "1a", "n1 mlx5_0") + joined + chips[1])
    assert sorted(made.nodes) == ["S-c1", "S-c2", "n1"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (LEAF + '[1] "H-1a" # no port', r"line 5: '\[1\] \"H-1a\" # no port': `\[1\]"),
        (LEAF + port(1, "1a", "n mlx5_0") + adapter(1, "1a", "n mlx5_0", "4xHDR"),
         "line 10: 200 Gbit/s, but 400 in line 5, of the same ports"),
        (LEAF + port(1, "1a", "leaf1 mlx5_0"), "leaf1: machines and switches of one name"),
    ],
)  # fmt: skip
def test_lists_that_cannot_be_are_refused(tmp_path, text, why):
    with pytest.raises(RFabricError, match=why):
        network(tmp_path, text)
