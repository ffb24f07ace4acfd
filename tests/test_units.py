"""Units at the border: what is read, what is refused, and that every place where a quantity is
written refuses it alike.
"""

import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.cli import main
from rfabric.emulate.topo import mininet_topo
from rfabric.errors import RFabricError
from rfabric.fabric import BUILDERS, parse_fabric, rfabric
from rfabric.fabric.match import build, settings_of
from rfabric.optics import POLICIES, parse_policy
from rfabric.rl import read_recipe
from rfabric.rl.recipe import rate, seconds
from rfabric.rl.sections import Cluster, Generation, Training
from rfabric.schedulers import orchestrrl, rollart
from rfabric.schedulers.table import scheduled
from rfabric.specs import takes_text
from rfabric.trace import read_trace
from rfabric.units import (
    bytes_in,
    parse_rate,
    parse_size,
    parse_time,
    show_between,
    show_rate,
    show_time,
    spell_rate,
    spell_time,
    transfer_seconds,
)

ROOT = Path(__file__).parents[1]
KINDS = {parse_rate: "Gbit/s", parse_size: "MB", parse_time: "ms"}
PARSERS = pytest.mark.parametrize("parse", KINDS, ids=lambda parse: parse.__name__)


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_rate, "400Gbit/s", 4e11),
        (parse_rate, "400G", 4e11),
        (parse_rate, "50 GB/s", 4e11),
        (parse_rate, 1000, 1000.0),
        (parse_size, "1 GiB", 2**30),
        (parse_size, "64MB", 64e6),
        (parse_size, "1500B", 1500.0),
        (parse_time, "10ms", 0.01),
        (parse_time, "25us", 25e-6),
        (parse_time, "2min", 120.0),
        (parse_time, 0.5, 0.5),
    ],
)
def test_quantities_are_text_with_a_unit_or_floats_of_the_base_unit(parse, text, value):
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
        (parse_time, "nan", "is not a quantity"),
        (parse_time, float("nan"), "must be finite"),
        (parse_rate, float("inf"), "must be finite"),
        (parse_time, "-3", "must be finite and not negative; write for example 10ms"),
        (parse_time, "10", r"time=10 has no unit; write time=10ms \(or 10s, 10us\)"),
        (
            parse_rate,
            "4e11",
            (
                r"rate=4e11 has no unit; write rate=4e11Gbit/s \(or 4e11Mbit/s, "
                r"4e11bit/s\)"
            ),
        ),
        (parse_size, "64", r"size=64 has no unit; write size=64MB \(or 64GiB, 64B\)"),
        (parse_time, "10Gbit/s", "'10Gbit/s' is a rate, not a time; write for example 10ms"),
        (parse_rate, "10ms", "'10ms' is a time, not a rate"),
        (parse_rate, "50GB", "'50GB' is a size, not a rate, did you mean 50GB/s"),
        (parse_size, "1min", "'1min' is a time, not a size"),
        (parse_time, "10MS", "unknown unit 'MS' in '10MS', did you mean 10ms"),
        (parse_time, "3Min", "did you mean 3min"),
        (parse_time, "5msec", "did you mean ms"),
        (parse_rate, "400Gb", "unknown unit 'Gb' in '400Gb', did you mean 400Gb/s"),
        (parse_rate, "400gbit/s", "did you mean 400Gbit/s"),
        (parse_size, "64mb", "did you mean 64MB"),
    ],
)
def test_bad_quantities_name_the_value_and_an_example(parse, text, why):
    with pytest.raises(RFabricError, match=why):
        parse(text)


@PARSERS
@given(st.floats(0, 1e15))
def test_a_unit_makes_the_difference(parse, number):
    unit = KINDS[parse]
    assert parse(number) == parse(repr(number), bare=True) == number
    assert parse(f"{number!r}{unit}") == number * parse(f"1{unit}")
    if number:
        with pytest.raises(
            RFabricError, match=re.escape(f"x={number!r} has no unit; write x={number!r}{unit}")
        ):
            parse(repr(number), "x")
    else:
        assert parse(repr(number)) == 0


@given(st.one_of(st.just(0.0), st.floats(1e-12, 1e18)))
def test_what_is_spelled_is_read_back_without_loss(value):
    assert parse_rate(spell_rate(value)) == value and parse_time(spell_time(value)) == value


