// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_files.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/config_reader.h"
#include "checkpoint/convert.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/readable.h"
#include "core/file_presence.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigName = "adapter_config.json";
constexpr std::string_view kTensorsName = "adapter_model.safetensors";
constexpr std::string_view kWrapper = ".base_layer";

enum class TensorRole : uint8_t { kA, kB, kBaseWeight };

struct TensorName {
  TensorRole role = TensorRole::kA;
  std::string module;
  int64_t depth = 0;  // of its wrapper
};

// Parts of names of tensors that plain LoRA does not have.
struct RefusedPart {
  std::string_view part;
  std::string_view what;
};

constexpr RefusedPart kRefusedParts[] = {
    {".lora_embedding_", "an adapter of an embedding"},
    {".lora_magnitude_vector", "a magnitude of DoRA"},
    {".modules_to_save.", "a module that is saved whole"},
    {".token_adapter.", "new embeddings of tokens"},
    {".ia3_l", "a factor of IA3"},
    {".bias", "a bias"},
    {".weight", "a module that is saved whole"},
};

// The path before ".lora_A.weight" or ".lora_A.NAME.weight", which older versions write.
std::optional<std::string_view> before_matrix(std::string_view name, std::string_view matrix) {
  const size_t at = name.rfind(matrix);
  if (at == std::string_view::npos) return std::nullopt;
  std::string_view rest = name.substr(at + matrix.size());
  const size_t dot = rest.find('.', 1);
  if (dot != std::string_view::npos && rest.starts_with('.')) rest = rest.substr(dot);
  return rest == ".weight" ? std::optional(name.substr(0, at)) : std::nullopt;
}

Result<TensorName> parse_tensor_name(std::string_view stored) {
  std::string_view name = stored;
  constexpr std::string_view kPrefix = "base_model.model.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  TensorName parsed;
  const std::string base_weight = std::string(kWrapper) + ".weight";
  if (const auto a = before_matrix(name, ".lora_A")) {
    name = *a;
  } else if (const auto b = before_matrix(name, ".lora_B")) {
    parsed.role = TensorRole::kB;
    name = *b;
  } else if (name.ends_with(base_weight)) {
    parsed.role = TensorRole::kBaseWeight;
    name.remove_suffix(base_weight.size());
  } else {
    for (const auto& [part, what] : kRefusedParts) {
      if (stored.find(part) == std::string_view::npos) continue;
      return unimplemented(fmt::format(
          "tensor {} is {}, which is not served; merge the adapter in PEFT (merge_and_unload(), "
          "save_pretrained()) and name that folder",
          readable(stored), what));
    }
    return invalid_argument(fmt::format(
        "tensor {} is none of a LoRA adapter: names end in .lora_A.weight or .lora_B.weight; save "
        "the adapter with PEFT's save_pretrained()",
        readable(stored)));
  }
  while (name.ends_with(kWrapper)) {
    name.remove_suffix(kWrapper.size());
    ++parsed.depth;
  }
  parsed.module = name;
  return parsed;
}

Status check_matrix(const TensorEntry& entry, const SafetensorsFile& file) {
  if (!entry.dtype || !is_convertible(*entry.dtype)) {
    return invalid_argument(
        fmt::format("tensor {} is stored as {}; save the adapter as float32, "
                    "bfloat16 or float16",
                    readable(entry.name), entry.stored_dtype));
  }
  if (entry.shape.rank() != 2 || entry.shape.num_elements() == 0) {
    return invalid_argument(
        fmt::format("tensor {} is {}, which is no matrix: only adapters of "
                    "linear modules are served",
                    readable(entry.name), entry.shape.to_string()));
  }
  constexpr int64_t kAtOnce = 4096;
  float values[kAtOnce];
  const std::byte* const bytes = file.bytes(entry).data();
  const int64_t count = entry.shape.num_elements();
  for (int64_t first = 0; first < count; first += kAtOnce) {
    const int64_t num = std::min(kAtOnce, count - first);
    convert_elements(bytes + bytes_of(*entry.dtype, first), *entry.dtype, values, DType::kF32, num);
    const float* const wrong =
        std::find_if(values, values + num, [](float value) { return !std::isfinite(value); });
    if (wrong == values + num) continue;
    return invalid_argument(
        fmt::format("tensor {} has {} at element {}: training has diverged, or the file is "
                    "damaged; use an earlier checkpoint of the adapter",
                    readable(entry.name), *wrong, first + (wrong - values)));
  }
  return ok_status();
}

