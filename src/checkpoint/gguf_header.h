// SPDX-License-Identifier: Apache-2.0
// The GGUF format, versions 2 and 3, little-endian:
//
//     "GGUF", u32 version, u64 tensors, u64 entries of metadata
//     entries: string key, u32 type of the value, the value
//     tensors: string name, u32 rank, u64 dimensions (fastest first), u32 type, u64 offset
//     data from the next multiple of general.alignment (32) on; offsets are counted from there
//
// A string is a u64 length and bytes; an array a u32 type, a u64 count and values. Version 1 had
// 32-bit counts.
//
// A file is untrusted: every count, length and offset is checked against what is left of the file
// before it is used. Values stay where they are in the file, so that no claim of a file allocates
// more than a small multiple of the bytes it takes to make it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <heddle/status.h>

#include "core/tensor.h"
#include "quant/block_formats.h"

namespace heddle::checkpoint {

// How a file stores the numbers of a tensor.
struct GgufType {
  uint32_t id = 0;
  std::string_view name;  // llama.cpp's name of the type: "Q4_K"
  quant::BlockSize block;
  std::optional<DType> dtype;              // for plain numbers: the dtype as which Heddle reads
                                           // them
  std::optional<quant::BlockType> blocks;  // for block formats: the block type as which Heddle
                                           // reads them
};

// The type with this id; null if the GGUF format does not define one.
[[nodiscard]] const GgufType* find_gguf_type(uint32_t id);

enum class GgufValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

struct GgufValue {
  GgufValueType type = GgufValueType::kU8;  // an array has the type of its elements
  bool is_array = false;
  uint64_t count = 1;                // number of elements; 1 for a value that is not an array
  std::span<const std::byte> bytes;  // the elements one after the other, as stored
};

// The metadata of a file by key. Getters return none for an absent key. Error: kDataLoss, naming
// key and value, for a value of another type or out of range.
class GgufMetadata {
 public:
  [[nodiscard]] bool has(std::string_view key) const { return values_.contains(key); }

  Result<std::optional<std::string_view>> text(std::string_view key) const;
  // accepts all integer types, 8 to 64 bits, signed and unsigned
  Result<std::optional<int64_t>> integer(std::string_view key) const;
  // accepts floating-point and integer types
  Result<std::optional<double>> number(std::string_view key) const;
  Result<std::optional<bool>> boolean(std::string_view key) const;

  // The strings of an array; a single string counts as an array of one.
  Result<std::optional<std::vector<std::string_view>>> texts(std::string_view key) const;
  Result<std::optional<std::vector<int64_t>>> integers(std::string_view key) const;
  Result<std::optional<std::vector<double>>> numbers(std::string_view key) const;
  Result<std::optional<std::vector<bool>>> booleans(std::string_view key) const;

  [[nodiscard]] const std::map<std::string_view, GgufValue>& values() const { return values_; }

 private:
  friend class GgufParser;

  [[nodiscard]] const GgufValue* find(std::string_view key) const;

  std::map<std::string_view, GgufValue> values_;
};

struct GgufTensor {
  std::string_view name;
  const GgufType* type = nullptr;
  Shape shape;        // dimensions, slowest first (the reverse of the file's order): rows, columns
  int64_t begin = 0;  // byte range within the data
  int64_t end = 0;
};

struct GgufHeader {
  GgufMetadata metadata;
  std::vector<GgufTensor> tensors;  // sorted by name, names unique
  int64_t data_offset = 0;          // byte offset in the file at which the tensors' data begins
};

// Reads the header of a whole file; the result points into `file`. Error: kDataLoss, naming the
// key or tensor, the value and the limit it breaks; kUnimplemented for version 1, a big-endian
// file and a type that the format does not have.
Result<GgufHeader> parse_gguf_header(std::span<const std::byte> file);

}  // namespace heddle::checkpoint
