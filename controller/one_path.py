"""A routing of your own: every pair takes the first of its cheapest ways.

    rfabric compare --topo fat-tree --topo leaf-spine --routing controller/one_path.py

What the other schemes gain by spreading pairs is seen beside it. Copy this file and choose
otherwise: `rfabric.routing.schemes.Chooser` says what it gets and what it must return.
"""

import numpy as np

from rfabric.routing.choices import Choices
from rfabric.routing.schemes import Sent


def one_path(choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray) -> np.ndarray:
    """int64[pairs, longest]: the light paths from rack[i] to to[i], -1 beyond the last."""
    offers, some = choices.cheapest(rack, to), choices.bundles
    rows = offers.rows[offers.first[:-1]]  # of each pair the first way, a row of bundles
    first = np.append(some.path[some.first[:-1]], -1)  # of each bundle the first light path
    return first[rows]


routings = {"one-path": one_path}
