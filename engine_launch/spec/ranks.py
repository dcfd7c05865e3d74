"""How many rank processes, one a GPU, a server starts."""

from __future__ import annotations


def ranks_on_a_host(tensor: int, pipeline: int = 1, data: int = 1, *, data_attention: bool = False, hosts: int = 1) -> int:
    """Tensor × pipeline × data parallel, divided by the hosts.

    With data-parallel attention (SGLang's ``--enable-dp-attention``) the ranks of one tensor-parallel group share out the
    requests; without it there are ``data`` groups.
    """
    return max(1, tensor * pipeline * (1 if data_attention else data) // max(1, hosts))
