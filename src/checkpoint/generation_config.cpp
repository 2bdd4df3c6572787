// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/generation_config.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_reader.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/gguf_sampling.h"
#include "checkpoint/mapped_file.h"
#include "core/file_presence.h"
#include "core/log.h"
#include "core/printable.h"
#include "core/remedy.h"

namespace heddle::checkpoint {

namespace {

constexpr double kLargest = std::numeric_limits<double>::max();

class OptionalReader {
 public:
  OptionalReader(ConfigReader& reader, std::string_view origin, std::vector<std::string>& notes)
      : reader_(reader), origin_(origin), notes_(notes) {}

  // Reads a number. One in range `taken` but outside `served` is replaced by the nearest one in
  // `served`; others are an error.
  std::optional<double> number(std::string_view key, ConfigReader::NumberRange taken,
                               ConfigReader::NumberRange served) {
    const nlohmann::json* const value = reader_.find(key);
    if (value == nullptr) return std::nullopt;
    const double written = value->is_number() ? value->get<double>() : taken.low - 1;
    if (written < taken.low || written > taken.high) {
      return reader_.number(key, std::nullopt, served);
    }
    const double used = std::clamp(written, served.low, served.high);
    if (used != written) {
      notes_.push_back(fmt::format("{}: {} is {:g}, outside {:g} to {:g}; {:g} is used", origin_,
                                   key, written, served.low, served.high, used));
    }
    return used;
  }

