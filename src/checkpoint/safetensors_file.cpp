// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include <fmt/format.h>

#include "checkpoint/readable.h"
#include "checkpoint/safetensors.h"

namespace heddle::checkpoint {

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  HEDDLE_ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
  Result<SafetensorsHeader> header =
      parse_safetensors_header(file.bytes(), static_cast<int64_t>(file.bytes().size()));
  if (!header.ok()) return header.status().with_context(path.string());
  return SafetensorsFile(std::move(file), std::move(header).value());
}

const TensorEntry* SafetensorsFile::find(std::string_view name) const {
  const auto found = std::lower_bound(
      header_.tensors.begin(), header_.tensors.end(), name,
      [](const TensorEntry& entry, std::string_view wanted) { return entry.name < wanted; });
  return found != header_.tensors.end() && found->name == name ? &*found : nullptr;
}

std::span<const std::byte> SafetensorsFile::bytes(const TensorEntry& entry) const {
  return file_.bytes().subspan(static_cast<size_t>(header_.data_offset + entry.begin),
                               static_cast<size_t>(entry.end - entry.begin));
}

Result<TensorView> SafetensorsFile::view(std::string_view name) const {
  const TensorEntry* const entry = find(name);
  if (entry == nullptr) return not_found(fmt::format("there is no tensor {}", readable(name)));
  if (!entry->dtype) {
    return unimplemented(fmt::format("tensor {} is stored as {}, which this build does not read",
                                     readable(name), entry->stored_dtype));
  }
  return TensorView(bytes(*entry).data(), *entry->dtype, entry->shape);
}

}  // namespace heddle::checkpoint
