// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "checkpoint/readable.h"
#include "checkpoint/safetensors.h"

namespace heddle::checkpoint {

namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

std::string_view stored_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBf16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kI64:
      return "I64";
    case DType::kI32:
      return "I32";
    case DType::kI8:
      return "I8";
    case DType::kU8:
      return "U8";
    case DType::kI4:
    case DType::kPacked:
      return "";  // the format has neither
  }
  return "";
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Widest elements first keeps every tensor aligned to its element.
Result<std::vector<const NamedTensor*>> in_file_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  for (const NamedTensor& named : tensors) {
    if (!named.tensor.dense()) {
      return invalid_argument(fmt::format("tensor {} is not dense", readable(named.name)));
    }
    if (stored_name(named.tensor.dtype).empty()) {
      return invalid_argument(fmt::format("tensor {} is {}, which the format cannot store",
                                          readable(named.name), to_string(named.tensor.dtype)));
    }
    order.push_back(&named);
  }
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    return std::pair(-bits_of(a->tensor.dtype), std::string_view(a->name)) <
           std::pair(-bits_of(b->tensor.dtype), std::string_view(b->name));
  });
  std::vector<std::string_view> names;
  for (const NamedTensor* named : order) names.emplace_back(named->name);
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) {
    return invalid_argument(fmt::format("tensor {} is given twice", readable(*twin)));
  }
  return order;
}

std::string header_text(const std::vector<const NamedTensor*>& order,
                        const std::map<std::string, std::string>& metadata) {
  constexpr size_t kDataAlignment = 64;
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      text += json_string(key) + ":" + json_string(value) + ",";
    }
    text.back() = '}';
    text += ',';
  }
  int64_t offset = 0;
  for (const NamedTensor* named : order) {
    const int64_t end = offset + named->tensor.num_bytes();
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
                        json_string(named->name), stored_name(named->tensor.dtype),
                        fmt::join(named->tensor.shape.dims(), ","), offset, end);
    offset = end;
  }
  if (text.size() > 1) text.pop_back();  // the last comma
  text += '}';
  while ((8 + text.size()) % kDataAlignment != 0) text += ' ';
  return text;
}

}  // namespace

Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<const NamedTensor*> order, in_file_order(tensors));
  const std::string header = header_text(order, metadata);
  if (header.size() > static_cast<size_t>(kMaxHeaderBytes)) {
    return invalid_argument(fmt::format("{} tensors need a header of {} bytes; at most {} fit",
                                        tensors.size(), header.size(), kMaxHeaderBytes));
  }

  std::filesystem::path temporary = path;
  temporary += fmt::format(".{}.tmp", ::getpid());
  std::error_code error;
  {
    std::ofstream file(temporary, std::ios::binary | std::ios::trunc);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file.write(header.data(), static_cast<std::streamsize>(header.size()));
    for (const NamedTensor* named : order) {
      file.write(static_cast<const char*>(named->tensor.data),
                 static_cast<std::streamsize>(named->tensor.num_bytes()));
    }
    file.close();
    if (!file) {
      std::filesystem::remove(temporary, error);
      return data_loss(fmt::format("cannot write {}: folder missing or disk full", path.string()));
    }
  }
  std::filesystem::rename(temporary, path, error);
  if (!error) return ok_status();
  const std::string reason = error.message();
  std::filesystem::remove(temporary, error);
  return data_loss(fmt::format("cannot write {}: {}", path.string(), reason));
}

}  // namespace heddle::checkpoint