 private:
  ConfigReader& reader_;
  std::string_view origin_;
  std::vector<std::string>& notes_;
};

// Whether `whole` contains all of `part`. A longer eos list is usual: chat models add a token that
// ends a turn.
bool is_part(const std::vector<int64_t>& part, const std::vector<int64_t>& whole) {
  return std::ranges::all_of(
      part, [&](int64_t id) { return std::ranges::find(whole, id) != whole.end(); });
}

int64_t read_top_k(ConfigReader& reader) {
  constexpr int64_t kMost = (int64_t{1} << 31) - 1;
  const int64_t top_k = reader.integer("top_k", std::nullopt, {.low = -1});
  return top_k == -1 ? 0 : std::min(top_k, kMost);  // transformers also accepts -1 for all tokens
}

// Keys that do not affect the generated text: how transformers computes, what it returns, unused
// tokens.
constexpr std::string_view kSilentKeys[] = {"transformers_version",
                                            "_from_model_config",
                                            "_name_or_path",
                                            "bos_token_id",
                                            "pad_token_id",
                                            "decoder_start_token_id",
                                            "use_cache",
                                            "cache_implementation",
                                            "cache_config",
                                            "return_dict_in_generate",
                                            "return_legacy_cache",
                                            "output_attentions",
                                            "output_hidden_states",
                                            "output_scores",
                                            "output_logits",
                                            "num_return_sequences",
                                            "trust_remote_code",
                                            "low_memory",
                                            "renormalize_logits",
                                            "remove_invalid_values",
                                            "disable_compile",
                                            "compile_config",
                                            "prefill_chunk_size",
                                            "is_assistant",
                                            "assistant_early_exit",
                                            "assistant_confidence_threshold",
                                            "assistant_lookbehind",
                                            "target_lookbehind",
                                            "num_assistant_tokens",
                                            "num_assistant_tokens_schedule",
                                            "prompt_lookup_num_tokens",
                                            "max_matching_ngram_size"};

// Values, in addition to null, 0, false and empty ones, at which a key does not affect the answer.
constexpr std::pair<std::string_view, double> kNeutralValues[] = {{"num_beams", 1},
                                                                  {"num_beam_groups", 1},
                                                                  {"length_penalty", 1},
                                                                  {"typical_p", 1},
                                                                  {"encoder_repetition_penalty", 1},
                                                                  {"guidance_scale", 1},
                                                                  {"max_length", 20},
                                                                  {"top_h", 1}};

bool is_neutral(std::string_view key, const nlohmann::json& value) {
  const auto has_key = [key](const auto& neutral) { return neutral.first == key; };
  const auto* const found = std::ranges::find_if(kNeutralValues, has_key);
  return found != std::end(kNeutralValues) && value.is_number() &&
         value.get<double>() == found->second;
}

// Adds one note that names the settings which change transformers' answers and which Heddle does
// not use.
void note_unused_keys(const nlohmann::json& root, const ConfigReader& reader,
                      std::string_view origin) {
  constexpr size_t kMostNames = 20;
  constexpr size_t kMaxNameBytes = 60;
  std::vector<std::string> names;
  for (const auto& [key, value] : root.items()) {
    if (reader.was_asked_for(key) || reader.is_off(key) || is_neutral(key, value)) continue;
    if (std::ranges::find(kSilentKeys, key) != std::end(kSilentKeys)) continue;
    if (names.size() == kMostNames) {
      names.back() = "others";
      break;
    }
    names.push_back(printable(key, kMaxNameBytes));
  }
  if (names.empty()) return;
  reader.note(fmt::format(
      "{}: {} {} not used; a request sets its own limits, stop texts, penalties and biases", origin,
      fmt::join(names, ", "), names.size() == 1 ? "is" : "are"));
}

Status check_ids(const GenerationConfig& config, int64_t vocab_size) {
  for (const int64_t id : config.eos_token_ids) {
    if (id >= vocab_size) {
      return invalid_argument(fmt::format(
          "eos_token_id has {}, but the model's vocab_size is {}; download both files again", id,
          vocab_size));
    }
  }
  return ok_status();
}

}  // namespace

Result<GenerationConfig> parse_generation_config(std::string_view json_text,
                                                 std::string_view origin) {
  HEDDLE_ASSIGN_OR_RETURN(const nlohmann::json root, parse_json_object(json_text));
  Status first_error;
  ConfigReader reader({&root}, first_error);
  GenerationConfig config;
  OptionalReader optional(reader, origin, config.notes);
  config.eos_token_ids = read_end_tokens(reader, origin);
  if (reader.has("do_sample")) config.do_sample = reader.boolean("do_sample", false);
  // The ranges that requests accept: with a default outside them, every request without a value
  // would be refused.
  config.temperature = optional.number("temperature", {0.0, kLargest}, {0.0, 100.0});
  if (reader.has("top_k")) config.top_k = read_top_k(reader);
  config.top_p = optional.number("top_p", {0.0, 1.0}, {0.0, 1.0});
  config.min_p = optional.number("min_p", {0.0, 1.0}, {0.0, 1.0});
  constexpr double kTiny = std::numeric_limits<double>::min();
  config.repetition_penalty = optional.number("repetition_penalty", {kTiny, kLargest}, {0.01, 2.0});
  note_unused_keys(root, reader, origin);
  HEDDLE_RETURN_IF_ERROR(first_error);
  config.notes.insert(config.notes.end(), reader.notes().begin(), reader.notes().end());
  return config;
}

Result<GenerationConfig> load_generation_config(const std::filesystem::path& folder,
                                                const ModelConfig& model) {
  std::filesystem::path path = folder / "generation_config.json";
  std::string_view origin = "generation_config.json";
  GenerationConfig config;
  std::optional<std::string> text;
  HEDDLE_ASSIGN_OR_RETURN(const bool exists, optional_file_exists(path));
  if (exists) {
    HEDDLE_ASSIGN_OR_RETURN(text, read_text_file(path, kMaxConfigBytes));
  } else {
    HEDDLE_ASSIGN_OR_RETURN(const auto gguf, find_gguf(folder));
    if (gguf) {
      HEDDLE_ASSIGN_OR_RETURN(const GgufModel file, GgufModel::open(*gguf));
      path = *gguf;
      origin = "general.sampling";
      Result<std::optional<std::string>> written = gguf_generation_config(file.metadata());
      if (!written.ok()) {
        return with_remedy(written.status(), kDownloadAgain).with_context(path.string());
      }
      text = *std::move(written);
    }
  }
  if (text) {
    Result<GenerationConfig> parsed = parse_generation_config(*text, origin);
    if (!parsed.ok()) {
      return parsed.status().with_context(exists ? path.string()
                                                 : fmt::format("{}: {}", path.string(), origin));
    }
    config = std::move(parsed).value();
    for (const std::string& note : config.notes) log_warning(note);
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
  return config;
}

}  // namespace heddle::checkpoint
