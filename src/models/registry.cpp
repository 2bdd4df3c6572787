// SPDX-License-Identifier: Apache-2.0
#include "models/registry.h"

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "checkpoint/mapped_file.h"
#include "checkpoint/readable.h"
#include "core/check.h"

// One line for each family: the name of its folder, which defines `Family NAME()`.
// clang-format off
#define HEDDLE_FAMILIES(family) \
  family(deepseek)              \
  family(gpt_oss)               \
  family(kimi_linear)           \
  family(llama)                 \
  family(mistral)               \
  family(qwen2)                 \
  family(qwen2_moe)             \
  family(qwen3)                 \
  family(qwen3_5)               \
  family(qwen3_moe)             \
  family(qwen3_next)
// clang-format on

namespace heddle::models {

#define HEDDLE_DECLARE_FAMILY(name) Family name();
HEDDLE_FAMILIES(HEDDLE_DECLARE_FAMILY)
#undef HEDDLE_DECLARE_FAMILY

namespace {

const Family* find_family(std::string_view architecture) {
  const auto family = std::ranges::find_if(families(), [&](const Family& candidate) {
    return std::ranges::find(candidate.architectures, architecture) !=
           candidate.architectures.end();
  });
  return family == families().end() ? nullptr : &*family;
}

Status not_served(std::string_view architecture) {
  std::vector<std::string_view> served;
  for (const Family& family : families()) {
    served.insert(served.end(), family.architectures.begin(), family.architectures.end());
  }
  return unimplemented(fmt::format("architecture {} is not served by this build; served are {}",
                                   checkpoint::readable(architecture), fmt::join(served, ", ")));
}

}  // namespace

const std::vector<Family>& families() {
#define HEDDLE_LIST_FAMILY(name) name(),
  static const std::vector<Family> all{HEDDLE_FAMILIES(HEDDLE_LIST_FAMILY)};
#undef HEDDLE_LIST_FAMILY
  return all;
}

Result<checkpoint::ModelConfig> parse_config(std::string_view json_text) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string architecture,
                          checkpoint::parse_architecture(json_text));
  const Family* const family = find_family(architecture);
  if (family == nullptr) return not_served(architecture);
  return checkpoint::parse_model_config(json_text,
                                        {.family = family->name, .read = family->read_config});
}

Result<checkpoint::ModelConfig> load_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  HEDDLE_ASSIGN_OR_RETURN(const std::string text,
                          checkpoint::read_text_file(path, checkpoint::kMaxConfigBytes));
  Result<checkpoint::ModelConfig> config = parse_config(text);
  if (!config.ok()) return config.status().with_context(path.string());
  if (!config->quantization) {
    HEDDLE_ASSIGN_OR_RETURN(config->quantization, checkpoint::load_separate_quantization(folder));
  }
  return config;
}

std::unique_ptr<const Model> create_model(const checkpoint::ModelConfig& config) {
  const Family* const family = find_family(config.architecture);
  HEDDLE_CHECK(family != nullptr);
  return family->create(config);
}

Result<std::unique_ptr<const DraftModel>> create_prediction_head(
    const checkpoint::ModelConfig& config) {
  const Family* const family = find_family(config.architecture);
  HEDDLE_CHECK(family != nullptr);
  if (family->create_head == nullptr) {
    return unimplemented(fmt::format("the prediction head of {} is not served", config.family));
  }
  std::unique_ptr<const DraftModel> head = family->create_head(config);
  if (head != nullptr) return head;
  return invalid_argument("the checkpoint has no prediction head: num_nextn_predict_layers is 0");
}

}  // namespace heddle::models
