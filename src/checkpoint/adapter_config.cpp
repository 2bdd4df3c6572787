// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_config.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/config_reader.h"
#include "checkpoint/readable.h"
#include "core/json_syntax.h"

namespace heddle::checkpoint {

namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr ConfigReader::IntegerRange kRanks{1, 65536};
constexpr ConfigReader::NumberRange kAlphas{-1e9, 1e9};

// A key of the configuration that asks for a kind of adapter that is not merged. Its "off" values
// are accepted.
struct RefusedKey {
  std::string_view key;
  std::string_view what;
};

constexpr std::string_view kMergeInPeft =
    "merge the adapter in PEFT (merge_and_unload(), save_pretrained()) and name that folder";
constexpr std::string_view kTrainWithout = "train an adapter without it";

constexpr RefusedKey kRefusedKeys[] = {
    {"fan_in_fan_out", "transposed layers are not merged"},
    {"use_qalora", "QALoRA is not merged"},
    {"use_bdlora", "block-diagonal adapters are not merged"},
    {"arrow_config", "routing among adapters is not merged"},
    {"kasa_config", "KaSA is not merged"},
    {"monteclora_config", "MonteCLoRA is not merged"},
};

// These initialisations change the base weights, so adding the update to the original base does not
// give the trained model.
constexpr std::string_view kInitialisations[] = {"pissa", "olora", "corda", "loftq", "lora_ga"};

void refuse_other_kinds(ConfigReader& reader) {
  const std::string type = reader.text("peft_type", "LORA");
  if (type != "LORA") {
    reader.refuse("peft_type", fmt::format("only LORA is merged; {}", kMergeInPeft));
  }
  for (const auto& [key, what] : kRefusedKeys) {
    if (!reader.is_off(key)) reader.refuse(key, fmt::format("{}; {}", what, kMergeInPeft));
  }
  if (!reader.is_off("layer_replication")) {
    reader.refuse(
        "layer_replication",
        fmt::format("a model that repeats layers of its base is not merged; {}", kTrainWithout));
  }
  if (!reader.is_off("alora_invocation_tokens")) {
    reader.refuse("alora_invocation_tokens",
                  fmt::format("an adapter that begins within a prompt (aLoRA) is not merged, for "
                              "weights cannot express it; {}",
                              kTrainWithout));
  }
  const json* const initial = reader.find("init_lora_weights");
  if (initial == nullptr || !initial->is_string()) return;
  for (const std::string_view kind : kInitialisations) {
    if (!initial->get_ref<const std::string&>().starts_with(kind)) continue;
    reader.refuse("init_lora_weights",
                  "this initialisation changes the base, too; save the adapter with "
                  "path_initial_model_for_weight_conversion, which makes it plain LoRA");
  }
}

// Checks only the value; the biases themselves are tensors of the adapter.
void check_bias(ConfigReader& reader) {
  constexpr std::string_view kValues[] = {"none", "all", "lora_only"};
  const std::string bias = reader.text("bias", "none");
  if (std::ranges::find(kValues, bias) == std::end(kValues)) {
    reader.fail("bias", "which is none of \"none\", \"all\" and \"lora_only\"");
  }
}

// Refuses unknown keys "use_..." that are true: a later PEFT version may compute differently.
void refuse_unknown_switches(const json& document, ConfigReader& reader) {
  for (const auto& [key, value] : document.items()) {
    if (key.starts_with("use_") && value.is_boolean() && value.get<bool>() &&
        !reader.was_asked_for(key)) {
      reader.refuse(key, fmt::format("this kind of adapter is not known; {}", kMergeInPeft));
    }
  }
}

// Reads a list, which is for the input embedding, or an object with one list for each module.
std::vector<std::pair<std::string, std::vector<int64_t>>> read_trained_tokens(
    ConfigReader& reader) {
  constexpr std::string_view kKey = "trainable_token_indices";
  const json* const value = reader.find(kKey);
  if (value == nullptr) return {};
  if (!value->is_object()) return {{"", reader.integers(kKey, kTokenIds)}};
  std::vector<std::pair<std::string, std::vector<int64_t>>> tokens;
  ConfigReader modules = reader.narrowed({value}, /*keep_own=*/false);
  for (const auto& [module, ids] : value->items()) {
    tokens.emplace_back(module, modules.integers(module, kTokenIds));
  }
  return tokens;
}

// Reads {"expression": number} in the file's order. An expression must match the whole path, or all
// of the path that follows one of its dots.
Result<std::vector<std::pair<ModulePattern, double>>> read_patterns(const ordered_json& document,
                                                                    const std::string& key,
                                                                    bool of_ranks) {
  std::vector<std::pair<ModulePattern, double>> patterns;
  const auto found = document.find(key);
  if (found == document.end() || found->is_null()) return patterns;
  if (!found->is_object()) return invalid_argument(fmt::format("{} is no JSON object", key));
  for (const auto& [expression, value] : found->items()) {
    const double number = value.is_number() ? value.get<double>() : std::nan("");
    const bool fits = of_ranks ? number >= 1 && number <= static_cast<double>(kRanks.high) &&
                                     number == std::floor(number)
                               : number >= kAlphas.low && number <= kAlphas.high;
    if (!fits) {
      return invalid_argument(
          fmt::format("{}[{}] is {}, which is no {}", key, readable(expression),
                      readable(value.dump(-1, ' ', true, json::error_handler_t::replace)),
                      of_ranks ? "rank" : "factor"));
    }
    auto pattern = ModulePattern::compile(fmt::format(R"((?:.*\.)?(?:{})\z)", expression));
    if (!pattern.ok()) return pattern.status().with_context(key);
    patterns.emplace_back(*std::move(pattern), number);
  }
  return patterns;
}

// Returns the layer index that PEFT finds in a module's path: the last dot-separated number that is
// neither the first nor the last part of the path. With `patterns`, it must follow one of them.
std::optional<int64_t> layer_of(std::string_view path, const std::vector<std::string>& patterns) {
  size_t end = path.rfind('.');
  while (end != std::string_view::npos && end > 0) {
    const size_t begin = path.rfind('.', end - 1);
    if (begin == std::string_view::npos || begin == 0) return std::nullopt;
    const std::string_view part = path.substr(begin + 1, end - begin - 1);
    int64_t index = 0;
    const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool is_number = error == std::errc() && rest == part.data() + part.size() && index >= 0;
    const std::string_view before = path.substr(0, begin);
    const bool fits =
        patterns.empty() || std::ranges::any_of(patterns, [&](const std::string& pattern) {
          return ends_with_path(before, pattern);
        });
    if (is_number && fits && before.find('.') != std::string_view::npos) return index;
    end = begin;
  }
  return std::nullopt;
}

}  // namespace

