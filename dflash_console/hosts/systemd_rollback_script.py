"""What the roll-back timer leaves on a host: a POSIX script with the old texts inside, and a service and a timer that run it.

The two units are files, enabled, and no transient ones: a host that is rebooted before anybody confirmed goes back as well, as
long after its start as it would have without. Whether the script runs or was called off is decided by one rename, which only
one of the two can win. A script that was cut off by a power failure is run again by the timer of the next start.
"""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping

from ..evidence.file_edits import Texts
from ..evidence.unit_words import literal_word

ARM = """
set -eu
umask 077
folder=$1 name=$2 units=$3
mkdir -p -- "$folder"
rm -f -- "$folder/$name.fired" "$folder/$name.off" "$folder/$name.done" "$folder/$name.armed"
trap 'rm -f -- "$folder/$name.sh" "$units/$name.service" "$units/$name.timer" "$units/timers.target.wants/$name.timer"' EXIT
cat > "$folder/$name.sh"
umask 022
mkdir -p -- "$units/timers.target.wants"
printf '%s' "$4" > "$units/$name.service"
printf '%s' "$5" > "$units/$name.timer"
ln -sf -- "../$name.timer" "$units/timers.target.wants/$name.timer"
sync -- "$folder/$name.sh" "$units/$name.service" "$units/$name.timer" "$units/timers.target.wants" "$units"
: > "$folder/$name.armed"
sync -- "$folder"
trap - EXIT
"""
"""Arguments: the script's folder, the units' name, their folder, their two texts. The script comes on standard input."""
DISARM = """
if said=$(mv -- "$1/$2.armed" "$1/$2.off" 2>&1); then printf 'off\\n'
elif [ -e "$1/$2.armed" ]; then printf 'stuck\\n'; printf '%s\\n' "$said" >&2
elif [ -e "$1/$2.fired" ] || [ -e "$1/$2.done" ]; then printf 'fired\\n'
else printf 'none\\n'; fi
"""
FORGET = """
rm -f -- "$1/$2.sh" "$3/$2.service" "$3/$2.timer" "$3/timers.target.wants/$2.timer"
"""
"""The texts in the script may hold keys, and are of no use any more."""
_HEAD = """#!/bin/sh
# Written by ddtree-console: puts the last confirmed configuration of {unit} back.
# Runs when the change was not confirmed within {seconds} s. It holds what the configuration holds, keys included.
umask 077
cd {folder} || exit 1
mv -- {name}.armed {name}.fired 2>/dev/null || [ -e {name}.fired ] || exit 0
status=0
put() {{
  if [ -L "$1" ]; then target=$(readlink -f -- "$1"); else target=$1; fi
  mkdir -m 755 -p -- "$(dirname -- "$target")" && new=$(mktemp -- "$(dirname -- "$target")/.ddtree-console.XXXXXX") || return 1
  base64 -d > "$new" || return 1
  if [ -e "$target" ]; then chown --reference="$target" -- "$new"; chmod --reference="$target" -- "$new"
  else chmod "$2" -- "$new"; fi
  sync -- "$new"
  mv -f -- "$new" "$target"
  sync -- "$(dirname -- "$target")"
}}
"""
_TAIL = """
rm -f -- {units}/{name}.service {units}/{name}.timer {units}/timers.target.wants/{name}.timer
{systemctl} daemon-reload || status=1
{systemctl} reset-failed {unit} 2>/dev/null
{systemctl} {verb} {unit} || status=1
mv -- {name}.fired {name}.done
mkdir -p -- "$(dirname -- {audit})"
printf '{{"time": "%s", "who": {who}, "what": "roll-back by the timer", "unit": {json_unit}, "status": %s}}\\n' \\
  "$(date '+%Y-%m-%dT%H:%M:%S%z')" "$status" >> {audit}
exit $status
"""
_SERVICE = """\
# Written by ddtree-console; removed when the change is confirmed, and when this has run.
[Unit]
Description=Roll-back of {unit} unless confirmed
CollectMode=inactive-or-failed

[Service]
Type=oneshot
ExecStart=/bin/sh {script}
"""
_TIMER = """\
# Written by ddtree-console; removed when the change is confirmed, and when this has run.
[Unit]
Description=Roll-back of {unit} unless confirmed

[Timer]
OnActiveSec={seconds}s
AccuracySec=100ms
RemainAfterElapse=no
"""


def script_text(
    restore: Texts,
    *,
    unit: str,
    name: str,
    folder: str,
    units: str,
    seconds: int,
    systemctl: str,
    restart: bool,
    audit: str,
    author: str,
) -> str:
    """The script.

    Args:
        restore: the files as they are to be again; ``None`` removes one.
        name: of the timer and its service, without the suffix.
        folder: where the script is.
        units: where the timer and its service are.
        systemctl: the command, for the manager that is meant.
        restart: whether the unit is to run afterwards.
        audit: the file that gets a line.
        author: whose change is taken back.
    """
    words: Mapping[str, object] = {
        "unit": shlex.quote(unit),
        "seconds": seconds,
        "folder": shlex.quote(folder),
        "units": shlex.quote(units),
        "name": shlex.quote(name),
        "systemctl": systemctl,
        "verb": "--no-block restart" if restart else "--no-block stop",
        "audit": shlex.quote(audit),
        "who": _inside_single(json.dumps(author)),
        "json_unit": _inside_single(json.dumps(unit)),
    }
    parts = [_HEAD.format(**words)]
    for path, text in restore.items():
        quoted = shlex.quote(path)
        if text is None:
            parts.append(f"rm -f -- {quoted} || status=1\n")
        else:
            data = base64.encodebytes(text.encode("utf-8", "replace")).decode("ascii")
            parts.append(f"put {quoted} 644 <<'END' || status=1\n{data}END\n")
    return "".join(parts) + _TAIL.format(**words)


def unit_texts(unit: str, script: str, seconds: int) -> tuple[str, str]:
    """The service and the timer that run ``script`` after ``seconds``."""
    words = {"unit": unit.replace("%", "%%"), "script": literal_word(script), "seconds": seconds}
    return _SERVICE.format(**words), _TIMER.format(**words)


def _inside_single(text: str) -> str:
    """Text for the inside of a single-quoted printf format: no quote ends it, no percent sign is a directive."""
    return text.replace("\\", "\\\\").replace("%", "%%").replace("'", "'\\''")
