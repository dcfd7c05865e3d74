"""What the engine prints may go to a file by the command's own words: then no log of the service has it."""

from __future__ import annotations

import shlex

import pytest

from dflash_console.evidence.redirection import output_file, redirected_words

E = "python -m sglang.launch_server --port 1"


@pytest.mark.parametrize(
    ("text", "file"),
    [
        (f"{E} > /var/log/sgl.log 2>&1", "/var/log/sgl.log"),
        (f"exec {E} >> /var/log/sgl.log", "/var/log/sgl.log"),
        (f"exec {E} &>/var/log/sgl.log", "/var/log/sgl.log"),
        (f"{E} 2>/dev/null", "/dev/null"),
        (f"nohup {E} > /var/log/sgl.log 2>&1 & echo $! > /run/sgl.pid", "/var/log/sgl.log"),
        (f"> /var/log/sgl.log {E}", "/var/log/sgl.log"),
        (f"exec >>/var/log/sgl.log 2>&1; exec {E}", "/var/log/sgl.log"),
        (f"{{ date; {E}; }} >> /var/log/sgl.log 2>&1", "/var/log/sgl.log"),
        (f"( cd /srv && {E} ) > /var/log/sgl.log", "/var/log/sgl.log"),
        (f"while :; do {E}; sleep 5; done >> /var/log/sgl.log", "/var/log/sgl.log"),
        (f"su svc -c '{E} > /var/log/sgl.log'", "/var/log/sgl.log"),
        (f"su svc -c '{E}' > /var/log/sgl.log", "/var/log/sgl.log"),
        (f"{E} > $LOG", "$LOG"),
        (E, ""),
        (f"{E} 2>&1", ""),
        (f"{E} 2>&1 | tee -a /var/log/sgl.log", ""),
        (f"{E} < /dev/null", ""),
        (f"exec > >(ts >> /var/log/sgl.log); exec {E}", ""),
        (f"echo starting > /run/started; exec {E}", ""),
        (f"{E} & echo $! > /run/sgl.pid", ""),
        (f"{E}; echo ended >> /var/log/ends", ""),
    ],
)
def test_the_file_that_the_engines_output_goes_to_is_found(text: str, file: str) -> None:
    assert output_file(("bash", "-c", text)) == file


def test_a_command_without_a_shell_redirects_nothing() -> None:
    assert output_file((*shlex.split(E), ">", "/var/log/sgl.log")) == ""
    assert output_file(("/srv/start.sh", ">", "/var/log/sgl.log")) == ""
    assert redirected_words(("bash", "-c", E)) == ""


def test_a_redirection_is_said_with_its_file_and_without_secrets() -> None:
    said = redirected_words(("bash", "-c", f"{E} > '/log/a b' 2>&1"))
    assert said == "the command sends what the engine prints to /log/a b, which is not the service's log"
    assert "hunter2" not in redirected_words(("bash", "-c", f"{E} > 'x --api-key=hunter2'"))
