"""A routing of your own: every pair takes the first of its cheapest paths.

    rfabric compare --topo fat-tree --topo leaf-spine --routing controller/one_path.py

Compare it with the other schemes to see what they gain by spreading pairs. Copy this file and
choose other paths; `rfabric.routing.schemes.Chooser` says what it gets and must return.
"""

import numpy as np

from rfabric.routing.choices import Choices
from rfabric.routing.schemes import Sent


def one_path(choices: Choices, sent: Sent, rack: np.ndarray, to: np.ndarray) -> np.ndarray:
    """int64[pairs, longest]: the light paths from rack[i] to to[i], -1 beyond the last."""
    offers, some = choices.cheapest(rack, to), choices.bundles
    rows = offers.rows[offers.first[:-1]]  # of each pair the first path, a row of bundles
    first = np.append(some.path[some.first[:-1]], -1)  # of each bundle the first light path
    return first[rows]


routings = {"one-path": one_path}
