// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/adapter_files.h"

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <openssl/evp.h>

#include "checkpoint/config_reader.h"
#include "checkpoint/convert.h"
#include "checkpoint/mapped_file.h"
#include "checkpoint/readable.h"
#include "core/check.h"
#include "core/file_presence.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigName = "adapter_config.json";
constexpr std::string_view kTensorsName = "adapter_model.safetensors";
constexpr std::string_view kWrapper = ".base_layer";

// A tensor's name, split into its parts.
struct TensorName {
  enum class Role : uint8_t { kA, kB, kEmbeddingA, kEmbeddingB, kMagnitude, kWhole };

  Role role = Role::kWhole;
  AdapterTensor::Kind kind = AdapterTensor::Kind::kReplacement;
  std::string module;
  std::string parameter;
  int64_t depth = 0;  // number of PEFT wrappers around the tensor's wrapper; 0: it is the outermost
};

struct NameEnding {
  std::string_view marker;  // text after the module's path that identifies the ending
  std::string_view parameter;
  TensorName::Role role;
  AdapterTensor::Kind kind = AdapterTensor::Kind::kReplacement;
};

// Endings of tensor names; the first that matches is used. Older versions of PEFT write the
// adapter's name before the parameter: "lora_A.default.weight".
constexpr NameEnding kEndings[] = {
    {".lora_A", ".weight", TensorName::Role::kA},
    {".lora_B", ".weight", TensorName::Role::kB},
    {".lora_B", ".bias", TensorName::Role::kWhole, AdapterTensor::Kind::kAddedBias},
    {".lora_embedding_A", "", TensorName::Role::kEmbeddingA},
    {".lora_embedding_B", "", TensorName::Role::kEmbeddingB},
    {".lora_magnitude_vector", ".weight", TensorName::Role::kMagnitude},
    {".lora_magnitude_vector", "", TensorName::Role::kMagnitude},
    {".token_adapter.trainable_tokens_delta", "", TensorName::Role::kWhole,
     AdapterTensor::Kind::kTokenRows},
    {".modules_to_save", ".weight", TensorName::Role::kWhole},
    {".modules_to_save", ".bias", TensorName::Role::kWhole},
    {".base_layer", ".weight", TensorName::Role::kWhole, AdapterTensor::Kind::kSavedBase},
    {".base_layer", ".bias", TensorName::Role::kWhole},
    {"", ".weight", TensorName::Role::kWhole},
    {"", ".bias", TensorName::Role::kWhole},
};

// The module's path if the name has this ending; otherwise none.
std::optional<std::string_view> before_ending(std::string_view name, const NameEnding& ending) {
  if (ending.marker.empty()) {
    if (!name.ends_with(ending.parameter)) return std::nullopt;
    return name.substr(0, name.size() - ending.parameter.size());
  }
  const size_t at = name.rfind(ending.marker);
  if (at == std::string_view::npos || at == 0) return std::nullopt;
  std::string_view rest = name.substr(at + ending.marker.size());
  if (rest.starts_with('.') && rest != ending.parameter) {
    const size_t dot = rest.find('.', 1);
    rest = dot == std::string_view::npos ? std::string_view() : rest.substr(dot);
  }
  return rest == ending.parameter ? std::optional(name.substr(0, at)) : std::nullopt;
}

Result<TensorName> parse_tensor_name(std::string_view stored) {
  std::string_view name = stored;
  constexpr std::string_view kPrefix = "base_model.model.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  for (const NameEnding& ending : kEndings) {
    auto module = before_ending(name, ending);
    if (!module || name.find(".lora_", module->size() + ending.marker.size()) != name.npos) {
      continue;
    }
    TensorName parsed{.role = ending.role, .kind = ending.kind};
    while (module->ends_with(kWrapper)) {
      module->remove_suffix(kWrapper.size());
      ++parsed.depth;
    }
    parsed.module = *module;
    const bool is_bias = ending.parameter == ".bias";
    parsed.parameter = is_bias ? "bias" : "weight";
    return parsed;
  }
  return unimplemented(
      fmt::format("tensor {} is none of LoRA's; merge the adapter in PEFT (merge_and_unload(), "
                  "save_pretrained()) and name that folder",
                  readable(stored)));
}

