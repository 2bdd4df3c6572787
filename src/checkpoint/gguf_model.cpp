// SPDX-License-Identifier: Apache-2.0
#include "checkpoint/gguf_model.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "checkpoint/readable.h"
#include "core/file_presence.h"
#include "core/remedy.h"

namespace heddle::checkpoint {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".gguf";
constexpr int64_t kMaxParts = 9999;

// The parts of a split file's name: NAME, 2 and 3 for "NAME-00002-of-00003.gguf".
struct PartName {
  std::string stem;
  int64_t number = 0;
  int64_t count = 0;

  [[nodiscard]] std::string file(int64_t part) const {
    return fmt::format("{}-{:05}-of-{:05}{}", stem, part, count, kEnding);
  }
};

std::optional<int64_t> five_digits(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<PartName> part_name(const std::string& name) {
  constexpr std::string_view kTail = "-00001-of-00001.gguf";
  if (name.size() <= kTail.size() || !name.ends_with(kEnding)) return std::nullopt;
  const size_t tail = name.size() - kTail.size();
  const std::string_view text(name);
  if (text[tail] != '-' || text.substr(tail + 6, 4) != "-of-") return std::nullopt;
  const std::optional<int64_t> number = five_digits(text.substr(tail + 1, 5));
  const std::optional<int64_t> count = five_digits(text.substr(tail + 10, 5));
  if (!number || !count || *number < 1 || *number > *count) return std::nullopt;
  return PartName{.stem = name.substr(0, tail), .number = *number, .count = *count};
}

fs::path first_part(const fs::path& path) {
  const std::optional<PartName> part = part_name(path.filename().string());
  return part ? path.parent_path() / part->file(1) : path;
}

// The format's name for a value of general.file_type whose tensors are served.
std::string_view name_of_file_type(int64_t type) {
  switch (type) {
    case 0:
      return "F32";
    case 1:
      return "F16";
    case 2:
      return "Q4_0";
    case 3:
      return "Q4_1";
    case 7:
      return "Q8_0";
    case 8:
      return "Q5_0";
    case 9:
      return "Q5_1";
    case 14:
      return "Q4_K_S";
    case 15:
      return "Q4_K_M";
    case 16:
      return "Q5_K_S";
    case 17:
      return "Q5_K_M";
    case 18:
      return "Q6_K";
    case 32:
      return "BF16";
    case 38:
      return "MXFP4";
    default:
      return {};
  }
}

}  // namespace

std::string gguf_model_name(const fs::path& path) {
  const std::string name = path.filename().string();
  if (const std::optional<PartName> part = part_name(name)) return part->stem;
  return name.ends_with(kEnding) ? name.substr(0, name.size() - kEnding.size()) : name;
}

Result<std::optional<fs::path>> find_gguf(const fs::path& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    if (path.extension() != kEnding || !fs::exists(path, error)) return std::optional<fs::path>();
    return std::optional<fs::path>(first_part(path));
  }
  const Result<std::vector<std::string>> names = names_in_folder(path);
  if (!names.ok())
    return std::optional<fs::path>();  // the code that reads the folder reports the
                                       // error
  std::vector<fs::path> models;
  for (const std::string& name : *names) {
    if (name.ends_with(".safetensors") || name.ends_with(".safetensors.index.json")) {
      return std::optional<fs::path>();
    }
    if (!name.ends_with(kEnding) || name.find("mmproj") != std::string::npos) continue;
    fs::path model = first_part(path / name);
    if (std::ranges::find(models, model) == models.end()) models.push_back(std::move(model));
  }
  if (models.empty()) return std::optional<fs::path>();
  if (models.size() == 1) return std::optional<fs::path>(models.front());
  return invalid_argument(
      fmt::format("{} has {} GGUF models, among them {} and {}; name the file of one of them",
                  path.string(), models.size(), readable(models[0].filename().string()),
                  readable(models[1].filename().string())));
}

