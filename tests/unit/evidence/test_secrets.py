"""Secrets are masked by the name before them, wherever they stand; nothing else is touched."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.secrets import MASK, mask_argv, mask_environment, mask_text

from .support import CAPTURES, stored_lines
from .test_command import container_command

SECRET = "sk-Zq81xyz"


@pytest.mark.parametrize(
    "text",
    [
        f"--api-key {SECRET} --port 3",
        f"--api-key={SECRET}",
        f"--admin-api-key '{SECRET}'",
        f"HF_TOKEN={SECRET} python x",
        f"export OPENAI_API_KEY='{SECRET}'",
        f"Authorization: Bearer {SECRET}",
        f"curl -H 'authorization: {SECRET}'",
        f'{{"api_key": "{SECRET}", "port": 3}}',
        f"server_args=ServerArgs(api_key='{SECRET}', port=3)",
        f"ssl_keyfile_password='{SECRET}'",
        f"https://user:{SECRET}@host/x",
        f"GET /x?token={SECRET}&n=1",
        f"--hf-token {SECRET}",
        f"password: {SECRET}",
        f"--api-k {SECRET}",
        f"--ap={SECRET}",
        f"--ssl-keyfile-pass {SECRET}",
        f"ExecStart=x --api-key \\\n    {SECRET} --port 3",
        f" ExecStart=x --api-key \\\r\n+   {SECRET}",
        f"Running ['x', '--api-key', '{SECRET}', '--port', '3']",
        f'     "--api-key",\n+    "{SECRET}",',
        f"git+https://{SECRET}@github.com/x/y",
    ],
)
def test_a_secret_is_masked(text: str) -> None:
    masked = mask_text(text)
    assert SECRET not in masked
    assert MASK in masked


@pytest.mark.parametrize(
    "text",
    [
        "Decode batch, #running-req: 1, #token: 311, token usage: 0.00, #new-token: 5, #cached-token: 21",
        "mask_token=<|MASK|>, mask_token_id=1, max_new_tokens=64",
        "--speculative-num-draft-tokens 8 --tokenizer-path /w/t",
        "api_key=None, admin_api_key=None",
        "the password is asked once",
        "keys: a, b; monkey=3",
        "--bucket-time-to-first-token 0.1 0.5 --attention-backend fa3",
        "['x', '--api-key', '--port', '3']",
        "ssh://root@gpu-a, root@gpu-a, http://127.0.0.1:30000/x@y",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    assert mask_text(text) == text


def test_a_recorded_log_without_secrets_stays_byte_for_byte() -> None:
    for line in stored_lines(CAPTURES / "dflash.log"):
        assert mask_text(line) == line


def test_command_lines_are_masked_word_by_word_and_inside_shell_strings() -> None:
    assert mask_argv(["x", "--api-key", SECRET, "--port", "3"]) == ("x", "--api-key", MASK, "--port", "3")
    assert mask_argv(["x", f"--api-key={SECRET}"]) == ("x", f"--api-key={MASK}")
    assert mask_argv(["x", f"--api-key={SECRET} with blanks"]) == ("x", f"--api-key={MASK}")
    assert mask_argv(["x", "--api-key", f"{SECRET} with blanks"]) == ("x", "--api-key", MASK)
    assert mask_argv(["x", "--api-k", SECRET, "--att", "fa3"]) == ("x", "--api-k", MASK, "--att", "fa3")
    assert mask_argv(["x", "--api-key", "--port", "3"]) == ("x", "--api-key", "--port", "3")
    shown = mask_argv(container_command())
    assert "/srv/llm/secret/key" not in shown[2]
    assert "--speculative-ddtree-budget 24" in shown[2]


def test_environment_values_are_masked_by_name() -> None:
    masked = mask_environment({"HF_TOKEN": SECRET, "PORT": "30000", "MY_SECRET": SECRET})
    assert masked == {"HF_TOKEN": MASK, "PORT": "30000", "MY_SECRET": MASK}


@given(st.text(max_size=80))
def test_masking_twice_is_masking_once(text: str) -> None:
    assert mask_text(mask_text(text)) == mask_text(text)


@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=8, max_size=30), st.text(" \t", max_size=3))
def test_any_key_after_its_flag_is_masked(secret: str, blanks: str) -> None:
    assert f"-{secret}-" not in mask_text(f"run --api-key {blanks}-{secret}- --port 1")
