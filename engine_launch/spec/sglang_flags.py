"""The flags that SGLang 0.5.17 knows and the embedded engine has no use for: names only.

Source: the keys of ``/server_info`` of a running 0.5.17 server, which reports the effective value of every flag, and its own
parser, which has a few more (old names, negations) and tells the switches; a test holds the list to that parser.
``--config`` is not among them: a file of more flags cannot be passed over.
"""

from __future__ import annotations

_SWITCHES = """
abort-on-priority-when-disabled allow-auto-truncate checkpoint-engine-wait-weights-before-ready
constrained-json-disable-any-whitespace debug-cuda-graph delete-ckpt-after-loading disable-attn-tp-gather
disable-chunked-prefix-cache disable-cuda-graph disable-cuda-graph-padding disable-custom-all-reduce
disable-decode-cuda-graph disable-fast-image-processor disable-flashinfer-autotune
disable-flashinfer-cutlass-moe-fp4-allgather disable-hybrid-swa-memory disable-outlines-disk-cache
disable-overlap-schedule disable-prefill-cuda-graph disable-priority-preemption
disable-shared-experts-fusion disable-tokenizer-batch-decode disaggregation-decode-enable-offload-kvcache
disaggregation-decode-enable-radix-cache dllm-fdfo elastic-ep-rejoin enable-adaptive-dispatch-to-encoder
enable-aiter-allreduce-fusion enable-attn-tp-input-scattered enable-broadcast-mm-inputs-process
enable-cache-report enable-cp-decode-attn-tp enable-cudagraph-gc enable-custom-logit-processor
enable-deepseek-v4-fp4-indexer enable-deterministic-inference enable-dp-attention
enable-dp-attention-local-control-broadcast enable-dp-lm-head enable-draft-weights-cpu-backup
enable-dsa-cache-layer-split enable-dsa-prefill-context-parallel enable-dynamic-batch-tokenizer
enable-dynamic-chunking enable-elastic-expert-backup enable-eplb enable-expert-distribution-metrics
enable-flashinfer-allreduce-fusion enable-flexkv enable-forward-pass-metrics enable-fp32-lm-head
enable-fused-moe-sum-all-reduce enable-fused-qk-norm-rope enable-hierarchical-cache enable-hisparse enable-http2
enable-int8-mamba-checkpoint enable-layerwise-nvtx-marker enable-linear-replayssm enable-linear-replayssm-spec
enable-lmcache enable-mamba-cache-stochastic-rounding enable-memory-saver enable-metrics-for-all-schedulers
enable-mfu-metrics enable-mis enable-mixed-chunk enable-mm-global-cache enable-mscclpp enable-multi-layer-eagle
enable-nccl-nvls enable-p2p-check enable-page-major-kv-layout enable-pdmux
enable-precise-embedding-interpolation enable-prefill-context-parallel enable-prefill-cp enable-prefill-delayer
enable-prefix-mm-cache enable-priority-scheduling enable-profile-cuda-graph enable-quant-communications
enable-request-time-stats-logging enable-return-hidden-states enable-return-indexer-topk
enable-return-routed-experts enable-scattered-sconv enable-session-radix-cache enable-single-batch-overlap
enable-ssl-refresh enable-streaming-session enable-strict-thinking enable-symm-mem enable-tf32-matmul
enable-tokenizer-batch-encode enable-torch-compile enable-torch-compile-debug-mode enable-torch-symm-mem
enable-trace enable-two-batch-overlap enable-unified-memory enable-waterfill enable-weights-cpu-backup
encoder-only enforce-disable-flashinfer-allreduce-fusion enforce-shared-experts-fusion export-metrics-to-file
flashinfer-mla-disable-ragged grpc-mode incremental-streaming-output is-embedding keep-mm-feature-on-device
language-only log-requests lora-strict-loading lora-use-virtual-experts mm-enable-dp-encoder pre-warm-nccl
prefill-only-disable-kv-cache quantize-and-serve remote-instance-weight-loader-start-seed-via-transfer-engine
schedule-low-priority-values-first show-time-cost skip-server-warmup skip-tokenizer-init sleep-on-idle
smg-grpc-mode speculative-adaptive speculative-dspark-align-verify-tokens-to-graph-tier
speculative-skip-dp-mlp-sync speculative-use-rejection-sampling strip-thinking-cache
triton-attention-reduce-in-fp32 trust-remote-code use-ray weight-loader-disable-mmap
weight-loader-drop-cache-after-load weight-loader-prefetch-checkpoints
collect-tokens-histogram dcp-replicate-q-proj disable-piecewise-cuda-graph enable-breakable-cuda-graph
enable-gdn-replayssm-spec enable-lora enable-lora-overlap-loading enable-multimodal
enable-nsa-prefill-context-parallel enforce-piecewise-cuda-graph experts-shared-outer-loras no-dcp-replicate-q-proj
no-dllm-fdfo no-experts-shared-outer-loras no-lora-strict-loading prefill-round-robin-balance stream-output
"""

