"""Secrets are masked by the name before them, wherever they stand; nothing else is touched."""

from __future__ import annotations

import json
import shlex
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dflash_console.evidence.secrets import MASK, mask_argv, mask_environment, mask_text

from .support import CAPTURES, container_command, stored_lines

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
        f"--wandb-key {SECRET}",
        f"WANDB_KEY={SECRET}",
        f"--my-own-secret={SECRET}",
        f"tool -password {SECRET}",
        f"sshpass -p {SECRET} ssh -p 22 root@gpu-a",
        f"/usr/bin/sshpass -p'{SECRET}' ssh gpu-a",
        f"curl -u me:{SECRET} https://x",
        f"curl -sSu me:{SECRET} https://x",
        f"curl -fsS --user 'me:{SECRET} with blanks' https://x && echo done",
        f"curl --proxy-user=me:{SECRET} https://x",
        f"docker login -u me -p {SECRET} registry",
        f"podman login -p={SECRET} registry",
        f"mysqldump -u me -p{SECRET} all",
        f"redis-cli -h x -a {SECRET} ping",
        f"bash -c \"sshpass -p '{SECRET}' ssh x\"",
        f"Running ['sshpass', '-p', '{SECRET}', 'ssh', 'x']",
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
        "curl -u me https://x -o y:z",
        "docker run -p 30000:30000 -u 1000:1000 lmsysorg/sglang",
        "sshpass -e ssh -p 22 -u a:b root@gpu-a",
        "sshpass -f /etc/x ssh -p 22 gpu-a",
        "mysql -p -u me; ssh -p 22 x",
        "curl -s http://x:3/health | tee -a log; nc -u 10.0.0.1:3",
        "--public-key /w/k --cache-key x, the key -- is: y, sort_key=3",
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
    assert mask_argv(["sshpass", "-p", SECRET, "ssh", "-p", "22"]) == ("sshpass", "-p", MASK, "ssh", "-p", "22")
    assert mask_argv(["/bin/curl", "-u", f"me:{SECRET} x", "-o", "a:b"]) == ("/bin/curl", "-u", f"me:{MASK}", "-o", "a:b")
    assert mask_argv(["docker", "login", f"-p{SECRET}"]) == ("docker", "login", f"-p{MASK}")
    assert mask_argv(["docker", "run", "-p", "3:3", "x"]) == ("docker", "run", "-p", "3:3", "x")
    shown = mask_argv(container_command())
    assert "/srv/llm/secret/key" not in shown[2]
    assert "--speculative-ddtree-budget 24" in shown[2]


def test_environment_values_are_masked_by_name() -> None:
    masked = mask_environment({"HF_TOKEN": SECRET, "PORT": "30000", "MY_SECRET": SECRET})
    assert masked == {"HF_TOKEN": MASK, "PORT": "30000", "MY_SECRET": MASK}


@pytest.mark.parametrize("piece", ["curl ", "curl '", "sshpass -v ", "docker login -p ", "x:curl -u ", "mysql,"])
def test_a_long_line_of_programs_takes_no_long_time(piece: str) -> None:
    begun = time.process_time()
    mask_text(piece * 20_000)
    assert time.process_time() - begun < 3.0


@pytest.mark.parametrize(
    "piece",
    [
        "--api-key 'x",
        '--api-key "x\\" ',
        "--api-key=$(",
        "api_key=[",
        'api_key=\\"',
        "--api-key\\\n",
        "--api-key a'",
        "\x1b[1mapi_key\x1b[0m=",
    ],
)
def test_a_long_line_of_keys_takes_no_long_time(piece: str) -> None:
    for text in (piece * 20_000, piece + "x" * 400_000, piece + "\\'" * 200_000):
        begun = time.process_time()
        mask_text(text)
        assert time.process_time() - begun < 3.0


HARD = "Q,;)'\"}]x\\yZ"
"""A key with everything in it that ends a value somewhere."""


@pytest.mark.parametrize(
    "line",
    [
        f"--api-key {shlex.quote(HARD)} --port 1",
        f"bash -c {shlex.quote('run --api-key ' + shlex.quote('Q,;)Z') + ' --port 1')}",
        "--api-key Q,;)}]Z --port 1",
        f"api_key={HARD!r}, port=1",
        json.dumps({"api_key": HARD, "port": 1}),
        json.dumps(json.dumps({"api_key": "Q,;)Z", "port": 1})),
        "api_keys=['QaZ', 'QbZ'], port=1",
        "-  --api-key\\\n-    QaZ \\\n+  --api-key\\\n+    QbZ \\\n   --port 1",
        "--api-key=''QaZ --port 1",
        "--api-key=$'QaZ' --port 1",
        '--api-key "$KEY"QaZ --port 1',
        "--api-key Qa\\ bZ --port 1",
        "\x1b[36mapi_key\x1b[0m=\x1b[32m'QaZ'\x1b[0m port=1",
        "clientSecret: QaZ port=1",
        "GITHUB_PAT=QaZ SMTP_PASS=QbZ signing_key=QcZ port=1",
        "https://s3/x?X-Amz-Signature=QaZ&port=1",
        "Cookie: QaZ; port=1",
    ],
)
def test_a_key_is_masked_whole_however_it_is_written(line: str) -> None:
    shown = mask_text(line)
    assert MASK in shown
    assert "Z" not in shown
    assert "port" in shown
    assert mask_text(shown) == shown


@given(st.text(max_size=80))
def test_masking_twice_is_masking_once(text: str) -> None:
    assert mask_text(mask_text(text)) == mask_text(text)


@given(st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=8, max_size=30), st.text(" \t", max_size=3))
def test_any_key_after_its_flag_is_masked(secret: str, blanks: str) -> None:
    assert f"-{secret}-" not in mask_text(f"run --api-key {blanks}-{secret}- --port 1")


PASSWORDS = st.text(st.characters(codec="ascii", exclude_categories=["C"]), min_size=6, max_size=30).map(lambda text: f"Q{text}Z")


@given(
    PASSWORDS,
    st.sampled_from([("sshpass", "-p", ""), ("curl", "-u", "me:"), ("curl", "--user", "me:"), ("redis-cli", "-a", "")]),
    st.lists(st.sampled_from(["-v", "--x", "--port=3"]), max_size=3),
)
def test_any_password_of_a_program_is_masked_as_a_word_and_in_a_shell_string(
    password: str, form: tuple[str, str, str], before: list[str]
) -> None:
    program, option, user = form
    argv = [program, *before, option, user + password, "rest"]
    assert mask_argv(argv) == (program, *before, option, user + MASK, "rest")
    line = f"cd /srv && {shlex.join(argv)}"
    assert shlex.quote(password) not in mask_text(line)
    assert mask_text(mask_text(line)) == mask_text(line)
    assert mask_text(line).endswith((" rest", MASK + "'"))