Status check_tensor(const TensorEntry& entry, bool is_matrix, const SafetensorsFile& file) {
  if (!entry.dtype || !is_convertible(*entry.dtype)) {
    return invalid_argument(
        fmt::format("tensor {} is stored as {}; save the adapter as float32, bfloat16 or float16",
                    readable(entry.name), entry.stored_dtype));
  }
  if ((is_matrix && entry.shape.rank() != 2) || entry.shape.num_elements() == 0) {
    return invalid_argument(
        fmt::format("tensor {} is {}, which is no matrix: only adapters of "
                    "linear modules and embeddings are known",
                    readable(entry.name), entry.shape.to_string()));
  }
  const std::byte* const bytes = file.bytes(entry).data();
  const auto wrong = first_not_finite(bytes, *entry.dtype, entry.shape.num_elements());
  if (!wrong) return ok_status();
  float value = 0;
  convert_elements(bytes + bytes_of(*entry.dtype, *wrong), *entry.dtype, &value, DType::kF32, 1);
  return invalid_argument(
      fmt::format("tensor {} has {} at element {}: training has diverged, or the file is "
                  "damaged; use an earlier checkpoint of the adapter",
                  readable(entry.name), value, *wrong));
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
  struct Parts {
    const TensorEntry* a = nullptr;
    const TensorEntry* b = nullptr;
    const TensorEntry* magnitude = nullptr;
    bool of_embedding = false;
  };

  // The keys are (module, -depth), so that the innermost wrapper of a module comes first.
  std::map<std::pair<std::string, int64_t>, Parts> modules;
  for (const TensorEntry& entry : file_.tensors()) {
    HEDDLE_ASSIGN_OR_RETURN(TensorName name, parse_tensor_name(entry.name));
    const bool is_whole = name.role == TensorName::Role::kWhole;
    const bool is_magnitude = name.role == TensorName::Role::kMagnitude;
    HEDDLE_RETURN_IF_ERROR(check_tensor(entry, !is_whole && !is_magnitude, file_));
    if (is_whole) {
      tensors_.push_back({.kind = name.kind,
                          .module = std::move(name.module),
                          .parameter = std::move(name.parameter),
                          .tensor = *file_.view(entry.name)});
      continue;
    }
    Parts& parts = modules[{std::move(name.module), -name.depth}];
    parts.of_embedding |= name.role == TensorName::Role::kEmbeddingA;
    const bool is_a =
        name.role == TensorName::Role::kA || name.role == TensorName::Role::kEmbeddingA;
    const TensorEntry*& place = is_magnitude ? parts.magnitude : is_a ? parts.a : parts.b;
    if (place != nullptr) {
      return invalid_argument(fmt::format(
          "tensors {} and {} are of one module: the file has several adapters; save one alone",
          readable(place->name), readable(entry.name)));
    }
    place = &entry;
  }
  if (modules.empty() && tensors_.empty()) {
    return invalid_argument(
        "the file has no tensors; save the adapter with PEFT's save_pretrained()");
  }
  for (const auto& [key, parts] : modules) {
    if (parts.a == nullptr || parts.b == nullptr) {
      const TensorEntry& alone = *(parts.a != nullptr   ? parts.a
                                   : parts.b != nullptr ? parts.b
                                                        : parts.magnitude);
      return invalid_argument(fmt::format("tensor {} has no {} beside it; save the adapter again",
                                          readable(alone.name),
                                          parts.a != nullptr ? "lora_B" : "lora_A"));
    }
    if (parts.a->shape[0] != parts.b->shape[1]) {
      return invalid_argument(fmt::format(
          "tensor {} is {} and {} is {}: their ranks {} and {} differ; save the adapter again",
          readable(parts.a->name), parts.a->shape.to_string(), readable(parts.b->name),
          parts.b->shape.to_string(), parts.a->shape[0], parts.b->shape[1]));
    }
    updates_.push_back({.module = key.first,
                        .of_embedding = parts.of_embedding,
                        .a = *file_.view(parts.a->name),
                        .b = *file_.view(parts.b->name)});
    if (parts.magnitude == nullptr && config_.uses_dora()) {
      return invalid_argument(
          fmt::format("there is no tensor {}, but use_dora is true in {}; save the adapter again",
                      readable(key.first + ".lora_magnitude_vector"), kConfigName));
    }
    if (parts.magnitude == nullptr) continue;
    updates_.back().magnitude = *file_.view(parts.magnitude->name);
    if (parts.magnitude->shape.num_elements() == parts.b->shape[0]) continue;
    return invalid_argument(fmt::format(
        "tensor {} is {}, but lora_B has {} rows; save the adapter again",
        readable(parts.magnitude->name), parts.magnitude->shape.to_string(), parts.b->shape[0]));
  }
  return ok_status();
}