Result<GgufModel> GgufModel::open(const fs::path& path) {
  GgufModel model;
  model.path_ = path;
  HEDDLE_RETURN_IF_ERROR(model.add_part(path));
  HEDDLE_RETURN_IF_ERROR(model.add_other_parts().with_context(path.string()));
  return model;
}

Status GgufModel::add_part(const fs::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  Result<GgufHeader> header = parse_gguf_header(file.bytes());
  if (!header.ok()) return with_remedy(header.status(), kDownloadAgain).with_context(path.string());
  parts_.push_back({.file = std::move(file), .header = std::move(header).value()});
  const Part& part = parts_.back();
  for (const GgufTensor& tensor : part.header.tensors) {
    const Stored stored{.tensor = &tensor,
                        .data = part.file.bytes().data() + part.header.data_offset + tensor.begin};
    if (!tensors_.emplace(tensor.name, stored).second) {
      return data_loss(
          fmt::format("{}: tensor {} is in an earlier part of the model, too; download both again",
                      path.string(), readable(tensor.name)));
    }
  }
  return ok_status();
}

Status GgufModel::add_other_parts() {
  HEDDLE_ASSIGN_OR_RETURN(const auto stored_count, metadata().integer("split.count"));
  const int64_t count = stored_count.value_or(1);
  if (count < 0 || count > kMaxParts) {
    return data_loss(fmt::format("split.count is {}, outside 1 to {}; download the file again",
                                 count, kMaxParts));
  }
  if (count < 2) return ok_status();
  const std::optional<PartName> name = part_name(path_.filename().string());
  if (!name || name->number != 1 || name->count != count) {
    return invalid_argument(
        fmt::format("it is the first of {} parts, which are found by their names; call it "
                    "NAME-00001-of-{:05}.gguf, and the others likewise",
                    count, count));
  }
  for (int64_t part = 2; part <= count; ++part) {
    const fs::path other = path_.parent_path() / name->file(part);
    HEDDLE_ASSIGN_OR_RETURN(const bool exists, file_exists(other));
    if (!exists) {
      return not_found(
          fmt::format("part {} of {}, {}, is missing; download it into the same folder", part,
                      count, readable(other.filename().string())));
    }
    HEDDLE_RETURN_IF_ERROR(add_part(other));
    HEDDLE_ASSIGN_OR_RETURN(const auto number, parts_.back().header.metadata.integer("split.no"));
    if (number.value_or(-1) != part - 1) {
      return data_loss(fmt::format("{} says that it is part {} (split.no), its name part {}",
                                   readable(other.filename().string()), number.value_or(-1) + 1,
                                   part));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(const auto num_tensors, metadata().integer("split.tensors.count"));
  if (num_tensors && *num_tensors != static_cast<int64_t>(tensors_.size())) {
    return data_loss(
        fmt::format("split.tensors.count is {}, the {} parts have {} tensors; download them again",
                    *num_tensors, count, tensors_.size()));
  }
  return ok_status();
}

std::optional<GgufModel::Stored> GgufModel::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return std::nullopt;
  return found->second;
}

std::string GgufModel::quantization() const {
  const auto type = metadata().integer("general.file_type");
  const std::string_view known = type.ok() && *type ? name_of_file_type(**type) : "";
  if (!known.empty()) return std::string(known);
  std::map<std::string_view, int64_t> elements;
  for (const auto& [name, stored] : tensors_) {
    elements[stored.tensor->type->name] += stored.tensor->shape.num_elements();
  }
  const auto most =
      std::ranges::max_element(elements, {}, [](const auto& entry) { return entry.second; });
  return most == elements.end() ? std::string() : std::string(most->first);
}

std::vector<std::string_view> GgufModel::names() const {
  std::vector<std::string_view> names;
  names.reserve(tensors_.size());
  for (const auto& [name, stored] : tensors_) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

}  // namespace heddle::checkpoint
