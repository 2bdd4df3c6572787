// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/generation_config.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_reader.h"
#include "checkpoint/mapped_file.h"
#include "core/log.h"

namespace heddle::checkpoint {

namespace {

constexpr int64_t kMaxCount = (int64_t{1} << 31) - 1;

class OptionalReader {
 public:
  explicit OptionalReader(ConfigReader& reader) : reader_(reader) {}

  std::optional<int64_t> integer(std::string_view key, ConfigReader::IntegerRange range) {
    if (!reader_.has(key)) return std::nullopt;
    return reader_.integer(key, std::nullopt, range);
  }

  std::optional<double> number(std::string_view key, ConfigReader::NumberRange range) {
    if (!reader_.has(key)) return std::nullopt;
    return reader_.number(key, std::nullopt, range);
  }

 private:
  ConfigReader& reader_;
};

// A list that only has more of them is usual: chat models end a turn with a token of their own.
bool is_part(const std::vector<int64_t>& part, const std::vector<int64_t>& whole) {
  return std::ranges::all_of(
      part, [&](int64_t id) { return std::ranges::find(whole, id) != whole.end(); });
}

Status check_ids(const GenerationConfig& config, int64_t vocab_size) {
  for (const int64_t id : config.eos_token_ids) {
    if (id >= vocab_size) {
      return invalid_argument(
          fmt::format("eos_token_id has {}, but the model's vocab_size is {}", id, vocab_size));
    }
  }
  return ok_status();
}

}  // namespace

Result<GenerationConfig> parse_generation_config(std::string_view json_text) {
  HEDDLE_ASSIGN_OR_RETURN(const nlohmann::json root, parse_json_object(json_text));
  Status first_error;
  ConfigReader reader({&root}, first_error);
  OptionalReader optional(reader);
  GenerationConfig config;
  config.eos_token_ids = reader.integers("eos_token_id", kTokenIds);
  config.bos_token_id = optional.integer("bos_token_id", kTokenIds);
  config.pad_token_id = optional.integer("pad_token_id", kTokenIds);
  if (reader.has("do_sample")) config.do_sample = reader.boolean("do_sample", false);
  config.temperature = optional.number("temperature", {0.0, 100.0});
  config.top_k = optional.integer("top_k", {-1, kMaxCount});  // -1: another way to say all
  if (config.top_k == -1) config.top_k = 0;
  config.top_p = optional.number("top_p", {0.0, 1.0});
  config.min_p = optional.number("min_p", {0.0, 1.0});
  // As for requests: beyond it every request without a penalty of its own would be refused.
  config.repetition_penalty = optional.number("repetition_penalty", {0.01, 2.0});
  config.max_new_tokens = optional.integer("max_new_tokens", {1, kMaxCount});
  config.stop_strings = reader.texts("stop_strings");
  HEDDLE_RETURN_IF_ERROR(first_error);
  return config;
}

Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder,
                                                const ModelConfig& model) {
  const std::filesystem::path path = folder / "generation_config.json";
  GenerationConfig config;
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(path, kMaxConfigBytes));
    Result<GenerationConfig> parsed = parse_generation_config(text);
    if (!parsed.ok()) return parsed.status().with_context(path.string());
    config = std::move(parsed).value();
    if (Status status = check_ids(config, model.vocab_size); !status.ok()) {
      return status.with_context(path.string());
    }
  }
  if (config.eos_token_ids.empty()) {
    config.eos_token_ids = model.eos_token_ids;
  } else if (!is_part(model.eos_token_ids, config.eos_token_ids)) {
    log_warning(
        fmt::format("generation_config.json has the eos_token_id {}, config.json {}; "
                    "generation_config.json is used",
                    fmt::join(config.eos_token_ids, ", "), fmt::join(model.eos_token_ids, ", ")));
  }
  if (!config.bos_token_id) config.bos_token_id = model.bos_token_id;
  return config;
}

}  // namespace heddle::checkpoint