def test_quantities_are_spelled_as_one_types_them():
    assert [spell_rate(r) for r in (4e11, 1.6e12, 0.0)] == ["400Gbit/s", "1.6Tbit/s", "0"]
    assert [spell_time(parse_time(text)) for text in ("10ms", "25us", "2min")] == [
        "10ms",
        "25us",
        "120s",
    ]


def test_transfer_time_and_volume_are_inverse():
    assert transfer_seconds(bytes_in(4e11, 0.3), 4e11) == pytest.approx(0.3)


def test_intervals_have_two_digits_and_are_rounded_outwards():
    said = (
        (118.2, 239.4),
        (0.52, 1.01),
        (4.0, 4.0),
        (1234.5, 99999.0),
        (0.0, 0.0123),
        (2e-6, 9e-6),
    )
    assert [show_between(*both) for both in said] == [
        "110 to 240 s",
        "0.52 to 1.1 s",
        "4.0 to 4.0 s",
        "1200 to 100000 s",
        "0 to 13 ms",
        "2.0 to 9.0 us",
    ]
    for low, high in said:
        first, second = (float(word) for word in show_between(low, high).split()[::2][:2])
        assert first <= second


def test_shown_quantities_are_short():
    assert show_rate(4e11) == "400 Gbit/s"
    assert [show_time(t) for t in (0.0103, 2.5e-5, 1.5, 92.34, 0)] == [
        "10.3 ms",
        "25 us",
        "1.5 s",
        "92.3 s",
        "0 s",
    ]


# --- every place where a quantity is written ------------------------------------------------------


def quantities():
    """(fabric, setting, unit that works) of every quantity of every builder, by the units in its
    parameters' names.
    """
    for name, builder in BUILDERS.items():
        for key in builder().parameters:
            for suffix, unit in (("_bps", "Gbit/s"), ("_s", "ms")):
                if key.endswith(suffix):
                    yield name, key.removesuffix(suffix), unit


SETTINGS = pytest.mark.parametrize(("name", "key", "unit"), list(quantities()))
NONSENSE = ("10", "-1", "-1{unit}", "nan", "inf", "1e400{unit}", "10{wrong}", "10qq", "", "{unit}")


@SETTINGS
def test_a_fabric_takes_no_setting_without_its_unit(name, key, unit):
    wrong = {"ms": "Gbit/s", "Gbit/s": "ms"}[unit]
    assert takes_text(BUILDERS[name], key)
    for text in NONSENSE:
        value = text.format(unit=unit, wrong=wrong)
        if value or key != "delay":  # an empty delay is that of topoopt's optics
            with pytest.raises(RFabricError, match=f"^{key}(:|=)"):
                parse_fabric(f"{name},{key}={value}")
    with pytest.raises(
        RFabricError, match=re.escape(f"{key}=10 has no unit; write {key}=10{unit} (or ")
    ):
        parse_fabric(f"{name},{key}=10")
    parse = {"ms": parse_time, "Gbit/s": parse_rate}[unit]
    parameters = parse_fabric(f"{name},{key}=10{unit}").parameters
    assert parse(f"10{unit}") in (parameters.get(f"{key}_s"), parameters.get(f"{key}_bps"))


@SETTINGS
def test_mininet_makes_numbers_of_settings_and_they_are_refused_all_the_same(
    name, key, unit, capsys
):
    with pytest.raises(SystemExit) as ended:
        mininet_topo(BUILDERS[name])(**{key: 10})
    assert (
        ended.value.code == 2
        and f"{key}=10 has no unit; write {key}=10{unit}" in capsys.readouterr().err
    )


def test_mininet_hands_positions_over_too(capsys):
    with pytest.raises(SystemExit):
        mininet_topo(rfabric)(2, 2, 2, 0, 100)
    assert "electrical=100 has no unit" in capsys.readouterr().err


@SETTINGS
def test_the_spec_of_a_built_fabric_carries_its_units(name, key, unit):
    settings = settings_of(BUILDERS[name]())
    made = build(name, settings | {key: 3 * settings[key]})
    assert parse_fabric(made.spec).links == made.links


def test_a_builder_of_ones_own_reads_quantities_as_they_were_written(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from rfabric.fabric import rfabric\n"
        "def mine(pods=2, slow='10ms'):\n    return rfabric(pods=pods, delay=slow)\n"
        "fabrics = {'mine': mine}\n"
    )
    assert parse_fabric(f"{file},pods=1,slow=5ms").reconfig_delay == pytest.approx(0.005)
    with pytest.raises(RFabricError, match="delay=5 has no unit"):
        parse_fabric(f"{file},slow=5")


