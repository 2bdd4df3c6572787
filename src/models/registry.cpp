// SPDX-License-Identifier: Apache-2.0
#include "models/registry.h"

#include <algorithm>
#include <optional>
#include <string>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "checkpoint/checkpoint_files.h"
#include "checkpoint/gguf_model.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/readable.h"
#include "checkpoint/tied_head.h"
#include "core/check.h"
#include "models/gguf_registry.h"
#include "models/vision/vision_tower.h"

// One line for each family: the name of its folder, which defines `Family NAME()`.
// clang-format off
#define HEDDLE_FAMILIES(family) \
  family(bamba)                 \
  family(cohere2)               \
  family(deepseek)              \
  family(ernie4_5)              \
  family(exaone4)               \
  family(falcon_h1)             \
  family(gemma3)                \
  family(gemma4)                \
  family(glm4_moe)              \
  family(gpt_oss)               \
  family(granite)               \
  family(granitemoehybrid)      \
  family(jamba)                 \
  family(kimi_linear)           \
  family(lfm2)                  \
  family(llama)                 \
  family(mimo_v2)               \
  family(minimax)               \
  family(minimax_m2)            \
  family(mistral)               \
  family(mixtral)               \
  family(nanochat)              \
  family(nemotron_h)            \
  family(olmo3)                 \
  family(olmo_hybrid)           \
  family(phi3)                  \
  family(phimoe)                \
  family(qwen2)                 \
  family(qwen2_moe)             \
  family(qwen3)                 \
  family(qwen3_5)               \
  family(qwen3_moe)             \
  family(qwen3_next)            \
  family(seed_oss)              \
  family(smollm3)               \
  family(step3)                 \
  family(zamba2)
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

// The architecture for a model_type; empty if not supported. As in transformers it takes precedence
// over `architectures`, which only names the class that wrote the file.
std::string_view architecture_of(std::string_view model_type) {
  for (const Family& family : families()) {
    const auto found = std::ranges::find(family.model_types, model_type, &ModelType::name);
    if (found != family.model_types.end()) return found->architecture;
  }
  return {};
}

Status not_served(std::string_view architecture) {
  std::vector<std::string_view> served;
  for (const Family& family : families()) {
    served.insert(served.end(), family.architectures.begin(), family.architectures.end());
  }
  return unimplemented(fmt::format("architecture {} is not served by this build; served are {}",
                                   checkpoint::readable(architecture), fmt::join(served, ", ")));
}

// Adds the quantisation that older tools write next to config.json, unless config.json has one.
Status add_separate_quantization(const std::filesystem::path& folder,
                                 checkpoint::ModelConfig& config) {
  const auto separate = checkpoint::load_separate_quantization(folder);
  if (!config.quantization) {
    HEDDLE_RETURN_IF_ERROR(separate.status());
    if (*separate) config.quantization = (*separate)->config;
  } else if (!separate.ok()) {
    config.notes.push_back(
        fmt::format("not used, because config.json has a quantization_config: {}",
                    separate.status().message()));
  } else if (*separate && (*separate)->config.method != config.quantization->method) {
    config.notes.push_back(
        fmt::format("config.json says that the weights are {}, {} that they are {}; config.json is "
                    "used",
                    to_string(config.quantization->method), (*separate)->file,
                    to_string((*separate)->config.method)));
  }
  return {};
}

}  // namespace

const std::vector<Family>& families() {
#define HEDDLE_LIST_FAMILY(name) name(),
  static const std::vector<Family> all{HEDDLE_FAMILIES(HEDDLE_LIST_FAMILY)};
#undef HEDDLE_LIST_FAMILY
  return all;
}

Result<checkpoint::ModelConfig> parse_config(std::string_view json_text) {
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::ModelName name,
                          checkpoint::parse_model_name(json_text));
  std::string_view architecture = name.architecture;
  const Family* family = find_family(architecture);
  std::string note;
  if (const Family* const by_type = find_family(architecture_of(name.model_type));
      by_type != nullptr && by_type != family) {
    if (!architecture.empty()) {
      note =
          fmt::format("config.json: architectures is {} and model_type is {}; model_type is used",
                      checkpoint::readable(architecture), checkpoint::readable(name.model_type));
    }
    architecture = architecture_of(name.model_type);
    family = by_type;
  }
  if (family == nullptr) return not_served(architecture.empty() ? name.model_type : architecture);
  Result<checkpoint::ModelConfig> config =
      checkpoint::parse_model_config(json_text, {.family = family->name,
                                                 .architecture = architecture,
                                                 .shared_keys = family->shared_keys,
                                                 .read = family->read_config});
  if (config.ok() && !note.empty()) config->notes.push_back(std::move(note));
  return config;
}

