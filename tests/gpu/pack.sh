#!/usr/bin/env bash
# Packs what a GPU machine without a network needs, in pieces small enough to travel by hand. See docs/sglang.md.
#
#   pack.sh pieces ARCHIVES MODEL.gguf OUT   ARCHIVES holds *.tar.xz with SGLang and its dependencies (site-packages layout);
#                                            OUT gets up1, up2 … with at most PIECES_PER_CALL pieces of PIECE_BYTES each
#   pack.sh wheel OUT                        this project's wheel, without the drafter's weights (they travel as pieces)
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
piece_bytes=${PIECE_BYTES:-19000000}
pieces_per_call=${PIECES_PER_CALL:-3}
weights=engine_launch/weights
drafter=${DRAFTER:-$root/$weights/smollm2-135m-dflash}

pieces() {
  local archives=$1 model=$2 out=$3 work
  mkdir -p "$out"
  rm -rf "$out"/up[0-9]*
  work=$(mktemp -d "$out/work.XXXXXX")
  mkdir "$work/all" "$work/pieces"
  cp "$archives"/*.tar.xz "$work/all/"
  cp "$model" "$work/all/target.gguf"
  cp -rL "$drafter" "$work/all/drafter"
  # Uncompressed: the archives are compressed already, and quantised weights do not shrink. The model first, for what can begin
  # with it alone (`stage.sh model`), then the drafter.
  (cd "$work/all" && tar -cf - target.gguf drafter *.tar.xz) | split -b "$piece_bytes" -d -a 2 - "$work/pieces/piece."
  local call=1 count=0 piece
  for piece in "$work"/pieces/piece.*; do
    if [ "$count" -eq "$pieces_per_call" ]; then call=$((call + 1)) count=0; fi
    mkdir -p "$out/up$call"
    mv "$piece" "$out/up$call/"
    count=$((count + 1))
  done
  local total
  total=$(find "$out"/up[0-9]* -name 'piece.*' | wc -l)
  for folder in "$out"/up[0-9]*; do
    (cd "$folder" && sha256sum piece.* > SHA256SUMS && echo "$total" > TOTAL)
  done
  rm -rf "$work"
  du -sb "$out"/up[0-9]*
}

wheel() {
  local out=$1 work
  mkdir -p "$out"
  rm -f "$out"/*.whl
  work=$(mktemp -d)
  # The files as they are now, committed or not, so that what is tried there is what is being written here.
  (cd "$root" && git ls-files -z --cached --others --exclude-standard -- pyproject.toml README.md LICENSE CHANGELOG.md dflash_console engine_launch themes |
    grep -zv "^$weights/.*safetensors$" | xargs -0 cp --parents -t "$work")
  "$root/.venv/bin/python" -m build --wheel --no-isolation --outdir "$out" "$work" > "$work/log" 2>&1 || { cat "$work/log"; exit 1; }
  rm -rf "$work"
  local changed=
  (cd "$root" && git diff --quiet HEAD -- engine_launch tests/gpu pyproject.toml) || changed=+
  echo "$(git -C "$root" rev-parse --short=10 HEAD)$changed" > "$out/COMMIT"
  ls -l "$out"/*.whl
}

case ${1:-} in
  pieces) pieces "${2:?archives}" "${3:?model file}" "${4:?out folder}" ;;
  wheel) wheel "${2:?out folder}" ;;
  *) sed -n '2,7p' "$0" >&2; exit 2 ;;
esac
