"""rfabric: what a network fabric does to the time and cost of one RL post-training step.

Mininet emulates a scaled GPU pod fabric whose aggregation and core layers are optical circuit switches (OCS) rewired by
a Ryu controller; a flow-level simulator runs the same trace, the same plan and the same policy objects.

    units, errors <- fabric <- optics <- trace <- rl        what is cabled, connected, sent, and why
    simulate  emulate  control  report                      two worlds, the controller between, what came out
"""

__version__ = "0.1.0"