int64_t AdapterFiles::highest_rank() const {
  int64_t highest = 0;
  for (const AdapterUpdate& update : updates_) {
    highest = std::max(highest, config_.scaling(update.module).rank);
  }
  return highest;
}

std::string AdapterFiles::content_hash() const {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     EVP_MD_CTX_free);
  HEDDLE_CHECK(EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1);
  const auto add = [&](const void* data, size_t num_bytes) {
    HEDDLE_CHECK(EVP_DigestUpdate(hash.get(), data, num_bytes) == 1);
  };
  for (const AdapterUpdate& update : updates_) {
    const AdapterScaling scaling = config_.scaling(update.module);
    const std::string head = fmt::format("{}:{} {} {:a} {} {} {} {}\n", update.module.size(),
                                         update.module, scaling.rank, scaling.scale,
                                         to_string(update.a.dtype), update.a.shape.to_string(),
                                         to_string(update.b.dtype), update.b.shape.to_string());
    add(head.data(), head.size());
    for (const TensorView& factor : {update.a, update.b}) {
      add(factor.data, static_cast<size_t>(bytes_of(factor.dtype, factor.num_elements())));
    }
  }
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  HEDDLE_CHECK(EVP_DigestFinal_ex(hash.get(), digest.data(), &size) == 1);
  return fmt::format("{:02x}", fmt::join(digest.begin(), digest.begin() + size, ""));
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
    const bool found = std::ranges::any_of(
        modules, [&](std::string_view module) { return ends_with_path(module, target); });
    if (found) continue;
    notes.push_back(fmt::format("{}: the target {} of {} has no tensors in {}", folder_.string(),
                                readable(target), kConfigName, kTensorsName));
  }
  using Kind = AdapterTensor::Kind;
  const auto has = [&](Kind kind, auto&& matches) {
    return std::ranges::any_of(tensors_, [&](const AdapterTensor& tensor) {
      return tensor.kind == kind && matches(tensor.module);
    });
  };
  const auto note_missing = [&](std::string_view key, std::string_view entry) {
    notes.push_back(fmt::format("{}: {}{}{} of {} has no tensors in {}, so it changes nothing",
                                folder_.string(), key, entry.empty() ? "" : " ",
                                entry.empty() ? "" : readable(entry), kConfigName, kTensorsName));
  };
  for (const std::string& saved : config_.saved_modules()) {
    // A module that is saved whole may contain others, which have the tensors.
    const bool found = has(Kind::kReplacement, [&](const std::string& module) {
      return ("." + module + ".").find("." + saved + ".") != std::string::npos;
    });
    if (!found) note_missing("modules_to_save", saved);
  }
  for (const std::string& trained : config_.trained_modules()) {
    const bool found = has(Kind::kTokenRows, [&](const std::string& module) {
      return trained.empty() || ends_with_path(module, trained);
    });
    if (!found) note_missing("trainable_token_indices", trained);
  }
  if (config_.has_biases() && !has(Kind::kAddedBias, [](const std::string&) { return true; })) {
    note_missing("lora_bias", "");
  }
  return notes;
}

}  // namespace heddle::checkpoint
