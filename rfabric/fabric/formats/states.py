"""What files say of the state of a cable. One that is down carries nothing, nor does one that is
planned or taken out, as inventories (NetBox) list them beside those that are connected.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

STATE = re.compile(
    r"(?:(?:link|cable|port|interface|intf|oper|operational|admin|administrative)[-_ ]*)*"
    r"(?:status|state)",
    re.I,
)
# keys that are true or false, by what they are of a cable that carries something
FLAGS = dict.fromkeys(("enabled", "up", "active", "connected"), True)
FLAGS |= dict.fromkeys(("disabled", "disable", "down", "failed", "shutdown"), False)
TRUTHS = {"true": True, "yes": True, "false": False, "no": False}
UP = {"up", "connected", "active", "enabled", "online", "ok", "operational"}
DOWN = {
    "down", "disabled", "inactive", "offline", "failed", "faulty", "broken", "shutdown", "planned",
    "decommissioning", "decommissioned", "disconnected", "notconnected", "notconnect",
    "notpresent", "lowerlayerdown", "admindown", "administrativelydown", "errdisabled",
}  # fmt: skip


def is_state(key: object) -> bool:
    """Whether an attribute or a column of this name says whether a cable carries anything."""
    return _meaning(str(key)) is not None


def is_down(attributes: Mapping[str, Any]) -> bool:
    """Whether any of the attributes says that the cable carries nothing."""
    return any(_carries(key, value) is False for key, value in attributes.items())


def is_plain(key: object, value: object) -> bool:
    """Whether a state is one of those known, or says nothing."""
    return _words(value) == "" or _carries(key, value) is not None


def _carries(key: object, value: object) -> bool | None:
    """Whether a cable of such an attribute carries something; None where it does not say."""
    meaning = _meaning(str(key))
    if meaning is None:
        return None
    words = _words(value)
    if meaning == "state":
        return words in UP if words in UP | DOWN else None
    truth = TRUTHS.get(words)
    return None if truth is None else truth is (meaning == "up")


@lru_cache(maxsize=1024)
def _meaning(key: str) -> str | None:
    """`state` of a key whose value is a word; `up` or `down` of one that is true or false."""
    if STATE.fullmatch(key.strip()):
        return "state"
    flag = re.sub(r"[^a-z]", "", key.lower()).removeprefix("is").removeprefix("admin")
    return {True: "up", False: "down"}.get(FLAGS[flag]) if flag in FLAGS else None


def _words(value: object) -> str:
    """`Err-Disabled`, `err disabled` and `errDisabled` alike."""
    return "" if value is None else re.sub(r"[^a-z]", "", str(value).lower())
