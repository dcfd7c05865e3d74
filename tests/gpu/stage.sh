#!/usr/bin/env bash
# The other end of pack.sh, on the GPU machine. Everything goes under STORE (default /tmp/ddtree-gpu):
#
#   stage.sh keep FOLDER     take the pieces of one upload, checked against their SHA-256
#   stage.sh model           take STORE/all/target.gguf out of the first pieces
#   stage.sh unpack          join all pieces: STORE/site (SGLang), STORE/drafter, STORE/target (Hugging Face form, bf16),
#                            STORE/prompts.json (held-out prompts as token ids), STORE/random (targets with random weights)
#   stage.sh install FOLDER  install the wheel in FOLDER into STORE/site, where SGLang finds the plugin's entry point
#   stage.sh check           say what is there: versions, device, whether SGLang and the plugin are found
#   stage.sh env             print the exports that a command there needs
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
store=${STORE:-/tmp/ddtree-gpu}
export PYTHONPATH="$store/site:$root${PYTHONPATH:+:$PYTHONPATH}"

keep() {
  mkdir -p "$store/pieces"
  (cd "$1" && sha256sum --quiet --check SHA256SUMS)
  cp "$1"/piece.* "$1/TOTAL" "$store/pieces/"
  echo "kept $(find "$store/pieces" -name 'piece.*' | wc -l) of $(cat "$store/pieces/TOTAL") pieces"
}

model() {
  mkdir -p "$store/all"
  # The stream ends in the middle of a later file, which tar says, and which is expected here.
  cat "$store"/pieces/piece.* | tar -C "$store/all" -xf - target.gguf 2> /dev/null || true
  ls -l "$store/all/target.gguf"
}

unpack() {
  local have total
  have=$(find "$store/pieces" -name 'piece.*' | wc -l)
  total=$(cat "$store/pieces/TOTAL")
  [ "$have" -eq "$total" ] || { echo "only $have of $total pieces are here" >&2; exit 1; }
  mkdir -p "$store/all" "$store/site"
  cat "$store"/pieces/piece.* | tar -C "$store/all" -xf -
  rm -rf "$store/pieces"
  local archive pids=()
  for archive in "$store"/all/*.tar.xz; do tar -C "$store/site" -xJf "$archive" & pids+=($!); done
  for pid in "${pids[@]}"; do wait "$pid"; done
  rm -rf "$store/drafter" && mv "$store/all/drafter" "$store/drafter"
  (cd "$root" && python3 -m engine_launch.training.sglang_check export "$store/all/target.gguf" "$store/target" &&
    python3 -m engine_launch.training.heldout "$store/all/target.gguf" "$store/prompts.json" &&
    python3 -m tests.gpu weights --store "$store")
  echo "unpacked: $(du -sm "$store/site" "$store/target" "$store/drafter" | awk '{printf "%s %d MB  ", $2, $1}')"
}

install() {
  python3 -m pip install --quiet --no-deps --no-index --no-compile --upgrade --target "$store/site" "$1"/*.whl
  # For those that come later, without the wheel.
  cp "$1/COMMIT" "$store/COMMIT"
}

check() {
  nvidia-smi --query-gpu=name,driver_version,memory.free --format=csv,noheader || true
  (cd / && python3 - << 'PY'
import importlib.metadata as m, platform, torch
print("python", platform.python_version(), "torch", torch.__version__, "cuda", torch.version.cuda, "gpu", torch.cuda.is_available())
for name in ("sglang", "transformers", "sglang-kernel", "flashinfer_python", "triton", "ddtree-console"):
    try:
        print(name, m.version(name))
    except m.PackageNotFoundError:
        print(name, "MISSING")
print("plugins", [f"{e.name}={e.value}" for e in m.entry_points(group="sglang.srt.plugins")])
PY
  )
}

case ${1:-} in
  keep) keep "${2:?folder}" ;;
  model) model ;;
  unpack) unpack ;;
  install) install "${2:?folder}" ;;
  check) check ;;
  env) echo "export PYTHONPATH=$PYTHONPATH TOKENIZERS_PARALLELISM=false" ;;
  *) sed -n '2,9p' "$0" >&2; exit 2 ;;
esac
