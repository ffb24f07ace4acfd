"""NAME,KEY=VALUE: what stands in a spec, what values are read as, what is said of wrong ones."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rfabric.errors import RFabricError
from rfabric.specs import (
    Spec,
    by_fields,
    by_signature,
    escaped,
    field_values,
    head_of,
    read_spec,
    split_at,
    unescaped,
)
from rfabric.units import parse_time

WORD = st.sampled_from(["a", "b-c", "x.py:y", "k_0", "/z/9.csv"])


@dataclass(frozen=True)
class Everything:
    """A setting of every type."""

    period_s: float = 1.0
    line_bps: float = 1e9
    buffer_bytes: float = 1e6
    count: int = 2
    share: float = 0.5
    on: bool = False
    word: str = "usual"
    slot: float = field(default=0.1, metadata={"parse": parse_time})


def values(text):
    return field_values(Everything, read_spec(text, "thing"))


@given(st.text("a,:+=.\\ ").map(str.strip).filter(lambda path: not path.endswith("\\")))
def test_a_path_with_marks_in_it_is_read_as_it_is(path):
    text = f"{escaped(path)}:ring,file={escaped(path)},rows=2"
    spec = read_spec(text)
    assert spec.settings == {"file": path, "rows": "2"} and head_of(text) == spec.head
    assert list(map(unescaped, split_at(spec.head, ":"))) == [path, "ring"]
    assert split_at(f"{text}+{text}", "+") == [text, text]


def test_a_file_whose_name_would_be_divided_is_told_how_to_write_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a,b.py").touch()
    for ask in (head_of, read_spec):
        with pytest.raises(RFabricError, match=r"a,b.py is a file .*; write a\\,b.py, in a shell"):
            ask("a,b.py")


@given(
    WORD,
    st.dictionaries(WORD, st.sampled_from(["", "1", "a=b", "10ms", "=", "x/y.z"])),
    st.sampled_from(["", " "]),
)
def test_what_is_written_is_what_is_read(head, settings, gap):
    text = f",{gap}".join([head, *(f"{key}={value}" for key, value in settings.items())])
    assert read_spec(text) == Spec(head, settings) and head_of(text) == head


def test_a_dataclass_says_what_its_settings_are():
    assert values(
        "x,period=250ms,line=10G,buffer=2kB,count=3,share=1e-3,on=yes,word=a,slot=5s"
    ) == {
        "period_s": 0.25,
        "line_bps": 1e10,
        "buffer_bytes": 2000,
        "count": 3,
        "share": 1e-3,
        "on": True,
        "word": "a",
        "slot": 5,
    }
    assert list(by_fields(Everything, "on", "word")) == [
        "period",
        "line",
        "buffer",
        "count",
        "share",
        "slot",
    ]


def test_a_signature_says_what_its_settings_are():
    def build(pods=4, ratio=1.0, delay="10ms", rate: str | float = 0.0, dense=False):
        """A builder."""

    spec = read_spec("mine,pods=2,ratio=1.5,delay=5,rate=7,dense=on")
    assert spec.values(by_signature(build)) == {
        "pods": 2,
        "ratio": 1.5,
        "delay": "5",
        "rate": "7",
        "dense": True,
    }


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x,perod=1s", ("thing x: 'perod=1s' is not a setting, did you mean period?; write "
                        "KEY=VALUE with one of period, line")),
        ("x,count", "thing x: 'count' is not a setting; write KEY=VALUE"),
        ("x,count=1,count=2", "thing x: a setting stands twice, count; keep one of each"),
        ("x,period=5", "thing x: period=5 has no unit; write period=5ms"),
        ("x,period=5GB", "thing x: period: '5GB' is a size, not a time"),
        ("x,count=2.5", "thing x: count=2.5 must be a whole number"),
        ("x,share=nan", ("thing x: share=nan is not a number; write it without a unit, such as "
                         "share=2")),
        ("x,on=maybe", "thing x: on=maybe must be on or off"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_with_the_way_out(text, said):
    with pytest.raises(RFabricError) as error:
        values(text)
    assert str(error.value).startswith(said)


def test_who_takes_no_settings_says_so():
    with pytest.raises(RFabricError, match="thing x: 'a=1' is not a setting; it has none"):
        read_spec("x,a=1", "thing").values({})
