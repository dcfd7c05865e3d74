#!/usr/bin/env bash
# Makes a better drafter in a given time, with nobody watching: generates text, compares objectives and shapes, goes on training the
# packaged weights with the best objective, measures the result. One GPU. Run it from a checkout:
#
#   engine_launch/training/improve.sh MODEL.gguf DRAFTER_DIR POOL.jsonl HELD_OUT.json OUT_DIR SECONDS
#
# MODEL and DRAFTER_DIR may arrive later: it waits for each when it is wanted. Every step logs to OUT_DIR/logs; one that fails is
# left out, and training then does without it. OUT_DIR/drafter holds the trained drafter, exported every two minutes;
# OUT_DIR/trials and OUT_DIR/evaluation the tables; OUT_DIR/steps.txt what was begun when and how it ended.
#
# Sizes and times can be set in the environment, see below. PYTHON names the interpreter.
set -u
if [ $# -ne 6 ]; then sed -n '2,12p' "$0" >&2; exit 2; fi
model=$(realpath -m "$1") drafter=$(realpath -m "$2") pool=$(realpath -m "$3") held_out=$(realpath -m "$4") out=$(realpath -m "$5")
all=$6
python=${PYTHON:-python3}
generation=${GENERATION:---seconds 150 --long-seconds 100 --long-slots 640 --seed 7}
objective_seconds=${OBJECTIVE_SECONDS:-110}
shape_seconds=${SHAPE_SECONDS:-110}
training=${TRAINING:---learning-rate 8e-4 --every 120}
compiled=${COMPILED---compile --flex}
ending=${ENDING:-170} # seconds kept for measuring at the end
waiting=${WAITING:-300} # seconds to wait for the files at most

cd "$(dirname "$0")/../.." # Python takes its modules from the folder that it is started in.
mkdir -p "$out/logs" "$out/trials" "$out/evaluation"
echo $$ > "$out/pid"
SECONDS=0

note() { echo "$(date -u +%H:%M:%S) +${SECONDS}s $*" >> "$out/steps.txt"; }

# Run a step: its name (also its log's), seconds that it may take, then the command. Returns the command's status.
step() {
  local name=$1 limit=$2 status=0
  shift 2
  note "$name begins, at most $limit s"
  timeout --kill-after=10 "$limit" "$@" > "$out/logs/$name.log" 2>&1 || status=$?
  note "$name ended with status $status: $(tail -n 1 "$out/logs/$name.log" | cut -c1-160)"
  return "$status"
}

left() { echo $((all - SECONDS - ending)); }

# Wait until all files named are there and have stopped growing.
await() {
  local file since=$SECONDS size
  for file in "$@"; do
    size=-1
    until [ -s "$file" ] && [ "$(stat -c %s "$file")" = "$size" ]; do
      [ $((SECONDS - since)) -lt "$waiting" ] || { note "$file did not come"; return 1; }
      size=$(stat -c %s "$file" 2> /dev/null || echo -1)
      sleep 1
    done
  done
  note "$* came"
}

await "$model" || exit 1

precompiling=
if [ -n "$compiled" ]; then
  step precompile "$(left)" "$python" -m engine_launch.training.precompile "$model" &
  precompiling=$!
fi

# shellcheck disable=SC2086 # options, several words each
step generate 400 "$python" -m engine_launch.training.generate "$model" "$pool" "$out/data" --held-out "$held_out" $generation

await "$drafter/config.json" "$drafter/model.safetensors" || exit 1

step objectives $((objective_seconds + 120)) "$python" -m engine_launch.training.trials "$model" "$out/data" "$out/trials" \
  --group objectives --start "$drafter" --seconds "$objective_seconds"
objective=$(cat "$out/trials/objectives.best" 2> /dev/null)
note "objective: ${objective:-the usual one}"

step shapes $((shape_seconds + 90)) "$python" -m engine_launch.training.trials "$model" "$out/data" "$out/trials" \
  --group shapes --seconds "$shape_seconds" --learning-rate 1.5e-3

if [ -n "$precompiling" ]; then wait "$precompiling" || compiled=; fi

# Once as it should be; if that fails at once, with whatever time is left, without the compiler and with the usual objective.
for attempt in "$compiled $objective" "$objective" ""; do
  [ "$(left)" -gt 20 ] || break
  # shellcheck disable=SC2086
  step "train$(ls "$out/logs" | grep -c '^train')" $(($(left) + ending)) "$python" -m engine_launch.training.train \
    "$model" "$out/data" "$out/drafter" --start "$drafter" --within "$(left)" $training $attempt && break
done

# Greedy answers first, which are there already; then everything that the time allows.
for name in trained before; do
  folder=$out/drafter
  [ "$name" = trained ] || folder=$drafter
  step "greedy-$name" 60 "$python" -m engine_launch.training.evaluate "$model" "$out/data" --drafter "$folder" \
    --layers on --compact 0 --table "$out/evaluation/greedy-$name.md" --json "$out/evaluation/greedy-$name.json"
done
if [ $((all - SECONDS)) -gt 20 ]; then
  step whole-trained $((all - SECONDS)) "$python" -m engine_launch.training.evaluate "$model" "$held_out" --drafter "$out/drafter" \
    --answers "$out/answers" --table "$out/evaluation/whole-trained.md" --json "$out/evaluation/whole-trained.json"
fi
note "done"