Status missing_adapter(const fs::path& folder) {
  const auto has = [&](std::string_view name) {
    const Result<bool> exists = file_exists(folder / name);
    return exists.ok() && *exists;
  };
  std::error_code error;
  if (!fs::is_directory(folder, error)) {
    return not_found(
        fmt::format("there is no folder {}; name the folder of an adapter, with {} and {} in it",
                    folder.string(), kConfigName, kTensorsName));
  }
  if (!has(kConfigName)) {
    return not_found(fmt::format("{} has no {}{}", folder.string(), kConfigName,
                                 has("config.json")
                                     ? ": it is a model; name the folder of an adapter"
                                     : "; name the folder of an adapter"));
  }
  return not_found(fmt::format(
      "{} has no {}{}", folder.string(), kTensorsName,
      has("adapter_model.bin") ? ", only adapter_model.bin, a pickle, which is not read; save the "
                                 "adapter with safe_serialization=True"
                               : "; download the file again"));
}

}  // namespace

Result<AdapterFiles> AdapterFiles::open(const fs::path& folder) {
  for (const std::string_view name : {kConfigName, kTensorsName}) {
    HEDDLE_ASSIGN_OR_RETURN(const bool exists, file_exists(folder / name));
    if (!exists) return missing_adapter(folder);
  }
  const fs::path config_path = folder / kConfigName;
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(config_path, kMaxConfigBytes));
  Result<AdapterConfig> config = AdapterConfig::parse(text);
  if (!config.ok()) return config.status().with_context(config_path.string());
  const fs::path tensors_path = folder / kTensorsName;
  HEDDLE_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(tensors_path));
  AdapterFiles files(folder, *std::move(config), std::move(file));
  if (Status status = files.collect(); !status.ok()) {
    return status.with_context(tensors_path.string());
  }
  return files;
}

Status AdapterFiles::collect() {
  struct Pair {
    const TensorEntry* a = nullptr;
    const TensorEntry* b = nullptr;
  };

  std::map<std::pair<std::string, int64_t>, Pair> pairs;  // by module and negated depth
  for (const TensorEntry& entry : file_.tensors()) {
    HEDDLE_ASSIGN_OR_RETURN(TensorName name, parse_tensor_name(entry.name));
    HEDDLE_RETURN_IF_ERROR(check_matrix(entry, file_));
    if (name.role == TensorRole::kBaseWeight) {
      saved_.push_back({std::move(name.module), *file_.view(entry.name)});
      continue;
    }
    Pair& pair = pairs[{std::move(name.module), -name.depth}];
    const TensorEntry*& place = name.role == TensorRole::kA ? pair.a : pair.b;
    if (place != nullptr) {
      return invalid_argument(fmt::format(
          "tensors {} and {} are of one module: the file has several adapters; save one alone",
          readable(place->name), readable(entry.name)));
    }
    place = &entry;
  }
  if (pairs.empty()) {
    return invalid_argument(
        "the file has no lora_A; save the adapter with PEFT's save_pretrained()");
  }
  for (const auto& [key, pair] : pairs) {
    if (pair.a == nullptr || pair.b == nullptr) {
      const TensorEntry& alone = pair.a != nullptr ? *pair.a : *pair.b;
      return invalid_argument(fmt::format("tensor {} has no {} beside it; save the adapter again",
                                          readable(alone.name),
                                          pair.a != nullptr ? "lora_B" : "lora_A"));
    }
    if (pair.a->shape[0] != pair.b->shape[1]) {
      return invalid_argument(fmt::format(
          "tensor {} is {} and {} is {}: their ranks {} and {} differ; save the adapter again",
          readable(pair.a->name), pair.a->shape.to_string(), readable(pair.b->name),
          pair.b->shape.to_string(), pair.a->shape[0], pair.b->shape[1]));
    }
    updates_.push_back({.module = key.first,
                        .depth = -key.second,
                        .a = *file_.view(pair.a->name),
                        .b = *file_.view(pair.b->name)});
  }
  return ok_status();
}

std::vector<std::string> AdapterFiles::notes() const {
  std::vector<std::string> notes;
  std::set<std::string_view> modules;
  std::string_view example;
  int64_t num_others = 0;
  for (const AdapterUpdate& update : updates_) {
    modules.insert(update.module);
    if (config_.targets(update.module) || !config_.parameters_of(update.module).empty()) continue;
    if (num_others++ == 0) example = update.module;
  }
  if (num_others > 0) {
    notes.push_back(
        fmt::format("{}: {} modules are used that {} has and {} has no target for; the first is {}",
                    folder_.string(), num_others, kTensorsName, kConfigName, readable(example)));
  }
  for (const std::string& target : config_.listed_targets()) {
    const bool found = std::ranges::any_of(modules, [&](std::string_view module) {
      return module == target || module.ends_with("." + target);
    });
    if (found) continue;
    notes.push_back(fmt::format("{}: the target {} of {} has no tensors in {}", folder_.string(),
                                readable(target), kConfigName, kTensorsName));
  }
  return notes;
}

}  // namespace heddle::checkpoint
