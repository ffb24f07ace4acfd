r"""Fat-Tree (Al-Fares, Loukissas, Vahdat, SIGCOMM 2008) of electrical packet switches.

    c1 c2 c3 c4           core: one switch a plane, `tors` cables to each pod
     |  |  |  |
    a1 a2 a3 a4  | pod 2  aggregation: one switch per pod and plane
     |\ \/ / /|  | ...
    t1 t2 t3 t4           edge (ToR): `gpus` hosts below, gpus/oversubscription uplinks, one a plane
    |||| |||| ...
    h1 .. h4  h5 .. h8    host: one GPU and its NIC

    defaults: pods=4,tors=4,gpus=4: 64 hosts, 192 cables, 36 switches, which are
              16 ToRs + 16 aggregation + 4 core

    rfabric simulate --topo fat-tree,pods=4,oversubscription=2 --traffic grpo-64
    sudo mn --custom topologies/fat_tree.py --topo fat-tree,pods=2 --controller remote \
        --switch ovsk,protocols=OpenFlow13

`k=4` gives the classic k-ary form: k pods of k/2 ToRs with k/2 hosts each. A core switch that would
need more than `radix` ports (64 at 400 Gbit/s) is several, which share the up-cables of every pod;
switches of 64 ports end at 65,536 GPUs.
"""

import sys

# mn executes this file without __file__: the name in its code object tells where the checkout is.
sys.path.insert(0, sys._getframe().f_code.co_filename.rpartition("topologies")[0] or ".")

from rfabric.emulate.topo import mininet_topo  # noqa: E402
from rfabric.errors import RFabricError  # noqa: E402
from rfabric.fabric import Fabric  # noqa: E402
from rfabric.fabric.builders import (  # noqa: E402
    Sketch,
    core_switches,
    narrow,
    nearest,
    radix_at,
    shape,
    shape_for,
    sized,
    uplinks,
    whole,
)
from rfabric.units import parse_rate  # noqa: E402


@sized(shape_for)
def fat_tree(
    pods: int = 4,
    tors: int = 4,
    gpus: int = 4,
    oversubscription: float = 1,
    rate: str | float = "400Gbit/s",
    k: int = 0,
    radix: int = 0,
) -> Fabric:
    """A Fat-Tree (Al-Fares, SIGCOMM 2008): `pods` x `tors` x `gpus` hosts, or the `k`-ary form.

    `oversubscription` n:1 is taken at the ToRs: each has gpus/n uplinks, and above them nothing is
    oversubscribed further. `k` sets pods=k, tors=gpus=k/2 and the classic (k/2)^2 core switches of
    k ports; the pods form has one core switch a plane, or as many as it takes where that would
    need more than `radix` ports. `radix` 0: what is sold at `rate`, that of every cable.
    """
    if k:
        pods, tors, gpus = _classic(k, pods, tors, gpus)
    pods, tors, gpus = shape("fat-tree", pods, tors, gpus)
    bps, sketch = parse_rate(rate, "rate"), Sketch()
    radix = radix_at(radix, bps)
    planes, ratio = uplinks("fat-tree", gpus, oversubscription, radix)
    narrow("fat-tree", "a ToR", gpus + planes, "use fewer GPUs a ToR", radix)
    cores = _cores(pods, tors, radix)
    sketch.planes(sketch.racks(pods, tors, gpus, bps), planes, "eps", bps, tors if k else cores)
    parameters = {
        "pods": pods,
        "tors": tors,
        "gpus": gpus,
        "oversubscription": ratio,
        "rate_bps": bps,
        "k": k,
        "radix": radix,
    }
    return Fabric("fat-tree", sketch.nodes, sketch.links, 0.0, "", parameters)


def _cores(pods: int, tors: int, radix: int) -> int:
    """Core switches a plane, or an error that says which shape fits."""
    if (cores := core_switches(pods, tors, radix, 1)) is not None:
        return cores
    near = nearest(tors, lambda n: core_switches(pods, n, radix, 1) is not None)
    way_out = f"the nearest that works is tors={near}" if near else f"use at most pods={radix}"
    raise RFabricError(
        f"fat-tree: switches of {radix} ports do not join {pods} pods of tors={tors}, the limit is "
        f"{radix} pods of {radix // 2}; {way_out}, or "
        f"radix={max(pods, 2 * tors if pods > 1 else tors)}"
    )


def _classic(k: int, *given: int) -> tuple[int, int, int]:
    """pods, tors, gpus of the k-ary form, unless the ones given say otherwise."""
    whole("k", k, 2)
    if k % 2:
        raise RFabricError(f"fat-tree: k={k} must be even; the nearest that works is k={k - 1}")
    made = k, k // 2, k // 2
    if any(value not in (4, own) for value, own in zip(given, made, strict=True)):
        raise RFabricError(
            f"fat-tree: k={k} sets pods={k}, tors=gpus={k // 2}; leave these out, or k"
        )
    return made


fabrics = {"fat-tree": fat_tree}
topos = {"fat-tree": mininet_topo(fat_tree)}
