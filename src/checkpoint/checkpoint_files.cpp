// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/checkpoint_files.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "checkpoint/convert.h"
#include "checkpoint/readable.h"
#include "core/file_presence.h"
#include "core/json_reader.h"
#include "core/remedy.h"

namespace heddle::checkpoint {

namespace {

constexpr std::string_view kSingleFile = "model.safetensors";

struct IndexEntry {
  std::string tensor;
  std::string file;
};

// The path of a shard, normalised (without "./"). Empty unless it is in the model's folder or below
// it.
std::string shard_name(std::string_view written) {
  if (written.find('\0') != std::string_view::npos) return {};
  const std::filesystem::path path = std::filesystem::path(written).lexically_normal();
  if (path.is_absolute() || !path.has_filename() || path == "." || *path.begin() == "..") return {};
  return path.string();
}

// Of several index entries for one tensor, keeps the last one, as Python does.
void keep_last_of_each(std::vector<IndexEntry>& entries) {
  std::unordered_map<std::string_view, size_t> last;
  for (size_t i = 0; i < entries.size(); ++i) last[entries[i].tensor] = i;
  if (last.size() == entries.size()) return;
  std::vector<IndexEntry> kept;
  for (size_t i = 0; i < entries.size(); ++i) {
    if (last[entries[i].tensor] == i) kept.push_back(entries[i]);
  }
  entries = std::move(kept);
}

Result<std::vector<IndexEntry>> parse_index(const std::string& text) {
  HEDDLE_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::parse(text));
  HEDDLE_ASSIGN_OR_RETURN(const JsonValue weight_map, document.root().require("weight_map"));
  HEDDLE_ASSIGN_OR_RETURN(const simdjson::dom::object map, weight_map.as_object());
  std::vector<IndexEntry> entries;
  for (const auto field : map) {
    std::string_view written;
    std::string file;
    if (field.value.get(written) == simdjson::SUCCESS) file = shard_name(written);
    if (file.empty()) {
      const JsonValue value(field.value, fmt::format("weight_map[{}]", readable(field.key)));
      return value.wrong("the plain name of a file in the same folder");
    }
    entries.push_back({std::string(field.key), std::move(file)});
  }
  if (entries.empty()) return data_loss("weight_map is empty; download the file again");
  keep_last_of_each(entries);
  return entries;
}

struct OtherWeights {
  std::string_view ending;
  std::string_view what;  // a description of the weights and what the user can do
};

// Weights in unsupported forms, and adapters without their model.
constexpr OtherWeights kOtherWeights[] = {
    {"adapter_model.safetensors",
     "an adapter without its model; merge it into the model (heddle merge MODEL ADAPTER OUT_DIR) "
     "and name that folder"},
    {"adapter_model.bin",
     "an adapter without its model, as a pickle; save it with safe_serialization=True, merge it "
     "into the model (heddle merge MODEL ADAPTER OUT_DIR) and name that folder"},
    {".gguf",
     "a GGUF file, which is not read here; name that file, or download the model's safetensors "
     "files, with hf download OWNER/MODEL"},
    {".bin",
     "weights as a PyTorch pickle, which is not served; download the model's safetensors files, or "
     "convert it: AutoModelForCausalLM.from_pretrained(FOLDER).save_pretrained(NEW_FOLDER, "
     "safe_serialization=True)"},
    {".pth",
     "weights as a PyTorch pickle, which is not served; download the model's safetensors files in "
     "the layout of Hugging Face"},
    {".pt",
     "weights as a PyTorch pickle, which is not served; download the model's safetensors files in "
     "the layout of Hugging Face"},
    {".msgpack", "weights of Flax, which are not served; download the model's safetensors files"},
    {".h5", "weights of TensorFlow, which are not served; download the model's safetensors files"},
    {".onnx", "an ONNX model, which is not served; download the model's safetensors files"},
};

// Whether the file is of the layout in which Mistral publishes its models a second time.
bool is_makers_file(std::string_view name) {
  return name.starts_with("consolidated") && name.ends_with(".safetensors");
}

bool is_shard_name(std::string_view name) {
  return name.ends_with(".safetensors") && !name.starts_with("adapter_model") &&
         !is_makers_file(name);
}

// The error for a folder without readable weights. It says what is missing: for shards only the
// index, for a single file only its right name.
Status missing_weights(const std::filesystem::path& folder) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<std::string> names, names_in_folder(folder));
  const auto shard = std::ranges::find_if(names, is_shard_name);
  if (shard != names.end()) {
    const bool is_alone = std::ranges::count_if(names, is_shard_name) == 1 &&
                          (shard->find("-of-") == std::string::npos ||
                           shard->find("-of-00001.") != std::string::npos);
    return not_found(
        is_alone ? fmt::format("{} has {} but no {}; rename the file to that, if it has all of the "
                               "model's weights",
                               folder.string(), readable(*shard), kSingleFile)
                 : fmt::format("{} has {} but no {} that says which tensor is where; download the "
                               "index, too",
                               folder.string(), readable(*shard), kIndexFile));
  }
  const auto makers = std::ranges::find_if(names, is_makers_file);
  if (makers != names.end()) {
    return not_found(fmt::format(
        "{} has no {}, only {}: weights in the layout of the model's maker, which names them in "
        "another way and is not served; download the model's safetensors files in the layout of "
        "Hugging Face",
        folder.string(), kSingleFile, readable(*makers)));
  }
  for (const auto& [ending, what] : kOtherWeights) {
    const auto found = std::ranges::find_if(
        names, [suffix = ending](const std::string& name) { return name.ends_with(suffix); });
    if (found == names.end()) continue;
    return not_found(fmt::format("{} has no {}, only {}: {}", folder.string(), kSingleFile,
                                 readable(*found), what));
  }
  return not_found(
      fmt::format("{} has neither {} nor {}; download the weights, or where a command has "
                  "--load-format, pass dummy to run without them",
                  folder.string(), kSingleFile, kIndexFile));
}

}  // namespace

