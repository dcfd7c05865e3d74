#!/usr/bin/env bash
# All parts on a GPU machine, several runs side by side, so that servers start while others are measured. Needs what stage.sh leaves.
#
#   lanes.sh begin         start the lanes of one GPU in the background (they go on when this command has ended)
#   lanes.sh spread        start the lanes that need all GPUs in the background
#   lanes.sh again PARTS…  start one lane for each word (PART or PART,PART…) in the background
#   lanes.sh wait SECONDS  wait until all lanes have ended, at most so long; say what came of each part
#   lanes.sh pack FOLDER   what there is so far, as FOLDER/results.tar.gz in pieces of 15 MB
#   lanes.sh stop          end what still runs
#
# STORE (default /tmp/ddtree-gpu) holds everything; DEVICE (default 0) is the one GPU, DEVICES (default 0,1) are all of them.
# A second "again" beside the first one needs another PORT (default 28000; each of its lanes has the 400 from there), and, to be timed
# on a GPU of its own without waiting for the others, a file TURNS of its own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
store=${STORE:-/tmp/ddtree-gpu}
work=$store/lanes
runner=${RUNNER:-python3 -m tests.gpu run}
mkdir -p "$work/results" "$work/logs" "$work/running"

# lane NAME DEVICES FIRST_PORT SECONDS PARTS: one run in the background, known by a file under running/ while it lasts.
# Ports stay below 32768, where the system's own choice begins.
lane() {
  local name=$1 devices=$2 port=$3 seconds=$4 parts=$5
  mkdir -p "$work/logs/$name"
  (
    # The lane's own process group is led by this shell; stop reaches it by its number.
    echo "$BASHPID" > "$work/running/$name"
    trap 'rm -f "$work/running/$name"' EXIT
    cd "$root"
    $runner "$parts" --out "$work/results" --logs "$work/logs/$name" --store "$store" --devices "$devices" --first-port "$port" \
      --turns "${TURNS:-$work/turns}" --seconds "$seconds" --part-seconds "${PART_SECONDS:-540}" --scale "${SCALE:-1}" \
      > "$work/logs/$name.log" 2>&1 || true
  ) &
}

one_gpu() {
  local device=${DEVICE:-0}
  # Not timed, all at once. The first lane is the one that takes longest.
  lane fp32 "$device" 30200 "${UNTIMED_SECONDS:-700}" smoke,requests,faults,hot,weights,equality
  lane moe "$device" 30400 "${UNTIMED_SECONDS:-700}" moe
  lane console "$device" 30600 "${UNTIMED_SECONDS:-700}" console
  lane draws "$device" 30700 "${UNTIMED_SECONDS:-700}" refusals,temperature,equality-single
  lane start "$device" 30900 "${UNTIMED_SECONDS:-700}" starting
  # Ends with a timed part, whose turn comes when the lanes above have ended.
  lane bf16 "$device" 31000 1100 suites,rescored,mixed,speed,profile
  sleep "${LATER_SECONDS:-130}"
  lane cost "$device" 31300 1000 cost
  lane split "$device" 31500 1000 split
  # Needs the memory that the console's two servers have now.
  local waited=0
  while [ -e "$work/running/console" ] && [ "$waited" -lt "${CONSOLE_SECONDS:-240}" ]; do sleep 1 && waited=$((waited + 1)); done
  # The part called pool takes port 32100 for servers of its own.
  lane window "$device" 31600 900 window,pool
  lane ring "$device" 29800 "${UNTIMED_SECONDS:-700}" ring
  lane memory "$device" 30000 "${UNTIMED_SECONDS:-700}" memory
  wait
}

all_gpus() {
  lane parallel "${DEVICES:-0,1}" 32300 "${SPREAD_SECONDS:-520}" parallel
  lane parallel-moe "${DEVICES:-0,1}" 32500 "${SPREAD_SECONDS:-520}" parallel-moe
  wait
}

# Single parts, each word a lane with ports of its own; the lane's name is its first part's. Two calls at once need a PORT each.
single() {
  local parts port=${PORT:-28000}
  for parts in $AGAIN; do
    lane "again-${parts%%,*}" "${DEVICE:-0}" "$port" "${AGAIN_SECONDS:-700}" "$parts"
    port=$((port + 400))
  done
  wait
}

# in_background FUNCTION: this script again in a session of its own, which is not ended with the command that began it. It runs from
# a copy of the tree, because the tree may be brought anew with every command.
in_background() {
  local tree path=${PYTHONPATH:-}
  tree=$(mktemp -d "$work/tree.XXXX")
  tar -C "$root" --exclude='*.safetensors' --exclude=__pycache__ -cf - tests/__init__.py tests/gpu engine_launch dflash_console \
    themes | tar -C "$tree" -xf -
  # What the tree is without its history and without weights: the commit of the wheel, and the drafter that came by itself.
  mkdir -p "$tree/.gpu/wheel"
  cp "$store/COMMIT" "$tree/.gpu/wheel/" || true
  ln -sf "$store/drafter/model.safetensors" "$tree/engine_launch/weights/smollm2-135m-dflash/"
  touch "$work/running/.$1${PORT:-}"
  PYTHONPATH=${path//$root/$tree} setsid nohup bash "$tree/tests/gpu/lanes.sh" "$1" > "$work/logs/$1${PORT:-}.log" 2>&1 < /dev/null &
}

busy() { ls -A "$work/running"; }

wait_for_all() {
  local end=$((SECONDS + $1))
  while [ -n "$(busy)" ] && [ "$SECONDS" -lt "$end" ]; do sleep 1; done
  echo "still running: $(busy | tr '\n' ' ')"
  local log
  for log in "$work"/logs/*.log; do
    # Short, so that the end of a command's output holds all lanes; the files say the rest.
    echo "--- $(basename "$log" .log): $(grep -cE '^  met ' "$log" || true) met, $(grep -cE '^  shown ' "$log" || true) shown;" \
      "$(grep -oE '^== [a-z-]+|^  \([0-9]+ s\)|[a-z0-9-]+ ready after [0-9]+ s|no time left' "$log" | tr '\n' ' ')"
    grep -E '^  (missed|broken) ' "$log" | cut -c1-240 || true
    if grep -q 'start failed\|Traceback' "$log"; then tail -6 "$log" | cut -c1-200; fi
  done
}

pack() {
  # 1 is only that a log grew meanwhile.
  tar -C "$work" -czf "$work/results.tar.gz" results logs || [ $? -eq 1 ]
  split -b 15m -d -a 1 "$work/results.tar.gz" "$1/results.tar.gz."
  ls -l "$1"
}

stop() {
  local file pid
  for file in "$work"/running/.[a-z]*; do
    if [ -s "$file" ]; then kill "$(cat "$file")" || true; fi
  done
  for file in "$work"/running/*; do
    [ -f "$file" ] || continue
    pid=$(cat "$file")
    # The runner is the child of the lane's shell; told to end, it ends its servers.
    pkill -TERM -P "$pid" || true
  done
}

case ${1:-} in
  begin) in_background one_gpu ;;
  again)
    shift
    export AGAIN="${*:?parts}"
    in_background single
    ;;
  spread) in_background all_gpus ;;
  one_gpu | all_gpus | single)
    trap 'rm -f "$work/running/.'"$1${PORT:-}"'"' EXIT
    echo $$ > "$work/running/.$1${PORT:-}"
    "$1"
    ;;
  wait) wait_for_all "${2:?seconds}" ;;
  pack) pack "${2:?folder}" ;;
  stop) stop ;;
  *) sed -n '2,12p' "$0" >&2 && exit 2 ;;
esac
