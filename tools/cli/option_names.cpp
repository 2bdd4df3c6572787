// SPDX-License-Identifier: Apache-2.0
#include "tools/cli/option_names.h"

#include <cctype>
#include <string_view>

namespace heddle::tools {
namespace {

struct Name {
  std::string_view field;
  std::string_view option;
};

// Names of fields in error messages, and the options that set them. If a name is an ordinary word,
// the words after it are part of the entry.
constexpr Name kNames[] = {
    {"attention_backend", "--attention-backend"},
    {"aging_seconds", "--priority-aging-secs"},
    {"snapshot_interval", "--snapshot-interval"},
    {"chunked_prefill_tokens", "--chunked-prefill-tokens"},
    {"context_length", "--context-length"},
    {"default_priority", "--default-priority"},
    {"speculative.draft_model_dir", "--speculative-draft-model-path"},
    {"num_draft_tokens", "--speculative-num-draft-tokens"},
    {"speculative.num_steps", "--speculative-num-steps"},
    {"eagle_topk", "--speculative-eagle-topk"},
    {"dtype is", "--dtype is"},
    {"enable_priority", "--enable-priority"},
    {"kv_cache_dtype", "--kv-cache-dtype"},
    {"max_queued_requests", "--max-queued-requests"},
    {"max_running_requests", "--max-running-requests"},
    {"max_total_tokens", "--max-total-tokens"},
    {"memory_fraction", "--memory-fraction"},
    {"static_memory_fraction", "--mem-fraction-static"},
    {"page_size", "--page-size"},
    {"policy =", "--policy ="},
    {"state_snapshots", "--state-snapshots"},
};

bool is_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
         c == '/';
}

// Whether the `size` characters of the message from `begin` on are not part of a longer word.
bool stands_alone(std::string_view message, size_t begin, size_t size) {
  const size_t end = begin + size;
  return (begin == 0 || !is_word(message[begin - 1])) &&
         (end == message.size() || message[end] == '.' || !is_word(message[end]));
}

}  // namespace

std::string with_option_names(std::string message) {
  for (const auto& [field, option] : kNames) {
    for (size_t at = message.find(field); at != std::string::npos; at = message.find(field, at)) {
      if (stands_alone(message, at, field.size())) {
        message.replace(at, field.size(), option);
        at += option.size();
      } else {
        at += field.size();
      }
    }
  }
  return message;
}

Result<std::unique_ptr<Engine>> create_engine(const EngineOptions& options) {
  auto engine = Engine::create(options);
  const Status& status = engine.status();
  if (status.code() != StatusCode::kInvalidArgument &&
      status.code() != StatusCode::kResourceExhausted) {
    return engine;
  }
  return Status(status.code(), with_option_names(status.message()));
}

}  // namespace heddle::tools