Result<CheckpointFiles> CheckpointFiles::open(const std::filesystem::path& folder) {
  HEDDLE_ASSIGN_OR_RETURN(const bool exists, file_exists(folder));
  std::error_code error;
  if (!exists || !std::filesystem::is_directory(folder, error)) {
    return not_found(fmt::format("there is no folder {}", folder.string()));
  }
  CheckpointFiles files;
  files.folder_ = folder;
  HEDDLE_ASSIGN_OR_RETURN(const bool has_single, file_exists(folder / kSingleFile));
  if (has_single) {
    HEDDLE_RETURN_IF_ERROR(files.add_file(std::string(kSingleFile)));
    return files;
  }
  HEDDLE_ASSIGN_OR_RETURN(const bool has_index, file_exists(folder / kIndexFile));
  if (!has_index) return missing_weights(folder);
  HEDDLE_RETURN_IF_ERROR(files.add_shards(folder / kIndexFile));
  if (!files.tensors_in_several_.empty()) files.notes_.push_back(files.name_twins());
  return files;
}

std::string CheckpointFiles::unread_files() const {
  std::vector<std::string> unread;
  const Result<std::vector<std::string>> names = names_in_folder(folder_);
  if (!names.ok()) return {};
  for (const std::string& name : *names) {
    const bool is_weights = name.ends_with(".safetensors") || name == kIndexFile;
    const bool is_read = std::ranges::find(file_names_, name) != file_names_.end() ||
                         (name == kIndexFile && file_names_.front() != kSingleFile);
    if (is_weights && !is_read) unread.push_back(readable(name));
  }
  if (unread.empty()) return {};
  constexpr size_t kMostNames = 5;
  const size_t others = unread.size() - std::min(unread.size(), kMostNames);
  unread.resize(unread.size() - others);
  return fmt::format("{}: the weights are read from {}; not read: {}{}", folder_.string(),
                     file_names_.front() == kSingleFile ? kSingleFile : kIndexFile,
                     fmt::join(unread, ", "),
                     others > 0 ? fmt::format(" and {} more", others) : std::string());
}

Status CheckpointFiles::add_file(std::string name) {
  HEDDLE_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::open(folder_ / name));
  const size_t index = files_.size();
  files_.push_back(std::move(file));
  file_names_.push_back(std::move(name));
  locations_.reserve(locations_.size() + files_.back().tensors().size());
  for (const TensorEntry& entry : files_.back().tensors()) {
    const auto [found, added] = locations_.insert_or_assign(entry.name, Location{index, &entry});
    if (!added) tensors_in_several_.insert(found->first);
  }
  return ok_status();
}