@pytest.mark.parametrize(
    ("columns", "row", "why"),
    [
        ("a,b,rate", "x,t,400", "rate 400 has no unit; write 400Gbit/s .* rate_unit=Gbit/s"),
        ("a,b,rate,delay", "x,t,400G,1", "delay 1 has no unit; write 1us .* delay_unit=us"),
        (
            "a,b,rate,delay",
            "x,t,400G,1Gbit/s",
            "line 2, column delay: '1Gbit/s' is a rate, not a time",
        ),
    ],
)
def test_a_network_from_a_file_needs_units(tmp_path, columns, row, why):
    (tmp_path / "net.csv").write_text(f"{columns}\n{row}\n")
    with pytest.raises(RFabricError, match=why):
        parse_fabric(f"{tmp_path}/net.csv")


@pytest.mark.parametrize("key", ["rate", "uplink_rate"])
def test_the_rates_beside_a_network_file_need_units(tmp_path, key):
    (tmp_path / "net.csv").write_text("ip,ToR,agg,core\n1,t,a,c\n2,t,a,c\n")
    with pytest.raises(RFabricError, match=f"{key}=400 has no unit; write {key}=400Gbit/s"):
        parse_fabric(f"{tmp_path}/net.csv,{key}=400")
    assert parse_fabric(f"{tmp_path}/net.csv,{key}=100G").links


def recipe_keys():
    """(section.key, unit that works) of every quantity of a recipe."""
    for section in (Cluster, Generation, Training):
        for item in dataclasses.fields(section):
            if (parse := item.metadata["parse"]) in (rate, seconds):
                yield f"{section.section}{item.name}", {rate: "Gbit/s", seconds: "ms"}[parse]


@pytest.mark.parametrize(("key", "unit"), list(recipe_keys()))
def test_a_recipe_takes_no_quantity_without_its_unit(key, unit, tmp_path):
    refused = re.escape(f"{key}=400 has no unit; write {key}=400{unit} (or ")
    with pytest.raises(RFabricError, match=refused):
        read_recipe("grpo-64", [f"{key}=400"])
    section, _, name = key.partition(".")
    text = re.sub(rf"^  {name}:.*\n", "", (ROOT / "traffic/grpo-64.yaml").read_text(), flags=re.M)
    (tmp_path / "mine.yaml").write_text(
        text.replace(f"\n{section}:\n", f"\n{section}:\n  {name}: 400\n")
    )
    with pytest.raises(RFabricError, match=refused):
        read_recipe(tmp_path / "mine.yaml")
    for nonsense in ("4.0e+11", ".nan", ".inf", "-1", "true", "[1]", f"-1{unit}", "10MB"):
        with pytest.raises(RFabricError, match=re.escape(key)):
            read_recipe("grpo-64", [f"{key}={nonsense}"])
    section = getattr(read_recipe("grpo-64", [f"{key}=400{unit}", "generation.turns=2"]), section)
    # Python's floats of the base unit stay what they are
    assert dataclasses.replace(section) == section


def test_the_recipe_has_quantities():
    assert dict(recipe_keys()) == {"cluster.nic": "Gbit/s", "generation.environment_latency": "ms"}


@pytest.mark.parametrize(
    ("name", "key"),
    [
        (name, item.name.removesuffix("_s"))
        for name, settings in (
            ("orchestrrl", orchestrrl.Tuning),
            ("rollart", rollart.RollartSettings),
        )
        for item in dataclasses.fields(settings)
        if item.name.endswith("_s")
    ],
)
def test_a_scheduler_takes_no_time_without_its_unit(name, key):
    workload = read_recipe("grpo-64")
    with pytest.raises(
        RFabricError, match=f"scheduler {name}: {key}=5 has no unit; write {key}=5ms"
    ):
        scheduled(workload, 0, f"{name},{key}=5")
    for nonsense in ("nan", "-1s", "5Gbit/s", "5S"):
        with pytest.raises(RFabricError, match=f"scheduler {name}: {key}: "):
            scheduled(workload, 0, f"{name},{key}={nonsense}")