bool ends_with_path(std::string_view path, std::string_view end) {
  return path.ends_with(end) &&
         (path.size() == end.size() || path[path.size() - end.size() - 1] == '.');
}

bool AdapterConfig::Selection::contains(std::string_view path) const {
  if (pattern) return pattern->matches(path);
  return std::ranges::any_of(names,
                             [&](const std::string& name) { return ends_with_path(path, name); });
}

Result<AdapterConfig::Selection> AdapterConfig::read_selection(ConfigReader& reader,
                                                               std::string_view key) {
  Selection selection;
  const json* const value = reader.find(key);
  if (value == nullptr || !value->is_string()) {
    selection.names = reader.texts(key);
    return selection;
  }
  const std::string text = reader.text(key, std::nullopt);
  auto pattern = ModulePattern::compile(fmt::format(R"((?:{})\z)", text));
  if (!pattern.ok()) return pattern.status().with_context(key);
  selection.pattern = *std::move(pattern);
  return selection;
}

Result<AdapterConfig> AdapterConfig::parse(std::string_view json_text) {
  HEDDLE_ASSIGN_OR_RETURN(const json document, parse_json_object(json_text));
  Status error;
  ConfigReader reader({&document}, error);
  refuse_other_kinds(reader);
  AdapterConfig config;
  check_bias(reader);
  config.uses_dora_ = reader.boolean("use_dora", false);
  config.has_biases_ = reader.boolean("lora_bias", false);
  config.saved_modules_ = reader.texts("modules_to_save");
  config.base_model_ = reader.text("base_model_name_or_path", "");
  config.rank_ = reader.integer("r", 8, kRanks);
  config.alpha_ = reader.number("lora_alpha", 8, kAlphas);
  config.rank_stabilised_ = reader.boolean("use_rslora", false);
  config.parameters_ = reader.texts("target_parameters");
  config.layers_ = reader.integers("layers_to_transform", {0, kLayers.high});
  config.layers_patterns_ = reader.texts("layers_pattern");
  const json* const targets = reader.find("target_modules");
  config.all_linear_ = targets != nullptr && *targets == "all-linear";
  config.trained_tokens_ = read_trained_tokens(reader);
  refuse_unknown_switches(document, reader);
  HEDDLE_RETURN_IF_ERROR(error);
  if (!config.all_linear_) {
    HEDDLE_ASSIGN_OR_RETURN(config.targets_, read_selection(reader, "target_modules"));
  }
  HEDDLE_ASSIGN_OR_RETURN(config.excluded_, read_selection(reader, "exclude_modules"));
  HEDDLE_RETURN_IF_ERROR(error);
  HEDDLE_ASSIGN_OR_RETURN(const std::string strict, strict_json(json_text));
  const ordered_json ordered = ordered_json::parse(strict, nullptr, /*allow_exceptions=*/false);
  HEDDLE_ASSIGN_OR_RETURN(config.rank_patterns_, read_patterns(ordered, "rank_pattern", true));
  HEDDLE_ASSIGN_OR_RETURN(config.alpha_patterns_, read_patterns(ordered, "alpha_pattern", false));
  return config;
}

