"""Checks of DDTREE inside SGLang on a real GPU: run by hand, in parts, each with a result file that says what it ran on.

``python -m tests.gpu list`` names the parts, ``run`` runs some, ``merge`` makes one table of their result files.
``docs/sglang.md`` tells how to bring everything to a machine without a network.
"""