SWITCHES: frozenset[str] = frozenset(_SWITCHES.split())
"""Flags that take no value, without the leading dashes."""

_VALUED = """
asr-max-buffer-seconds asr-max-concurrent-sessions attention-backend attn-cp-size base-gpu-id batch-notify-size
bf16-gemm-backend bucket-e2e-request-latency bucket-inter-token-latency bucket-time-to-first-token chat-template
chunked-prefill-size completion-template constrained-json-whitespace-pattern cp-strategy cpu-offload-gb
crash-dump-folder cuda-graph-backend-decode cuda-graph-backend-prefill cuda-graph-bs-decode
cuda-graph-bs-prefill cuda-graph-config cuda-graph-max-bs-decode cuda-graph-max-bs-prefill
cuda-graph-tc-compiler custom-weight-loader dcp-comm-backend dcp-size
debug-tensor-dump-input-file debug-tensor-dump-layers debug-tensor-dump-output-folder decode-attention-backend
decoupled-spec-bind-endpoint decoupled-spec-connect-endpoints decoupled-spec-rank decoupled-spec-role
decrypted-config-file decrypted-draft-config-file deepep-config deepep-dispatcher-output-dtype deepep-mode
default-chat-template-kwargs default-priority-value detokenizer-worker-num device disaggregation-bootstrap-port
disaggregation-decode-extra-slots disaggregation-decode-polling-interval disaggregation-ib-device
disaggregation-mode disaggregation-transfer-backend dist-init-addr dist-timeout dllm-algorithm
dllm-algorithm-config download-dir dp-size dsa-decode-backend dsa-paged-mqa-logits-backend dsa-prefill-backend
dsa-prefill-cp-mode dsa-topk-backend dwdp-size dynamic-batch-tokenizer-batch-size
dynamic-batch-tokenizer-batch-timeout elastic-ep-backend elastic-ep-initial-size elastic-ep-scale-timeout
encoder-bootstrap-port encoder-register-urls
encoder-transfer-backend encoder-urls engine-info-bootstrap-port ep-dispatch-algorithm ep-join-mode
ep-join-rank-offset ep-num-redundant-experts ep-size eplb-algorithm eplb-min-rebalancing-utilization-threshold
eplb-rebalance-layers-per-chunk eplb-rebalance-num-iterations expert-distribution-recorder-buffer-size
expert-distribution-recorder-mode export-metrics-to-file-dir extra-metric-labels
fastapi-root-path file-storage-path flashinfer-allreduce-fusion-backend flashinfer-autotune-skip-ops
flashinfer-mxfp4-moe-precision flexkv-config-file forward-hooks forward-pass-metrics-ipc-name
forward-pass-metrics-worker-id fp4-gemm-runner-backend fp8-gemm-runner-backend fuseep-mode gc-threshold
gc-warning-threshold-secs generation-tokens-buckets gpu-id-step grammar-backend grpc-port hf-chat-template-name
hicache-io-backend hicache-mem-layout hicache-ratio hicache-size hicache-storage-backend
hicache-storage-backend-extra-config hicache-storage-prefetch-policy hicache-write-policy hisparse-config
init-expert-location int8-mamba-ckpt-size json-model-override-args kt-cpuinfer kt-max-deferred-experts-per-token
kt-method kt-num-gpu-experts kt-threadpool-count kt-weight-path kv-cache-dtype kv-canary kv-canary-real-data
kv-canary-sweep-interval kv-events-config limit-mm-data-per-request linear-attn-backend
linear-attn-decode-backend linear-attn-prefill-backend linear-attn-verify-backend linear-replayssm-cache-len
lmcache-config-file load-balance-method load-format load-snapshot-publish-interval log-level-http
log-requests-format log-requests-level log-requests-target lora-backend lora-drain-wait-threshold
lora-eviction-policy lora-paths lora-target-modules mamba-backend mamba-cache-philox-rounds
mamba-full-memory-ratio mamba-max-states-per-path mamba-radix-cache-strategy mamba-ssm-dtype
mamba-track-interval max-ep-size max-loaded-loras max-lora-chunk-size max-lora-rank max-loras-per-batch
max-mamba-cache-size max-prefill-tokens max-queued-requests max-total-tokens mem-fraction-static
min-free-slots-delay mm-attention-backend mm-feature-transport mm-io-worker-num mm-process-config
mm-processor-worker-num model-checksum model-config-parser model-impl model-loader-extra-config
modelexpress-config modelopt-checkpoint-restore-path modelopt-checkpoint-save-path modelopt-export-path
modelopt-quant moe-a2a-backend moe-dense-tp-size moe-dp-size moe-runner-backend mooncake-ib-device
msprobe-dump-config nccl-port nnodes node-rank num-continuous-decode-steps num-reserved-decode-tokens numa-node
offload-group-size offload-mode offload-num-in-group offload-prefetch-step optimistic-prefill-attempts
otlp-traces-endpoint page-size pdmux-config-path pp-async-batch-depth pp-max-micro-batch-size pp-size
preferred-sampling-params prefill-attention-backend prefill-cp-mode prefill-delayer-forward-passes-buckets
prefill-delayer-max-delay-ms prefill-delayer-max-delay-passes prefill-delayer-queue-min-ratio
prefill-delayer-token-usage-low-watermark prefill-delayer-wait-seconds-buckets prefill-max-requests
priority-scheduling-preemption-threshold prompt-tokens-buckets quantization quantization-param-path
radix-cache-backend radix-eviction-policy reasoning-parser remote-instance-weight-loader-backend
remote-instance-weight-loader-seed-instance-ip remote-instance-weight-loader-seed-instance-service-port
remote-instance-weight-loader-send-weights-group-ports retraction-policy return-hidden-states-mode revision
rl-on-policy-target rl-quant-profile sampling-backend sampling-defaults schedule-conservativeness
schedule-policy scheduler-recv-interval sidecar sidecar-args sm-group-num smg-http-sidecar-port
soft-watchdog-timeout spec-trace-dir speculative-accept-threshold-acc speculative-accept-threshold-single
speculative-adaptive-config speculative-attention-mode speculative-draft-attention-backend
speculative-draft-load-format speculative-draft-model-quantization speculative-draft-model-revision
speculative-dspark-block-size speculative-dspark-confidence-sts-path speculative-dspark-sps-table-path
speculative-eagle-topk speculative-moe-a2a-backend speculative-moe-runner-backend speculative-ngram-capacity
speculative-ngram-external-corpus-max-tokens speculative-ngram-external-corpus-path
speculative-ngram-external-sam-budget speculative-ngram-match-type speculative-ngram-max-bfs-breadth
speculative-ngram-max-trie-depth speculative-ngram-min-bfs-breadth speculative-num-steps speculative-token-map
ssl-ca-certs ssl-certfile ssl-keyfile ssl-keyfile-password stream-interval swa-full-tokens-ratio
tbo-token-distribution-threshold tokenizer-backend tokenizer-metrics-allowed-custom-labels
tokenizer-metrics-custom-labels-header tokenizer-mode tokenizer-path tokenizer-worker-num tool-call-parser
tool-server torch-compile-max-bs torchao-config tp-size trace-modules triton-attention-num-kv-splits
triton-attention-split-tile-size  warmups watchdog-timeout weight-cache-mode
weight-cache-socket weight-cache-timeout weight-loader-prefetch-num-threads weight-version
elastic-ep-join-mode elastic-ep-join-rank-offset fp4-gemm-backend fp8-gemm-backend nsa-decode-backend
nsa-prefill-backend nsa-prefill-cp-mode piecewise-cuda-graph-compiler piecewise-cuda-graph-max-tokens
piecewise-cuda-graph-tokens
"""

VALUED: frozenset[str] = frozenset(_VALUED.split())
"""Flags that take values, without the leading dashes."""

ALIASES: dict[str, str] = {
    "tensor-parallel-size": "tp-size",
    "tp": "tp-size",
    "pipeline-parallel-size": "pp-size",
    "pp": "pp-size",
    "data-parallel-size": "dp-size",
    "dp": "dp-size",
    "expert-parallel-size": "ep-size",
    "ep": "ep-size",
    "cuda-graph-max-bs": "cuda-graph-max-bs-decode",
    "cuda-graph-bs": "cuda-graph-bs-decode",
    "mamba-scheduler-strategy": "mamba-radix-cache-strategy",
    "dist-init-address": "dist-init-addr",
    "tokenizer": "tokenizer-path",
    "attention-context-parallel-size": "attn-cp-size",
    "decode-context-parallel-size": "dcp-size",
    "moe-data-parallel-size": "moe-dp-size",
    "nccl-init-addr": "dist-init-addr",
    "grpc-http-sidecar-port": "smg-http-sidecar-port",
    "hierarchical-sparse-attention-extra-config": "hisparse-config",
}
"""Other spellings of the above that launch commands in use carry, old ones among them."""