AdapterScaling AdapterConfig::scaling(std::string_view path) const {
  const auto first_match = [&](const Patterns& patterns, double otherwise) {
    const auto found = std::ranges::find_if(
        patterns, [&](const auto& pattern) { return pattern.first.matches(path); });
    return found == patterns.end() ? otherwise : found->second;
  };
  const double rank = first_match(rank_patterns_, static_cast<double>(rank_));
  const double alpha = first_match(alpha_patterns_, alpha_);
  return {.rank = static_cast<int64_t>(rank),
          .scale = alpha / (rank_stabilised_ ? std::sqrt(rank) : rank)};
}

std::vector<std::string> AdapterConfig::parameters_of(std::string_view module) const {
  // The order in which transformers' expert modules declare their parameters.
  constexpr std::string_view kOrder[] = {"gate_up_proj", "gate_proj", "up_proj", "down_proj"};
  std::vector<std::string> found;
  for (const std::string& target : parameters_) {
    const size_t dot = target.rfind('.');
    std::string name = dot == std::string::npos ? target : target.substr(dot + 1);
    const std::string_view owner =
        std::string_view(target).substr(0, dot == std::string::npos ? 0 : dot);
    if (!owner.empty() && !ends_with_path(module, owner)) continue;
    if (std::ranges::find(found, name) == found.end()) found.push_back(std::move(name));
  }
  std::ranges::stable_sort(found, {}, [&](const std::string& name) {
    return std::ranges::find(kOrder, name) - std::begin(kOrder);
  });
  return found;
}

std::vector<int64_t> AdapterConfig::trained_tokens(std::string_view module) const {
  for (const auto& [owner, tokens] : trained_tokens_) {
    if (owner.empty() || ends_with_path(module, owner)) return tokens;
  }
  return {};
}

std::vector<std::string> AdapterConfig::trained_modules() const {
  std::vector<std::string> modules;
  for (const auto& [owner, tokens] : trained_tokens_) {
    if (!tokens.empty()) modules.push_back(owner);
  }
  return modules;
}

bool AdapterConfig::targets(std::string_view module) const {
  if (excluded_.contains(module)) return false;
  if (!all_linear_ && !targets_.contains(module)) return false;
  if (layers_.empty()) return true;
  const std::optional<int64_t> layer = layer_of(module, layers_patterns_);
  return layer && std::ranges::find(layers_, *layer) != layers_.end();
}

}  // namespace heddle::checkpoint