Result<checkpoint::ModelConfig> load_config(const std::filesystem::path& folder) {
  HEDDLE_RETURN_IF_ERROR(checkpoint::check_model_folder(folder));
  HEDDLE_ASSIGN_OR_RETURN(const auto gguf, checkpoint::find_gguf(folder));
  if (gguf) return load_gguf_config(*gguf);
  const std::filesystem::path path = folder / "config.json";
  HEDDLE_ASSIGN_OR_RETURN(const std::string text,
                          checkpoint::read_text_file(path, checkpoint::kMaxConfigBytes));
  Result<checkpoint::ModelConfig> config = parse_config(text);
  if (!config.ok()) return config.status().with_context(path.string());
  HEDDLE_RETURN_IF_ERROR(add_separate_quantization(folder, *config));
  checkpoint::settle_tied_head(folder, *config);
  return config;
}

Result<std::unique_ptr<const VisionTower>> parse_vision_tower(std::string_view json_text) {
  HEDDLE_ASSIGN_OR_RETURN(const checkpoint::ModelConfig model, parse_config(json_text));
  HEDDLE_ASSIGN_OR_RETURN(const nlohmann::json root, checkpoint::parse_json_object(json_text));
  constexpr const char* kKey = "vision_config";
  Status first_error;
  checkpoint::ConfigReader outer({&root}, first_error);
  const nlohmann::json* const keys = outer.object(kKey);
  HEDDLE_RETURN_IF_ERROR(first_error);
  if (keys == nullptr) {
    return not_found(fmt::format("there is no vision_config, or it is null: {} reads text only",
                                 checkpoint::readable(model.architecture)));
  }
  const Family* const family = find_family(model.architecture);
  HEDDLE_CHECK(family != nullptr);
  if (family->read_tower == nullptr) {
    return unimplemented(fmt::format("the vision tower of {} is not served; send it text only",
                                     checkpoint::readable(model.architecture)));
  }
  checkpoint::ConfigReader reader = outer.narrowed({keys}, /*keep_own=*/false);
  VisionConfig config = family->read_tower(reader);
  if (config.out_size != model.hidden_size) {
    reader.fail("out_hidden_size",
                fmt::format("but the language model is {} wide", model.hidden_size));
  }
  if (std::ssize(config.deep_blocks) > model.num_layers) {
    reader.fail("deepstack_visual_indexes",
                fmt::format("more blocks than the {} layers of the language model that would add "
                            "their features",
                            model.num_layers));
  }
  if (!first_error.ok()) return first_error.with_context(kKey);
  config.image_token = outer.integer("image_token_id", std::nullopt, {0, model.vocab_size - 1});
  HEDDLE_RETURN_IF_ERROR(first_error);
  return make_vision_tower(config);
}

Result<std::unique_ptr<const VisionTower>> load_vision_tower(const std::filesystem::path& folder) {
  HEDDLE_RETURN_IF_ERROR(checkpoint::check_model_folder(folder));
  const std::filesystem::path path = folder / "config.json";
  HEDDLE_ASSIGN_OR_RETURN(const std::string text,
                          checkpoint::read_text_file(path, checkpoint::kMaxConfigBytes));
  auto tower = parse_vision_tower(text);
  if (!tower.ok()) return tower.status().with_context(path.string());
  return tower;
}

Result<std::unique_ptr<const checkpoint::WeightSource>> open_weights(
    const std::filesystem::path& folder) {
  HEDDLE_ASSIGN_OR_RETURN(const auto gguf, checkpoint::find_gguf(folder));
  if (gguf) return open_gguf_weights(*gguf);
  HEDDLE_ASSIGN_OR_RETURN(auto files, checkpoint::CheckpointFiles::open(folder));
  return std::unique_ptr<const checkpoint::WeightSource>(
      std::make_unique<checkpoint::CheckpointFiles>(std::move(files)));
}

std::unique_ptr<const Model> create_model(const checkpoint::ModelConfig& config) {
  const Family* const family = find_family(config.architecture);
  HEDDLE_CHECK(family != nullptr);
  return family->create(config);
}

std::string_view tool_call_format_of(std::string_view architecture) {
  const Family* const family = find_family(architecture);
  return family == nullptr ? std::string_view() : family->tool_call_format;
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
