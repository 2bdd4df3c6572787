// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <bit>
#include <cerrno>
#include <system_error>

#include <fcntl.h>
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
      return "";  // the safetensors format has no name for these dtypes
  }
  return "";
}

std::string json_string(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Bits per element; 0 if the tensor has no elements.
int64_t element_bits(const StoredTensor& tensor) {
  const int64_t num_elements = tensor.shape.num_elements();
  return num_elements == 0 ? 0 : std::ssize(tensor.bytes) * 8 / num_elements;
}

Result<std::vector<StoredTensor>> as_stored(std::span<const NamedTensor> tensors) {
  std::vector<StoredTensor> stored;
  for (const NamedTensor& named : tensors) {
    if (!named.tensor.dense()) {
      return invalid_argument(fmt::format("tensor {} is not dense", readable(named.name)));
    }
    if (stored_name(named.tensor.dtype).empty()) {
      return invalid_argument(fmt::format("tensor {} is {}, which the format cannot store",
                                          readable(named.name), to_string(named.tensor.dtype)));
    }
    stored.push_back({.name = named.name,
                      .stored_dtype = stored_name(named.tensor.dtype),
                      .shape = named.tensor.shape,
                      .bytes = {static_cast<const std::byte*>(named.tensor.data),
                                static_cast<size_t>(named.tensor.num_bytes())}});
  }
  return stored;
}

// The order in which tensors are written: widest elements first, so that every tensor is aligned to
// its elements.
Result<std::vector<const StoredTensor*>> in_file_order(std::span<const StoredTensor> tensors) {
  std::vector<const StoredTensor*> order;
  std::vector<std::string_view> names;
  for (const StoredTensor& tensor : tensors) {
    order.push_back(&tensor);
    names.emplace_back(tensor.name);
  }
  std::sort(order.begin(), order.end(), [](const StoredTensor* a, const StoredTensor* b) {
    return std::pair(-element_bits(*a), std::string_view(a->name)) <
           std::pair(-element_bits(*b), std::string_view(b->name));
  });
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end()) {
    return invalid_argument(fmt::format("tensor {} is given twice", readable(*twin)));
  }
  return order;
}

std::string header_text(const std::vector<const StoredTensor*>& order,
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
  for (const StoredTensor* tensor : order) {
    const int64_t end = offset + std::ssize(tensor->bytes);
    text += fmt::format("{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}},",
                        json_string(tensor->name), tensor->stored_dtype,
                        fmt::join(tensor->shape.dims(), ","), offset, end);
    offset = end;
  }
  if (text.size() > 1) text.pop_back();  // removes the comma after the last JSON member
  text += '}';
  while ((8 + text.size()) % kDataAlignment != 0) text += ' ';
  return text;
}

// A file that is being written. It remembers why a write failed.
class OutputFile {
 public:
  explicit OutputFile(const std::filesystem::path& path)
      : descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
    if (descriptor_ < 0) error_ = errno;
  }

  ~OutputFile() { close(); }

  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;

  // Returns false from the first failure on.
  bool write(std::span<const std::byte> bytes) {
    while (error_ == 0 && !bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written >= 0) {
        bytes = bytes.subspan(static_cast<size_t>(written));
      } else if (errno != EINTR) {
        error_ = errno;
      }
    }
    return error_ == 0;
  }

  // Some file systems report a full disk only at this point.
  bool close() {
    if (descriptor_ >= 0 && ::close(descriptor_) != 0 && error_ == 0) error_ = errno;
    descriptor_ = -1;
    return error_ == 0;
  }

  [[nodiscard]] std::string reason() const { return std::generic_category().message(error_); }

 private:
  int descriptor_;
  int error_ = 0;
};

Status write_data(OutputFile& file, const std::vector<const StoredTensor*>& order,
                  const WriteProgress& on_progress) {
  constexpr size_t kChunkBytes = size_t{16} << 20;  // large enough for disk throughput, small
                                                    // enough for a smooth progress bar
  int64_t total = 0;
  for (const StoredTensor* tensor : order) total += std::ssize(tensor->bytes);
  int64_t done = 0;
  for (const StoredTensor* tensor : order) {
    for (std::span<const std::byte> rest = tensor->bytes; !rest.empty();) {
      const auto chunk = rest.first(std::min(kChunkBytes, rest.size()));
      if (!file.write(chunk)) return data_loss(file.reason());
      rest = rest.subspan(chunk.size());
      done += std::ssize(chunk);
      if (on_progress) HEDDLE_RETURN_IF_ERROR(on_progress(done, total));
    }
  }
  return ok_status();
}

Status write_file(const std::filesystem::path& path, const std::string& header,
                  const std::vector<const StoredTensor*>& order, const WriteProgress& on_progress) {
  OutputFile file(path);
  const uint64_t length = header.size();
  file.write(std::as_bytes(std::span(&length, 1)));
  if (!file.write(std::as_bytes(std::span(header)))) return data_loss(file.reason());
  HEDDLE_RETURN_IF_ERROR(write_data(file, order, on_progress));
  return file.close() ? ok_status() : data_loss(file.reason());
}

}  // namespace

Status write_stored_safetensors(const std::filesystem::path& path,
                                std::span<const StoredTensor> tensors,
                                const std::map<std::string, std::string>& metadata,
                                const WriteProgress& on_progress) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<const StoredTensor*> order, in_file_order(tensors));
  const std::string header = header_text(order, metadata);
  if (header.size() > static_cast<size_t>(kMaxHeaderBytes)) {
    return invalid_argument(fmt::format("{} tensors need a header of {} bytes; at most {} fit",
                                        tensors.size(), header.size(), kMaxHeaderBytes));
  }
  std::filesystem::path temporary = path;
  temporary += fmt::format(".{}.tmp", ::getpid());
  std::error_code error;
  if (Status status = write_file(temporary, header, order, on_progress); !status.ok()) {
    std::filesystem::remove(temporary, error);
    return status.with_context(fmt::format("cannot write {}", path.string()));
  }
  std::filesystem::rename(temporary, path, error);
  if (!error) return ok_status();
  const std::string reason = error.message();
  std::filesystem::remove(temporary, error);
  return data_loss(fmt::format("cannot write {}: {}", path.string(), reason));
}

Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata) {
  HEDDLE_ASSIGN_OR_RETURN(const std::vector<StoredTensor> stored, as_stored(tensors));
  return write_stored_safetensors(path, stored, metadata, {});
}

}  // namespace heddle::checkpoint
