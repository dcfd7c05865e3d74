"""Destinations are read as ssh reads them, and what is none is said."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.hosts.ssh_destination import BadDestination, Destination, parse_destination

GOOD = {
    "gpu-a": Destination("gpu-a"),
    "root@gpu-a": Destination("gpu-a", "root"),
    "root@gpu-a:2222": Destination("gpu-a", "root", 2222),
    "gpu-a:22": Destination("gpu-a", None, 22),
    "me@corp@gpu-a": Destination("gpu-a", "me@corp"),
    "::1": Destination("::1"),
    "root@fe80::1%eth0": Destination("fe80::1%eth0", "root"),
    "[::1]:2222": Destination("::1", None, 2222),
    "[::1]": Destination("::1"),
    "ssh://gpu-a": Destination("gpu-a"),
    "ssh://Root@GPU-A:2222": Destination("GPU-A", "Root", 2222),
    "ssh://a%40b@gpu-a/": Destination("gpu-a", "a@b"),
    "ssh://[::1]:2222": Destination("::1", None, 2222),
    " gpu-a ": Destination("gpu-a"),
}


@pytest.mark.parametrize("text", GOOD)
def test_a_destination_is_read_as_ssh_reads_it(text: str) -> None:
    assert parse_destination(text) == GOOD[text]


@pytest.mark.parametrize(
    "text",
    ["", " ", "root@", "@gpu-a", "gpu a", "gpu\na", "-oProxyCommand=x", "a@-x", "gpu-a:0", "gpu-a:65536", "gpu-a:ssh", "gpu-a:",
     "http://gpu-a", "ssh://", "ssh://gpu-a/path", "ssh://gpu-a:99999", "$(id)", "a;b", "a|b", "[::1", "`id`"],
)  # fmt: skip
def test_what_is_no_destination_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(BadDestination):
        parse_destination(text)


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True)


@given(NAMES, st.none() | NAMES, st.none() | st.integers(1, 65_535))
def test_what_is_printed_reads_back_the_same(host: str, user: str | None, port: int | None) -> None:
    destination = Destination(host, user, port)
    assert parse_destination(str(destination)) == destination


@given(st.text(max_size=40))
def test_any_text_is_a_destination_or_refused(text: str) -> None:
    try:
        found = parse_destination(text)
    except BadDestination:
        return
    assert found.host
    assert not found.host.startswith("-")