@pytest.mark.parametrize("value", ["nan", "inf", "-inf", "1s"])
def test_a_scheduler_s_numbers_are_numbers(value):
    with pytest.raises(
        RFabricError, match=f"scheduler rollart: redundancy={value} is not a number"
    ):
        scheduled(read_recipe("grpo-64"), 0, f"rollart,redundancy={value}")


@pytest.mark.parametrize("name", ["rotor", "demand,granularity=time-slotted"])
def test_a_slot_needs_its_unit(name):
    fabric = rfabric(pods=1, tors=3, gpus=1)
    with pytest.raises(RFabricError, match="slot=1 has no unit; write slot=1ms"):
        parse_policy(f"{name},slot=1", fabric)
    with pytest.raises(RFabricError, match="slot: '1Gbit/s' is a rate, not a time"):
        parse_policy(f"{name},slot=1Gbit/s", fabric)
    assert parse_policy(f"{name},slot=1s", fabric).slot == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("topo rfabric,delay=10", "delay=10 has no unit; write delay=10ms (or 10s, 10us)"),
        ("topo rfabric,electrical=100", "electrical=100 has no unit; write electrical=100Gbit/s"),
        ("topo two-clusters,join=200", "join=200 has no unit; write join=200Gbit/s"),
        ("simulate --topo rfabric,delay=10", "delay=10 has no unit"),
        ("simulate --topo rfabric --policy rotor,slot=1", "slot=1 has no unit"),
        ("simulate --policy orchestrrl,period=5+demand", "period=5 has no unit"),
        ("simulate --set cluster.nic=400",
         "cluster.nic=400 has no unit; write cluster.nic=400Gbit/s"),
        ("trace grpo-64 --set generation.environment_latency=3",
         "generation.environment_latency=3 has no unit"),
        ("timeline --policy rollart,spread=3", "spread=3 has no unit"),
        ("compare --topo rfabric --topo rfabric,delay=10", "delay=10 has no unit"),
        ("circuits --topo rfabric,rate=400", "rate=400 has no unit"),
        ("cost --rate 400", "--rate=400 has no unit; write --rate=400Gbit/s"),
        ("cost --topo fat-tree,rate=400G --rate 10ms", "--rate: '10ms' is a time, not a rate"),
        ("crossover --delays 1ms,10", "--delays=10 has no unit; write --delays=10ms"),
        ("crossover --topo rfabric,rate=400", "rate=400 has no unit"),
        ("bench --patience 20", "--patience=20 has no unit; write --patience=20ms (or 20s, 20us)"),
        ("cost --step-s 161s", "'161s' must be a number of seconds"),
    ],
)  # fmt: skip
def test_the_command_line_ends_with_2_and_one_line(words, why, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main([*words.split(), "-q"]) == 2
    said = capsys.readouterr().err
    assert why in said and said.count("\n") == 1


@pytest.mark.parametrize(
    "text", ["src,dst,size_bytes,start_s\nh1,h2,1500,0.5\n", "src,dst,size_bytes\nh1,h2,2kB\n"]
)
def test_columns_that_carry_their_unit_hold_bare_numbers(tmp_path, text):
    (tmp_path / "t.csv").write_text(text)
    assert read_trace(tmp_path / "t.csv").size[0] in (1500, 2000)


def own_files():
    return [ROOT / "README.md", ROOT / "Makefile"] + [
        file
        for folder in ("rfabric", "topologies", "controller", "traffic")
        for file in sorted((ROOT / folder).rglob("*"))
        if file.suffix in (".py", ".md", ".yaml")
    ]


def specs_of(names, keys="[a-z_]+"):
    """What our own files say after these names, `NAME,KEY=VALUE[,KEY=VALUE...]`."""
    spec = re.compile(rf"(?<![\w.-])(?:{'|'.join(names)})(?:,(?:{keys})=[\w./-]+)+")
    return sorted({said for file in own_files() for said in spec.findall(file.read_text())})


def test_no_example_of_ours_leaves_a_unit_out():
    fabrics, policies = specs_of(BUILDERS), specs_of(POLICIES, "granularity|slot")
    assert len(fabrics) > 15 and len(policies) > 2
    for spec in fabrics:
        assert parse_fabric(spec).hosts
    for spec in policies:
        if not re.search(r"=[A-Z]+$", spec):  # granularity=WHEN
            parse_policy(spec, rfabric())
