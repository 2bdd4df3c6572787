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

// A longer header is refused; the largest published checkpoints stay below 15 MB.
inline constexpr int64_t kMaxHeaderBytes = 100'000'000;

struct TensorEntry {
  std::string name;
  std::string_view stored_dtype;  // as the file spells it: "BF16", "F8_E4M3", "BOOL"
  std::optional<DType> dtype;     // none where Heddle has no such number format (F64, BOOL, ...)
  Shape shape;
  int64_t begin = 0;  // byte range within the data
  int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<TensorEntry> tensors;  // sorted by name, names unique
  std::map<std::string, std::string> metadata;
  int64_t data_offset = 0;  // where the data begins in the file
};

// Reads the header from the first bytes of a file of `file_size` bytes: all of them, or at least
// the length and the header. Error: kDataLoss, naming the tensor, the value and the limit it
// breaks. Cost: 76,000 tensors in 0.06 s.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> bytes,
                                                   int64_t file_size);

// One mapped file. Entries and data stay where they are until the file is destroyed, also when the
// object is moved.
//
// Threading: thread-compatible.
class SafetensorsFile {
 public:
  // Error: as MappedFile::open and parse_safetensors_header, with the path before the message.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);

  // Cost: O(log tensors). Null when there is none.
  [[nodiscard]] const TensorEntry* find(std::string_view name) const;

  [[nodiscard]] std::span<const TensorEntry> tensors() const { return header_.tensors; }

  [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
    return header_.metadata;
  }

  // The tensor's bytes in the mapping; not necessarily aligned. `entry` must be one of this file.
  [[nodiscard]] std::span<const std::byte> bytes(const TensorEntry& entry) const;

  // As a view. Error: kNotFound; kUnimplemented when Heddle has no such dtype.
  [[nodiscard]] Result<TensorView> view(std::string_view name) const;

 private:
  SafetensorsFile(MappedFile file, SafetensorsHeader header)
      : file_(std::move(file)), header_(std::move(header)) {}

  MappedFile file_;
  SafetensorsHeader header_;
};

struct NamedTensor {
  std::string name;
  TensorView tensor;  // dense
};

// Writes a file the way the format's own library does: widest elements first, then by name, data
// aligned to 64 bytes. Atomic: the file appears complete or not at all. Error: kInvalidArgument
// (duplicate name, strided view, 4-bit data), kDataLoss (disk full).
Status write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                         const std::map<std::string, std::string>& metadata = {});

// A tensor as another file spells it, in whatever number format.
struct StoredTensor {
  std::string name;
  std::string_view stored_dtype;
  Shape shape;
  std::span<const std::byte> bytes;
};

// Called often while a file is written, the last time with both numbers equal. A status that is not
// ok ends the writing, and write_stored_safetensors() returns it.
using WriteProgress = std::function<Status(int64_t done_bytes, int64_t total_bytes)>;

// As above, copying bytes unchanged; they are read once in order, so that a mapped file is never in
// memory as a whole.
Status write_stored_safetensors(const std::filesystem::path& path,
                                std::span<const StoredTensor> tensors,
                                const std::map<std::string, std::string>& metadata,
                                const WriteProgress& on_progress);

}  // namespace heddle::checkpoint
