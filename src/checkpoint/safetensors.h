// SPDX-License-Identifier: Apache-2.0
// The safetensors format: u64 little-endian header length, a JSON header, raw little-endian data.
//     {"name": {"dtype": "BF16", "shape": [3, 64], "data_offsets": [begin, end]}, "__metadata__":
//     {...}}
// Tensors lie end to end in the data, without holes, in any order.
//
// A file is untrusted: every number is checked against the file's size before it is used, so that
// no file can make the reader crash, read outside the mapping or allocate more than a small
// multiple of its own size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "checkpoint/mapped_file.h"
#include "core/tensor.h"

namespace heddle::checkpoint {

// The longest JSON header that is read, in bytes; the largest published checkpoints have less than
// 15 MB.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

struct TensorEntry {
  std::string name;
  std::string_view stored_dtype;  // dtype as the file spells it: "BF16", "F8_E4M3", "BOOL"
  std::optional<DType> dtype;     // none if Heddle does not have this number format (F64, BOOL,
                                  // ...)
  Shape shape;
  int64_t begin = 0;  // byte offsets of the tensor's first byte and past its last one, within the
                      // data
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // sorted by name, names unique
  std::map<std::string, std::string> metadata;
  int64_t data_offset = 0;  // byte offset in the file at which the tensors' data begins
};

// Parses the header of a file of `file_size` bytes. `bytes` is the file's beginning and contains at
// least the length field and the header. Error: kDataLoss, naming the tensor, the value and the
// limit it breaks. Cost: 76,000 tensors in 0.06 s.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> bytes,
                                                   int64_t file_size);

// One mapped file. Addresses of entries and data stay valid until the file is destroyed, even if
// the object is moved.
//
// Threading: thread-compatible.
class SafetensorsFile {
 public:
  // Error: as MappedFile::open and parse_safetensors_header, with the path before the message.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  // The entry of a tensor; null if there is none. Cost: O(log tensors).
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;

  [[nodiscard]] std::span<const TensorEntry> tensors() const { return header_.tensors; }

  [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
    return header_.metadata;
  }

  // The tensor's bytes in the mapping, not necessarily aligned. `entry` must come from this file.
  [[nodiscard]] std::span<const std::byte> bytes(const TensorEntry& entry) const;

  // The tensor as a view. Error: kNotFound; kUnimplemented if Heddle does not have its dtype.
  [[nodiscard]] Result<TensorView> view(std::string_view name) const;

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}

  MappedFile file_;
  SafetensorsHeader header_;
};

struct NamedTensor {
  std::string name;
  TensorView tensor;  // the numbers to write; must be dense
};

// Writes a file the way the format's own library does: widest elements first, then by name, data
// aligned to 64 bytes. Atomic: the file appears complete or not at all. Error: kInvalidArgument
// (duplicate name, strided view, 4-bit data), kDataLoss (disk full).
Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

// A tensor that is copied without interpreting its numbers, so its dtype may be any of the
// format's.
struct StoredTensor {
  std::string name;
  std::string_view stored_dtype;
  Shape shape;
  std::span<const std::byte> bytes;
};

// Reports progress while a file is written. Called often; in the last call both numbers are equal.
// A status that is not ok ends the writing, and write_stored_safetensors() returns it.
using WriteProgress = std::function<Status(int64_t done_bytes, int64_t total_bytes)>;

// As write_safetensors(), but copies the tensors' bytes unchanged. They are read once, in order, so
// that a mapped file is never in memory as a whole.
Status write_stored_safetensors(const std::filesystem::path& path,
                                std::span<const StoredTensor> tensors,
                                const std::map<std::string, std::string>& metadata,
                                const WriteProgress& on_progress);

}  // namespace heddle::checkpoint
