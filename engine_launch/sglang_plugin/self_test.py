"""``--ddtree-self-test``: a server that is ready decodes a few prompts plainly and as trees, and ends if they do not agree.

In 16-bit arithmetic a pass of one row and a pass of many rows round differently, so that about one token in a hundred is a
tie decided the other way; a wrong tree, on the other hand, spoils nearly every answer. So most of the answers must agree.
"""

from __future__ import annotations

import json
import logging
import ssl
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_logger = logging.getLogger(__name__)
PROMPTS: tuple[str, ...] = (
    "The days of the week are Monday, Tuesday, Wednesday,",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Once upon a time there was a small house at the edge of the forest, and in it lived",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12,",
    "The capital of France is Paris. The capital of Italy is Rome. The capital of Spain is",
)
TOKENS = 16
_TIMEOUT = 120.0
"""Seconds; the first answers may wait for kernels to be compiled."""


@dataclass(frozen=True)
class Outcome:
    """How many of the answers agree."""

    equal: int
    asked: int

    @property
    def passed(self) -> bool:
        """More than half: what rounding can spoil is far less, what a wrong tree leaves whole is next to nothing."""
        return 2 * self.equal > self.asked


def run(url: str, api_key: str | None, as_ids: bool, verify: bool | str = True) -> Outcome:
    """Ask the server at ``url``.

    Args:
        as_ids: it has no tokenizer, so the prompts are token ids.
        verify: of its certificate, as SGLang's own warm-up does: whether to, or with which file of authorities.

    Raises:
        OSError: it did not answer, or with an error.
    """
    opener = _opener(verify)
    equal = 0
    for number, text in enumerate(PROMPTS):
        prompt: dict[str, Any] = {"input_ids": _ids(number)} if as_ids else {"text": text}
        plain, tree = (_generate(opener, url, api_key, prompt, speculative) for speculative in (False, True))
        equal += plain == tree
    return Outcome(equal, len(PROMPTS))


def check(url: str, api_key: str | None, as_ids: bool, verify: bool | str = True) -> bool:
    """Run it and say what came of it in the log."""
    try:
        outcome = run(url, api_key, as_ids, verify)
    except urllib.error.HTTPError as error:
        said = error.read().decode(errors="replace").strip()[:300]
        _logger.error("DDTREE self-test was refused: %s %s. The server ends; start it without --ddtree-self-test.", error, said)
        return False
    except (OSError, ValueError, KeyError) as error:
        _logger.error("DDTREE self-test could not be made: %s. The server ends; start it without --ddtree-self-test.", error)
        return False
    if not outcome.passed:
        _logger.error(
            "DDTREE self-test failed: only %d of %d greedy answers are the same plainly and as a tree. The server ends, because "
            "its answers would be wrong; use --speculative-algorithm DFLASH and report the versions of SGLang and the driver.",
            outcome.equal,
            outcome.asked,
        )
        return False
    _logger.info(
        "DDTREE self-test passed. %d of %d greedy answers are the same plainly and as a tree.", outcome.equal, outcome.asked
    )
    return True


def _opener(verify: bool | str) -> urllib.request.OpenerDirector:
    """No proxy: the server is this process, whatever the environment says of proxies."""
    context = ssl.create_default_context(cafile=verify if isinstance(verify, str) else None)
    if verify is False:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))


def _ids(number: int) -> list[int]:
    return [100 + 37 * number + 11 * place for place in range(12)]


def _generate(
    opener: urllib.request.OpenerDirector, url: str, api_key: str | None, prompt: dict[str, Any], speculative: bool
) -> Sequence[int]:
    sampling = {
        "temperature": 0.0,
        "max_new_tokens": TOKENS,
        "ignore_eos": True,
        "custom_params": {"speculative": speculative},
    }
    request = urllib.request.Request(
        f"{url}/generate",
        json.dumps({**prompt, "sampling_params": sampling}).encode(),
        {"Content-Type": "application/json", **({"Authorization": f"Bearer {api_key}"} if api_key else {})},
    )
    with opener.open(request, timeout=_TIMEOUT) as answer:
        body = json.load(answer)
    return [int(token) for token in body["output_ids"]]
