// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/familiar_options.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include <fmt/format.h>

#include "tools/cli/value_range.h"

namespace heddle::tools {
namespace {

using Kind = FamiliarOption::Kind;

constexpr std::string_view kOneProcess =
    "one process serves the whole model; --tp says how many ranks share it, --threads how many "
    "cores compute";
constexpr std::string_view kOneDevice =
    "the whole model is computed in one place; --device says where";
constexpr std::string_view kEverySize =
    "steps of every size are captured when they come for the second time, with prompts up to "
    "--piecewise-cuda-graph-max-tokens; --disable-cuda-graph captures none";
constexpr std::string_view kNoOutsideCode =
    "Heddle never runs a checkpoint's own code, nothing has to be allowed";
constexpr std::string_view kOwnSpeculation =
    "--speculative-algorithm, --speculative-draft-model-path and --speculative-num-draft-tokens "
    "say what drafts and how much";
constexpr std::string_view kNoThresholds =
    "thresholds below 1 change the text; drafts are accepted where the model draws the same token";
constexpr std::string_view kServeParses =
    "heddle serve takes tool calls and reasoning out of answers; here they stay in the text";
constexpr std::string_view kOwnKernels =
    "the kernels are Heddle's own, chosen for the device that --device names";
constexpr std::string_view kOwnGrammars =
    "forms of answers are compiled by Heddle itself, with any of the usual fields";
constexpr std::string_view kNoDownloads = "nothing is downloaded; the model's folder is as it is";
constexpr std::string_view kNoStepLog = "/metrics counts steps; --log-level debug shows them";
constexpr std::string_view kLogOfRequests =
    "--log-level says what is shown; --access-log-exclude leaves paths out";
constexpr std::string_view kSharedSteps = "requests always share steps";
constexpr std::string_view kCacheTypes =
    "--kv-cache-dtype says how keys and values are stored: as the model computes, or fp8_e4m3";
constexpr std::string_view kOwnMemory =
    "weights are copied into memory of the process while it starts";
constexpr std::string_view kOnePool =
    "states and tokens divide the memory of --memory-fraction; --max-running-requests and "
    "--max-total-tokens bound them";
constexpr std::string_view kRequestsOnRequest =
    "requests are logged with their parameters only after --log-requests";
constexpr std::string_view kOwnTokenizer = "the tokenizer is the one in the model's folder";
constexpr std::string_view kTextAlone = "pictures are not served";
constexpr std::string_view kChunks =
    "--chunked-prefill-tokens says how many tokens of prompts a step computes";
constexpr std::string_view kInConfig =
    "config.json in the model's folder says it; change it in a copy of the folder";
constexpr std::string_view kInRequests = "requests say it; --preferred-sampling-params presets it";
constexpr std::string_view kNoSampler =
    "there is no such sampler; temperature, top_p, top_k and min_p of requests are";
constexpr std::string_view kNoTiers =
    "cached tokens stay where the model is computed; --memory-fraction says how much";
constexpr std::string_view kReasoningOfRequests =
    "requests say how long to reason, by max_thinking_tokens or reasoning_effort; "
    "--chat-template-kwargs presets a template's switch";

constexpr std::string_view kMerged =
    "heddle serve --lora-paths serves adapters, --lora of generate, eval and verify adds one; "
    "heddle merge MODEL ADAPTER OUT_DIR merges one into the weights";
constexpr std::string_view kAllLayers = "every linear layer of the model takes adapters";
constexpr std::string_view kAllInMemory =
    "all loaded adapters stay in memory; --max-loras-per-batch says how many fit";
constexpr std::string_view kTokenizerThreads = "--tokenizer-threads says how many threads tokenize";
constexpr std::string_view kStatesInFloat = "recurrent states are computed in float32";
constexpr std::string_view kOwnBuckets = "the histograms of /metrics have buckets of their own";
constexpr std::string_view kOwnTemplate =
    "--chat-template names a file with a template in Jinja; without it the model's own is used";

constexpr FamiliarOption kFamiliar[] = {
    {"-m", Kind::kSpelling, "--model"},
    {"--model-id", Kind::kSpelling, "--model"},
    {"-hf", Kind::kSpelling, "--model"},
    {"--hf-repo", Kind::kSpelling, "--model"},
    {"--alias", Kind::kSpelling, "--served-model-name"},
    {"-a", Kind::kSpelling, "--served-model-name"},
    {"--chat-template-file", Kind::kSpelling, "--chat-template"},
    {"--override-generation-config", Kind::kSpelling, "--preferred-sampling-params"},
    {"--cache-prompt", Kind::kSpelling, "--prefix-cache"},
    {"--no-cache-prompt", Kind::kSpelling, "--no-prefix-cache"},
    {"--default-chat-template-kwargs", Kind::kSpelling, "--chat-template-kwargs"},
    {"--enable-log-requests", Kind::kSpelling, "--log-requests"},
    {"--uds", Kind::kWords, "--host unix:{}"},
    {"-v", Kind::kWords, "--log-level debug"},
    {"--verbose", Kind::kWords, "--log-level debug"},
    {"--disable-piecewise-cuda-graph", Kind::kWords, "--piecewise-cuda-graph-max-tokens 0"},
    {"--temp", Kind::kSampling, "temperature"},
    {"--temperature", Kind::kSampling, "temperature"},
    {"--top-p", Kind::kSampling, "top_p"},
    {"--top-k", Kind::kSampling, "top_k"},
    {"--min-p", Kind::kSampling, "min_p"},
    {"--repeat-penalty", Kind::kSampling, "repetition_penalty"},
    {"--repetition-penalty", Kind::kSampling, "repetition_penalty"},
    {"--presence-penalty", Kind::kSampling, "presence_penalty"},
    {"--frequency-penalty", Kind::kSampling, "frequency_penalty"},
    {"--max-model-len", Kind::kSpelling, "--context-length"},
    {"--max-total-length", Kind::kSpelling, "--context-length"},
    {"--ctx-size", Kind::kSpelling, "--context-length"},
    {"-c", Kind::kSpelling, "--context-length"},
    {"-t", Kind::kSpelling, "--threads"},
    {"-tp", Kind::kSpelling, "--tp"},
    {"--max-num-seqs", Kind::kSpelling, "--max-running-requests"},
    {"--max-concurrent-requests", Kind::kSpelling, "--max-running-requests"},
    {"-np", Kind::kSpelling, "--max-running-requests"},
    {"--parallel", Kind::kSpelling, "--max-running-requests"},
    {"--max-num-batched-tokens", Kind::kSpelling, "--chunked-prefill-tokens"},
    {"--batch-size", Kind::kSpelling, "--chunked-prefill-tokens"},
    {"-b", Kind::kSpelling, "--chunked-prefill-tokens"},
    {"--block-size", Kind::kSpelling, "--page-size"},
    {"--scheduling-policy", Kind::kSpelling, "--policy"},
    {"--schedule-timeout", Kind::kSpelling, "--queue-timeout-secs"},
    {"--seed", Kind::kSpelling, "--random-seed"},
    {"--fastapi-root-path", Kind::kSpelling, "--root-path"},
    {"--allowed-origins", Kind::kSpelling, "--cors-allow-origins"},
    {"--allowed-headers", Kind::kSpelling, "--cors-allow-headers"},
    {"--uvicorn-access-log-exclude-prefixes", Kind::kSpelling, "--access-log-exclude"},
    {"--enable-deterministic-inference", Kind::kSpelling, "--exact"},
    {"--enforce-eager", Kind::kSpelling, "--disable-cuda-graph"},
    {"--enable-prefix-caching", Kind::kSpelling, "--prefix-cache"},
    {"--no-enable-prefix-caching", Kind::kSpelling, "--no-prefix-cache"},

    {"--pp-size", Kind::kValue, kOneProcess, "1"},
    {"--pipeline-parallel-size", Kind::kValue, kOneProcess, "1"},
    {"--dp", Kind::kValue, kOneProcess, "1"},
    {"--dp-size", Kind::kValue, kOneProcess, "1"},
    {"--data-parallel-size", Kind::kValue, kOneProcess, "1"},
    {"--ep-size", Kind::kValue, kOneProcess, "1"},
    {"--nnodes", Kind::kValue, kOneProcess, "1"},
    {"--node-rank", Kind::kValue, kOneProcess, "0"},
    {"--num-shard", Kind::kValue, kOneProcess, "1"},
    {"--n-gpu-layers", Kind::kValue, kOneDevice, ""},
    {"--gpu-layers", Kind::kValue, kOneDevice, ""},
    {"-ngl", Kind::kValue, kOneDevice, ""},
    {"-cb", Kind::kFlag, kSharedSteps},
    {"--cont-batching", Kind::kFlag, kSharedSteps},
    {"-fa", Kind::kOptional, kOwnKernels, "on auto 1 true"},
    {"--flash-attn", Kind::kOptional, kOwnKernels, "on auto 1 true"},
    {"-ctk", Kind::kValue, kCacheTypes, "f16 bf16"},
    {"-ctv", Kind::kValue, kCacheTypes, "f16 bf16"},
    {"--cache-type-k", Kind::kValue, kCacheTypes, "f16 bf16"},
    {"--cache-type-v", Kind::kValue, kCacheTypes, "f16 bf16"},
    {"--jinja", Kind::kFlag, "the model's chat template is always rendered as Jinja"},
    {"--no-mmap", Kind::kFlag, kOwnMemory},
    {"--mlock", Kind::kFlag, kOwnMemory},
    {"--prefill-attention-backend", Kind::kValue, kOwnKernels, ""},
    {"--decode-attention-backend", Kind::kValue, kOwnKernels, ""},
    {"--moe-runner-backend", Kind::kValue, kOwnKernels, ""},
    {"--enable-torch-compile-debug-mode", Kind::kFlag, kOwnKernels},
    {"--enable-piecewise-cuda-graph", Kind::kFlag, kEverySize},
    {"--enable-cudagraph-gc", Kind::kFlag, kEverySize},
    {"--max-mamba-cache-size", Kind::kValue, kOnePool, ""},
    {"--mamba-full-memory-ratio", Kind::kValue, kOnePool, ""},
    {"--generation-config", Kind::kValue,
     "--sampling-defaults openai leaves the model's generation_config.json aside", "auto"},
    {"--disable-log-requests", Kind::kFlag, kRequestsOnRequest},
    {"--no-enable-log-requests", Kind::kFlag, kRequestsOnRequest},
    {"--cpu-offload-gb", Kind::kValue, kOneDevice, "0"},
    {"--base-gpu-id", Kind::kValue, kOneDevice, "0"},
    {"--piecewise-cuda-graph-compiler", Kind::kValue, kOwnKernels, "eager fused inductor"},
    {"--sampling-backend", Kind::kValue, kOwnKernels, "auto flashinfer pytorch"},
    {"--enable-torch-compile", Kind::kFlag, kOwnKernels},
    {"--model-impl", Kind::kValue, kOwnKernels, "auto sglang vllm transformers"},
    {"--grammar-backend", Kind::kValue, kOwnGrammars, "auto xgrammar llguidance outlines"},
    {"--guided-decoding-backend", Kind::kValue, kOwnGrammars,
     "auto xgrammar guidance outlines lm-format-enforcer"},
    {"--disable-outlines-disk-cache", Kind::kFlag, kOwnGrammars},
    {"--disaggregation-mode", Kind::kValue, kOneProcess, "null"},
    {"--gpu-id-step", Kind::kValue, kOneProcess, ""},
    {"--dist-init-addr", Kind::kValue, kOneProcess, ""},
    {"--dist-timeout", Kind::kValue, kOneProcess, ""},
    {"--nccl-port", Kind::kValue, kOneProcess, ""},
    {"--enable-p2p-check", Kind::kFlag, kOneProcess},
    {"--disable-custom-all-reduce", Kind::kFlag, kOneProcess},
    {"--enable-metrics-for-all-schedulers", Kind::kFlag, kOneProcess},
    {"--cuda-graph-max-bs", Kind::kValue, kEverySize, ""},
    {"--cuda-graph-bs", Kind::kNumbers, kEverySize},
    {"--cuda-graph-sizes", Kind::kNumbers, kEverySize},
    {"--piecewise-cuda-graph-tokens", Kind::kNumbers, kEverySize},
    {"--disable-cuda-graph-padding", Kind::kFlag,
     "steps are filled up to few sizes, so that one captured step serves for most; no answer "
     "depends on it"},
    {"--enable-nan-detection", Kind::kFlag,
     "a request whose logits are no numbers always ends with the error numerical_error"},
    {"--tool-server", Kind::kValue, "tools are run by clients; the server calls none", ""},
    {"--revision", Kind::kValue, kNoDownloads, ""},
    {"--download-dir", Kind::kValue, kNoDownloads, ""},
    {"--delete-ckpt-after-loading", Kind::kFlag, "files of a model are never deleted"},
    {"--mamba-ssm-dtype", Kind::kValue, kStatesInFloat, "auto float32"},
    {"--swap-space", Kind::kValue, "what has no room is computed again, nothing is swapped", ""},
    {"--num-continuous-decode-steps", Kind::kValue,
     "a step is one forward pass, the next one is planned while it runs", ""},
    {"--sleep-on-idle", Kind::kFlag, "an idle engine always sleeps"},
    {"--skip-server-warmup", Kind::kFlag, "nothing is generated before the server is ready"},
    {"--enable-cache-report", Kind::kFlag, "the usage of an answer always has its cached tokens"},
    {"--enable-request-id-headers", Kind::kFlag, "every answer has its x-request-id"},
    {"--response-role", Kind::kValue, "answers are the assistant's", "assistant"},
    {"--enable-tokenizer-batch-encode", Kind::kFlag, kTokenizerThreads},
    {"--tokenizer-worker-num", Kind::kValue, kTokenizerThreads, "1"},
    {"--log-level-http", Kind::kValue, kLogOfRequests, ""},
    {"--uvicorn-log-level", Kind::kValue, kLogOfRequests, ""},
    {"--decode-log-interval", Kind::kValue, kNoStepLog, ""},
    {"--disable-log-stats", Kind::kFlag, kNoStepLog},
    {"--numa-node", Kind::kValue,
     "the system places the threads; numactl and taskset can say where", ""},
    {"--speculative-accept-threshold-single", Kind::kValue, kNoThresholds, "1 1.0"},
    {"--speculative-accept-threshold-acc", Kind::kValue, kNoThresholds, "1 1.0"},
    {"--trust-remote-code", Kind::kFlag, kNoOutsideCode},
    {"--tokenizer-mode", Kind::kValue, kOwnTokenizer, "auto"},
    {"--enable-chunked-prefill", Kind::kFlag,
     "prompts are always computed in chunks, of --chunked-prefill-tokens"},

    {"--async-scheduling", Kind::kFlag, "the next step is always planned while one runs"},
    {"--disable-frontend-multiprocessing", Kind::kFlag, kOneProcess},
    {"--distributed-executor-backend", Kind::kValue, kOneProcess, ""},
    {"--enable-prompt-tokens-details", Kind::kFlag,
     "the usage of an answer always has its cached tokens"},
    {"--compilation-config", Kind::kValue, kOwnKernels, ""},
    {"--max-seq-len-to-capture", Kind::kValue, kEverySize, ""},
    {"--limit-mm-per-prompt", Kind::kValue, kTextAlone, ""},
    {"--chat-template-content-format", Kind::kValue,
     "templates get text or parts, as they read them", ""},
    {"-tb", Kind::kValue, "--threads says how many cores compute", ""},
    {"--threads-batch", Kind::kValue, "--threads says how many cores compute", ""},
    {"-ub", Kind::kValue, kChunks, ""},
    {"--ubatch-size", Kind::kValue, kChunks, ""},
    {"-sm", Kind::kValue, kOneDevice, ""},
    {"--split-mode", Kind::kValue, kOneDevice, ""},
    {"-mg", Kind::kValue, kOneDevice, "0"},
    {"--main-gpu", Kind::kValue, kOneDevice, "0"},
    {"-kvo", Kind::kFlag, kOneDevice},
    {"-kvu", Kind::kFlag, kOnePool},
    {"--kv-unified", Kind::kFlag, kOnePool},
    {"--swa-full", Kind::kFlag, kOnePool},
    {"--cache-reuse", Kind::kValue,
     "requests share the prefixes that they have in common, whole pages of them", ""},
    {"--numa", Kind::kValue, "the system places the threads; numactl and taskset can say where",
     ""},
    {"--no-warmup", Kind::kFlag, "nothing is generated before the server is ready"},
    {"--no-context-shift", Kind::kFlag,
     "a text that is too long is an error, nothing of it is dropped"},
    {"--offline", Kind::kFlag, kNoDownloads},
    {"--slots", Kind::kFlag, "GET /inspect shows live requests, GET /get_server_info the settings"},
    {"--props", Kind::kFlag, "GET /inspect shows live requests, GET /get_server_info the settings"},

    {"--pp", Kind::kValue, kOneProcess, "1"},
    {"--ep", Kind::kValue, kOneProcess, "1"},
    {"--expert-parallel-size", Kind::kValue, kOneProcess, "1"},
    {"--api-server-count", Kind::kValue, kOneProcess, "1"},
    {"--enable-expert-parallel", Kind::kFlag, kOneProcess},
    {"--enable-dp-attention", Kind::kFlag, kOneProcess},
    {"--http-threads", Kind::kValue, kTokenizerThreads, ""},
    {"--threads-http", Kind::kValue, kTokenizerThreads, ""},
    {"--moe-a2a-backend", Kind::kValue, kOwnKernels, ""},
    {"--fp8-gemm-backend", Kind::kValue, kOwnKernels, ""},
    {"--linear-attn-backend", Kind::kValue, kOwnKernels, ""},
    {"--mamba-backend", Kind::kValue, kOwnKernels, ""},
    {"--disable-shared-experts-fusion", Kind::kFlag, kOwnKernels},
    {"--disable-flashinfer-autotune", Kind::kFlag, kOwnKernels},
    {"--disable-cascade-attn", Kind::kFlag, kOwnKernels},
    {"--cudagraph-capture-sizes", Kind::kNumbers, kEverySize},
    {"--mamba-cache-dtype", Kind::kValue, kStatesInFloat, "auto float32"},
    {"--mamba-ssm-cache-dtype", Kind::kValue, kStatesInFloat, "auto float32"},
    {"-cram", Kind::kValue, kOnePool, ""},
    {"--cache-ram", Kind::kValue, kOnePool, ""},
    {"-ctxcp", Kind::kValue, kOnePool, ""},
    {"--ctx-checkpoints", Kind::kValue, kOnePool, ""},
    {"--tokenizer-revision", Kind::kValue, kNoDownloads, ""},
    {"-hft", Kind::kValue, kNoDownloads, ""},
    {"--hf-token", Kind::kValue, kNoDownloads, ""},
    {"--config-format", Kind::kValue, kNoOutsideCode, "auto hf"},
    {"--show-time-cost", Kind::kFlag, kNoStepLog},
    {"--collect-tokens-histogram", Kind::kFlag, kOwnBuckets},
    {"--bucket-time-to-first-token", Kind::kNumbers, kOwnBuckets},
    {"--bucket-inter-token-latency", Kind::kNumbers, kOwnBuckets},
    {"--bucket-e2e-request-latency", Kind::kNumbers, kOwnBuckets},
    {"--prompt-tokens-buckets", Kind::kValue, kOwnBuckets, "default"},
    {"--generation-tokens-buckets", Kind::kValue, kOwnBuckets, "default"},
    {"--disable-uvicorn-access-log", Kind::kFlag, kLogOfRequests},
    {"--crash-dump-folder", Kind::kValue, "the log says what failed, requests are not written", ""},
    {"--soft-watchdog-timeout", Kind::kValue,
     "/health says stuck after a tenth of --watchdog-timeout", ""},
    {"--prefill-max-requests", Kind::kValue, kChunks, ""},
    {"--max-num-partial-prefills", Kind::kValue, kChunks, ""},
    {"--long-prefill-token-threshold", Kind::kValue, kChunks, ""},
    {"--scheduler-recv-interval", Kind::kValue, "requests are admitted before every step", ""},
    {"--preemption-mode", Kind::kValue, "a request that gave way is queued again",
     "insert recompute"},
    {"--enable-reasoning", Kind::kFlag, "reasoning is always read, as --reasoning-parser says"},
    {"--return-tokens-as-token-ids", Kind::kFlag, "requests ask for ids with return_token_ids"},
    {"--skip-tokenizer-init", Kind::kFlag, "/generate takes input_ids and answers with output_ids"},

    {"--hf-chat-template-name", Kind::kRefused, kOwnTemplate},
    {"--completion-template", Kind::kRefused, kOwnTemplate},
    {"--allow-auto-truncate", Kind::kRefused,
     "a prompt that is too long is an error; --max-tokens-overflow clamp lowers max_tokens alone"},
    {"--enable-return-hidden-states", Kind::kRefused, "answers have no hidden states"},
    {"--enable-custom-logit-processor", Kind::kRefused,
     "clients run no code here; the field logit_bias of requests shifts logits"},
    {"--grpc-mode", Kind::kRefused, "clients speak HTTP, see docs/server.md"},
    {"--hicache-size", Kind::kRefused, kNoTiers},
    {"--hicache-ratio", Kind::kRefused, kNoTiers},
    {"--allow-longer-context", Kind::kRefused, kInConfig},
    {"--rope-theta", Kind::kRefused, kInConfig},
    {"--max-lora-rank", Kind::kRefused, kMerged},
    {"--max-loras", Kind::kRefused, kMerged},
    {"--max-loras-per-batch", Kind::kRefused, kMerged},
    {"--lora-modules", Kind::kRefused, kMerged},
    {"--lora-target-modules", Kind::kRefused, kAllLayers},
    {"--max-loaded-loras", Kind::kRefused, kAllInMemory},
    {"--max-cpu-loras", Kind::kRefused, kAllInMemory},
    {"-ot", Kind::kRefused, kOneDevice},
    {"--override-tensor", Kind::kRefused, kOneDevice},
    {"--torchao-config", Kind::kRefused, "--quantization quantises while loading"},
    {"--enable-lora", Kind::kRefused, kMerged},
    {"--lora-paths", Kind::kRefused, kMerged},
    {"--is-embedding", Kind::kRefused, "models of embeddings are not served"},
    {"--speculative-config", Kind::kRefused, kOwnSpeculation},
    {"--tool-call-parser", Kind::kRefused, kServeParses},
    {"--reasoning-parser", Kind::kRefused, kServeParses},
    {"--enable-auto-tool-choice", Kind::kFlag,
     "a model may call the tools that a request brings, unless the request says otherwise"},
    {"--tokenizer", Kind::kRefused, kOwnTokenizer},
    {"--tokenizer-path", Kind::kRefused, kOwnTokenizer},
    {"--enable-memory-saver", Kind::kRefused,
     "memory is not given back while the server runs; stop it and start it again"},
    {"-nocb", Kind::kRefused, "--max-running-requests 1 serves one request after the other"},
    {"--no-cont-batching", Kind::kRefused,
     "--max-running-requests 1 serves one request after the other"},
    {"--rope-scaling", Kind::kRefused, kInConfig},
    {"--rope-freq-base", Kind::kRefused, kInConfig},
    {"--hf-overrides", Kind::kRefused, kInConfig},
    {"--json-model-override-args", Kind::kRefused, kInConfig},
    {"--enable-hierarchical-cache", Kind::kRefused, kNoTiers},
    {"--kv-transfer-config", Kind::kRefused, kNoTiers},
    {"-nkvo", Kind::kRefused, kNoTiers},
    {"--no-kv-offload", Kind::kRefused, kNoTiers},
    {"-n", Kind::kRefused, kInRequests},
    {"--n-predict", Kind::kRefused, kInRequests},
    {"--samplers", Kind::kRefused, kNoSampler},
    {"--mirostat", Kind::kRefused, kNoSampler},
    {"--dry-multiplier", Kind::kRefused, kNoSampler},
    {"--draft", Kind::kRefused, kOwnSpeculation},
    {"--draft-max", Kind::kRefused, kOwnSpeculation},
    {"--draft-min", Kind::kRefused, kOwnSpeculation},
    {"-md", Kind::kRefused, kOwnSpeculation},
    {"-mm", Kind::kRefused, kTextAlone},
    {"-ts", Kind::kRefused, kOneDevice},
    {"--tensor-split", Kind::kRefused, kOneDevice},
    {"-ncmoe", Kind::kRefused, kOneDevice},
    {"--n-cpu-moe", Kind::kRefused, kOneDevice},
    {"-cmoe", Kind::kRefused, kOneDevice},
    {"-dev", Kind::kRefused, kOneDevice},
    {"--reasoning-format", Kind::kRefused, "--reasoning-parser says how reasoning is marked"},
    {"--reasoning-budget", Kind::kRefused, kReasoningOfRequests},
    {"--context-shift", Kind::kRefused,
     "a text that is too long is an error, nothing of it is dropped"},
    {"--no-jinja", Kind::kRefused,
     "the model's chat template is always rendered as Jinja; --chat-template names another"},
    {"--embedding", Kind::kRefused, "models of embeddings are not served"},
    {"--reranking", Kind::kRefused, "models of embeddings are not served"},
    {"-mu", Kind::kRefused, "nothing is downloaded; `hf download ORG/NAME` brings a model"},
    {"--model-url", Kind::kRefused, "nothing is downloaded; `hf download ORG/NAME` brings a model"},
    {"--hf-file", Kind::kRefused, "nothing is downloaded; `hf download ORG/NAME` brings a model"},
    {"--log-disable", Kind::kRefused, "--log-level off shows nothing"},
    {"-lv", Kind::kRefused, "--log-level says what is shown"},
    {"-to", Kind::kRefused,
     "--queue-timeout-secs and the field deadline_ms of requests end what takes too long"},
    {"--enable-sleep-mode", Kind::kRefused,
     "memory is not given back while the server runs; stop it and start it again"},
    {"--api-key-file", Kind::kRefused,
     "--api-keys-file names a file with a key and a name in each line"},
    {"--no-webui", Kind::kRefused,
     "--admin-api-key closes what steers and shows the server, also in its page"},
    {"--no-slots", Kind::kRefused,
     "--admin-api-key closes what steers and shows the server, also in its page"},
    {"--mmproj", Kind::kRefused, kTextAlone},
    {"--lora", Kind::kRefused, kMerged},
};

// Whether the word is a value of those llama-server options that can also be given without one.
bool is_state(std::string_view word) {
  constexpr std::string_view kStates[] = {"on", "off", "auto", "0", "1", "true", "false"};
  return std::ranges::find(kStates, word) != std::end(kStates);
}

}  // namespace

std::span<const FamiliarOption> familiar_options() { return kFamiliar; }

const FamiliarOption* find_familiar_option(std::string_view name) {
  const auto* const found = std::ranges::find(kFamiliar, name, &FamiliarOption::name);
  return found == std::end(kFamiliar) ? nullptr : found;
}

Result<std::vector<std::string>> translated_words(
    const std::vector<std::string>& words,
    const std::function<bool(const std::string&)>& has_option) {
  constexpr const char* kPreset = "--preferred-sampling-params";
  constexpr std::string_view kHole = "{}";
  std::vector<std::string> translated;
  std::vector<std::string> rest;  // the words of the command line from "--" on
  std::string fields;             // members of a JSON object, joined by commas
  std::string first_field;
  bool has_preset = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    if (word == "--") {
      rest.assign(words.begin() + static_cast<std::ptrdiff_t>(i), words.end());
      break;
    }
    const size_t equals = std::min(word.find('='), word.size());
    const std::string name = word.substr(0, equals);
    has_preset = has_preset || name == kPreset;
    const FamiliarOption* const option = find_familiar_option(name);
    // The parser has replaced "-fa" by "--fa".
    const FamiliarOption* const state =
        option == nullptr && name.size() > 2 ? find_familiar_option(name.substr(1)) : option;
    if (state != nullptr && state->kind == Kind::kOptional && equals == word.size()) {
      const bool has_value = i + 1 < words.size() && is_state(words[i + 1]);
      translated.push_back(fmt::format("{}={}", word, has_value ? words[++i] : "on"));
      continue;
    }
    // Programs that generate command lines from tables write "True" after flags.
    if (option != nullptr && option->kind == Kind::kFlag && equals == word.size() &&
        i + 1 < words.size() && (words[i + 1] == "True" || words[i + 1] == "False")) {
      translated.push_back(words[++i] == "True" ? word : word + "=false");
      continue;
    }
    const bool is_words = option != nullptr && option->kind == Kind::kWords;
    const bool is_field = option != nullptr && option->kind == Kind::kSampling && !has_option(name);
    const std::string target(is_words ? option->means.substr(0, option->means.find(' ')) : "");
    if ((!is_words || !has_option(target)) && !is_field) {
      translated.push_back(word);
      continue;
    }
    std::string value = word.substr(std::min(equals + 1, word.size()));
    if (is_words && value == "false") continue;  // a file's "verbose: false" requests nothing
    const size_t hole = option->means.find(kHole);
    const bool takes_value = is_field || hole != std::string_view::npos;
    if (takes_value && equals == word.size()) {
      if (i + 1 == words.size()) return invalid_argument(fmt::format("{} needs a value", name));
      value = words[++i];
    }
    if (is_words) {
      translated.push_back(target);
      std::string given(option->means.substr(target.size() + 1));
      if (takes_value) given.replace(given.find(kHole), kHole.size(), value);
      translated.push_back(std::move(given));
      fmt::print(stderr, "note: {} is {} {} here\n", name, target, translated.back());
    } else if (has_option("--temperature")) {
      translated.push_back("--" + std::string(option->means));
      std::ranges::replace(translated.back(), '_', '-');
      translated.push_back(value);
    } else if (has_option(kPreset)) {
      const Result<double> number = parse_number<double>(value, ranges::kAny);
      if (!number.ok()) return number.status().with_context(name);
      if (first_field.empty()) first_field = name;
      fields += fmt::format("{}\"{}\": {}", fields.empty() ? "" : ", ", option->means, *number);
    } else {
      translated.push_back(word);
    }
  }
  if (!fields.empty() && has_preset) {
    return invalid_argument(fmt::format("{} and {} both preset sampling; put all of it into one",
                                        first_field, kPreset));
  }
  if (!fields.empty()) {
    translated.emplace_back(kPreset);
    translated.push_back(fmt::format("{{{}}}", fields));
    fmt::print(stderr, "note: {} and the like are {} here\n", first_field, kPreset);
  }
  translated.insert(translated.end(), rest.begin(), rest.end());
  return translated;
}

std::string note_on(const FamiliarOption& option) {
  return option.kind == Kind::kSpelling
             ? fmt::format("{} is {} here", option.name, option.means)
             : fmt::format("{} changes nothing: {}", option.name, option.means);
}

}  // namespace heddle::tools
