// SPDX-License-Identifier: Apache-2.0
#include "familiar_options.h"

#include <algorithm>
#include <iterator>

namespace heddle::tools {
namespace {

constexpr std::string_view kOneProcess =
    "one process serves the whole model, without ranks; --threads says how many cores compute";
constexpr std::string_view kOnlyCpu =
    "the whole model is computed on the CPU, nothing has to be placed";
constexpr std::string_view kNoOutsideCode =
    "Heddle never runs a checkpoint's own code, nothing has to be allowed";
constexpr std::string_view kNoDrafts = "speculative decoding is not served yet";
constexpr std::string_view kNoParsers =
    "tool calls and reasoning stay in the answer's text, there are no parsers yet";

struct Familiar {
  std::string_view option;
  std::string_view advice;
};

// Of SGLang, vLLM, TGI and llama.cpp's server. Their spellings that Heddle takes as they are stand
// where the option is declared.
constexpr Familiar kFamiliar[] = {
    {"--tp", kOneProcess},
    {"--tp-size", kOneProcess},
    {"--tensor-parallel-size", kOneProcess},
    {"--pp-size", kOneProcess},
    {"--pipeline-parallel-size", kOneProcess},
    {"--dp", kOneProcess},
    {"--dp-size", kOneProcess},
    {"--data-parallel-size", kOneProcess},
    {"--ep-size", kOneProcess},
    {"--nnodes", kOneProcess},
    {"--node-rank", kOneProcess},
    {"--num-shard", kOneProcess},
    {"--device", kOnlyCpu},
    {"--n-gpu-layers", kOnlyCpu},
    {"-ngl", kOnlyCpu},
    {"--cpu-offload-gb", kOnlyCpu},
    {"--attention-backend", kOnlyCpu},
    {"--cuda-graph-max-bs", kOnlyCpu},
    {"--disable-cuda-graph", kOnlyCpu},
    {"--enforce-eager", kOnlyCpu},
    {"--trust-remote-code", kNoOutsideCode},
    {"--speculative-algorithm", kNoDrafts},
    {"--speculative-config", kNoDrafts},
    {"--model-draft", kNoDrafts},
    {"--tool-call-parser", kNoParsers},
    {"--reasoning-parser", kNoParsers},
    {"--enable-auto-tool-choice", kNoParsers},
    {"--max-model-len", "it is --context-length here"},
    {"--max-total-length", "it is --context-length here"},
    {"--ctx-size", "it is --context-length here"},
    {"-c", "it is --context-length here"},
    {"-m", "name the model's folder without an option, or use --model-path"},
    {"--model-id", "name the model's folder without an option, or use --model-path"},
    {"--tokenizer", "the tokenizer is the one in the model's folder"},
    {"--tokenizer-path", "the tokenizer is the one in the model's folder"},
    {"--gpu-memory-utilization",
     "it is --memory-fraction here, a share of what the weights leave free"},
    {"--max-num-seqs", "it is --max-running-requests here"},
    {"--max-concurrent-requests", "it is --max-running-requests here"},
    {"--parallel", "it is --max-running-requests here"},
    {"-np", "it is --max-running-requests here"},
    {"--max-num-batched-tokens", "it is --chunked-prefill-tokens here"},
    {"--batch-size", "it is --chunked-prefill-tokens here"},
    {"--block-size", "it is --page-size here"},
    {"--seed", "it is --random-seed here"},
    {"--scheduling-policy", "it is --policy here, with --enable-priority for priorities"},
    {"--enable-prefix-caching", "the prefix cache is on; --no-prefix-cache turns it off"},
    {"--no-enable-prefix-caching", "it is --no-prefix-cache here"},
    {"--enable-chunked-prefill",
     "prompts are always computed in chunks of --chunked-prefill-tokens"},
    {"-t", "it is --threads here"},
    {"--schedule-timeout", "it is --queue-timeout-secs here"},
    {"--disable-log-requests", "it is --log-level warning here"},
    {"--log-requests", "every request has a line in the log; --log-level says what is shown"},
    {"--ssl-keyfile", "TLS is the business of a proxy in front"},
    {"--ssl-certfile", "TLS is the business of a proxy in front"},
};

}  // namespace

std::string advice_on_familiar_option(std::string_view option) {
  const auto* const found =
      std::find_if(std::begin(kFamiliar), std::end(kFamiliar),
                   [option](const Familiar& familiar) { return familiar.option == option; });
  return found == std::end(kFamiliar) ? "" : std::string(found->advice);
}

}  // namespace heddle::tools
