"""A file on a host replaced whole or not at all, by a POSIX script: at any moment there is the old text or the new."""

from __future__ import annotations

# It writes beside the file, keeps owner and mode of one that exists, and renames. It takes no notice of the request to end: that
# comes with the end of the input, by which it ends anyway and cleans up, while dash sometimes dies of a signal without its EXIT
# trap. An input that was cut short is told by its size.
_SCRIPT = r"""
path=$1 mode=$2 size=$3 make=$4
case $path in */*) folder=${path%/*}/ ;; *) folder=./ ;; esac
trap '' HUP INT TERM
umask 077
[ -z "$make" ] || [ -d "$folder" ] || mkdir -m "$make" -p -- "$folder" || exit 1
if [ -L "$path" ] && [ "$(readlink -f -- "$path")" != /dev/null ]; then
  path=$(readlink -f -- "$path") || { echo "the symbolic link leads nowhere" >&2; exit 1; }
  folder=${path%/*}/
fi
new=$(mktemp --suffix=.new -- "$folder.${path##*/}.XXXXXX") || exit 1
trap 'rm -f -- "$new"' EXIT
cat > "$new" || exit 1
[ "$(stat -c %s -- "$new")" = "$size" ] || { echo "only a part of it arrived" >&2; exit 1; }
if [ -f "$path" ]; then
  [ "$(stat -c %u:%g -- "$path")" = "$(stat -c %u:%g -- "$new")" ] || chown --reference="$path" -- "$new" || exit 1
  chmod --reference="$path" -- "$new" || exit 1
else
  chmod "$mode" -- "$new" || exit 1
fi
sync -- "$new" || exit 1
mv -fT -- "$new" "$path" || exit 1
trap - EXIT
sync -- "$folder" 2>/dev/null || :
"""


def replace_command(path: str, size: int, mode: int, *, folder_mode: int | None = None) -> list[str]:
    """The command, which takes the new text on its standard input. A symbolic link stays one: what it points to is replaced.
    One to ``/dev/null``, which is a mask of systemd's and no file, gives way to the file.

    Args:
        size: of the text, in bytes.
        mode: of a file that is new.
        folder_mode: makes a folder that is not there, with this mode; without it that is an error.
    """
    folder = "" if folder_mode is None else f"{folder_mode:o}"
    return ["/bin/sh", "-c", _SCRIPT, "write", path, f"{mode:o}", str(size), folder]