std::string CheckpointFiles::name_twins() const {
  const std::string_view first = *tensors_in_several_.begin();
  std::vector<std::string> names;
  for (size_t i = 0; i < files_.size(); ++i) {
    if (files_[i].find(first) != nullptr) names.push_back(readable(file_names_[i]));
  }
  return fmt::format(
      "{}: {} of the tensors are in several shards; the last one counts. The first of them, {}, is "
      "in {}; that of {} is used",
      folder_.string(), tensors_in_several_.size(), readable(first), fmt::join(names, " and "),
      names.back());
}

Status CheckpointFiles::add_shards(const std::filesystem::path& index_path) {
  HEDDLE_ASSIGN_OR_RETURN(const std::string text, read_text_file(index_path, kMaxHeaderBytes));
  Result<std::vector<IndexEntry>> parsed = parse_index(text);
  if (!parsed.ok()) {
    return with_remedy(parsed.status(), kDownloadAgain).with_context(index_path.string());
  }
  const std::vector<IndexEntry>& entries = *parsed;

  std::map<std::string_view, size_t> shards;  // sorted, so that files are opened in the order of
                                              // their names
  for (const IndexEntry& entry : entries) shards.emplace(entry.file, 0);
  for (const auto& [shard, file] : shards) {
    HEDDLE_ASSIGN_OR_RETURN(const bool exists, file_exists(folder_ / shard));
    if (!exists) {
      const auto user = std::find_if(entries.begin(), entries.end(),
                                     [&](const IndexEntry& entry) { return entry.file == shard; });
      return not_found(
          fmt::format("{}: shard {}, which should hold tensor {}, is missing; download "
                      "it again",
                      index_path.string(), readable(shard), readable(user->tensor)));
    }
  }
  for (auto& [shard, file] : shards) {
    file = files_.size();
    HEDDLE_RETURN_IF_ERROR(add_file(std::string(shard)));
  }

  // As in transformers, the index decides which files are read, and the files decide which tensors
  // they contain.
  const auto is_elsewhere = [&](const IndexEntry& entry) {
    const size_t file = shards.at(entry.file);
    const auto found = locations_.find(entry.tensor);
    if (found != locations_.end() && found->second.file == file) return false;
    return files_[file].find(entry.tensor) == nullptr;
  };
  const auto first = std::ranges::find_if(entries, is_elsewhere);
  if (first == entries.end()) return ok_status();
  const auto found = locations_.find(first->tensor);
  notes_.push_back(fmt::format(
      "{}: {} of the tensors are not where it says; the shards are used as they are. It has tensor "
      "{} in {}, where {} has it",
      index_path.string(), std::ranges::count_if(entries, is_elsewhere), readable(first->tensor),
      readable(first->file),
      found == locations_.end() ? "no shard" : readable(file_names_[found->second.file])));
  return ok_status();
}

const TensorEntry* CheckpointFiles::entry(std::string_view name) const {
  const auto found = locations_.find(name);
  return found == locations_.end() ? nullptr : found->second.entry;
}

std::optional<StoredWeight> CheckpointFiles::find(const WeightRequest& request) const {
  const auto found = locations_.find(request.name);
  if (found == locations_.end()) return std::nullopt;
  const TensorEntry& entry = *found->second.entry;
  return StoredWeight{.name = entry.name,
                      .stored_dtype = entry.stored_dtype,
                      .dtype = entry.dtype,
                      .shape = entry.shape,
                      .data = files_[found->second.file].bytes(entry).data()};
}

std::vector<std::string_view> CheckpointFiles::names() const {
  std::vector<std::string_view> names;
  names.reserve(locations_.size());
  for (const auto& [name, location] : locations_) names.emplace_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

int64_t CheckpointFiles::num_bytes() const {
  int64_t bytes = 0;
  for (const auto& [name, location] : locations_) {
    bytes += location.entry->end - location.entry->begin;
  }
  return bytes;
}

void CheckpointFiles::read(const StoredWeight& weight, int64_t first, int64_t count, DType dtype,
                           void* target) const {
  const auto* bytes = static_cast<const std::byte*>(weight.data);
  convert_elements(bytes + bytes_of(*weight.dtype, first), *weight.dtype, target, dtype, count);
}

}  // namespace heddle::checkpoint
