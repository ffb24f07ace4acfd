"""Where packets go: light paths, cheapest ways, the schemes that choose among them, the rules of
switches.
"""

from .paths import (
    LightPath,
    Routes,
    Rule,
    circuit_rules,
    light_paths,
    routes_of,
    unreachable,
    walk,
    where_lost,
)

__all__ = [
    "LightPath",
    "Routes",
    "Rule",
    "circuit_rules",
    "light_paths",
    "routes_of",
    "unreachable",
    "walk",
    "where_lost",
]
