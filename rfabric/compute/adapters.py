"""Low-rank adapters (LoRA; Hu et al., arXiv 2106.09685): beside a matrix of m x n that stays as it
is, two of m x rank and rank x n learn.

They stand beside every matrix of the layers, those of experts as well (PEFT's `all-linear`), not
beside embeddings and routers. Gradients, Adam's states and, where engines add them to the weights
themselves, a weight sync are as much smaller as they have fewer parameters.
"""

from .models import Model


def adapter_parameters(model: Model, rank: int) -> int:
    """Parameters of the adapters of all layers."""
    m, e = model, model.experts
    sides = m.kv_layers * _attention(m) + m.own_mlps * _mlp(m, m.intermediate)
    if e is not None:
        shared = _mlp(m, e.shared) if e.shared else 0
        sides += e.layers * (e.count * _mlp(m, e.intermediate) + shared)
    # Matrices of state-space layers and gates are taken to be as square as the model is wide.
    return rank * (sides + 2 * m.others // m.hidden)


def share_that_learns(model: Model, rank: int) -> float:
    """Parameters that learn, in those of the model; 1 where `rank` is 0 and all do."""
    return adapter_parameters(model, rank) / model.parameters if rank else 1.0


def _attention(model: Model) -> int:
    """Rows and columns of the matrices of attention in one layer."""
    m, latent = model, model.latent
    if latent is None:
        heads, cached = m.heads * m.head_dim, m.kv_heads * m.head_dim
        return 4 * m.hidden + 2 * heads + 2 * cached
    queries, rank = m.heads * (latent.nope + latent.rope), latent.query_rank
    asked = m.hidden + 2 * rank + queries if rank else m.hidden + queries
    compressed = m.hidden + latent.kv_rank + latent.rope
    restored = latent.kv_rank + m.heads * (latent.nope + latent.value)
    return asked + compressed + restored + m.heads * latent.value + m.hidden


def _mlp(model: Model, columns: int) -> int:
    """Rows and columns of gate, up and down."""
    return (3 if model.gated else 2) * (model.hidden + columns)
