"""Faults on real hosts, each with the verdict that it must get.

Every fault boots a host of its own (real systemd, journald, sshd), puts an engine on it as a unit, confirms it, breaks something
on the host, on the link or in the console, and gives the change ``tree_budget=16, draft_window=512`` to ``ddtree-console`` as a
user would: what counts is its exit status and its JSON. Then the host itself is asked, without the console, what became of the
old configuration. By hand: ``python -m tests.faults --list``, ``python -m tests.faults --only NAME``; ``make faults`` runs all
and writes ``docs/faults.md``. A fault is a record and a function, in :mod:`tests.faults.cases`.
"""
